# SPDX-License-Identifier: Apache-2.0
"""Hosts as preflight has seen them, and changes to what was seen."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.instance import Instance
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import host_checks
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight.host_checks import MIB
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.tests.unit.support import observations
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    OWNER,
    TOKEN,
    document,
    state,
)

Object = dict[str, Any]
#: Takes what was observed on all hosts, and changes it.
Change = Callable[[Object], object]

#: All addresses of IPv4.
EVERY = "0.0.0.0"  # noqa: S104 - nothing is opened here
SOMEBODY = "11111111-2222-4333-8444-555555555555"
NOW = 1_765_000_000.0
VIRTUAL: Object = {"endpoint": {"type": "VirtualIP", "virtualIP": {"address": "192.0.2.100"}}}
HOSTS = [{"name": f"host{number}", "address": f"192.0.2.{number}"} for number in (1, 2, 3)]


def instance(hosts: list[Object] | None = None, **spec: Any) -> Instance:
    deployment = document({"mode": "Binary", "hosts": hosts or HOSTS, **copy.deepcopy(VIRTUAL), **spec})
    return Instance.of(deployment, releases.newest(), OWNER, "10.96.0.0/12")


def machine(number: int, address: str = "") -> Object:
    """A machine on which nothing is wrong."""
    address = address or f"192.0.2.{number}"
    prefix = 64 if ":" in address else 24
    return {
        "asked": NOW,
        "answered": NOW + 1,
        "programs": {},
        "facts": {
            "architecture": "x86_64",
            "python": "3.11.2",
            "systemd": 252,
            "machine_id": f"{number:032x}",
            "boot_id": "one-kernel-for-all",
            "boot_time": 1_764_000_000,
            "memory": 8192 * MIB,
            "selinux_enforcing": False,
            "apparmor_profiles": ["/usr/bin/man"],
            "has_address": True,
            "interface": "eth0",
            "interfaces": [
                {"name": "lo", "mac": "00:00:00:00:00:00", "addresses": ["127.0.0.1/8", "::1/128"]},
                {"name": "eth0", "mac": f"02:00:00:00:00:{number:02x}", "addresses": [f"{address}/{prefix}"]},
            ],
            "virtual_ip_at": "",
            "listening": [{"address": EVERY, "port": 22, "group": "/system.slice/ssh.service"}],
            "free": {units.DATA: 50_000 * MIB, units.PROGRAMS: 50_000 * MIB},
            "devices": {units.DATA: 1, units.PROGRAMS: 1},
            "units": {},
            "users": {},
            "missing_programs": [],
            "time": NOW + 0.5,
        },
    }


def three() -> Object:
    return {f"host{number}": machine(number) for number in (1, 2, 3)}


def facts_of(observed: Object, number: int = 1) -> Object:
    found: Object = observed[f"host{number}"]["facts"]
    return found


def put(number: int = 1, **facts: Any) -> Change:
    return lambda observed: facts_of(observed, number).update(facts)


def listens(port: int, address: str = EVERY, group: str = "/system.slice/nginx.service", number: int = 1) -> Change:
    used = {"address": address, "port": port, "group": group}
    return lambda observed: facts_of(observed, number)["listening"].append(used)


def has_unit(name: str, owner: str = OWNER, description: str = "", number: int = 1) -> Change:
    return lambda observed: facts_of(observed, number)["units"].update(
        {name: {"owner": owner, "description": description}}
    )


def found(*changes: Change, of: Instance | None = None, before: State | None = None) -> list[Problem]:
    observed = three()
    for change in changes:
        change(observed)
    return host_checks.problems(of or instance(), observations.observed(observed), before)


def after(hosts: list[Object], **etcd: Any) -> State:
    """The state of a control plane that was installed on these hosts."""
    known = {"token": TOKEN, "storage": "directory", "bootstrapped": True, **etcd}
    return replace(state(), etcd=EtcdState(**known), document={"spec": {"hosts": hosts}})


ROLES = ["controlPlane", "etcd"]
BEFORE = [{**host, "roles": ROLES} for host in HOSTS]
