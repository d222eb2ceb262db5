# SPDX-License-Identifier: Apache-2.0
"""Names in the inventory by which steps find what they work on; the inventory plugin makes them."""

from __future__ import annotations

#: The host that knows the document.
CONTROL = "karmada_control"
#: The group of all plain hosts of the document, and that of all members.
HOSTS, MEMBERS = "karmada_hosts", "karmada_members"
