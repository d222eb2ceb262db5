# SPDX-License-Identifier: Apache-2.0
"""What is wrong with plain hosts is known before the first change: each thing by itself, named with its host."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_state
from ansible_collections.karmada.installer.plugins.module_utils.host_system import System
from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.instance import Instance
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import EtcdState, State
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME, COMPONENTS, ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import host_checks
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight.host_checks import MIB
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.render import sockets, units
from ansible_collections.karmada.installer.plugins.plugin_utils.render.sockets import Socket
from ansible_collections.karmada.installer.tests.unit.support import observations
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    MEMBER,
    OPTIONAL,
    OWNER,
    RUNNING,
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


def gets_address(address: str, number: int = 1) -> Change:
    return lambda observed: facts_of(observed, number)["interfaces"][1]["addresses"].append(address)


def clock(seconds: float, number: int = 1) -> Change:
    return lambda observed: facts_of(observed, number).update(time=NOW + 0.5 + seconds)


def found(*changes: Change, of: Instance | None = None, before: State | None = None) -> list[Problem]:
    observed = three()
    for change in changes:
        change(observed)
    return host_checks.problems(of or instance(), observations.observed(observed), before)


def hinted(*changes: Change, of: Instance | None = None) -> list[str]:
    observed = three()
    for change in changes:
        change(observed)
    return [*map(str, host_checks.hints(of or instance(), observations.observed(observed)))]


ONE = "host host1 (192.0.2.1)"


def test_three_good_hosts_have_no_problem_and_no_hint() -> None:
    assert found() == []
    assert hinted() == []


@pytest.mark.parametrize(
    ("change", "where", "what", "remedy"),
    [
        (put(architecture="riscv64"), ONE, "its architecture is riscv64", "x86_64 or aarch64"),
        (put(systemd=0, missing_programs=["systemctl"]), ONE, "it is not run by systemd", "units of systemd"),
        (put(systemd=246), ONE, "systemd is version 246, and units need 247", "Debian 11"),
        (put(python="3.8.10"), ONE, "older than 3.9", "ansible_python_interpreter"),
        (put(missing_programs=["useradd"]), ONE, "these programs are missing: useradd", "install"),
        (put(has_address=False), ONE, "192.0.2.1 is none of its addresses", "an address that the machine has"),
        (
            put(free={units.DATA: 500 * MIB, units.PROGRAMS: 500 * MIB}),
            ONE,
            "500 MiB are free for /usr/local/lib/karmada and /var/lib/karmada, and 1794 MiB are needed",
            "larger file system",
        ),
        (
            put(free={units.DATA: 500 * MIB, units.PROGRAMS: 5000 * MIB}, devices={units.DATA: 1, units.PROGRAMS: 2}),
            ONE,
            "500 MiB are free for /var/lib/karmada, and 1024 MiB",
            "make room",
        ),
        (
            listens(2379),
            ONE,
            "port 2379 of 192.0.2.1, which etcd needs, is used by nginx.service",
            "let it listen else",
        ),
        (
            listens(2381, "127.0.0.1", ""),
            ONE,
            "port 2381 of 127.0.0.1, which etcd needs, is used by a process",
            "stop it",
        ),
        (listens(8443, "::"), ONE, "which karmada-webhook needs", "stop it"),
        (listens(5443, "192.0.2.100"), ONE, "port 5443 of 192.0.2.100, which haproxy needs", "stop it"),
        (
            has_unit("karmada-prod-etcd.service", SOMEBODY),
            ONE,
            f"there is a unit karmada-prod-etcd.service already, of another control plane (owner {SOMEBODY})",
            "another metadata.name",
        ),
        (has_unit("karmada-prod-etcd.service", ""), ONE, "not of this installer", "another metadata.name"),
        (
            put(users={"karmada-prod-etcd": "somebody"}),
            ONE,
            "there is a user karmada-prod-etcd already",
            "metadata.name",
        ),
        (
            put(machine_id=f"{2:032x}"),
            "spec.hosts",
            "host1 (192.0.2.1) and host2 (192.0.2.2) are the same machine",
            "list each machine once",
        ),
        (
            gets_address("192.0.2.3/24", number=2),
            "spec.hosts",
            "host2 (192.0.2.2) and host3 (192.0.2.3) are the same machine",
            "list each machine once",
        ),
        (clock(120), "spec.hosts", "the clock of host1 is 119.5 s ahead of the one of this machine", "time servers"),
        (clock(-120), "spec.hosts", "the clock of host1 is 119.5 s behind the one of this machine", "time servers"),
        (
            gets_address("192.0.2.100/24"),
            "spec.endpoint.virtualIP.address",
            "192.0.2.100 is an address of host1 already, and not put there by us",
            "an address that nobody has",
        ),
        (
            put(virtual_ip_at="02:00:00:00:00:99"),
            "spec.endpoint.virtualIP.address",
            "used by somebody else in the network (hardware address 02:00:00:00:00:99)",
            "an address that nobody has",
        ),
        (
            put(interfaces=[{"name": "eth0", "mac": "02:00:00:00:00:01", "addresses": ["192.0.2.1/28"]}]),
            ONE,
            "192.0.2.100 is not in a network of eth0 (192.0.2.0/28)",
            "one network only",
        ),
    ],
)
def test_one_thing_that_is_wrong_with_a_host(change: Change, where: str, what: str, remedy: str) -> None:
    (problem,) = found(change)
    assert problem.where == where
    assert what in problem.what
    assert remedy in problem.remedy


def test_all_of_it_is_told_at_once() -> None:
    def refuse(observed: Object) -> None:
        observed["host2"] = {"refusal": "ssh: connect to host 192.0.2.2 port 22: No route to host"}
        observed["host3"] = {}

    places = [problem.where for problem in found(refuse, listens(2379), put(systemd=240), clock(600))]
    assert sorted(places) == [ONE, ONE, "host host2 (192.0.2.2)", "host host3 (192.0.2.3)", "spec.hosts"]


def test_the_user_of_the_document_is_named_where_sudo_refuses() -> None:
    def refuse(observed: Object) -> None:
        observed["host1"] = {"refusal": "sudo: a password is required"}

    (problem,) = found(refuse, of=instance(ssh={"user": "anna"}))
    assert "sudo asks anna for a password" in problem.what


def test_a_setting_that_means_nothing_on_hosts_is_among_them() -> None:
    (problem,) = found(of=instance(components={"karmadaScheduler": {"replicas": 2}}))
    assert problem.where == "spec.components.karmadaScheduler.replicas"


# -- what is no problem ----------------------------------------------------------------------------------------------

OURS = "/system.slice/karmada-prod-{}.service"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(
            [has_unit("karmada-prod-etcd.service"), listens(2379, "192.0.2.1", OURS.format("etcd"))],
            id="our own unit has the port",
        ),
        pytest.param([listens(5443, "192.0.2.77")], id="the port of another address"),
        pytest.param([listens(10257, "192.0.2.1")], id="a port that we use on loopback only"),
        pytest.param([put(users={"karmada-prod-etcd": f"Karmada prod {OWNER}"})], id="our own user"),
        pytest.param([has_unit("karmada-test-etcd.service", SOMEBODY)], id="another control plane beside ours"),
        pytest.param([put(boot_id="another", machine_id=f"{2:032x}")], id="a machine id that was copied with the disk"),
        pytest.param(
            [gets_address("192.0.2.100/32"), has_unit("karmada-prod-keepalived.service")], id="the virtual IP is served"
        ),
        pytest.param([put(2, virtual_ip_at="02:00:00:00:00:01")], id="a host of ours answers for the virtual IP"),
        pytest.param([clock(1.4)], id="a clock within the time that the answer took"),
        pytest.param([put(architecture="aarch64")], id="hosts of two architectures"),
        pytest.param(
            [
                put(free={units.DATA: 300 * MIB, units.PROGRAMS: 300 * MIB}),
                has_unit("karmada-prod-etcd.service"),
                lambda observed: observed["host1"].update(
                    programs={units.program(instance(), each): "" for each in COMPONENTS}
                ),
            ],
            id="little space where everything is there already",
        ),
    ],
)
def test_what_is_no_problem(changes: list[Change]) -> None:
    assert found(*changes) == []


# -- ports -----------------------------------------------------------------------------------------------------------


def test_every_port_of_the_table_is_looked_at() -> None:
    everything = instance(
        components=OPTIONAL,
        members=[MEMBER],
    )
    host = component_hosts.all_hosts(everything.spec)[0]
    wanted = {(each.needed_by, each.port) for each in sockets.on_host(everything, host)}
    assert wanted == {(each.name, port) for each in RUNNING for port in each.ports.values()} | {
        ("haproxy", 5443),
        ("haproxy", 5444),
    }


def test_only_what_runs_on_a_host_needs_ports_there() -> None:
    hosts = [
        {"name": "host1", "address": "192.0.2.1", "roles": ["etcd"]},
        {"name": "host2", "address": "192.0.2.2", "roles": ["controlPlane"]},
        {"name": "host3", "address": "192.0.2.3", "roles": ["loadBalancer"]},
    ]
    of = instance(hosts)
    needed = [{each.needed_by for each in sockets.on_host(of, host)} for host in component_hosts.all_hosts(of.spec)]
    assert needed[0] == {"etcd"}
    assert "karmada-apiserver" in needed[1]
    assert not {"etcd", "haproxy"} & needed[1]
    assert needed[2] == {"haproxy"}


@pytest.mark.parametrize(
    ("field", "flags", "socket"),
    [
        ("karmadaScheduler", {"metrics-bind-address": f"{EVERY}:9999"}, Socket("karmada-scheduler", EVERY, 9999)),
        ("karmadaScheduler", {"metrics-bind-address": ":9999"}, Socket("karmada-scheduler", "::", 9999)),
        ("karmadaScheduler", {"metrics-bind-address": "[::1]:9999"}, Socket("karmada-scheduler", "::1", 9999)),
        ("karmadaAPIServer", {"bind-address": EVERY}, Socket("karmada-apiserver", EVERY, 5443)),
        ("karmadaAPIServer", {"secure-port": "6443"}, Socket("karmada-apiserver", "192.0.2.1", 6443)),
    ],
)
def test_flags_of_the_document_move_ports(field: str, flags: Mapping[str, str], socket: Socket) -> None:
    of = instance(components={field: {"extraArgs": flags}})
    assert socket in sockets.on_host(of, component_hosts.all_hosts(of.spec)[0])


def test_settings_of_etcd_move_its_ports() -> None:
    urls = "https://192.0.2.1:2379,https://127.0.0.1:4001"
    of = instance(components={"etcd": {"local": {"extraArgs": {"listen-client-urls": urls}}}})
    wanted = sockets.on_host(of, component_hosts.all_hosts(of.spec)[0])
    assert {Socket("etcd", "192.0.2.1", 2379), Socket("etcd", "127.0.0.1", 4001)} <= set(wanted)


def test_a_listener_that_is_turned_off_needs_no_port() -> None:
    of = instance(components={"karmadaScheduler": {"extraArgs": {"metrics-bind-address": "0"}}})
    ports = {each.port for each in sockets.on_host(of, component_hosts.all_hosts(of.spec)[0])}
    assert BY_NAME["karmada-scheduler"].ports["metrics"] not in ports


def test_the_load_balancer_and_the_api_server_cannot_share_all_addresses() -> None:
    of = instance(components={"karmadaAPIServer": {"extraArgs": {"bind-address": EVERY}}})
    problems = found(of=of)
    assert len(problems) == 3
    assert f"karmada-apiserver and haproxy would both listen on port 5443 ({EVERY}, 192.0.2.100)" in problems[0].what


def test_another_control_plane_on_the_host_is_named() -> None:
    unit = "karmada-test-apiserver.service"
    (problem,) = found(
        has_unit(unit, SOMEBODY, "karmada-apiserver of Karmada control plane test"),
        listens(5443, "192.0.2.1", f"/system.slice/{unit}"),
    )
    assert f"is used by {unit} (karmada-apiserver of Karmada control plane test)" in problem.what
    assert "two control planes need ports of their own" in problem.remedy


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        (EVERY, "192.0.2.1", True),
        (EVERY, "2001:db8::1", False),
        ("::", "192.0.2.1", True),
        ("::", "2001:db8::1", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("localhost", "127.0.0.1", True),
        ("host.example.com", "127.0.0.1", True),
    ],
)
def test_addresses_that_stand_in_each_others_way(first: str, second: str, expected: bool) -> None:
    assert sockets.overlap(first, second) is expected
    assert sockets.overlap(second, first) is expected


# -- the document and the state --------------------------------------------------------------------------------------


def after(hosts: list[Object], **etcd: Any) -> State:
    """The state of a control plane that was installed on these hosts."""
    known = {"token": TOKEN, "storage": "directory", "bootstrapped": True, **etcd}
    return replace(state(), etcd=EtcdState(**known), document={"spec": {"hosts": hosts}})


ROLES = ["controlPlane", "etcd"]
BEFORE = [{**host, "roles": ROLES} for host in HOSTS]


def test_the_same_hosts_of_etcd_are_no_problem() -> None:
    assert found(before=after(BEFORE)) == []


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(after(BEFORE[:1]), id="by the document of the last run"),
        pytest.param(after([], nodes=("host1",)), id="by what was recorded with the bootstrap"),
    ],
)
def test_members_of_etcd_are_not_changed_by_the_way(before: State) -> None:
    (problem,) = found(before=before)
    assert "etcd runs on host1, and the document wants it on host1, host2, host3" in problem.what
    assert problem.remedy == "give the role etcd to host1 again"


def test_a_member_of_etcd_stays_at_its_address() -> None:
    (problem,) = found(before=after([{**BEFORE[0], "address": "198.51.100.7"}, *BEFORE[1:]]))
    assert "the member of etcd on host1 is known to the others at 198.51.100.7" in problem.what


def test_before_a_member_of_etcd_may_have_been_started_its_hosts_may_change() -> None:
    assert found(before=after(BEFORE[:1], bootstrapped=False)) == []


def test_members_that_were_never_healthy_know_each_other_by_what_is_on_their_disks() -> None:
    """A run that was killed in its first bootstrap: there is no last document, but what it began with is on record."""
    begun = replace(after([], bootstrapped=False, nodes=("host1",)), document=None)
    (problem,) = found(before=begun)
    assert "etcd runs on host1, and the document wants it on host1, host2, host3" in problem.what
    assert problem.remedy.endswith("or uninstall with them first: etcd has never been healthy")
    moved = replace(
        after([], bootstrapped=False, nodes=("host1", "host2", "host3")),
        document=None,
        hosts={"host1": {**BEFORE[0], "address": "198.51.100.7"}},
    )
    (problem,) = found(before=moved)
    assert "the member of etcd on host1 is known to the others at 198.51.100.7" in problem.what


def test_hosts_without_etcd_may_come_and_go() -> None:
    gone = {"name": "old", "address": "192.0.2.9", "roles": ["controlPlane"]}
    assert found(before=after([*BEFORE, gone])) == []


# -- hints -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (put(memory=1024 * MIB), "host host1 (192.0.2.1): it has 1024 MiB of memory; with its roles, 2048 MiB"),
        (put(selinux_enforcing=True), "host host1 (192.0.2.1): SELinux is enforcing"),
        (put(apparmor_profiles=["/usr/sbin/haproxy"]), "AppArmor enforces a profile for /usr/sbin/haproxy"),
        (put(free={units.DATA: 1900 * MIB, units.PROGRAMS: 9000 * MIB}), "etcd may grow to 2048 MiB, and 1900 MiB"),
        (clock(5), "the clock of host1 is 4.5 s ahead of the one of this machine"),
    ],
)
def test_what_a_person_wants_to_know(change: Change, text: str) -> None:
    (hint,) = hinted(change)
    assert text in hint
    assert found(change) == []


def test_two_hosts_whose_clocks_are_near_ours_and_not_near_each_other() -> None:
    (hint,) = hinted(clock(-2.2, number=1), clock(2.2, number=2))
    assert "the clocks of host1 and host2 are 3.4 s apart" in hint


def test_the_quota_of_the_document_is_what_etcd_may_grow_to() -> None:
    of = instance(components={"etcd": {"local": {"extraArgs": {"quota-backend-bytes": str(100_000 * MIB)}}}})
    assert len(hinted(of=of)) == 3


# -- facts -----------------------------------------------------------------------------------------------------------


def test_the_machines_of_these_tests_have_the_facts_that_are_collected(tmp_path: Path) -> None:
    collected = host_state.facts(System(str(tmp_path)), "127.0.0.1", [units.DATA, units.PROGRAMS], "127.0.0.1")
    imagined = machine(1)["facts"]
    assert set(collected) == set(imagined)
    assert {key: type(value) for key, value in collected.items()} == {
        key: type(value) for key, value in imagined.items()
    }
    assert collected["interfaces"]
    assert all(set(each) == {"name", "mac", "addresses"} for each in collected["interfaces"])


#: Directives that every systemd has that anybody still runs.
_OLD = (
    *("Description", "Documentation", "After", "Wants", "Type", "User", "Group", "Environment", "ExecStart"),
    *("Restart", "RestartSec", "TimeoutStartSec", "TimeoutStopSec", "LimitNOFILE", "WantedBy"),
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


def test_every_remedy_is_a_sentence_of_its_own() -> None:
    for problem in found(put(systemd=1, architecture="mips"), listens(2379), clock(99)):
        assert problem.remedy
        assert not re.search(r"[.!]$", problem.remedy), problem


@pytest.mark.parametrize(
    ("settings", "what", "where"),
    [
        (
            {"karmadaScheduler": {"extraArgs": {"health-probe-bind-address": "0"}}},
            "port 10351 of 127.0.0.1",
            "karmadaScheduler",
        ),
        (
            {"karmadaScheduler": {"extraArgs": {"health-probe-bind-address": "192.0.2.1:18080"}}},
            "port 18080 of 127.0.0.1",
            "karmadaScheduler",
        ),
        ({"karmadaWebhook": {"extraArgs": {"bind-address": "192.0.2.1"}}}, "port 8443 of 127.0.0.1", "karmadaWebhook"),
        (
            {"etcd": {"local": {"extraArgs": {"listen-client-urls": "https://127.0.0.1:2379"}}}},
            "port 2379 of 192.0.2.1",
            "etcd.local",
        ),
        (
            {"etcd": {"local": {"extraArgs": {"listen-metrics-urls": "http://192.0.2.1:2381"}}}},
            "port 2381 of 127.0.0.1",
            "etcd.local",
        ),
    ],
)
def test_a_component_listens_where_it_is_looked_for(settings: Object, what: str, where: str) -> None:
    (problem,) = [each for each in found(of=instance(components=settings)) if "looked for" in each.what]
    assert problem.where == f"spec.components.{where}.extraArgs"
    assert what in problem.what


MOVED: list[Object] = [
    {"karmadaScheduler": {"extraArgs": {"health-probe-bind-address": "127.0.0.1:18080"}}},
    {"karmadaScheduler": {"extraArgs": {"health-probe-bind-address": ":18080"}}},
    {"karmadaWebhook": {"extraArgs": {"secure-port": "18443"}}},
    {"karmadaAPIServer": {"extraArgs": {"secure-port": "6443"}}},
    {"etcd": {"local": {"extraArgs": {"listen-client-urls": f"https://{EVERY}:12379"}}}},
    {"etcd": {"local": {"extraArgs": {"listen-metrics-urls": "http://127.0.0.1:12381"}}}},
]


@pytest.mark.parametrize("settings", MOVED)
def test_a_flag_gives_a_component_another_port(settings: Object) -> None:
    assert found(of=instance(components=settings)) == []


def test_a_host_that_is_the_endpoint_listens_where_clients_are_sent() -> None:
    moved = {"components": {"karmadaAPIServer": {"extraArgs": {"secure-port": "6443"}}}}
    direct = {"type": "External", "host": "192.0.2.1"}
    (problem,) = found(of=instance(endpoint=direct, **moved))
    assert problem.where == "spec.endpoint.port"
    assert "port 5443 of 192.0.2.1, and karmada-apiserver listens on port 6443" in problem.what
    assert found(of=instance(endpoint={**direct, "port": 6443}, **moved)) == []
    assert found(of=instance(endpoint={**direct, "host": "karmada.example.com"}, **moved)) == []


def test_ports_that_others_depend_on_stay_after_the_install() -> None:
    before = replace(after(BEFORE), document={"spec": {**instance().spec.plain, "hosts": BEFORE}})
    assert found(before=before) == []
    for settings in MOVED[:3]:
        assert found(of=instance(components=settings), before=before) == []
    (problem,) = found(of=instance(components=MOVED[3]), before=before)
    assert problem.where == "spec.components.karmadaAPIServer.extraArgs.secure-port"
    assert "listens on port 5443 since the install, and the document says 6443" in problem.what
    (problem,) = found(of=instance(components=MOVED[4]), before=before)
    assert problem.where == "spec.components.etcd.local.extraArgs.listen-client-urls"


@pytest.mark.parametrize("metrics", ["0", "127.0.0.1:18080"])
def test_metrics_may_move_or_go(metrics: str) -> None:
    assert found(of=instance(components={"karmadaScheduler": {"extraArgs": {"metrics-bind-address": metrics}}})) == []
