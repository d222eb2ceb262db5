# SPDX-License-Identifier: Apache-2.0
"""The text of systemd units: how words and limits are written in it, and what no unit of ours may do. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.objects import quantity

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


def unit_file(sections: Mapping[str, Iterable[tuple[str, str]]]) -> str:
    """The text of a unit; a key may stand in it more than once."""
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in entries) for name, entries in sections.items()
    )


def quoted(argument: str) -> str:
    """One word of a unit file: systemd expands ``%`` and ``$``, and reads quotes and backslashes."""
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return '"' + escaped.replace("%", "%%").replace("$", "$$") + '"'


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
