# SPDX-License-Identifier: Apache-2.0
"""Documents as a person writes them, for tests of what the engine makes of them."""

from __future__ import annotations

import copy
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest

HEAD = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND, "metadata": {"name": "prod"}}


def document(**spec: Any) -> dict[str, Any]:
    return {**copy.deepcopy(HEAD), "spec": spec}
