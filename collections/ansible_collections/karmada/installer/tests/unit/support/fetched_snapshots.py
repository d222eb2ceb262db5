# SPDX-License-Identifier: Apache-2.0
"""Database of a member on a host, which its connection copies here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ansible_collections.karmada.installer.plugins.action import etcd_snapshot
from ansible_collections.karmada.installer.tests.unit.plugins.module_utils.test_host_lock_asked import Asking
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs

CONTENT = b"database" * 1000


class Fetching(Asking):
    """The step on a host whose connection copies the file that its module has written; root there may do otherwise."""

    def __init__(self, runs: Runs, *, told: int = len(CONTENT), content: bytes = CONTENT, check: bool = False) -> None:
        super().__init__(etcd_snapshot.ActionModule, runs, check=check)
        self.answer = {"changed": False, "path": "/etc/shadow", "size": told, "acknowledged": 70}
        self.gone: dict[str, Any] = {"changed": False}
        self.told: list[str] = []
        self.action.karmada.say = self.told.append
        self.content = content
        self.fetched: list[str] = []
        self.action._play_context = SimpleNamespace(remote_user="admin")
        self.action._connection = SimpleNamespace(get_option=lambda _name: None, fetch_file=self._fetch)
        self.action._low_level_execute_command = self._said
        self.logs_in = {"rc": 0, "stdout": "somebody\n"}

    def _fetch(self, remote: str, local: str) -> None:
        self.fetched.append(remote)
        Path(local).write_bytes(self.content)

    def _said(self, command: str, *, sudoable: bool) -> dict[str, Any]:
        assert (command, sudoable) == ("id -un", False)
        return self.logs_in

    def _execute(self, *, module_name: str, module_args: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        found: dict[str, Any] = super()._execute(module_name=module_name, module_args=module_args, task_vars=task_vars)
        return self.gone if module_args["state"] == "absent" else found

    def states(self) -> list[str]:
        return [each["state"] for each in self.asked]
