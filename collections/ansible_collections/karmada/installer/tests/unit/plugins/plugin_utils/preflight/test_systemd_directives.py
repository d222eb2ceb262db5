# SPDX-License-Identifier: Apache-2.0
"""Units need no newer systemd than preflight asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME, ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import host_checks
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.tests.unit.support.host_facts import instance

#: Directives that every systemd has that anybody still runs.
_OLD = (
    *("Description", "Documentation", "After", "Wants", "Type", "User", "Group", "Environment", "ExecStart"),
    *("Restart", "RestartSec", "TimeoutStartSec", "TimeoutStopSec", "LimitNOFILE", "WantedBy", "SuccessExitStatus"),
    *("CapabilityBoundingSet", "SystemCallFilter", "DevicePolicy", "NoNewPrivileges", "PrivateDevices"),
    *("PrivateTmp", "ProtectHome", "ProtectSystem", "SystemCallArchitectures", "SystemCallErrorNumber"),
    *("UMask", "RestrictAddressFamilies", "CPUQuota"),
)
#: The first version of systemd with each directive of our units, by its NEWS and manual.
SINCE: Mapping[str, int] = {
    **dict.fromkeys(_OLD, 229),
    "AmbientCapabilities": 229,
    "StartLimitIntervalSec": 230,
    "MemoryLow": 231,
    "MemoryMax": 231,
    "MemoryDenyWriteExecute": 231,
    "ReadWritePaths": 231,
    "RestrictRealtime": 231,
    "CPUWeight": 232,
    "PrivateUsers": 232,
    "ProtectControlGroups": 232,
    "ProtectKernelModules": 232,
    "ProtectKernelTunables": 232,
    "RemoveIPC": 232,
    "RestrictNamespaces": 233,
    "KeyringMode": 235,
    "LockPersonality": 235,
    "ProtectHostname": 242,
    "RestrictSUIDSGID": 242,
    "ProtectKernelLogs": 244,
    "ProtectClock": 245,
    "ProtectProc": 247,
}
#: What an older systemd passes over with a word in its journal, and may.
PASSED_OVER = {"NoExecPaths": 248, "ExecPaths": 248}
#: The same for values that are younger than their directive.
VALUES_SINCE: Mapping[str, int] = {
    "Type=exec": 240,
    "SystemCallFilter=@system-service": 239,
    "ProtectSystem=strict": 232,
}


def directives() -> Iterable[str]:
    resources = {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "1Gi"}}
    of = instance(
        components={
            "etcd": {"local": {"resources": resources}},
            "karmadaScheduler": {"resources": resources},
        }
    )
    host = component_hosts.all_hosts(of.spec)[0]
    for name in (ETCD.name, "karmada-scheduler"):
        text = units.component_unit(of, BY_NAME[name], units.layout(of, host, BY_NAME[name], ""), "digest")
        yield from (line for line in text.replace("\\\n", "").splitlines() if "=" in line)


def test_units_need_no_newer_systemd_than_preflight_asks_for() -> None:
    used = {line.partition("=")[0] for line in directives()}
    # systemd passes over names that begin with X-.
    versions = [SINCE[name] for name in used - set(PASSED_OVER) if not name.startswith("X-")]
    versions += [VALUES_SINCE[line] for line in directives() if line in VALUES_SINCE]
    assert max(versions) == host_checks.OLDEST_SYSTEMD
