# SPDX-License-Identifier: Apache-2.0
"""Plain host as our modules see it: its paths, programs, users, and systemd units.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).
"""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

HASH_VARIABLE = "KARMADA_CONFIG_HASH"
UNIT_FOLDER = "/etc/systemd/system"
#: Data that a boot removes: locks, and notes on reloads.
RUN_FOLDER = "/run/karmada-installer"
_PROPERTIES = (
    *("Id", "LoadState", "ActiveState", "SubState", "Result", "UnitFileState"),
    *("NeedDaemonReload", "MainPID", "NRestarts", "ExecMainStatus", "InvocationID", "Job"),
)


class HostError(Exception):
    """Problem of this host that stops the work. The message is for people."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the operating system, such as a full disk, into a HostError that names this path."""
    try:
        yield
    except OSError as error:
        raise HostError(f"{path} cannot be written: {error.strerror or error}") from error


class System:
    """Access to the host. Tests replace ``root`` and ``command``."""

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def path(self, path: str) -> Path:
        """Real path of a path of the tree."""
        return Path(self.root, path.lstrip("/"))

    def command(self, *arguments: str) -> str:
        """Run a program of the host; returns its output. Raises HostError with its error message."""
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
        """User and group id of a user; None if there is no such user."""
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            return None
        return [found.pw_uid, found.pw_gid]

    def user_comment(self, name: str) -> str | None:
        """Comment of a user; None if there is no such user."""
        try:
            return pwd.getpwnam(name).pw_gecos
        except KeyError:
            return None

    def started_with(self, process: int) -> str:
        """Hash that a process was started with; empty if it is gone, or not ours."""
        try:
            variables = Path("/proc", str(process), "environ").read_bytes().split(b"\0")
        except OSError:
            return ""
        prefix = HASH_VARIABLE.encode() + b"="
        return next((each[len(prefix) :].decode() for each in variables if each.startswith(prefix)), "")

    def program_of(self, process: int) -> str:
        """Path of the program that a process runs; empty if it is gone."""
        try:
            return os.readlink(f"/proc/{process}/exe").removesuffix(" (deleted)") if process else ""  # noqa: PTH115
        except OSError:
            return ""


class Unit(NamedTuple):
    """Status of a unit, from systemd and its process."""

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
    #: systemd is still stopping the old process or starting the new one
    in_transition: bool


def units(system: System, names: Iterable[str]) -> dict[str, Unit]:
    """Status of these units, by name."""
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


def wait_until_running(
    system: System, names: Iterable[str], timeout: float, meanwhile: Callable[[], object] = lambda: None
) -> None:
    """Wait until systemd has started these units, or one of them has ended again; at most ``timeout`` seconds.

    A unit of type ``notify`` runs once it says so itself. ``meanwhile`` is called before each look; it may raise.
    """
    deadline, names = time.monotonic() + timeout, list(names)
    began = {name: unit.restarts for name, unit in units(system, names).items()}
    while True:
        meanwhile()
        now = units(system, names)
        starting = any(unit.in_transition or unit.active == "activating" for unit in now.values())
        ended = any(unit.restarts > began[name] for name, unit in now.items())
        if not starting or ended or time.monotonic() > deadline:
            return
        time.sleep(0.1)


def read(path: Path) -> bytes | None:
    """Content of a file; None if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def reload_note(system: System, name: str) -> Path:
    """File that notes the hash that a unit has reloaded, with the invocation of the unit."""
    return system.path(f"{RUN_FOLDER}/{name}.reloaded")


def _reloaded_with(system: System, name: str, invocation: str) -> str:
    """Hash that this process of a unit reloaded last; empty if it has reloaded none."""
    noted = (read(reload_note(system, name)) or b"").decode(errors="replace").split()
    return noted[1] if invocation and len(noted) == 2 and noted[0] == invocation else ""
