# SPDX-License-Identifier: Apache-2.0
"""Hosts that run agents of members: a broken one is told of its members alone, before the first change and later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ansible.errors import AnsibleError
from ansible_collections.karmada.installer.plugins.action import (
    host_components,
    host_programs,
    hosts_outcome,
)
from ansible_collections.karmada.installer.plugins.module_utils import host_reach as kinds
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest, mode_fields
from ansible_collections.karmada.installer.plugins.plugin_utils.members import ready as member_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import kubeconfig as pki_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import (
    findings,
    host_checks,
    host_list_checks,
    host_preflight,
    member_checks,
    reach_from_hosts,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units as render
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_programs as programs_of_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run import reach
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.agent_hosts import (
    BOTH,
    CP,
    GATEWAYS,
    ROW,
    SERVER,
    Asked,
    Object,
    after_install,
    deployment,
    entry,
    joined,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, seen
from ansible_collections.karmada.installer.tests.unit.support.samples import authorities

# -- a broken host -----------------------------------------------------------------------------------------------------

REFUSED = "ssh: connect to host 198.51.100.1 port 22: Connection refused"


def arguments_of(action: type[HostAction]) -> Object:
    known = {"state": "present", "restart": True, "wait_for": "none", "timeout": 1, "components": [ROW]}
    return {key: value for key, value in known.items() if key in action.OPTIONS}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (AnsibleError(REFUSED), "nothing accepts connections"),
        ({"failed": True, "msg": "/etc/karmada cannot be written: No space left", "changed": True}, "No space left"),
    ],
    ids=["lost", "full"],
)
def test_a_host_that_breaks_ends_no_run_and_is_told_of_its_members(answer: Any, told: str, runs: Runs) -> None:
    joined(runs, *BOTH)
    step = Asked(host_components.ActionModule, runs.step(deployment(*BOTH)), "gw1", answer)
    assert "failed" not in step.perform(**arguments_of(host_components.ActionModule))
    again = Asked(host_programs.ActionModule, runs.step(deployment(*BOTH)), "gw1", answer)
    assert again.perform(**arguments_of(host_programs.ActionModule)) == {"changed": False}
    assert again.asked == []
    run = runs.step(deployment(*BOTH, entry("m3", "gw2")))
    (problem,) = run.place.agent_problems(MemberEntry(BOTH[0]))
    assert problem.where == "host gw1 (198.51.100.1)"
    assert told in problem.what
    assert run.place.agent_problems(MemberEntry(entry("m3", "gw2"))) == []
    run.__dict__["control_plane"] = FakeCluster("control plane")
    (waited,) = member_ready.wait_ready(run, [MemberEntry(BOTH[0])], 1)
    assert told in waited.problem
    assert waited.next_step
    outcome = hosts_outcome.ActionModule.__new__(hosts_outcome.ActionModule)
    assert outcome.perform(run, {}) == {"changed": False}


def test_a_host_of_members_that_is_lost_does_not_leave_the_run_unfinished(runs: Runs) -> None:
    outcome = hosts_outcome.ActionModule.__new__(hosts_outcome.ActionModule)
    lost = {"lost": {"step": "Let others write again", "reason": REFUSED}}
    runs.see(gw1=lost)
    assert outcome.perform(runs.step(deployment(*BOTH)), {}) == {"changed": False}
    runs.see(cp1=lost)
    with pytest.raises(ProblemsError, match="host cp1"):
        outcome.perform(runs.step(deployment(*BOTH)), {})


@pytest.mark.parametrize("state", ["absent", "stopped"])
def test_what_is_to_be_taken_away_has_to_be_known_to_be_gone(state: str, runs: Runs) -> None:
    step = Asked(host_components.ActionModule, runs.step(deployment(*BOTH)), "gw1", AnsibleError(REFUSED))
    with pytest.raises(AnsibleError):
        step.perform(components=list(BY_NAME), state=state, restart=True, wait_for="none", timeout=1)


def test_a_host_of_the_control_plane_that_breaks_ends_the_run(runs: Runs) -> None:
    step = Asked(host_components.ActionModule, runs.step(deployment(*BOTH)), "cp1", AnsibleError(REFUSED))
    with pytest.raises(AnsibleError):
        step.perform(components=["etcd"], state="present", restart=True, wait_for="none", timeout=1)


# -- before the first change -------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _programs_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs_of_hosts, "problems", lambda _run, _hosts: [])


class Checked:
    """Preflight of a document with one host of the control plane and one of members, as they were seen."""

    FACTS: ClassVar[Object] = {
        "architecture": "x86_64",
        "python": "3.11.2",
        "systemd": 252,
        "missing_programs": [],
        "has_address": True,
        "machine_id": "a",
        "boot_id": "b",
        "boot_time": 0,
        "memory": 2**32,
        "selinux_enforcing": False,
        "apparmor_profiles": [],
        "interface": "eth0",
        "interfaces": [],
        "virtual_ip_at": "",
        "listening": [],
        "free": {render.DATA: 2**40, render.PROGRAMS: 2**40},
        "devices": {render.DATA: 1, render.PROGRAMS: 1},
        "units": {},
        "users": {},
        "time": 1000.5,
    }

    def __init__(self, runs: Runs, gw1: Object | None = None, **facts: Any) -> None:
        self.runs = runs
        for number, name in enumerate(("cp1", "gw1", "gw2")):
            own = {**self.FACTS, "machine_id": f"m{number}", **(facts if name == "gw1" else {})}
            path = runs.handover._path(name)
            path.unlink(missing_ok=True)
            stored = Stored(4).after(after_install()) if name == "cp1" else Stored()
            known = {"asked": 1000.0, "answered": 1001.0}
            runs.see(**{name: gw1 if gw1 and name == "gw1" else seen(stored, facts=own, **known)})

    def run(self, *members: Object) -> Run:
        return self.runs.step(deployment(*(members or BOTH)))


@pytest.mark.parametrize(
    ("gw1", "facts", "told"),
    [
        ({"refusal": REFUSED}, {}, "nothing accepts connections"),
        (None, {"architecture": "mips"}, "its architecture is mips"),
        (None, {"systemd": 200}, "its systemd is version 200"),
        (None, {"python": "3.6.8"}, "Python"),
        (None, {"missing_programs": ["useradd"]}, "useradd"),
        (None, {"free": {render.DATA: 2**40, render.PROGRAMS: 2**20}}, "are free for"),
        (None, {"machine_id": "m0"}, "the same machine"),
        (None, {"time": 1300.5}, "clock"),
        (
            None,
            {"listening": [{"address": "127.0.0.1", "port": 10359, "group": "/system.slice/other.service"}]},
            "port 10359 of 127.0.0.1",
        ),
        (None, {"users": {"karmada-prod-agent-m1": "somebody else"}}, "there is a user karmada-prod-agent-m1 already"),
    ],
    ids=["away", "mips", "systemd", "python", "programs", "disk", "same", "clock", "port", "user"],
)
def test_what_is_wrong_with_a_host_is_a_problem_of_its_members_alone(
    gw1: Object | None, facts: Object, told: str, runs: Runs
) -> None:
    run = Checked(runs, gw1, **facts).run(*BOTH, entry("m3", "gw2"))
    assert host_checks.problems(run.instance, run.observed, run.stored_state) == []
    found = host_preflight.of_members(run)
    assert [told in problem.what for problem in found["m1"]] == [True]
    assert (found["m2"], found["m3"]) == (found["m1"], [])
    assert all(problem.where and problem.remedy for problem in found["m1"])
    later = runs.step(deployment(*BOTH))
    assert set(programs_of_hosts.missing(later)) == {"cp1", "gw2"}, "nothing is fetched for it"
    step = Asked(host_components.ActionModule, later, "gw1")
    assert (step.perform(**arguments_of(host_components.ActionModule)), step.asked) == ({"changed": False}, [])


def test_what_is_wrong_with_a_host_is_not_told_of_members_that_were_not_selected(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Checked(runs, {"refusal": "it does not answer"}).run(*BOTH)
    for check in ("_version", "_of_place", "_crds", "_external_etcd", "_place_access"):
        monkeypatch.setattr(findings, check, lambda *_: [])
    monkeypatch.setattr(member_checks, "registered_clusters", lambda _run: Clusters())
    monkeypatch.setattr(member_checks.MemberChecks, "problems", lambda *_: [])
    assert set(findings.findings(run).members) == {"m1", "m2"}
    run.selected = ("m2",)
    assert set(findings.findings(run).members) == {"m2"}


def test_a_host_that_is_well_has_no_problem_and_needs_no_address_of_its_own(runs: Runs) -> None:
    run = Checked(runs, has_address=False).run()
    assert host_preflight.of_members(run) == {"m1": [], "m2": []}


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubeconfigs of members, and what the control plane knows of none of them."""
    config = pki_kubeconfig.kubeconfig(
        "m1", SERVER, authorities()["karmada-ca"].certificate, "admin", "token", context="m1"
    )
    monkeypatch.setattr(Run, "secret", lambda *_: {"kubeconfig": json.dumps(config).encode()})


