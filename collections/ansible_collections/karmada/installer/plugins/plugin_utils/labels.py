# SPDX-License-Identifier: Apache-2.0
"""Labels of our objects, and the field manager under which we write them."""

from __future__ import annotations

FIELD_MANAGER = "karmada-installer"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
INSTANCE_LABEL = "app.kubernetes.io/instance"
NAME_LABEL = "app.kubernetes.io/name"
OWNER_LABEL = "installer.karmada.io/owner"
MEMBER_LABEL = "installer.karmada.io/member"
