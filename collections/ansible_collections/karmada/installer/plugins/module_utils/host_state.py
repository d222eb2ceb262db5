# SPDX-License-Identifier: Apache-2.0
"""State of an instance on a plain host: the installer's state, and facts for preflight.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).

The state is in ``/var/lib/karmada-installer/<instance>/``, readable for root only. Hosts with an API server keep a
copy, the others of the control plane only its serial and digest. After each run all of them agree. If they do not, the
controller chooses the valid one (``state_on_hosts``).
"""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import ipaddress
import json
import os
import platform
import pwd
import re
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils.host_system import (
    UNIT_FOLDER,
    HostError,
    System,
    writing,
)
from ansible_collections.karmada.installer.plugins.module_utils.host_tree import OWNER_KEY

STATE_FOLDER = "/var/lib/karmada-installer"
#: Files beside those of the state: its serial, its digest if no copy is kept, the digests of its predecessors.
SERIAL, DIGEST, LINEAGE = "serial", "digest", "lineage"
#: Folder of the copy before this one.
PREVIOUS = "previous"
_LISTENING = "0A"
#: ioctl numbers of Linux.
_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B
#: Number of looks for a neighbour's answer, which takes milliseconds, and the seconds between them.
_NEIGHBOUR_LOOKS, _NEIGHBOUR_PAUSE = 6, 0.05


