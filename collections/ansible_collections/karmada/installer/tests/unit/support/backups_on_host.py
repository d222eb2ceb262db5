# SPDX-License-Identifier: Apache-2.0
"""A plain host in a directory that has backups: its module is a call, and files come and go by copies."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils import host_backup
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System
from ansible_collections.karmada.installer.plugins.modules import _backup_folder
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.host_folder import HostTarget
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import HostEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import HostDirectory
from ansible_collections.karmada.installer.plugins.plugin_utils.run.delegated_host import DelegatedHost
from ansible_collections.karmada.installer.tests.unit.support.tasks import task

USER = "ops"
#: Options of the module that have defaults.
DEFAULTS = {
    **dict.fromkeys(("name", "file", "attempt", "content", "staged"), ""),
    **dict.fromkeys(("size", "offset", "length"), 0),
    "last": False,
    "reader": "root",
}


class Machine(System):
    """System of a host whose user who logs in is the one of this process."""

    def user_ids(self, name: str) -> list[int] | None:
        return [os.getuid(), os.getgid()] if name == USER else None


class HostOfBackups:
    """A host with all of its files below ``root``. ``answer``, if set, is what it says instead of the truth.

    ``asked`` are the questions, and ``moved`` the files that came and went, each by its path there.
    """

    def __init__(self, root: Path, name: str = "etcd1") -> None:
        self.machine, self.name = Machine(str(root)), name
        self.asked: list[dict[str, Any]] = []
        self.moved: list[str] = []
        self.answer: Callable[[dict[str, Any]], Any] | None = None
        self.path("/var/lib").mkdir(parents=True, exist_ok=True)

    def path(self, path: str) -> Path:
        """Path there as one of this machine."""
        return self.machine.path(path)

    @property
    def left(self) -> list[Path]:
        """What is under way, or was left there."""
        folder = self.path(host_backup.FOLDER)
        return list(folder.iterdir()) if folder.exists() else []

    def execute(self, *, module_name: str, module_args: dict[str, Any], task_vars: Any) -> Any:
        """Answer to a module, as Ansible gives it: nothing but what JSON can say."""
        del task_vars
        assert module_name == "karmada.installer._backup_folder"
        self.asked.append(module_args)
        if self.answer is not None and (told := self.answer(module_args)) is not None:
            return told
        return self.honest(module_args)

    def honest(self, asked: dict[str, Any]) -> Any:
        """What its module does."""
        try:
            found = _backup_folder._perform(self.machine, {**DEFAULTS, **asked})
        except HostError as error:
            return {"failed": True, "msg": str(error)}
        return json.loads(json.dumps({"changed": False, **found}))

    def put_file(self, here: str, there: str) -> None:
        """As SFTP writes a file: into the one that is there."""
        self.moved.append(there)
        assert self.path(there).stat().st_mode & 0o777 == 0o600
        with Path(here).open("rb") as source, self.path(there).open("r+b") as sink:
            shutil.copyfileobj(source, sink)

    def fetch_file(self, there: str, here: str) -> None:
        """As SFTP reads a file."""
        self.moved.append(there)
        assert self.path(there).stat().st_mode & 0o777 == 0o600
        shutil.copyfile(self.path(there), here)

    def delegated(self) -> DelegatedHost:
        """The host as a step that is delegated to it has it."""
        action: Any = SimpleNamespace(
            _task=task("backup", delegate_to=self.name),
            _connection=SimpleNamespace(
                get_option=lambda _name: USER, put_file=self.put_file, fetch_file=self.fetch_file
            ),
            _play_context=SimpleNamespace(remote_user=None),
            _execute_module=self.execute,
            variables={},
        )
        entry = HostEntry({"name": self.name, "address": "192.0.2.3", "roles": ["etcd"]})
        return DelegatedHost(action, entry, USER)

    def target(self, path: str = "/srv/backups", prefix: str = "site-a") -> HostTarget:
        """Target in a directory of it, of the control plane ``prod``."""
        return HostTarget("prod", HostDirectory(self.name, path, prefix), self.delegated())