@pytest.mark.usefixtures("secrets")
@pytest.mark.parametrize("answers", [True, False])
def test_a_host_looks_at_its_members_and_at_a_control_plane_that_is_up(answers: bool, runs: Runs) -> None:
    if answers:
        runs.see(cp1={"files": {"/etc/karmada/prod/karmada-apiserver/pki/server/tls.crt": ""}})
    run = runs.step(deployment(*BOTH))
    run.__dict__["control_plane"] = object()
    found = reach_from_hosts.for_agents(run, {})
    endpoints = [["m1/endpoint"], ["m2/endpoint"]] if answers else [[], []]
    assert {host: [each.name for each in targets] for host, targets in found.items()} == {
        "gw1": ["m1", *endpoints[0], "m2", *endpoints[1]],
        "gw2": ["m2", *endpoints[1]],
    }
    assert {(each.host, each.port, bool(each.authority)) for each in found["gw2"]} == {
        ("192.0.2.50", 6443, True),
        *([("192.0.2.1", 5443, True)] if answers else []),
    }


@pytest.mark.usefixtures("secrets")
def test_what_a_host_does_not_reach_is_told_of_that_member_alone(runs: Runs) -> None:
    run = runs.step(deployment(*BOTH))
    targets = [
        reach.Target.of_url("m1", SERVER, "a CA").plain,
        reach.Target.of_url("m2/endpoint", "https://192.0.2.1:5443", "a CA").plain,
    ]
    fault = {"fault": kinds.SILENT, "detail": ""}
    runs.see(gw1={"targets": targets, "unreached": {"m1": fault, "m2/endpoint": fault}})
    found = reach_from_hosts.from_hosts(runs.step(deployment(*BOTH)))
    assert {name: [problem.what for problem in each] for name, each in found.items()} == {
        "m1": [f"gw1 does not reach {SERVER}: connection timed out"],
        "m2": ["gw1 does not reach https://192.0.2.1:5443: connection timed out"],
    }
    assert all(problem.where and problem.remedy for each in found.values() for problem in each)
    runs.see(gw1={"refusal": REFUSED})
    assert set(reach_from_hosts.for_agents(runs.step(deployment(*BOTH)), {})) == {"gw2"}
    assert not run.observed["gw1"].refusal


