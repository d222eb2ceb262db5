# SPDX-License-Identifier: Apache-2.0
"""A plain host in a directory, with a systemd of its own, and a tree for it."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils import host_system, host_tree
from ansible_collections.karmada.installer.plugins.module_utils.host_tree import Tree

OWNER = "5f0c3f0e-54a1-4a53-b7de-4ffb0a7c7a51"
UNIT = "karmada-prod-scheduler.service"
USER = "karmada-prod-scheduler"
FOLDER = "/etc/karmada/prod/karmada-scheduler"


class Host(host_system.System):
    """A host with a systemd that does what it is told. Restarted units run with the hash that is in their file."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.users: dict[str, str] = {"root": ""}
        self.loaded: dict[str, str] = {}
        self.running: dict[str, str] = {}
        self.enabled: set[str] = set()
        self.commands: list[str] = []
        self.restarts: dict[str, int] = {}
        self.invocations: dict[str, str] = {}
        #: how many more looks find a unit that systemd has not done with
        self.looks_in_transition = 0
        (root / "etc/systemd/system").mkdir(parents=True)

    def user_ids(self, name: str) -> list[int] | None:
        return [os.getuid(), os.getgid()] if name in self.users else None

    def user_comment(self, name: str) -> str | None:
        return self.users.get(name)

    def started_with(self, process: int) -> str:
        return list(self.running.values())[process - 1]

    def unit_file(self, name: str) -> Path:
        return self.path(f"/etc/systemd/system/{name}")

    def command(self, *arguments: str) -> str:
        words = list(arguments)
        self.commands.append(" ".join(words))
        names = words[words.index("--") + 1 :] if "--" in words else []
        if words[0] == "useradd":
            self.users[words[-1]] = words[words.index("--comment") + 1]
        elif words[0] == "userdel":
            del self.users[words[-1]]
        elif words[0] == "journalctl":
            return "panic: no configuration\n"
        elif words[1] == "show":
            return "\n\n".join(self._shown(name) for name in names)
        elif words[1] == "daemon-reload":
            units = self.path("/etc/systemd/system").glob("*.service")
            self.loaded = {path.name: path.read_text() for path in units}
        elif words[1] == "enable":
            self.enabled.update(names)
        elif words[1] == "disable":
            self.enabled.difference_update(names)
            for name in names:
                self.running.pop(name, None)
        elif words[1] == "reload" and not set(names) <= self.running.keys():
            raise host_system.HostError("reload is not applicable")
        elif words[1] == "restart":
            for name in names:
                text = self.loaded[name]
                self.invocations[name] = f"{name}-{len(self.commands)}"
                self.running[name] = text.split(f"{host_system.HASH_VARIABLE}=")[1].split('"')[0]
        return ""

    def _job(self) -> str:
        self.looks_in_transition -= 1
        return "4711" if self.looks_in_transition >= 0 else ""

    def _shown(self, name: str) -> str:
        path = self.unit_file(name)
        outdated = name in self.loaded and path.exists() and path.read_text() != self.loaded[name]
        return "\n".join(
            (
                f"Id={name}",
                f"LoadState={'loaded' if name in self.loaded else 'not-found'}",
                f"ActiveState={'active' if name in self.running else 'inactive'}",
                "SubState=running",
                "Result=success",
                "ExecMainStatus=0",
                f"UnitFileState={'enabled' if name in self.enabled else 'disabled'}",
                f"NeedDaemonReload={'yes' if outdated else 'no'}",
                f"MainPID={list(self.running).index(name) + 1 if name in self.running else 0}",
                f"InvocationID={self.invocations.get(name, '')}",
                f"NRestarts={self.restarts.get(name, 0)}",
                f"Job={self._job()}",
            )
        )


def file(path: str, content: str, *, secret: bool = False, mode: int = 0o600) -> dict[str, Any]:
    encoded = base64.b64encode(content.encode()).decode()
    return {"path": path, "content": encoded, "user": "root", "mode": mode, "secret": secret}


NOTHING: dict[str, list[Any]] = {"units": [], "folders": [], "users": []}


def tree(digest: str = "aaa", url: str = "", **files: str) -> Tree:
    unit = f'[Unit]\nX-KarmadaOwner={OWNER}\n[Service]\nEnvironment="{host_system.HASH_VARIABLE}={digest}"\n'
    return {
        "owner": OWNER,
        "users": [{"name": USER, "home": "/nonexistent", "comment": f"Karmada prod {OWNER}"}],
        "directories": [
            *({"path": path, "user": "root", "mode": 0o755} for path in ("/etc/karmada", "/etc/karmada/prod")),
            {"path": FOLDER, "user": USER, "mode": 0o700},
        ],
        "files": [
            *(file(f"{FOLDER}/{name}", content, secret=name == "key") for name, content in files.items()),
            file(f"/etc/systemd/system/{UNIT}", unit, mode=0o644),
        ],
        "folders": [FOLDER],
        "data_folders": [],
        "units": [{"name": UNIT, "hash": digest, "health": {"url": url, "authority": ""} if url else None}],
        "absent": NOTHING,
    }


def said(changes: list[host_tree.Change]) -> list[str]:
    return [change.what for change in changes]
