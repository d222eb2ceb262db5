# SPDX-License-Identifier: Apache-2.0
"""What a plain host knows of an instance: the installer's state, the lock, and what preflight wants to know.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).

The state of an instance lies in ``/var/lib/karmada-installer/<instance>/``, readable for root only, and is the same on
all of its hosts after each run. Its ``serial`` grows with each writing, so that the newest is known and never replaced
by an older one, whichever hosts answer.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils.host_tree import HostError, System

STATE_FOLDER = "/var/lib/karmada-installer"
#: Locks are gone after a boot: who held one is, too.
LOCK_FOLDER = "/run/karmada-installer"
#: A holder that has said nothing for this long (seconds) is taken for dead.
LOCK_SILENCE = 600
SERIAL = "serial"
_LISTENING = "0A"


def read_state(system: System, instance: str) -> dict[str, Any]:
    """``{serial, files}`` with file name → base64; serial 0 and no files where there is none."""
    folder = system.path(f"{STATE_FOLDER}/{instance}")
    if not folder.is_dir():
        return {"serial": 0, "files": {}}
    files = {
        path.name: base64.b64encode(path.read_bytes()).decode()
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != SERIAL
    }
    return {"serial": _serial(folder), "files": files}


def write_state(system: System, instance: str, serial: int, files: dict[str, str], check: bool = False) -> bool:
    """Replace the state as a whole; returns whether it differed. Raises HostError if the host has a newer one."""
    present = read_state(system, instance)
    if present == {"serial": serial, "files": files}:
        return False
    if present["serial"] >= serial:
        raise HostError(
            f"the state of {instance} on this host has serial {present['serial']}, and {serial} was to be written: "
            "another run has been here; run again"
        )
    if check:
        return True
    folder = system.path(f"{STATE_FOLDER}/{instance}")
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{instance}."))
    for name, content in {**files, SERIAL: base64.b64encode(str(serial).encode()).decode()}.items():
        _write_private(fresh / name, base64.b64decode(content))
    # One folder cannot take the place of another in one step: the old one steps aside, and `recover` brings it back
    # should this be the moment at which the run is killed.
    aside = folder.with_name(f".{instance}.before")
    if aside.exists():
        shutil.rmtree(aside)
    if folder.exists():
        folder.rename(aside)
    fresh.rename(folder)
    if aside.exists():
        shutil.rmtree(aside)
    _sync(folder.parent)
    return True


def recover(system: System, instance: str) -> None:
    """Finish what a killed ``write_state`` began: halves go, and the state before them comes back if it is the last."""
    folder = system.path(f"{STATE_FOLDER}/{instance}")
    if not folder.parent.is_dir():
        return
    aside = folder.with_name(f".{instance}.before")
    if aside.exists() and not folder.exists():
        aside.rename(folder)
    for half in folder.parent.glob(f".{instance}.*"):
        shutil.rmtree(half)


def remove_state(system: System, instance: str, check: bool = False) -> bool:
    """Forget the instance. Returns whether there was anything."""
    folder = system.path(f"{STATE_FOLDER}/{instance}")
    if not folder.exists() or check:
        return folder.exists()
    shutil.rmtree(folder)
    if not any(folder.parent.iterdir()):
        folder.parent.rmdir()
    return True


class LockedError(HostError):
    """Another run works on the instance on this host."""

    def __init__(self, message: str, holder: str) -> None:
        self.holder = holder
        super().__init__(message)


def take_lock(system: System, instance: str, holder: str, dead: str = "", now: float | None = None) -> None:
    """Take or renew the lock of this host. ``dead`` is a holder that is known to have ended without letting go.

    Raises LockedError.
    """
    now = time.time() if now is None else now
    path = system.path(f"{LOCK_FOLDER}/{instance}.lock")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = _lock(path)
    if found and found["holder"] not in (holder, dead) and now - found["renewed"] < LOCK_SILENCE:
        raise LockedError(
            f"{found['holder']} is working on {instance} (last seen {now - found['renewed']:.0f} s ago); wait for it "
            f"to end, or, if it is certain that it is dead, remove {LOCK_FOLDER}/{instance}.lock on this host",
            found["holder"],
        )
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    _write_private(temporary, json.dumps({"holder": holder, "renewed": now}).encode())
    temporary.rename(path)


def release_lock(system: System, instance: str, holder: str) -> None:
    """Let go of the lock if this holder has it."""
    path = system.path(f"{LOCK_FOLDER}/{instance}.lock")
    found = _lock(path)
    if found and found["holder"] == holder:
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()


def read_files(system: System, folder: str) -> dict[str, str]:
    """Path → base64 of every file below a folder."""
    return {
        f"/{path.relative_to(system.root)}": base64.b64encode(path.read_bytes()).decode()
        for path in sorted(system.path(folder).rglob("*"))
        if path.is_file()
    }


def facts(system: System, address: str, folders: list[str]) -> dict[str, Any]:
    """What preflight wants to know of the host: the machine, its clock, its ports and its free space (bytes)."""
    return {
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "systemd": _systemd_version(system),
        "time": time.time(),
        "selinux_enforcing": _is_one(system.path("/sys/fs/selinux/enforce")),
        "has_address": _can_bind(address),
        "listening": _listening(),
        "free": {folder: _free(system.path(folder)) for folder in folders},
        "missing_programs": [name for name in ("systemctl", "useradd", "userdel") if not shutil.which(name)],
    }


def _lock(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
        return {"holder": str(found["holder"]), "renewed": float(found["renewed"])}
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError):
        # Half a lock is nobody's: it is renamed into its place whole.
        return None


def _serial(folder: Path) -> int:
    try:
        return int((folder / SERIAL).read_text())
    except (OSError, ValueError) as error:
        raise HostError(f"{folder} is damaged ({error}); restore it from another host of this control plane") from error


def _write_private(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _systemd_version(system: System) -> int:
    """The number of the version; 0 where systemd is not what runs this machine."""
    if not system.path("/run/systemd/system").is_dir():
        return 0
    try:
        return int("".join(filter(str.isdigit, system.command("systemctl", "--version").split()[1].split(".")[0])))
    except (HostError, IndexError, ValueError):
        return 0


def _is_one(path: Path) -> bool:
    try:
        return path.read_text().strip() == "1"
    except OSError:
        return False


def _can_bind(address: str) -> bool:
    """Whether the address is one of this machine's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _listening() -> dict[str, str]:
    """TCP port (as text, for JSON) → the control group of a process that listens on it, empty where it is not known."""
    ports = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in (line.split() for line in lines):
            if fields[3] == _LISTENING:
                ports[fields[9]] = str(int(fields[1].rsplit(":", 1)[1], 16))
    owners = _owners(set(ports))
    return {port: owners.get(inode, "") for inode, port in ports.items()}


def _owners(inodes: set[str]) -> dict[str, str]:
    """Socket inode → control group of the process that has it open, which names its unit."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = [os.readlink(each) for each in (process / "fd").iterdir()]  # noqa: PTH115 - not paths
            group = (process / "cgroup").read_text().strip().rsplit(":", 1)[-1]
        except OSError:
            continue  # it has ended meanwhile
        for link in links:
            if link.startswith("socket:[") and link[8:-1] in inodes:
                found[link[8:-1]] = group
    return found


def _free(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
