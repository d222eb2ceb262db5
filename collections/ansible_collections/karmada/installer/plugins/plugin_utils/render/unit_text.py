# SPDX-License-Identifier: Apache-2.0
"""The text of systemd units: how words and limits are written in it, and what no unit of ours may do. No I/O."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from ..kube.objects import quantity

#: What no component needs, taken away from all of them. `systemd-analyze security` explains each. Not ProcSubset=pid:
#: Go reads the length of the queue of a listening socket below /proc/sys, and would take 128.
HARDENING: Mapping[str, str] = {
    "AmbientCapabilities": "",
    "CapabilityBoundingSet": "",
    "DevicePolicy": "closed",
    "KeyringMode": "private",
    "LockPersonality": "yes",
    "MemoryDenyWriteExecute": "yes",
    "NoNewPrivileges": "yes",
    "PrivateDevices": "yes",
    "PrivateTmp": "yes",
    "PrivateUsers": "yes",
    "ProtectClock": "yes",
    "ProtectControlGroups": "yes",
    "ProtectHome": "yes",
    "ProtectHostname": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectProc": "invisible",
    "ProtectSystem": "strict",
    "RemoveIPC": "yes",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "SystemCallArchitectures": "native",
    "SystemCallErrorNumber": "EPERM",
    "UMask": "0077",
}
#: The second line takes away from what the first allows.
SYSTEM_CALLS = ("@system-service", "~@privileged @resources")


#: Where the dynamic loader and libraries are, on systems that have them in one tree and on others. A program is looked
#: up there by nobody; one that lies there all the same is not started by a shell, because there is none.
_LIBRARIES = ("-/lib", "-/lib64", "-/usr/lib", "-/usr/lib64")


def execution(programs: Iterable[str]) -> list[tuple[str, str]]:
    """Lines of the section Service by which a process may execute these programs and nothing else that it reads,
    fetches or is told to run. systemd has this from 248 on; an older one passes over it.
    """
    # A program that is not there is told by the start in better words.
    return [("NoExecPaths", "/"), ("ExecPaths", " ".join((*(f"-{each}" for each in programs), *_LIBRARIES)))]


def unit_file(sections: Mapping[str, Iterable[tuple[str, str]]]) -> str:
    """The text of a unit; a key may stand in it more than once."""
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in entries) for name, entries in sections.items()
    )


def argument(text: str) -> str:
    """One word of a command line (``ExecStart=``), in which systemd replaces ``$`` and ``%`` (systemd.service(5)).

    Raises ValueError for a text that no argument of a program can be.
    """
    return _quoted(text.replace("$", "$$"))


def environment(name: str, value: str) -> str:
    """One variable of ``Environment=``, in which ``%`` is replaced and ``$`` stands for itself (systemd.exec(5)).

    Raises ValueError for a text that no variable can hold.
    """
    return _quoted(f"{name}={value}")


def _quoted(text: str) -> str:
    """One word in quotes, on one line: systemd ends a line at LF, CR and NUL, others also at what Unicode calls one.

    Any character can be given by its number, but for NUL, which ends a text for the kernel.
    """
    if "\0" in text:
        raise ValueError("a text with the character NUL in it cannot be given to a program")
    return '"' + "".join(map(_escaped, text)).replace("%", "%%") + '"'


def _escaped(character: str) -> str:
    if character in '\\"':
        return f"\\{character}"
    if unicodedata.category(character) in ("Cc", "Zl", "Zp"):
        # \x is a byte, and \u a character: below 0x80 that is one.
        return f"\\x{ord(character):02x}" if ord(character) < 0x80 else f"\\u{ord(character):04x}"
    return character


def shares(resources: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Requests and limits in the units of systemd. A request is a share under pressure, as it is for a pod."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    entries = []
    if "cpu" in requests:
        # A core is a weight of 100, which is what a unit without a request has.
        weight = _whole(_amount(requests["cpu"]) * 100)
        entries.append(("CPUWeight", str(min(max(weight, 1), 10000))))
    if "cpu" in limits:
        entries.append(("CPUQuota", f"{_whole(_amount(limits['cpu']) * 100)}%"))
    if "memory" in requests:
        entries.append(("MemoryLow", str(_whole(_amount(requests["memory"])))))
    if "memory" in limits:
        entries.append(("MemoryMax", str(_whole(_amount(limits["memory"])))))
    return entries


def _amount(text: Any) -> Decimal:
    found = quantity(text)
    if found is None:
        raise ValueError(f"{text!r} is not a quantity")
    return found


def _whole(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_CEILING))
