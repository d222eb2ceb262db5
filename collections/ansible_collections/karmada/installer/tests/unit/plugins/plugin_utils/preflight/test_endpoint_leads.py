# SPDX-License-Identifier: Apache-2.0
"""Where the endpoint leads before anything is made: names that nobody knows, and API servers of somebody else."""

from __future__ import annotations

import json
import socket
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.reach_targets import ActionModule as Targets
from ansible_collections.karmada.installer.plugins.module_utils import host_reach as kinds
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import ways_on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import kubeconfig as pki_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import (
    endpoint_checks,
    endpoint_look,
    findings,
    member_checks,
    reach_from_hosts,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight.endpoint_look import Seen
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.plugins.module_utils.test_host_reach import certificate, server
from ansible_collections.karmada.installer.tests.unit.support import agent_hosts as of_agents
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run
from ansible_collections.karmada.installer.tests.unit.support.moments import closed_port
from ansible_collections.karmada.installer.tests.unit.support.preflight_samples import host, problems
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, deployment, remembered, seen
from ansible_collections.karmada.installer.tests.unit.support.samples import NOW, authorities, document, state

NAME = "karmada.example.com"
EXTERNAL = {"type": "External", "host": NAME}
STRANGER = x509.new_authority(x509.Authority("other", "the CA of others"), "ECDSA-P256", NOW)
OURS = authorities()["karmada-ca"]
UNKNOWN = Seen(unknown="Name or service not known")


def answers(authority: KeyPair = STRANGER, *names: str, common_name: str = "kube-apiserver") -> Seen:
    """Somebody with a certificate for these names, by default an API server."""
    about = x509.Certificate("x", "x", common_name, dns_names=names or ("kubernetes.default.svc", "a"), server=True)
    return Seen(
        ("192.0.2.66",), certificate=x509.issue(about, authority, "ECDSA-P256", NOW, timedelta(1)).certificate.decode()
    )


def looked(run: Run, what: Seen, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Problem], list[str]]:
    """What is wrong, and what is said."""
    said: list[str] = []
    run.say = said.append
    asked: list[tuple[str, int]] = []

    def look(name: str, port: int) -> Seen:
        asked.append((name, port))
        return what

    monkeypatch.setattr(endpoint_look, "look", look)
    found = list(endpoint_checks.leads(run))
    assert all(problem.where and problem.remedy for problem in found)
    looked.asked = asked  # type: ignore[attr-defined]
    return found, said


def in_pods(settings: dict[str, Any] = EXTERNAL, *, installed: bool = False) -> Run:
    deployed = document({"endpoint": settings})
    return fake_run(deployed, host(), stored=state(document=deployed) if installed else None)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    found = Runs(tmp_path / "run")
    found.see_all(seen(Stored()))
    return found


