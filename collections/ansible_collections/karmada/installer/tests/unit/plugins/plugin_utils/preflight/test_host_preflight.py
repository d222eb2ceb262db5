# SPDX-License-Identifier: Apache-2.0
"""Preflight of plain hosts brings together what is wrong with hosts and which programs cannot be had."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import HostEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import host_preflight
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_programs
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_observation import HostObservation
from ansible_collections.karmada.installer.tests.unit.support import host_facts as checks
from ansible_collections.karmada.installer.tests.unit.support import observations

NO_PROGRAM = Problem(
    "no release downloads exist", "spec.artifacts.source", "use Image", reason=Reason.INVALID_ARTIFACT_SOURCE
)
REFUSED = {"refusal": "ssh: connect to host 192.0.2.2 port 22: Connection refused"}


FORMER = {"name": "host4", "address": "192.0.2.4", "roles": ["controlPlane"]}


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_programs, "problems", lambda _run, _hosts: [NO_PROGRAM])


def run(observed: dict[str, Any], *leaving: dict[str, Any]) -> Any:
    """A run on the hosts of the samples, with others that have left the document."""
    of = checks.instance()
    seen_of = observations.observed(observed)
    hosts = {host.name: host for host in component_hosts.all_hosts(of.spec)}
    return SimpleNamespace(
        instance=of,
        spec=of.spec,
        hosts=hosts,
        observed={name: seen for name, seen in seen_of.items() if name in hosts},
        leaving={each["name"]: HostEntry(each) for each in leaving},
        handover=SimpleNamespace(observed=lambda name: seen_of.get(name, HostObservation())),
        stored_state=None,
        store=SimpleNamespace(kept_by_hosts={}, agreed=None),
    )


def test_hosts_and_programs_are_told_of_together() -> None:
    observed = checks.three()
    checks.put(systemd=200)(observed)
    first, second = host_preflight.problems(run(observed))
    assert "systemd is version 200" in first.what
    assert second == NO_PROGRAM


def test_programs_are_asked_for_when_it_is_known_which_are_lacking() -> None:
    (problem,) = host_preflight.problems(run({**checks.three(), "host2": REFUSED}))
    assert problem.where == "host host2 (192.0.2.2)"
    observed = checks.three()
    checks.put(architecture="mips")(observed)
    (problem,) = host_preflight.problems(run(observed))
    assert "its architecture is mips" in problem.what


def test_a_host_that_was_given_up_by_name_may_be_away() -> None:
    of = run({**checks.three(), "host2": REFUSED})
    assert [problem.where for problem in host_preflight.unreachable_hosts(of)] == ["host host2 (192.0.2.2)"]
    assert host_preflight.unreachable_hosts(of, ["host2"]) == []


def test_hints_come_along() -> None:
    observed = checks.three()
    checks.put(selinux_enforcing=True)(observed)
    (hint,) = map(str, host_preflight.hints(run(observed)))
    assert "SELinux" in hint


def test_a_host_that_left_the_document_is_told_of() -> None:
    of = run({**checks.three(), "host4": checks.machine(4)}, FORMER)
    assert [*map(str, host_preflight.hints(of))] == [
        "host host4 (192.0.2.4) has left the document; an install takes away what is there"
    ]
    assert [problem for problem in host_preflight.problems(of) if problem != NO_PROGRAM] == []


def test_one_that_does_not_answer_is_told_of_before_anything_is_changed_unless_it_is_given_up() -> None:
    of = run({**checks.three(), "host4": REFUSED}, FORMER)
    (problem,) = [each for each in host_preflight.problems(of) if each != NO_PROGRAM]
    assert problem.where == "host host4 (192.0.2.4)"
    assert "has left the document and is to be cleaned, but nothing accepts connections" in problem.what
    assert problem.remedy.endswith("""-e '{"preflight_abandon_hosts": ["host4"]}'""")
    assert host_preflight.problems(of, ["host4"]) == [NO_PROGRAM]


def test_nobody_else_is_given_up_by_an_install() -> None:
    of = run({**checks.three(), "host2": REFUSED})
    assert [problem.where for problem in host_preflight.problems(of, ["host2"])] == ["host host2 (192.0.2.2)"]


def test_a_machine_that_is_there_under_another_name_is_not_cleaned() -> None:
    same = checks.machine(4)
    same["facts"]["machine_id"] = checks.facts_of(checks.three(), 2)["machine_id"]
    (problem,) = [
        each for each in host_preflight.problems(run({**checks.three(), "host4": same}, FORMER)) if each != NO_PROGRAM
    ]
    assert (problem.where, "host2 is the same machine" in problem.what) == ("host host4 (192.0.2.4)", True)


def test_an_uninstall_waits_for_hosts_that_have_left_and_were_not_cleaned() -> None:
    of = run({**checks.three(), "host4": REFUSED}, FORMER)
    assert [problem.where for problem in host_preflight.unreachable_hosts(of)] == ["host host4 (192.0.2.4)"]
    assert host_preflight.unreachable_hosts(of, ["host4"]) == []


def test_an_uninstall_says_how_a_lost_host_is_given_up() -> None:
    (problem,) = host_preflight.unreachable_hosts(run({**checks.three(), "host2": REFUSED}))
    assert problem.remedy.endswith("""-e '{"uninstall_abandon_hosts": ["host2"]}'""")


def test_a_host_that_has_moved_may_be_another_machine() -> None:
    of = run(checks.three())
    hosts = {each.name: each.plain for each in of.spec.hosts}
    of.stored_state = SimpleNamespace(hosts=hosts)
    assert [*map(str, host_preflight.hints(of))] == []
    of.stored_state = SimpleNamespace(hosts={**hosts, "host2": {**hosts["host2"], "address": "192.0.2.22"}})
    (hint,) = map(str, host_preflight.hints(of))
    assert "host host2 (192.0.2.2) had the address 192.0.2.22 before" in hint