@pytest.mark.parametrize(
    ("members", "hosts", "where", "told"),
    [
        (
            [entry("m1", "gw1", "gw9")],
            [CP, GATEWAYS[0]],
            "spec.members[0].agentHosts[1]",
            "gw9 is no host",
        ),
        ([entry("m1", "gw1", "cp1")], [CP, GATEWAYS[0]], "spec.members[0].agentHosts[1]", "cp1 has not the role"),
    ],
    ids=["unknown", "role"],
)
def test_a_member_names_hosts_that_are_there_for_agents(
    members: list[Object], hosts: list[Object], where: str, told: str
) -> None:
    run = Runs(Path("/nowhere")).step(deployment(*members, hosts=hosts))
    (problem,) = host_list_checks.of_the_document(run.instance)
    assert (problem.where, told in problem.what) == (where, True)


def test_a_host_that_no_member_names_any_more_is_told_of_and_not_refused(runs: Runs) -> None:
    run = Checked(runs).run(entry("m1", "gw1"))
    assert list(host_list_checks.of_the_document(run.instance)) == []
    assert [*map(str, host_checks.hints(run.instance, run.observed))] == [
        "host gw2 (198.51.100.2): it has the role agent, and no member names it in its agentHosts"
    ]


def test_a_host_that_no_member_names_any_more_and_that_is_away_is_told_of(runs: Runs) -> None:
    assert [*map(str, host_preflight.hints(Checked(runs, {"refusal": REFUSED}).run()))] == []
    (hint,) = map(str, host_preflight.hints(Checked(runs, {"refusal": REFUSED}).run(entry("m2", "gw2"))))
    assert "host gw1 (198.51.100.1): nothing accepts connections" in hint


def test_hosts_of_members_may_be_in_a_network_of_another_family() -> None:
    hosts = [CP, {**GATEWAYS[0], "address": "2001:db8::1"}]
    assert manifest.validate(deployment(BOTH[0], hosts=hosts)) == []


def test_settings_of_pods_are_refused_where_no_agent_is_one() -> None:
    pods = {"karmadaAgent": {"nodeSelector": {"a": "b"}, "extraArgs": {"v": "1"}}}
    assert [each.where for each in mode_fields.problems(deployment(*BOTH, components=pods))] == [
        "spec.components.karmadaAgent.nodeSelector"
    ]
    assert mode_fields.problems(deployment(*BOTH, entry("m3"), components=pods)) == []
