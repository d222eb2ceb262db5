# SPDX-License-Identifier: Apache-2.0
"""Agents of members as units of hosts: what a host gets and what it never gets, and who is told when one is broken."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from ansible.errors import AnsibleError
from ansible_collections.karmada.installer.plugins.action import (
    host_components,
    host_programs,
    hosts_outcome,
    journal,
)
from ansible_collections.karmada.installer.plugins.module_utils import host_reach as kinds
from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components import known_flags, releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry, Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME, KARMADA_AGENT_ON_HOST
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import members_with_agent_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest, mode_fields
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
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
from ansible_collections.karmada.installer.plugins.plugin_utils.render import agent_units, unit_text
from ansible_collections.karmada.installer.plugins.plugin_utils.render import sockets as host_sockets
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units as render
from ansible_collections.karmada.installer.plugins.plugin_utils.render.agent_units import AgentAccess
from ansible_collections.karmada.installer.plugins.plugin_utils.report import observe_hosts, report
from ansible_collections.karmada.installer.plugins.plugin_utils.report.report import MemberStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_programs as programs_of_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run import reach
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.plugins.plugin_utils.run.test_on_hosts import (
    Runs,
    remembered,
    seen,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster
from ansible_collections.karmada.installer.tests.unit.support.samples import authorities, document

Object = dict[str, Any]

ROW = "karmada-agent"
SERVER = "https://192.0.2.50:6443"
ACCESS = AgentAccess(agent.host_access("m1", SERVER, {"data": {"token": "dA==", "ca.crt": "Y2E="}}) or b"", "identity")
CP = {"name": "cp1", "address": "192.0.2.1", "roles": ["etcd", "controlPlane"]}
GATEWAYS = [
    {"name": name, "address": f"198.51.100.{n}", "roles": ["agent"]} for n, name in enumerate(("gw1", "gw2"), 1)
]
NO_FACTS: Object = {"units": {}, "users": {}, "architecture": "x86_64"}


def entry(name: str, *hosts: str) -> Object:
    return {"name": name, "mode": "Pull", "secretRef": {"name": name}, **({"agentHosts": list(hosts)} if hosts else {})}


def deployment(*members: Object, hosts: list[Object] | None = None, **spec: Any) -> Object:
    """One control-plane host and two that run agents."""
    return document({"mode": "Binary", "hosts": hosts or [CP, *GATEWAYS], "members": list(members), **spec})


BOTH = (entry("m1", "gw1"), entry("m2", "gw1", "gw2"))


def access_of(*names: str) -> dict[str, AgentAccess]:
    return {name: replace(ACCESS, kubeconfig=ACCESS.kubeconfig.replace(b"m1", name.encode())) for name in names}


def after_install(**fields: Any) -> State:
    known = {"document": deployment(*BOTH), "hosts": {each["name"]: each for each in (CP, *GATEWAYS)}}
    return remembered(**{**known, **fields})


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """After an install; the hosts of members have nothing yet."""
    found = Runs(tmp_path / "run")
    stored = Stored(4).after(after_install())
    found.see(cp1=seen(stored), **dict.fromkeys(("gw1", "gw2"), seen(Stored(), facts=NO_FACTS)))
    return found


def joined(runs: Runs, *members: Object, names: tuple[str, ...] = ("m1", "m2")) -> Run:
    """The step after that in which these members were registered."""
    run = runs.step(deployment(*members))
    run.place.hand_on_agents(run, access_of(*names), more=False)
    return runs.step(deployment(*members))


def tree(run: Run, host: str = "gw1") -> Object:
    return run.on_host(host).tree([ROW])


def unit(found: Object, member: str) -> dict[str, list[str]]:
    path = f"/etc/systemd/system/karmada-prod-agent-{member}.service"
    text = base64.b64decode(next(each["content"] for each in found["files"] if each["path"] == path)).decode()
    lines: dict[str, list[str]] = {}
    for line in text.replace(" \\\n  ", " ").splitlines():
        key, _, value = line.partition("=")
        lines.setdefault(key, []).append(value)
    return lines


# -- what a host gets --------------------------------------------------------------------------------------------------


def test_a_host_runs_the_agents_of_its_members_each_with_ports_user_and_folder(runs: Runs) -> None:
    found = tree(joined(runs, *BOTH))
    assert {each["name"]: (each["health"]["url"], each["awaited"]) for each in found["units"]} == {
        "karmada-prod-agent-m1.service": ("http://127.0.0.1:10359/healthz", False),
        "karmada-prod-agent-m2.service": ("http://127.0.0.1:10361/healthz", False),
    }
    assert [each["name"] for each in found["users"]] == ["karmada-prod-agent-m1", "karmada-prod-agent-m2"]
    files = {each["path"]: each for each in found["files"]}
    config = files["/etc/karmada/prod/karmada-agent-m2/member/member.config"]
    assert (config["group"], config["mode"], config["secret"]) == ("karmada-prod-agent-m2", 0o640, True)
    assert json.loads(base64.b64decode(config["content"]))["clusters"][0]["cluster"]["server"] == SERVER
    assert [each["name"] for each in tree(joined(runs, *BOTH), "gw2")["units"]] == ["karmada-prod-agent-m2.service"]
    assert tree(joined(runs, *BOTH), "cp1")["units"] == []


def test_ports_of_all_agents_of_a_host_differ() -> None:
    members = [entry(f"m{number}", "gw1") for number in range(40)]
    instance = Runs(Path("/nowhere")).step(deployment(*members)).instance
    (gateway,) = (host for host in component_hosts.all_hosts(instance.spec) if host.name == "gw1")
    sockets = host_sockets.on_host(instance, gateway)
    assert len(sockets) == len({each.port for each in sockets}) == 80
    assert {each.address for each in sockets} == {render.LOOPBACK}


def test_the_unit_fetches_the_identity_before_it_starts_and_starts_anew_in_time(runs: Runs) -> None:
    lines = unit(tree(joined(runs, *BOTH)), "m1")
    (fetch,), (start,) = (
        (shlex.split(lines[key][0]) for key in ("ExecStartPre",)),
        (shlex.split(lines[key][0]) for key in ("ExecStart",)),
    )
    folder, identity = "/etc/karmada/prod/karmada-agent-m1", "/run/karmada-prod-agent-m1/identity.pem"
    assert fetch == [
        *("/usr/bin/python3", "-I", "-B", f"{folder}/fetch_identity.py"),
        *(f"{folder}/member/member.config", "karmada-cluster", "karmada-kubeconfig", identity),
    ]
    assert start[0] == f"/usr/local/lib/karmada/{releases.newest().karmada}/karmada-agent"
    assert {
        f"--karmada-kubeconfig={folder}/control-plane.config",
        f"--kubeconfig={folder}/member/member.config",
        f"--cluster-api-endpoint={SERVER}",
        "--cluster-name=m1",
        "--health-probe-bind-address=127.0.0.1:10359",
        "--metrics-bind-address=127.0.0.1:10360",
    } <= set(start)
    assert (lines["RuntimeDirectory"], lines["RuntimeDirectoryMode"]) == (["karmada-prod-agent-m1"], ["0700"])
    # A year: the certificate is renewed when a fifth is left, and is in use a twentieth later.
    assert lines["RuntimeMaxSec"] == [str(365 * 86400 // 20)]
    assert lines["User"] == ["karmada-prod-agent-m1"]
    assert "karmada-prod-apiserver.service" not in lines["After"][0]
    assert {key: value[-1] for key, value in lines.items()}.items() >= unit_text.HARDENING.items()


def test_where_the_control_plane_is_stands_in_a_file_that_no_member_writes(runs: Runs) -> None:
    run = joined(runs, *BOTH)
    files = {each["path"]: each for each in tree(run)["files"]}
    entry_of_it = files["/etc/karmada/prod/karmada-agent-m1/control-plane.config"]
    assert (entry_of_it["user"], entry_of_it["group"], entry_of_it["mode"]) == ("root", "karmada-prod-agent-m1", 0o640)
    config = json.loads(base64.b64decode(entry_of_it["content"]))
    (known,), (who,) = config["clusters"], config["users"]
    assert known["cluster"]["server"] == run.public_url == "https://192.0.2.1:5443"
    authority = run.state.authorities["karmada-ca"].certificate
    assert base64.b64decode(known["cluster"]["certificate-authority-data"]) == authority
    identity = "/run/karmada-prod-agent-m1/identity.pem"
    assert who == {"name": "m1", "user": {"client-certificate": identity, "client-key": identity}}
    (use,) = config["contexts"]
    assert (use["context"], config["current-context"]) == ({"cluster": known["name"], "user": "m1"}, use["name"])


def test_an_agent_executes_its_program_and_python_and_other_components_theirs(runs: Runs) -> None:
    libraries = ["-/lib", "-/lib64", "-/usr/lib", "-/usr/lib64"]
    program = f"-/usr/local/lib/karmada/{releases.newest().karmada}/karmada-agent"
    lines = unit(tree(joined(runs, *BOTH)), "m1")
    assert (lines["NoExecPaths"], lines["ExecPaths"]) == (["/"], [" ".join([program, "-/usr/bin/python3", *libraries])])
    of = runs.step(deployment()).instance
    (host, *_) = component_hosts.all_hosts(of.spec)
    for component in component_hosts.components_on(of, host):
        text = render.component_unit(of, component, render.layout(of, host, component, ""), "")
        paths = " ".join([f"-{render.program(of, component)}", *libraries])
        assert f"NoExecPaths=/\nExecPaths={paths}\n" in text


@pytest.mark.parametrize(("validity", "seconds"), [("8760h", 1576800), ("1h", 180), ("10m", 60)])
def test_an_agent_starts_anew_well_before_its_certificate_ends(validity: str, seconds: int) -> None:
    assert agent_units.seconds_between_starts(Spec({"certificates": {"validity": validity}})) == seconds


@pytest.mark.parametrize("release", releases.RELEASES, ids=lambda each: each.karmada)
def test_the_program_of_each_release_knows_the_flags_of_the_unit(release: releases.Release, runs: Runs) -> None:
    lines = unit(tree(joined(runs, *BOTH)), "m1")
    used = {each.removeprefix("--").partition("=")[0] for each in shlex.split(lines["ExecStart"][0])[1:]}
    assert used <= set(known_flags.flags(KARMADA_AGENT_ON_HOST, release))
    in_pods = {each.partition("=")[0] for each in agent.flags(joined(runs, *BOTH).instance, "m1", SERVER)}
    assert {f"--{each}" for each in used} - in_pods == {"--kubeconfig"}
    pod_only = in_pods - {f"--{each}" for each in used}
    assert pod_only == set()


def test_settings_of_the_document_reach_the_unit(runs: Runs) -> None:
    settings = {
        "extraArgs": {"v": "4"},
        "featureGates": {"MultiClusterService": True},
        "resources": {"limits": {"memory": "1Gi"}},
        "extraEnv": [{"name": "NO_PROXY", "value": "*"}],
    }
    wanted = deployment(*BOTH, components={"karmadaAgent": settings})
    run = runs.step(wanted)
    run.place.hand_on_agents(run, access_of("m1", "m2"), more=False)
    lines = unit(tree(runs.step(wanted)), "m1")
    assert {"--v=4", "--feature-gates=MultiClusterService=true"} <= set(shlex.split(lines["ExecStart"][0]))
    assert (lines["MemoryMax"], '"NO_PROXY=*"' in lines["Environment"]) == ([str(2**30)], True)


@pytest.mark.parametrize(
    "change",
    [
        {"identity": "that of another endpoint"},
        {"kubeconfig": ACCESS.kubeconfig.replace(b'"t"', b'"another"')},
        {"kubeconfig": ACCESS.kubeconfig.replace(b"192.0.2.50", b"192.0.2.51")},
    ],
    ids=["identity", "token", "address"],
)
def test_what_an_agent_reads_when_it_starts_restarts_it(change: Mapping[str, Any], runs: Runs) -> None:
    run = joined(runs, *BOTH)
    before = {each["name"]: each["hash"] for each in tree(run)["units"]}
    assert {each["name"]: each["hash"] for each in tree(runs.step(deployment(*BOTH)))["units"]} == before
    run.place.hand_on_agents(run, {**access_of("m2"), "m1": replace(ACCESS, **change)}, more=False)
    after = {each["name"]: each["hash"] for each in tree(runs.step(deployment(*BOTH)))["units"]}
    assert {name for name in after if after[name] != before[name]} == {"karmada-prod-agent-m1.service"}


def test_one_that_was_not_looked_at_keeps_what_it_has(runs: Runs) -> None:
    found = tree(joined(runs, *BOTH, names=("m2",)))
    assert [each["name"] for each in found["units"]] == ["karmada-prod-agent-m2.service"]
    assert found["absent"]["units"] == []
    # How it is, is told all the same.
    (watched,) = found["watched"]
    assert watched["name"] == "karmada-prod-agent-m1.service"
    health = {each["name"]: each["health"] for each in tree(joined(runs, *BOTH))["units"]}
    assert watched["health"] == health["karmada-prod-agent-m1.service"]


# -- what it never gets ------------------------------------------------------------------------------------------------


class Asked:
    """An action on a host, with what it asks modules for in the place of doing it."""

    def __init__(self, action: type[HostAction], run: Run, host: str, answer: Any = None) -> None:
        self.asked: list[Object] = []
        self.answer = answer
        self.action: Any = action.__new__(action)
        host_entry = {**run.state.hosts, **{each.name: each.plain for each in run.spec.hosts}}[host]
        self.action.karmada, self.action.variables = run, {"karmada_host": host_entry}
        self.action._task = SimpleNamespace(check_mode=False, delegate_to=None, name="the step")
        self.action.on_host = self._on_host

    def _on_host(self, module: str, **arguments: Any) -> Object:
        self.asked.append({"module": module, **arguments})
        if isinstance(self.answer, Exception):
            raise self.answer
        return dict(self.answer or {"changed": True})

    def perform(self, **arguments: Any) -> Object:
        found: Object = self.action._performed(self.action.karmada, arguments)
        return found


def test_the_state_with_the_keys_of_authorities_is_on_no_host_of_a_member(runs: Runs) -> None:
    run = runs.step(deployment(*BOTH))
    run.place.hand_on_agents(run, access_of("m1", "m2"), more=False)
    assert run.state.authorities, "or nothing is proved"
    for host, sent in (("cp1", ["written"]), ("gw1", []), ("gw2", [])):
        step = Asked(journal.OnHost, runs.step(deployment(*BOTH)), host)
        step.perform(state="written", required=True)
        assert [each["state"] for each in step.asked] == sent, host


@pytest.mark.parametrize(
    ("required", "before", "sent"), [(False, 0, []), (True, 0, ["written"]), (False, 3, ["written"])]
)
def test_a_run_that_ends_before_its_first_change_leaves_no_state(
    required: bool, before: int, sent: list[str], tmp_path: Path
) -> None:
    """Where no host has one: a host that was away is brought up to date all the same."""
    runs = Runs(tmp_path / "first")
    stored = Stored(before).after(after_install()) if before else Stored()
    runs.see(cp1=seen(Stored(), facts=NO_FACTS), cp2=seen(stored, facts=NO_FACTS))
    second = {"name": "cp2", "address": "192.0.2.2", "roles": ["controlPlane"]}
    wanted = deployment(hosts=[CP, second], endpoint={"type": "External", "host": "192.0.2.9"})
    run = runs.step(wanted)
    run.save(run.state)
    step = Asked(journal.OnHost, runs.step(wanted), "cp1")
    step.perform(state="written", required=required)
    assert [each["state"] for each in step.asked] == sent


def test_hosts_that_differ_in_the_state_keep_it_and_are_let_go_of(runs: Runs) -> None:
    """That they do was told before; here it is no second error."""
    second = {"name": "cp2", "address": "192.0.2.2", "roles": ["controlPlane"]}
    endpoint = {"type": "External", "host": "192.0.2.9"}
    wanted = deployment(*BOTH, hosts=[CP, second, *GATEWAYS], endpoint=endpoint)
    step = Asked(journal.OnHost, runs.step(wanted), "cp1")
    runs.see(cp2=seen(Stored(4).after(after_install(endpoint_host="x"))))
    for state, sent in (("written", []), ("released", ["released"])):
        step.action.karmada = runs.step(wanted)
        step.perform(state=state, required=False)
        assert [each["state"] for each in step.asked] == sent
    with pytest.raises(ProblemsError, match=r"differ, and .* find out which of them is right, and remove .*/prod from"):
        step.perform(state="written", required=True)


def test_a_host_of_members_has_no_say_in_the_state(runs: Runs) -> None:
    runs.see(gw1=seen(Stored(98).after(after_install(endpoint_host="x"))), gw2=seen(Stored(98).after(remembered())))
    assert runs.step(deployment(*BOTH)).store.stored.serial == 5


def test_a_host_that_was_one_of_the_control_planes_loses_the_state(runs: Runs) -> None:
    runs.see(gw1=seen(Stored(3).after(remembered()), facts=NO_FACTS))
    step = Asked(journal.OnHost, runs.step(deployment(*BOTH)), "gw1")
    step.perform(state="written", required=True)
    assert [(each["state"], "content" in each) for each in step.asked] == [("absent", False)]


def test_nothing_of_the_control_planes_keys_is_in_what_a_host_gets(runs: Runs) -> None:
    run = joined(runs, *BOTH)
    view = run.on_host("gw1")
    whole = [view.tree(names) for names in ([ROW], list(BY_NAME))]
    content = b"".join(base64.b64decode(file["content"]) for each in whole for file in each["files"])
    assert not re.search(rb"BEGIN [A-Z ]*PRIVATE KEY", content)
    assert {file["path"].rsplit("/", 1)[-1] for each in whole for file in each["files"]} == {
        "control-plane.config",
        "member.config",
        "fetch_identity.py",
        "karmada-prod-agent-m1.service",
        "karmada-prod-agent-m2.service",
    }
    assert view.tree(list(BY_NAME))["units"] == []


def test_a_host_is_on_record_before_anything_is_put_there(runs: Runs) -> None:
    left_with(runs, hosts={"cp1": CP})
    new = {"name": "cp9", "address": "192.0.2.9", "roles": ["controlPlane"]}
    wanted = deployment(*BOTH, hosts=[CP, *GATEWAYS, new], endpoint={"type": "External", "host": "192.0.2.1"})
    run = runs.step(wanted)
    run.place.hand_on_agents(run, access_of("m1", "m2"), more=False)
    assert set(runs.step(wanted).state.hosts) == {"cp1", "gw1", "gw2"}


def test_a_host_without_the_state_is_no_reason_to_write_it(runs: Runs) -> None:
    done = replace(runs.step(deployment(*BOTH)).state, document=deployment(*BOTH))
    runs.see(cp1=seen(Stored(4).after(done)))
    assert not runs.step(deployment(*BOTH)).begin()
    runs.see(cp1={"stored": Stored(3).after(done).plain}, gw1={"stored": Stored(9).after(done).plain})
    assert runs.step(deployment(*BOTH)).begin()


# -- those that end ----------------------------------------------------------------------------------------------------


def gone(run: Run, host: str = "gw1") -> list[str]:
    names = [each["name"] for each in tree(run, host)["absent"]["units"]]
    return [name.split("agent-")[1].removesuffix(".service") for name in names if "-agent-" in name]


def left_with(runs: Runs, **fields: Any) -> None:
    runs.see(cp1=seen(Stored(8).after(after_install(member_places={"m1": 0, "m2": 1}, **fields))))


def test_the_agent_of_one_that_leaves_is_there_until_it_has_left(runs: Runs) -> None:
    record = {"mode": "Pull", "agentHosts": ["gw1"]}
    left_with(runs, members={"m1": record, "m2": record})
    run = joined(runs, BOTH[1], names=("m2",))
    assert gone(run) == []
    run.save(run.state.without_member("m1"))
    assert gone(runs.step(deployment(BOTH[1]))) == ["m1"]


def test_a_host_that_a_member_names_no_more_loses_its_unit(runs: Runs) -> None:
    left_with(runs, members={"m2": {"mode": "Pull", "agentHosts": ["gw1", "gw2"]}})
    moved = (entry("m1", "gw1"), entry("m2", "gw2"))
    run = joined(runs, *moved)
    assert (gone(run, "gw1"), gone(run, "gw2")) == ([], ["m1"]), "joining has not recorded the new host yet"
    run.save(replace(run.state, members={"m2": {"mode": "Pull", "agentHosts": ["gw2"]}}))
    run = joined(runs, *moved)
    assert (gone(run, "gw1"), gone(run, "gw2")) == (["m2"], ["m1"])
    run.save(replace(run.state, members={"m2": {"mode": "Pull"}}))
    back_in_pods = joined(runs, entry("m1", "gw1"), entry("m2"))
    assert (gone(back_in_pods, "gw1"), gone(back_in_pods, "gw2")) == (["m2"], ["m1", "m2"])


def test_the_steps_for_the_control_plane_leave_agents_alone(runs: Runs) -> None:
    left_with(runs, members={})
    found = joined(runs, entry("m2", "gw2")).on_host("gw1").tree(list(BY_NAME))
    assert not any("-agent-" in each["name"] for each in found["absent"]["units"])


@pytest.mark.parametrize(
    ("trouble", "kept"),
    [(None, {"m2": 1}), ({"step": "x", "reason": "lost", "lost": True}, {"m1": 0, "m2": 1})],
    ids=["all is well", "a host is in trouble"],
)
def test_places_are_kept_until_every_host_is_clean(trouble: Object | None, kept: Mapping[str, int], runs: Runs) -> None:
    left_with(runs, members={"m2": {"mode": "Pull", "agentHosts": ["gw2"]}})
    runs.see(gw1={"trouble": trouble})
    run = runs.step(deployment(entry("m2", "gw2", "gw1")))
    assert run.finish()
    assert run.state.member_places == kept


def test_one_that_could_not_leave_keeps_its_place(runs: Runs) -> None:
    left_with(runs, members={"m1": {"mode": "Pull", "agentHosts": ["gw1"]}, "m2": {"mode": "Push"}})
    run = runs.step(deployment())
    assert run.finish()
    assert run.state.member_places == {"m1": 0}


def test_an_uninstall_takes_units_users_and_folders_of_all_agents(runs: Runs) -> None:
    left_with(runs, members={})
    found = render.skeleton(runs.step(deployment(entry("m3", "gw1"))).instance)
    units = {each["name"] for each in found["units"]}
    assert {f"karmada-prod-agent-m{number}.service" for number in (1, 2, 3)} <= units
    assert {f"karmada-prod-agent-m{number}" for number in (1, 2, 3)} <= {each["name"] for each in found["users"]}


def test_hosts_that_cannot_have_anything_of_it_are_not_asked(runs: Runs) -> None:
    joined(runs, *BOTH)
    runs.see(cp1={"facts": NO_FACTS})
    for host, asks in (("cp1", 0), ("gw1", 1)):
        step = Asked(host_components.ActionModule, runs.step(deployment(*BOTH)), host)
        step.perform(components=[ROW], state="present", restart=True, wait_for="none", timeout=1)
        assert len(step.asked) == asks, host
    # An agent that is left as it is, is looked at.
    left_alone = runs.step(deployment(*BOTH))
    left_alone.handover.agents = {}
    step = Asked(host_components.ActionModule, left_alone, "gw1")
    step.perform(components=[ROW], state="present", restart=True, wait_for="none", timeout=1)
    assert [json.loads(each["tree"])["units"] for each in step.asked] == [[]]
    assert not runs.step(deployment(*BOTH)).on_host("cp1").has_agents()
    facts = {**NO_FACTS, "units": {"karmada-prod-agent-m1.service": {"owner": "x", "description": ""}}}
    runs.see(cp1={"facts": facts})
    assert runs.step(deployment(*BOTH)).on_host("cp1").has_agents()


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
    for check in ("_version", "_hosts", "_crds", "_external_etcd", "_place_access"):
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


# -- the report --------------------------------------------------------------------------------------------------------


def test_the_report_says_where_agents_run(runs: Runs) -> None:
    runs.see(gw1={"units": {"karmada-prod-agent-m2.service": {"program": "", "reason": ""}}})
    agents = observe_hosts._agents(runs.step(deployment(*BOTH)))
    assert [(each.name, each.desired, each.ready) for each in agents] == [
        ("karmada-agent-m1", 1, 0),
        ("karmada-agent-m2", 2, 1),
    ]
    hosts = members_with_agent_hosts(Spec(deployment(*BOTH)["spec"]))["m2"]
    status = MemberStatus("m2", "Pull", "v1.35.0", ready=True, reason="", since="", agent_hosts=hosts)
    rows = report._members(SimpleNamespace(broken_members=[], members=[status]))  # type: ignore[arg-type]
    assert rows[0]["agentHosts"] == ["gw1", "gw2"]


def test_what_is_on_record_says_where_the_agent_of_one_that_leaves_runs() -> None:
    state: State = member_join.recorded(remembered(), MemberEntry({**BOTH[1], "onLeave": "Retain"}), [])
    assert state.members["m2"]["agentHosts"] == ["gw1", "gw2"]
