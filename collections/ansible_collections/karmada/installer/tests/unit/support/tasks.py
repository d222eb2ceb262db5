# SPDX-License-Identifier: Apache-2.0
"""Tasks as actions see them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def task(action: str, role: str = "", file: str = "main", **more: Any) -> Any:
    """Task that calls an action of ours, in a file of tasks of a role, or in a playbook without one."""
    path = f"/x/roles/{role}/tasks/{file}.yml:5" if role else "/x/playbooks/install.yml:5"
    known = {"args": {}, "check_mode": False, "diff": False, "async_val": 0, "delegate_to": None, "name": "the step"}
    return SimpleNamespace(
        action=f"karmada.installer.{action}",
        _role=SimpleNamespace(get_name=lambda **_: role) if role else None,
        get_path=lambda: path,
        **{**known, **more},
    )
