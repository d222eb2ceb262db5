# SPDX-License-Identifier: Apache-2.0
"""A plain host as our modules see it: its paths, programs, users, and the units that systemd has.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

HASH_VARIABLE = "KARMADA_CONFIG_HASH"
UNIT_FOLDER = "/etc/systemd/system"
#: What is forgotten with a boot: locks, and what was reloaded.
RUN_FOLDER = "/run/karmada-installer"
_PROPERTIES = (
    *("Id", "LoadState", "ActiveState", "SubState", "Result", "UnitFileState"),
    *("NeedDaemonReload", "MainPID", "NRestarts", "ExecMainStatus", "InvocationID", "Job"),
)


class HostError(Exception):
    """Something on this host keeps the work from being done. The message is for people."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the operating system refuses meanwhile, such as a full disk, is said of this path. Raises HostError."""
    try:
        yield
    except OSError as error:
        raise HostError(f"{path} cannot be written: {error.strerror or error}") from error


class System:
    """What this module needs of the host. Tests give it another ``root`` and another ``command``."""

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def path(self, path: str) -> Path:
        """Where a path of the tree is."""
        return Path(self.root, path.lstrip("/"))

    def command(self, *arguments: str) -> str:
        """Run a program of the host; returns what it prints. Raises HostError with what it complains of."""
        environment = {**os.environ, "LC_ALL": "C", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
        try:
            done = subprocess.run(
                arguments, check=False, capture_output=True, text=True, errors="replace", env=environment
            )
        except OSError as error:
            raise HostError(f"{arguments[0]} cannot be run: {error.strerror}") from error
        if done.returncode:
            raise HostError(f"{' '.join(arguments)} failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def user_ids(self, name: str) -> list[int] | None:
        """User and group number of a user; None if there is no such user."""
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            return None
        return [found.pw_uid, found.pw_gid]

    def user_comment(self, name: str) -> str | None:
        """The comment of a user; None if there is no such user."""
        try:
            return pwd.getpwnam(name).pw_gecos
        except KeyError:
            return None

    def started_with(self, process: int) -> str:
        """The hash that a process was started with; empty for one that is gone or that is not of ours."""
        try:
            variables = Path("/proc", str(process), "environ").read_bytes().split(b"\0")
        except OSError:
            return ""
        prefix = HASH_VARIABLE.encode() + b"="
        return next((each[len(prefix) :].decode() for each in variables if each.startswith(prefix)), "")

    def program_of(self, process: int) -> str:
        """The path of the program that a process runs; empty for one that is gone."""
        try:
            return os.readlink(f"/proc/{process}/exe").removesuffix(" (deleted)") if process else ""  # noqa: PTH115
        except OSError:
            return ""


class Unit(NamedTuple):
    """A unit as systemd and its process tell of it."""

    name: str
    known: bool
    active: str
    detail: str
    enabled: bool
    outdated_file: bool
    started_with: str
    invocation: str
    restarts: int
    process: int
    #: systemd still has something to do with it: end the old process, or start the new one
    in_transition: bool


def units(system: System, names: Iterable[str]) -> dict[str, Unit]:
    """How these units are."""
    names = list(names)
    if not names:
        return {}
    text = system.command("systemctl", "show", "--property=" + ",".join(_PROPERTIES), "--", *names)
    found = {}
    for name, block in zip(names, text.strip("\n").split("\n\n")):  # noqa: B905 - `strict` is newer than some hosts' Python
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        process = int(values.get("MainPID") or 0)
        found[name] = Unit(
            name=name,
            known=values.get("LoadState") not in ("not-found", None),
            active=values.get("ActiveState", ""),
            detail="{} ({}), result {}, last exit {}".format(
                *(values.get(key, "?") for key in ("ActiveState", "SubState", "Result", "ExecMainStatus"))
            ),
            enabled=values.get("UnitFileState") == "enabled",
            outdated_file=values.get("NeedDaemonReload") == "yes",
            started_with=_reloaded_with(system, name, values.get("InvocationID", ""))
            or (system.started_with(process) if process else ""),
            invocation=values.get("InvocationID", ""),
            restarts=int(values.get("NRestarts") or 0),
            process=process,
            in_transition=values.get("Job", "0") not in ("", "0"),
        )
    return found


def read(path: Path) -> bytes | None:
    """The content of a file; None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def reload_note(system: System, name: str) -> Path:
    """Where it stands what a unit took by a reload, and in which of its lives."""
    return system.path(f"{RUN_FOLDER}/{name}.reloaded")


def _reloaded_with(system: System, name: str, invocation: str) -> str:
    """The hash of what this process of a unit took last by a reload; empty if it took nothing."""
    noted = (read(reload_note(system, name)) or b"").decode(errors="replace").split()
    return noted[1] if invocation and len(noted) == 2 and noted[0] == invocation else ""
