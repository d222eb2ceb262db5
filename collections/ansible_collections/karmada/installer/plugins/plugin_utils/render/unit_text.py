# SPDX-License-Identifier: Apache-2.0
"""Text of systemd units: quoting, resource limits, and the restrictions of all our units. No I/O."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from ..encoding import unfit_for_systemd
from ..kube.objects import quantity

#: Restrictions for all units, as no component needs these rights. `systemd-analyze security` explains each. Not
#: ProcSubset=pid: Go reads the backlog of a listening socket below /proc/sys, and would fall back to 128.
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
#: The second entry removes calls from those that the first allows.
SYSTEM_CALLS = ("@system-service", "~@privileged @resources")


#: Directories of the dynamic loader and libraries, on merged and unmerged systems. They are not in the search path, and
#: a program that is there all the same cannot be started by a shell, because there is none.
_LIBRARIES = ("-/lib", "-/lib64", "-/usr/lib", "-/usr/lib64")


def execution(programs: Iterable[str]) -> list[tuple[str, str]]:
    """Lines of the section Service that let a process execute only these programs, and nothing else that it reads,
    fetches or is told to run. Needs systemd 248; older versions ignore them.
    """
    # If a program is missing, the error of its start says so more clearly.
    return [("NoExecPaths", "/"), ("ExecPaths", " ".join((*(f"-{each}" for each in programs), *_LIBRARIES)))]


def unit_file(sections: Mapping[str, Iterable[tuple[str, str]]]) -> str:
    """Text of a unit; a key may occur more than once."""
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in entries) for name, entries in sections.items()
    )


def argument(text: str) -> str:
    """Quoted word of a command line (``ExecStart=``), in which systemd replaces ``$`` and ``%`` (systemd.service(5)).

    Raises ValueError for a text that cannot be an argument.
    """
    return _quoted(text.replace("$", "$$"))


def environment(name: str, value: str) -> str:
    """Quoted variable of ``Environment=``, in which ``%`` is replaced and ``$`` is literal (systemd.exec(5)).

    Raises ValueError for a text that cannot be in a variable.
    """
    return _quoted(f"{name}={value}")


def _quoted(text: str) -> str:
    """Quoted word on one line: systemd ends a line at LF, CR and NUL, other parsers also at Unicode line separators.

    Any character can be escaped by number except those that are in no word of a unit.
    """
    if unfit := unfit_for_systemd(text):
        raise ValueError(f"a text with the character {unfit} in it cannot be given to a program by systemd")
    return '"' + "".join(map(_escaped, text)).replace("%", "%%") + '"'


def _escaped(character: str) -> str:
    if character in '\\"':
        return f"\\{character}"
    if unicodedata.category(character) in ("Cc", "Zl", "Zp"):
        # \x is a byte, and \u a character: below 0x80 they are equal.
        return f"\\x{ord(character):02x}" if ord(character) < 0x80 else f"\\u{ord(character):04x}"
    return character


def shares(resources: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Requests and limits in the units of systemd. As for pods, a request is a share under pressure."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    entries = []
    if "cpu" in requests:
        # A core is a weight of 100, the default of a unit.
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
