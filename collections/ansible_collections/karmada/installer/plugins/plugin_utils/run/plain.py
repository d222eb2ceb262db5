# SPDX-License-Identifier: Apache-2.0
"""Plain data out of what Ansible wraps."""

from __future__ import annotations

import json
from typing import Any


def plain(value: Any) -> Any:
    """The same without the tags that Ansible's strings carry, which serializers do not know."""
    return json.loads(json.dumps(value))
