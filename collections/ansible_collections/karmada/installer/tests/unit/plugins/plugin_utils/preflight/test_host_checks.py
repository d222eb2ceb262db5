# SPDX-License-Identifier: Apache-2.0
"""What is wrong with plain hosts is known before the first change: each thing by itself, named with its host."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_state
from ansible_collections.karmada.installer.plugins.module_utils.host_system import System
from ansible_collections.karmada.installer.plugins.plugin_utils.components.instance import Instance
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import COMPONENTS
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import host_checks
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight.host_checks import MIB
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.tests.unit.support import observations
from ansible_collections.karmada.installer.tests.unit.support.host_facts import (
    BEFORE,
    NOW,
    SOMEBODY,
    Change,
    Object,
    after,
    facts_of,
    found,
    has_unit,
    instance,
    listens,
    machine,
    put,
    three,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    OWNER,
)


def gets_address(address: str, number: int = 1) -> Change:
    return lambda observed: facts_of(observed, number)["interfaces"][1]["addresses"].append(address)


def clock(seconds: float, number: int = 1) -> Change:
    return lambda observed: facts_of(observed, number).update(time=NOW + 0.5 + seconds)


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


# -- the document and the state --------------------------------------------------------------------------------------


def test_the_same_hosts_of_etcd_are_no_problem() -> None:
    assert found(before=after(BEFORE)) == []


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(after(BEFORE[:1]), id="other hosts"),
        pytest.param(after([{**BEFORE[0], "address": "198.51.100.7"}, *BEFORE[1:]]), id="another address"),
    ],
)
def test_members_of_etcd_that_have_worked_may_change(before: State) -> None:
    assert found(before=before) == []


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


def test_every_remedy_is_a_sentence_of_its_own() -> None:
    for problem in found(put(systemd=1, architecture="mips"), listens(2379), clock(99)):
        assert problem.remedy
        assert not re.search(r"[.!]$", problem.remedy), problem