def test_a_name_that_leads_to_where_nobody_answers_yet_is_fine(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    for run in (in_pods(), runs.step()):
        assert looked(run, Seen(("203.0.113.1",)), monkeypatch) == ([], [])
        assert looked.asked == [(NAME, 5443)]  # type: ignore[attr-defined]


def test_a_name_that_is_not_known_here_is_told_and_not_refused(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    for run in (in_pods(), in_pods({"type": "Ingress", "host": NAME}), runs.step()):
        found, (told,) = looked(run, UNKNOWN, monkeypatch)
        assert found == []
        assert told.startswith(f"hint: the name {NAME} (spec.endpoint.host) is not known to this machine (Name or ")


@pytest.mark.parametrize(
    "settings", [{"type": "ClusterIP"}, {"type": "ClusterIP", "host": NAME}, {"type": "NodePort"}], ids=str
)
def test_where_clients_are_not_sent_to_a_name_of_the_document_nobody_is_asked(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looked(in_pods(settings), answers(), monkeypatch) == ([], [])
    assert looked.asked == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("installed", [False, True], ids=["first", "later"])
def test_an_api_server_of_somebody_else_is_refused(
    installed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_hosts = Runs(tmp_path / "run")
    on_hosts.see_all(seen(Stored(4).after(remembered()) if installed else Stored()))
    for run in (in_pods(installed=installed), on_hosts.step()):
        (problem,), _ = looked(run, answers(), monkeypatch)
        assert problem.what == (
            f"another API server answers at https://{NAME}:5443, which leads to 192.0.2.66 from here: its certificate "
            "is of CN=kube-apiserver, issued by CN=the CA of others, and not signed by the CA of this control plane"
        )
        assert problem.where == "spec.endpoint.host"
        assert "extraSANs" in problem.remedy


def test_preflight_tells_it_with_everything_else_in_both_modes(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    monkeypatch.setattr(endpoint_look, "look", lambda *_: answers())
    assert [each.where for each in problems(in_pods())] == ["spec.endpoint.host"]
    for check in ("_crds", "_external_etcd"):
        monkeypatch.setattr(findings, check, lambda *_: [])
    monkeypatch.setattr(findings.host_preflight, "problems", lambda *_: [])
    monkeypatch.setattr(member_checks, "registered_clusters", lambda _run: Clusters())
    assert [each.where for each in findings.findings(runs.step()).all] == ["spec.endpoint.host"]


def test_our_own_answers_by_whatever_name_it_has_so_far(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    runs.see_all(seen(Stored(4).after(remembered())))
    for run in (in_pods(installed=True), runs.step()):
        assert looked(run, answers(OURS), monkeypatch) == ([], [])


@pytest.mark.parametrize(
    "who",
    [
        answers(STRANGER, "ingress.local", common_name="Kubernetes Ingress Controller Fake Certificate"),
        Seen(("192.0.2.66",), certificate="-----BEGIN CERTIFICATE-----\n"),
        Seen(("192.0.2.66",)),
    ],
    ids=["a proxy", "nonsense", "nobody"],
)
def test_who_is_no_api_server_may_be_what_will_pass_connections_on(who: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked(in_pods(), who, monkeypatch) == ([], [])
    assert looked(in_pods(installed=True), who, monkeypatch) == ([], [])


def test_words_of_a_certificate_are_no_commands_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    (problem,), _ = looked(in_pods(), answers(common_name="a\x1b]0;owned\x07" + "b" * 30), monkeypatch)
    assert problem.what.isprintable()


def test_an_address_of_another_control_plane_is_refused_too(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    (problem,), _ = looked(in_pods({**EXTERNAL, "host": "192.0.2.66"}), answers(), monkeypatch)
    assert problem.what.startswith("another API server answers at https://192.0.2.66:5443: its certificate")
    virtual = {"type": "VirtualIP", "virtualIP": {"address": "192.0.2.100"}}
    (problem,), said = looked(runs.step(deployment(endpoint=virtual)), answers(), monkeypatch)
    assert (problem.where, said) == ("spec.endpoint.virtualIP.address", [])


def test_while_a_host_lets_nobody_in_it_is_not_known_whose_it_is(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    runs.see(cp1={"refusal": "it does not answer"})
    assert looked(runs.step(), answers(), monkeypatch) == ([], [])


def named(run: Run, addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found, said = looked(run, Seen(addresses), monkeypatch)
    assert found == []
    return said


def test_a_name_beside_the_virtual_ip_is_told(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    settings = {"type": "VirtualIP", "virtualIP": {"address": "192.0.2.100"}, "host": NAME}
    run = runs.step(deployment(endpoint=settings))
    assert named(run, ("192.0.2.100",), monkeypatch) == []
    (told,) = named(run, ("203.0.113.9", "192.0.2.1"), monkeypatch)
    assert f"{NAME} (spec.endpoint.host) leads to 203.0.113.9, 192.0.2.1 from here, and not to the virtual IP" in told


def test_a_name_that_leads_past_the_api_servers_is_told(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    store, other = ({"name": f"e{n}", "address": f"192.0.2.20{n}", "roles": ["etcd"]} for n in (1, 2))
    api = {"name": "cp1", "address": "192.0.2.1", "roles": ["etcd", "controlPlane"]}
    run = runs.step(deployment(hosts=[api, store, other]))
    assert named(run, (api["address"], store["address"]), monkeypatch) == []
    assert named(run, ("203.0.113.9",), monkeypatch) == [], "a load balancer of the site"
    (told,) = named(run, (store["address"],), monkeypatch)
    assert "leads to e1 (192.0.2.201), where no API server runs" in told
    for here in ("127.0.1.1", "::1"):
        (told,) = named(run, (here,), monkeypatch)
        assert f"leads this machine to itself ({here})" in told
    assert named(run, ("fe80::1%eth0",), monkeypatch) == []


# -- from hosts --------------------------------------------------------------------------------------------------------


def targets(run: Run, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    monkeypatch.setattr(member_checks, "registered_clusters", lambda _run: Clusters())
    monkeypatch.setattr(ways_on_hosts, "targets", lambda _run: {})
    action: Any = Targets.__new__(Targets)
    found: dict[str, list[str]] = action.perform(run, {})["hosts"]
    return found


def test_hosts_look_up_a_name_that_is_new(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    assert targets(runs.step(), monkeypatch) == {"cp1": ["/endpoint"], "cp2": ["/endpoint"]}
    (target,) = runs.step().observed["cp1"].targets
    assert (target.host, target.port) == (NAME, 0)
    runs.see_all(seen(Stored(4).after(remembered())))
    assert targets(runs.step(), monkeypatch) == {}
    moved = deployment(endpoint={**EXTERNAL, "host": "new.example.com"})
    assert targets(runs.step(moved), monkeypatch) == {"cp1": ["/endpoint"], "cp2": ["/endpoint"]}
    direct = deployment(endpoint={**EXTERNAL, "host": "192.0.2.9"})
    assert targets(runs.step(direct), monkeypatch) == {}


def test_hosts_that_do_not_know_the_name_are_told_together(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    targets(runs.step(), monkeypatch)
    fault = {"fault": kinds.UNKNOWN_NAME, "detail": "Name or service not known"}
    runs.see(cp1={"unreached": {"/endpoint": fault}}, cp2={"unreached": {"/endpoint": fault}})
    found, (told,) = looked(runs.step(), Seen(("203.0.113.1",)), monkeypatch)
    assert found == []
    assert f"the name {NAME} (spec.endpoint.host) is not known on cp1, cp2 (Name or service not known)" in told
    assert reach_from_hosts.from_hosts(runs.step()) == {}


def test_an_agent_that_would_not_find_the_control_plane_is_its_members_problem_at_the_first_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path / "run")
    runs.see(**dict.fromkeys(("cp1", "gw1", "gw2"), seen(Stored())))
    config = pki_kubeconfig.kubeconfig("m", of_agents.SERVER, OURS.certificate, "admin", "token", context="m")
    monkeypatch.setattr(Run, "secret", lambda *_: {"kubeconfig": json.dumps(config).encode()})
    wanted = of_agents.deployment(*of_agents.BOTH, endpoint=EXTERNAL)
    found = targets(runs.step(wanted), monkeypatch)
    assert found["gw1"] == ["m1", "m1/endpoint", "m2", "m2/endpoint"]
    fault = {"fault": kinds.UNKNOWN_NAME, "detail": ""}
    runs.see(gw1={"unreached": {"m1/endpoint": fault}})
    (problem,) = reach_from_hosts.from_hosts(runs.step(wanted))["m1"]
    assert problem.what == f"gw1 does not reach https://{NAME}:5443: the name {NAME} is not known there"
    assert problem.where == "spec.members[m1]"


# -- the look ----------------------------------------------------------------------------------------------------------

LOOK = endpoint_look.look


def name_service(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    of_system = socket.getaddrinfo

    def resolve(host: str, *more: Any, **how: Any) -> Any:
        if host != NAME:
            return of_system(host, *more, **how)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in (*addresses, *addresses)]

    monkeypatch.setattr(endpoint_look.socket, "getaddrinfo", resolve)


def test_who_answers_is_seen_by_its_certificate_and_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = certificate()
    with server(pair) as port:
        name_service(monkeypatch, "127.0.0.2", "127.0.0.1")
        assert LOOK(NAME, port, 300) == Seen(("127.0.0.2", "127.0.0.1"), certificate=pair.certificate.decode())
        assert LOOK(NAME, 0, 300) == Seen(("127.0.0.2", "127.0.0.1"))
    with server(None) as port:
        assert LOOK(NAME, port, 300) == Seen(("127.0.0.2", "127.0.0.1"))


def test_a_name_that_nobody_knows_and_a_port_where_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    name_service(monkeypatch)
    assert LOOK(NAME, 5443, 300) == UNKNOWN
    name_service(monkeypatch, "127.0.0.1")
    with closed_port() as port:
        assert LOOK(NAME, port, 300) == Seen(("127.0.0.1",))


def test_an_address_that_nobody_has_is_not_waited_for_as_long_as_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    name_service(monkeypatch, "192.0.2.1", "192.0.2.2")
    waited = []

    def silent(_place: tuple[str, int], timeout: float) -> Any:
        waited.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(endpoint_look.socket, "create_connection", silent)
    assert LOOK(NAME, 6443) == Seen(("192.0.2.1", "192.0.2.2"))
    assert waited == [endpoint_look.SECONDS_AT_ADDRESS] * 2
    assert endpoint_look.SECONDS_AT_ADDRESS < endpoint_look.SECONDS / 2


def test_a_name_service_that_says_nothing_keeps_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    def silent(*_where: Any, **_how: Any) -> Any:
        end.wait(300)
        raise OSError

    monkeypatch.setattr(endpoint_look.socket, "getaddrinfo", silent)
    try:
        assert LOOK(NAME, 5443, 0.01).unknown == "nobody has answered for it within 0 seconds"
    finally:
        end.set()
