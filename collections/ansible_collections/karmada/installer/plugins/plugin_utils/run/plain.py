# SPDX-License-Identifier: Apache-2.0
"""Conversion of Ansible's wrapped values to plain data."""

from __future__ import annotations

import json
from typing import Any


def plain(value: Any) -> Any:
    """Copy of a value without the tags on Ansible's strings, which serializers do not know."""
    return json.loads(json.dumps(value))
