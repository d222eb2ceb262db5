# SPDX-License-Identifier: Apache-2.0
"""Agents of members as units of hosts: what a host gets, and what the report says of it."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components import known_flags, releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry, Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import KARMADA_AGENT_ON_HOST
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import members_with_agent_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.render import agent_units, unit_text
from ansible_collections.karmada.installer.plugins.plugin_utils.render import sockets as host_sockets
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units as render
from ansible_collections.karmada.installer.plugins.plugin_utils.report import observe_hosts, report
from ansible_collections.karmada.installer.plugins.plugin_utils.report.report import MemberStatus
from ansible_collections.karmada.installer.tests.unit.support.agent_hosts import (
    ACCESS,
    BOTH,
    SERVER,
    Object,
    access_of,
    deployment,
    entry,
    joined,
    tree,
)
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered


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


# -- before the first change -------------------------------------------------------------------------------------------


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
    rows = report._members(SimpleNamespace(broken_members=[], wanted_members=[], api_ready=True, members=[status]))  # type: ignore[arg-type]
    assert rows[0]["agentHosts"] == ["gw1", "gw2"]


def test_what_is_on_record_says_where_the_agent_of_one_that_leaves_runs() -> None:
    state: State = member_join.recorded(remembered(), MemberEntry({**BOTH[1], "onLeave": "Retain"}), [])
    assert state.members["m2"]["agentHosts"] == ["gw1", "gw2"]
