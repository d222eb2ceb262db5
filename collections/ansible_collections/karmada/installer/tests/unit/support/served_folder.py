# SPDX-License-Identifier: Apache-2.0
"""A folder of backups that is served by a process of its own, started with the command of a pod, and clients of it."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import RECORD
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.remote_folder import RemoteFolder, Wire
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.targets import FolderTarget
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.render import backup_claim

TOKEN = "t0ken"


def broken(why: str) -> ProblemsError:
    return ProblemsError(Problem(f"it breaks: {why}", "the claim", reason=Reason.BACKUP_TARGET_UNUSABLE))


@dataclass
class Served:
    """``port`` of loopback is where it is served."""

    process: subprocess.Popen[str]
    port: int
    said: list[str] = field(default_factory=list)

    def dial(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))

    def folder(self, dial: Callable[[], Wire] | None = None, token: str = TOKEN) -> RemoteFolder:
        return RemoteFolder(dial or self.dial, token, broken, self.said.append)

    def target(self, dial: Callable[[], Wire] | None = None, where: str = "claim") -> FolderTarget:
        return FolderTarget("prod", where, self.folder(dial), "let them read and write it")

    def token_is_nowhere(self) -> bool:
        """Whether nothing that others may see of the process tells the token."""
        seen = [Path(f"/proc/{self.process.pid}/{each}").read_bytes() for each in ("cmdline", "environ")]
        return not any(TOKEN.encode() in each for each in seen)


def started(command: Sequence[str]) -> Served:
    """Start the command of a pod's container, and wait until it serves."""
    process = subprocess.Popen([sys.executable, *command[1:]], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    return Served(process, int(process.stdout.readline().split()[1]))


def ended(served: Served) -> None:
    served.process.kill()
    served.process.communicate()


@contextmanager
def serving(root: Path, below: str = "prod", *more: str) -> Iterator[Served]:
    """``more``: seconds without a connection after which it ends."""
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    found = started(["python3", "-I", "-c", backup_claim.script(), str(root), below, RECORD, "0", digest, *more])
    try:
        yield found
    finally:
        ended(found)