def digest_of(serial: int, files: dict[str, str]) -> str:
    """SHA-256 that identifies a state with its serial, from names and contents; ``files`` is name → base64."""
    content = json.dumps([serial, sorted(files.items())], separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def read_state(system: System, instance: str) -> dict[str, Any]:
    """State that this host keeps; serial 0 and no files if there is none.

    ``serial``; ``files`` with file name → base64, empty on a host that keeps no copy; ``digest`` of the state;
    ``lineage``, if recorded, the digests before it, newest first; ``previous``, ``{serial, files}`` of the copy before.
    """
    folder = system.path(f"{STATE_FOLDER}/{instance}")
    if not folder.is_dir():
        return {"serial": 0, "files": {}, "digest": "", "lineage": [], "previous": {"serial": 0, "files": {}}}
    serial, files = _copy_in(folder)
    told = _text(folder / DIGEST)
    before = _copy_in(folder / PREVIOUS) if (folder / PREVIOUS).is_dir() else (0, {})
    found = {
        "serial": serial,
        "files": files,
        "digest": told or digest_of(serial, files),
        "previous": {"serial": before[0], "files": before[1]},
    }
    # Earlier versions of this collection did not record it.
    return {**found, "lineage": _text(folder / LINEAGE).split()} if (folder / LINEAGE).exists() else found


def write_state(system: System, instance: str, wanted: dict[str, Any], expected: str, check: bool = False) -> bool:
    """Replace the state as a whole; returns whether it differed.

    ``wanted`` is ``{serial, files, digest, lineage}``, without files for a host that keeps no copy. ``expected`` is the
    digest that the run has read here: raises HostError if the state has another one by now.
    """
    present = read_state(system, instance)
    if present["digest"] == wanted["digest"] and bool(present["files"]) == bool(wanted["files"]):
        return False
    if present["digest"] not in (expected, wanted["digest"]):
        raise HostError(
            f"the state of {instance} on this host is not the one that this run has seen (serial {present['serial']}): "
            "another run has been here; run again"
        )
    if check:
        return True
    folder = system.path(f"{STATE_FOLDER}/{instance}")
    with writing(folder):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{instance}."))
        try:
            _write_copy(fresh, wanted["serial"], wanted["files"])
            _write_private(fresh / LINEAGE, "\n".join(wanted["lineage"]).encode())
            if not wanted["files"]:
                _write_private(fresh / DIGEST, wanted["digest"].encode())
            elif before := _predecessor(present, wanted):
                (fresh / PREVIOUS).mkdir(mode=0o700)
                _write_copy(fresh / PREVIOUS, before["serial"], before["files"])
        except BaseException:
            shutil.rmtree(fresh)
            raise
    # A folder cannot replace another one atomically: the old one is renamed, and `recover` restores it if the run is
    # killed at this moment.
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


def _predecessor(present: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any] | None:
    """Copy here that ``wanted`` directly follows: it may be needed until all hosts have the next one."""
    copies = [each for each in (present, present["previous"]) if each["files"]]
    found = {digest_of(each["serial"], each["files"]): each for each in copies}
    return found.get(wanted["lineage"][0]) if wanted["lineage"] else None


def _copy_in(folder: Path) -> tuple[int, dict[str, str]]:
    files = {
        path.name: base64.b64encode(path.read_bytes()).decode()
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name not in (SERIAL, DIGEST, LINEAGE)
    }
    return _serial(folder), files


def _write_copy(folder: Path, serial: int, files: dict[str, str]) -> None:
    for name, content in files.items():
        _write_private(folder / name, base64.b64decode(content))
    _write_private(folder / SERIAL, str(serial).encode())


def recover(system: System, instance: str) -> None:
    """Clean up after a killed ``write_state``: remove partial folders, and restore the old state if it is the last."""
    folder = system.path(f"{STATE_FOLDER}/{instance}")
    if not folder.parent.is_dir():
        return
    aside = folder.with_name(f".{instance}.before")
    if aside.exists() and not folder.exists():
        aside.rename(folder)
    for half in folder.parent.glob(f".{instance}.*"):
        shutil.rmtree(half)


def remove_state(system: System, instance: str, check: bool = False) -> bool:
    """Delete the state of the instance; returns whether there was one."""
    folder = system.path(f"{STATE_FOLDER}/{instance}")
    if not folder.exists() or check:
        return folder.exists()
    shutil.rmtree(folder)
    if not any(folder.parent.iterdir()):
        folder.parent.rmdir()
    return True


def read_files(system: System, folder: str) -> dict[str, str]:
    """Path → base64 of every file below a folder. Links are skipped: users of components may have created them."""
    found: dict[str, str] = {}
    top = system.path(folder)
    for parent, _folders, names, descriptor in os.fwalk(top) if top.is_dir() else ():
        for name in names:
            content = _regular(name, descriptor)
            if content is not None:
                found[f"/{Path(parent, name).relative_to(system.root)}"] = base64.b64encode(content).decode()
    return dict(sorted(found.items()))


def _regular(name: str, folder: int) -> bytes | None:
    """Content of a regular file in an open folder; None for anything else, and if it is gone."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
            return None
        raise
    with os.fdopen(descriptor, "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def facts(system: System, address: str, folders: list[str], virtual_ip: str = "") -> dict[str, Any]:
    """Facts of the host for preflight: the machine, its clock and network, units and users under our names.

    ``address`` is the host's in the document, ``virtual_ip`` that of the endpoint, if any. Sizes are in bytes, times in
    seconds since 1970. Facts that cannot be determined are empty.
    """
    interfaces = _interfaces(system)
    # The holder of the address would find the neighbour that had it before.
    asks = virtual_ip and not any(_carries(each, virtual_ip) for each in interfaces)
    return {
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "systemd": _systemd_version(system),
        "machine_id": _text(system.path("/etc/machine-id")),
        "boot_id": _text(system.path("/proc/sys/kernel/random/boot_id")),
        "boot_time": _number(r"^btime (\d+)", system.path("/proc/stat")),
        "memory": _number(r"^MemTotal:\s+(\d+) kB", system.path("/proc/meminfo")) * 1024,
        "selinux_enforcing": _text(system.path("/sys/fs/selinux/enforce")) == "1",
        "apparmor_profiles": _enforced_profiles(system.path("/sys/kernel/security/apparmor/profiles")),
        "has_address": _can_bind(address),
        "interface": next((each["name"] for each in interfaces if _carries(each, address)), ""),
        "interfaces": interfaces,
        "virtual_ip_at": _neighbour(system, virtual_ip) if asks else "",
        "listening": _listening(),
        "free": {folder: _free(system.path(folder)) for folder in folders},
        "devices": {folder: _there(system.path(folder)).stat().st_dev for folder in folders},
        "units": _units(system.path(UNIT_FOLDER)),
        "users": {user.pw_name: user.pw_gecos for user in pwd.getpwall() if user.pw_name.startswith("karmada-")},
        "missing_programs": [name for name in ("systemctl", "useradd", "userdel") if not shutil.which(name)],
        # Last, so that it is read as close as possible to the arrival of the answer.
        "time": time.time(),
    }


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
    """Number of systemd's version; 0 if this machine does not run systemd."""
    if not system.path("/run/systemd/system").is_dir():
        return 0
    try:
        return int("".join(filter(str.isdigit, system.command("systemctl", "--version").split()[1].split(".")[0])))
    except (HostError, IndexError, ValueError):
        return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(pattern: str, path: Path) -> int:
    found = re.search(pattern, _text(path), re.MULTILINE)
    return int(found[1]) if found else 0


def _enforced_profiles(path: Path) -> list[str]:
    """Names of the AppArmor profiles that are enforced."""
    return re.findall(r"^(.+) \(enforce\)$", _text(path), re.MULTILINE)


def _units(folder: Path) -> dict[str, dict[str, str]]:
    """Unit with a name like ours → its owner and description; each empty without such a line."""
    found = {}
    for path in sorted(folder.glob("karmada-*.*")):
        lines = dict(line.partition("=")[::2] for line in _text(path).splitlines() if "=" in line)
        found[path.name] = {"owner": lines.get(OWNER_KEY, ""), "description": lines.get("Description", "")}
    return found


def _interfaces(system: System) -> list[dict[str, Any]]:
    """Network interfaces: ``name``, ``mac`` and ``addresses`` with their prefix lengths (``192.0.2.1/24``)."""
    try:
        found = json.loads(system.command("ip", "-json", "address", "show"))
        return [
            {
                "name": each["ifname"],
                "mac": each.get("address", ""),
                "addresses": [f"{one['local']}/{one['prefixlen']}" for one in each["addr_info"] if "local" in one],
            }
            for each in found
            if "ifname" in each
        ]
    except (HostError, KeyError, ValueError):
        return _interfaces_of_the_kernel()


def _interfaces_of_the_kernel() -> list[dict[str, Any]]:
    """Network interfaces without iproute2; of IPv4 only the first address of each."""
    of_ipv6: dict[str, list[str]] = {}
    for fields in (line.split() for line in _text(Path("/proc/net/if_inet6")).splitlines()):
        address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0]))
        of_ipv6.setdefault(fields[5], []).append(f"{address}/{int(fields[2], 16)}")
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _index, name in socket.if_nameindex():
            addresses = []
            try:
                request = name.encode().ljust(256, b"\0")
                # The request is the name of the interface; the answer has a sockaddr behind it.
                answers = (fcntl.ioctl(asked, each, request)[20:24] for each in (_SIOCGIFADDR, _SIOCGIFNETMASK))
                with_mask = "/".join(map(socket.inet_ntoa, answers))
                addresses = [ipaddress.ip_interface(with_mask).with_prefixlen]
            except OSError:
                pass  # no IPv4 address
            mac = _text(Path("/sys/class/net", name, "address"))
            found.append({"name": name, "mac": mac, "addresses": addresses + of_ipv6.get(name, [])})
    return found


