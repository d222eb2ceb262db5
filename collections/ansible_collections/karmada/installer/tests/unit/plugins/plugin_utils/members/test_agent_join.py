# SPDX-License-Identifier: Apache-2.0
"""Joining in mode Pull: the agent gets one certificate, by a request that is gone afterwards, wherever a run ends."""

from __future__ import annotations

import base64
import contextlib
import json
from datetime import timedelta
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import CLIENT_SIGNING_CA
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Conflict, Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.members import (
    account_tokens,
    agent,
    agent_join,
    registration,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.members.works import NO_NEW_WORKS_LABEL
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import kubeconfig as pki_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509 as pki
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, count_requests, fake_run
from ansible_collections.karmada.installer.tests.unit.support.pull_member_in_memory import CSR, M1, Killed, Object, Site
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state


def test_a_second_run_makes_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    assert "created Deployment karmada-cluster/karmada-agent" in site.run()
    site.assert_joined()
    assert site.asked == 1
    assert site.run() == []
    assert site.asked == 1


def test_requests_do_not_grow_with_what_an_agent_has(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    asked = count_requests(monkeypatch)
    assert site.run() == []
    # On top of those for one in mode Push: its two rights and its pods; its namespace, requests and eight rights.
    assert asked.items() >= {"member m1": 9, "control plane": 12}.items()
    asked.clear()
    assert site.run({**M1, "region": "eu"}) == ["changed Cluster m1"]
    # Whoever writes asks once more whom the member follows.
    assert asked.items() >= {"member m1": 9 + 14, "control plane": 12 + 14}.items()


def test_the_key_of_the_administrator_is_not_on_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    who = agent.identity_of(site.secret)
    assert who
    assert pki.describe(who.pair.certificate)[
        "subject"
    ] == "CN=system:karmada:agent:m1,O=system:karmada:agents".replace(",", ", ")


@pytest.mark.parametrize("writes", range(0, 44, 3))
def test_killed_at_any_write_and_run_again_it_comes_to_the_same_end(
    writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(monkeypatch)
    site.writes_left[0] = writes
    with contextlib.suppress(Killed):
        site.run()
    site.writes_left[0] = -1
    site.run()
    site.assert_joined()
    assert site.run() == []


def test_one_that_the_agent_has_renewed_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    who = agent.identity_of(site.secret)
    assert who
    wanted = pki.Certificate("x", "", agent.user("m1"), ("system:karmada:agents",), client=True)
    renewed = pki.issue(wanted, site.state.authorities[CLIENT_SIGNING_CA], "RSA-3072", site.now, timedelta(days=365))
    config = pki_kubeconfig.kubeconfig("other", who.server, who.ca_pem, "m1", renewed, context="other")
    live = site.member.objects["v1", "Secret", "karmada-cluster", agent.SECRET]
    live["data"] = {agent.SECRET: base64.b64encode(yaml.safe_dump(config).encode()).decode()}
    assert site.run() == []


def test_a_secret_that_somebody_else_has_changed_is_told_and_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    before = agent.identity_of(site.secret)
    assert before
    live = site.member.objects["v1", "Secret", "karmada-cluster", agent.SECRET]
    config = yaml.safe_load(base64.b64decode(live["data"][agent.SECRET]))
    config["users"][0]["user"]["exec"] = {"command": "/bin/sh"}
    live["data"] = {agent.SECRET: base64.b64encode(yaml.safe_dump(config).encode()).decode()}
    site.said.clear()
    assert "changed Secret karmada-cluster/karmada-kubeconfig" in site.run()
    (told,) = [each for each in site.said if "is written anew" in each]
    assert "member m1: its Secret karmada-cluster/karmada-kubeconfig" in told
    assert "has exec, which neither the agent nor the installer writes there" in told
    after = agent.identity_of(site.secret)
    assert after
    # Whoever could write it could read it, too.
    assert after.pair.key != before.pair.key
    assert site.run() == []


def test_another_endpoint_is_told_to_the_agent_that_keeps_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    before = agent.identity_of(site.secret)
    monkeypatch.setattr(Run, "public_url", "https://karmada.example.com")
    changed = site.run()
    assert changed == [
        "changed Deployment karmada-cluster/karmada-agent",
        "changed Secret karmada-cluster/karmada-kubeconfig",
    ]
    after = agent.identity_of(site.secret)
    assert before
    assert after
    assert (after.pair, after.server) == (before.pair, "https://karmada.example.com")
    assert site.asked == 1
    assert site.run() == []


def test_one_whose_identity_was_lost_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    del site.member.objects["v1", "Secret", "karmada-cluster", agent.SECRET]
    assert "created Secret karmada-cluster/karmada-kubeconfig" in site.run()
    site.assert_joined()
    assert site.asked == 2


def test_what_the_document_says_of_a_member_changes_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    assert site.run({**M1, "region": "eu", "labels": {"tier": "prod"}}) == ["changed Cluster m1"]


def test_one_that_karmada_has_approved_first_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.inside.others_approve = True
    site.run()
    site.assert_joined()
    assert site.asked == 1


@pytest.mark.parametrize(
    "theirs",
    [
        {"request": base64.b64encode(b"for another key").decode()},
        {"signerName": "kubernetes.io/kubelet-serving"},
        {"usages": ["server auth"]},
        {"expirationSeconds": 2**31 - 1},
    ],
    ids=lambda field: next(iter(field)),
)
def test_a_request_that_somebody_else_has_made_under_the_same_name_is_neither_approved_nor_deleted(
    theirs: Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents may make requests: one whose name was guessed would get the certificate of another member."""
    site = Site(monkeypatch)
    create = site.inside.create

    def first(obj: Object, **more: Any) -> Object:
        if obj["kind"] != CSR:
            return create(obj, **more)
        spec = {**obj["spec"], **theirs, "username": "system:karmada:agent:m2"}
        site.inside.put({**obj, "spec": spec})
        raise Conflict("control plane", "POST", "/", 409, "AlreadyExists", "already exists")

    monkeypatch.setattr(site.inside, "create", first)
    with pytest.raises(ProblemsError, match=r"has made one of this name \(as system:karmada:agent:m2\)"):
        site.run()
    assert site.asked == 0
    assert len(site.inside.names(CSR)) == 1
    assert site.member.names("Secret") & {agent.SECRET} == set()


def test_nobody_but_the_installer_is_allowed_anything_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token is made by which somebody else could get a certificate."""
    site = Site(monkeypatch)
    site.run()
    assert [line for line in site.inside.log if line.split()[:2] == ["create", "Secret"]] == []


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({}, "was not signed within"),
        ({"conditions": [{"type": "Denied", "message": "never"}]}, "was refused: never"),
    ],
    ids=["not signed", "denied"],
)
def test_a_request_that_is_not_granted_is_told_and_taken_back(
    status: Object, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(monkeypatch)
    site.judge = lambda _request: status
    monkeypatch.setattr(agent_join, "CERTIFICATE_SECONDS", 0.1)
    with pytest.raises(ProblemsError, match=told):
        site.run()
    assert site.inside.names(CSR) == set()
    assert site.member.names("Deployment") == set()


def test_a_leave_that_did_not_come_to_its_end_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nothing new would be propagated to the member."""
    site = Site(monkeypatch)
    site.run()
    space = site.inside.objects["v1", "Namespace", None, "karmada-es-m1"]
    space["metadata"]["labels"][NO_NEW_WORKS_LABEL] = "true"
    assert site.run() == ["changed Namespace karmada-es-m1"]
    assert NO_NEW_WORKS_LABEL not in site.inside.objects["v1", "Namespace", None, "karmada-es-m1"]["metadata"]["labels"]


ON_HOSTS = {**M1, "agentHosts": ["gw1"]}


def fills_tokens(site: Site) -> None:
    """The member's API server fills the token of the account as soon as its Secret is there."""
    apply = site.member.apply

    def applied(obj: Object, **more: Any) -> Any:
        made = apply(obj, **more)
        if (obj["kind"], obj["metadata"]["name"]) == ("Secret", agent.ACCOUNT):
            site.member.objects["v1", "Secret", "karmada-cluster", agent.ACCOUNT]["data"] = {
                "token": "dA==",
                "ca.crt": "Y2E=",
            }
        return made

    site.member.apply = applied  # type: ignore[method-assign]


def test_an_agent_moves_from_its_pods_to_hosts_and_back_with_the_same_identity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(monkeypatch)
    fills_tokens(site)
    site.run()
    before = agent.identity_of(site.secret)
    moved = site.run(ON_HOSTS)
    assert moved == [
        "created Secret karmada-cluster/karmada-agent-sa",
        "deleted Deployment karmada-cluster/karmada-agent",
    ]
    assert (site.member.names("Deployment"), site.asked) == (set(), 1)
    assert site.state.members["m1"]["agentHosts"] == ["gw1"]
    assert site.run(ON_HOSTS) == []
    assert agent.identity_of(site.secret) == before
    assert site.run() == [
        "created Deployment karmada-cluster/karmada-agent",
        "deleted Secret karmada-cluster/karmada-agent-sa",
    ]
    site.assert_joined()
    assert "agentHosts" not in site.state.members["m1"]
    assert site.run() == []


@pytest.mark.parametrize("writes", range(0, 44, 5))
def test_killed_at_any_write_and_run_again_its_agent_is_one_of_hosts(
    writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(monkeypatch)
    fills_tokens(site)
    site.writes_left[0] = writes
    with contextlib.suppress(Killed):
        site.run(ON_HOSTS)
    site.writes_left[0] = -1
    site.run(ON_HOSTS)
    assert site.run(ON_HOSTS) == []
    assert agent.identity_of(site.secret)
    assert (site.member.names("Deployment"), agent.ACCOUNT in site.member.names("Secret")) == (set(), True)


def test_what_hosts_need_of_a_member_is_known_when_it_is_joined_and_when_nothing_is_to_be_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(monkeypatch)
    fills_tokens(site)
    site.run(ON_HOSTS)
    first, again = site.outcomes
    assert first.agent is None, "there is nothing to look at yet"
    assert again.agent
    assert json.loads(again.agent.kubeconfig)["users"][0]["user"] == {"token": "t"}
    site.outcomes.clear()
    site.run(ON_HOSTS)
    (looked,) = site.outcomes
    assert looked.agent
    assert (looked.agent.kubeconfig, looked.agent.identity) == (again.agent.kubeconfig, again.agent.identity)
    monkeypatch.setattr(Run, "public_url", "https://karmada.example.com")
    site.outcomes.clear()
    site.run(ON_HOSTS)
    assert site.outcomes[-1].agent
    assert site.outcomes[-1].agent.identity != again.agent.identity, "another endpoint takes a restart"


def test_a_token_that_stays_empty_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    monkeypatch.setattr(account_tokens, "FILLED_SECONDS", 0)
    with pytest.raises(ProblemsError, match="did not fill the token of its agent's account"):
        site.run(ON_HOSTS)


@pytest.mark.parametrize(("live", "told"), [("Push", "registered in mode Push"), ("Pull", "by another tool")])
def test_one_that_another_tool_has_registered_is_refused(live: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.inside.put(
        {
            "apiVersion": registration.CLUSTER_API,
            "kind": "Cluster",
            "metadata": {"name": "m1"},
            "spec": {"id": "id-1", "syncMode": live},
        }
    )
    with pytest.raises(ProblemsError, match=told):
        site.run()
    assert site.member.log == []


# -- its pods ----------------------------------------------------------------------------------------------------------


def agents_pod(name: str, restarts: int, reason: str = "CrashLoopBackOff", instance: str = "prod") -> Object:
    labels = {"app.kubernetes.io/name": "karmada-agent", "app.kubernetes.io/instance": instance}
    container = {"name": "karmada-agent", "restartCount": restarts, "state": {"waiting": {"reason": reason}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "karmada-cluster",
            "labels": {**labels, "installer.karmada.io/member": "m1"},
        },
        "status": {"containerStatuses": [container]},
    }


def member_with(*pods: Object) -> tuple[Run, FakeCluster]:
    member = FakeCluster("member m1")
    for each in pods:
        member.create(each)
    return fake_run(document(), FakeCluster("host"), stored=state()), member


def test_one_that_failed_while_its_control_plane_was_away_does_not_wait_for_kubelet() -> None:
    run, member = member_with(
        agents_pod("often", 5),
        agents_pod("seldom", 2),
        agents_pod("another-reason", 9, "ImagePullBackOff"),
        agents_pod("of-others", 9, instance="another"),
    )
    changes = agent_join.start_at_once(run, "m1", member)  # type: ignore[arg-type]
    assert [(each.action, each.ref.name) for each in changes] == [("deleted", "often")]
    assert member.names("Pod") == {"seldom", "another-reason", "of-others"}
    assert agent_join.start_at_once(run, "m1", member) == []  # type: ignore[arg-type]


def test_whoever_may_not_delete_pods_waits_for_kubelet(monkeypatch: pytest.MonkeyPatch) -> None:
    run, member = member_with(agents_pod("often", 5))

    def refused(*_: Any, **__: Any) -> bool:
        raise Forbidden("member m1", "DELETE", "/", 403, "Forbidden", "no rights")

    monkeypatch.setattr(member, "delete", refused)
    assert agent_join.start_at_once(run, "m1", member) == []  # type: ignore[arg-type]