def _carries(interface: dict[str, Any], address: str) -> bool:
    return any(
        ipaddress.ip_interface(each).ip == ipaddress.ip_address(address) for each in interface["addresses"] if address
    )


def _neighbour(system: System, address: str) -> str:
    """Hardware address of the neighbour that holds this address; empty if none answers."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Any datagram makes the kernel resolve the address. Port 9 is the discard service.
            probe.sendto(b"", (address, 9))
    except OSError:
        return ""
    for _attempt in range(_NEIGHBOUR_LOOKS):
        try:
            found = json.loads(system.command("ip", "-json", "neighbour", "show", "to", address) or "[]")
        except (HostError, ValueError):
            return ""
        # No stale entries, of neighbours that may be gone.
        answered = [each["lladdr"] for each in found if "lladdr" in each and "REACHABLE" in each.get("state", ())]
        if answered:
            return str(answered[0])
        time.sleep(_NEIGHBOUR_PAUSE)
    return ""


def _can_bind(address: str) -> bool:
    """Return whether this machine has the address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _listening() -> list[dict[str, Any]]:
    """Listening TCP sockets: ``address``, ``port`` and the control ``group`` of a process that has it, if known."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for fields in (line.split() for line in _text(Path(table)).splitlines()[1:]):
            if fields[3] == _LISTENING:
                address, port = fields[1].split(":")
                found.append((_address(address), int(port, 16), fields[9]))
    groups = _owners({inode for _address, _port, inode in found})
    return [
        {"address": address, "port": port, "group": groups.get(inode, "")} for address, port, inode in sorted(found)
    ]


def _address(hexadecimal: str) -> str:
    """Address in the kernel's hexadecimal form: words of four bytes, each in the byte order of this machine."""
    raw = bytes.fromhex(hexadecimal)
    if sys.byteorder == "little":
        raw = b"".join(raw[start : start + 4][::-1] for start in range(0, len(raw), 4))
    return str(ipaddress.ip_address(raw))


def _owners(inodes: set[str]) -> dict[str, str]:
    """Socket inode → control group of the process that has it open, which names its unit."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            ours = inodes.intersection(_sockets(process))
            if ours:
                found.update(dict.fromkeys(ours, (process / "cgroup").read_text().strip().rsplit(":", 1)[-1]))
        except OSError:
            continue  # the process has ended
    return found


def _sockets(process: Path) -> Iterator[str]:
    """Inodes of the sockets that a process has open."""
    for descriptor in os.scandir(process / "fd"):
        try:
            target = os.readlink(descriptor.path)  # noqa: PTH115 - not a path
        except OSError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            yield target[8:-1]


def _free(path: Path) -> int:
    return shutil.disk_usage(_there(path)).free


def _there(path: Path) -> Path:
    """Nearest parent folder that exists."""
    while not path.exists():
        path = path.parent
    return path
