# SPDX-License-Identifier: Apache-2.0
"""Members on record that the document of a new place does not list get other tokens, the mark, and its address."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import Claim, TakeOverState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import MEMBER_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent, epoch, follow, registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members.join import Outcome
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.pull_member_in_memory import Site
from ansible_collections.karmada.installer.tests.unit.support.samples import document

CLAIM = Claim(1, "aa")
HERE = "https://192.0.2.9:32443"
ACCOUNT = ("v1", "ServiceAccount", MEMBER_NAMESPACE, registration.account("m1"))
PUSH = {"name": "m1", "mode": "Push", "secretRef": {"name": "m1"}}


def taken_over(site: Site, monkeypatch: pytest.MonkeyPatch, unfenced: tuple[str, ...] = ("m1",)) -> None:
    """The control plane that had the member joined comes to another place."""
    taken = TakeOverState("disk", "b1", "there/prod", fenced=True, unfenced=unfenced)
    site.state = replace(site.state, claim=CLAIM, taken_over=taken)
    monkeypatch.setattr(Run, "public_url", HERE)


def followed(site: Site, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """What one run makes of the member, whose document lists none."""
    run = fake_run(document({"endpoint": {"type": "NodePort"}}), FakeCluster("host"), stored=site.state)
    run.__dict__["control_plane"] = site.inside
    run.say = site.said.append

    def save(state: Any) -> None:
        site.state = state

    monkeypatch.setattr(run, "writing", lambda _step: contextlib.nullcontext())
    monkeypatch.setattr(run, "save", save)
    monkeypatch.setattr(run, "go_on_with", lambda _state: None)
    entries = follow.unlisted(run, follow.on_record(run))
    (outcome,) = follow.follow(run, entries, member_join.registered_clusters(run))
    return outcome


def tokens(site: Site) -> dict[str, str]:
    """UIDs of the tokens by which a control plane, or an agent on a host, knows the member."""
    names = (*registration.token_secrets("m1", estimator=True), agent.TOKEN.name)
    found = {each: site.member.get("v1", "Secret", each, MEMBER_NAMESPACE) for each in names}
    return {name: each["metadata"]["uid"] for name, each in found.items() if each}


def mark(site: Site) -> str:
    found = site.member.get(*epoch.account("m1"))
    assert found
    return str(found["metadata"].get("annotations", {}).get(registration.CLAIM_ANNOTATION, ""))


def rights(site: Site) -> Any:
    kinds = ("ClusterRole", "ClusterRoleBinding")
    return {key: copy.deepcopy(each.get("rules")) for key, each in site.member.objects.items() if key[1] in kinds}


def agents_server(site: Site) -> str:
    found = agent.identity_of(site.secret)
    assert found
    return found.server


def written(outcome: Outcome) -> list[str]:
    return [f"{each.action} {each.ref}" for each in outcome.changes if each.action != "unchanged"]


def test_a_member_in_mode_pull_gets_other_tokens_the_mark_and_an_agent_of_this_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(monkeypatch)
    site.run()
    had, granted = tokens(site), rights(site)
    cluster = copy.deepcopy(site.inside.get(registration.CLUSTER_API, "Cluster", "m1"))
    assert agents_server(site) != HERE
    taken_over(site, monkeypatch)
    outcome = followed(site, monkeypatch)
    assert outcome.problem == ""
    assert mark(site) == str(CLAIM)
    now = tokens(site)
    assert set(now) <= set(had)
    assert not set(now.values()) & set(had.values()), "the place that was left still knows a token"
    assert agents_server(site) == HERE
    assert site.member.names("Deployment") == {"karmada-agent"}
    # What was asked for once stays as it is registered.
    assert rights(site) == granted
    assert site.inside.get(registration.CLUSTER_API, "Cluster", "m1") == cluster
    # It is on record, so that it can leave later, and is not named any more.
    recorded = set(site.state.owned["member/m1"].values())
    assert set(now.values()) <= recorded
    assert not set(had.values()) & recorded
    assert site.state.taken_over
    assert site.state.taken_over.unfenced == ()
    assert written(followed(site, monkeypatch)) == []


def test_killed_at_any_write_it_follows_in_the_end_and_no_former_token_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for writes in range(100):
        with monkeypatch.context() as patched:
            site = Site(patched)
            site.run()
            had = tokens(site)
            taken_over(site, patched)
            recorded = site.state
            site.writes_left[0] = writes
            killed = bool(followed(site, patched).problem)
            if killed:
                # Nothing of it came on record.
                site.state = recorded
            site.writes_left[0] = -1
            if mark(site) == str(CLAIM):
                assert not set(tokens(site).values()) & set(had.values()), "the mark came before the tokens went"
            assert followed(site, patched).problem == ""
            assert (mark(site), agents_server(site)) == (str(CLAIM), HERE)
            assert not set(tokens(site).values()) & set(had.values())
        if not killed:
            assert writes > 3
            return
    raise AssertionError("it writes more than that")


def test_in_mode_push_no_agent_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run(PUSH)
    had = tokens(site)
    taken_over(site, monkeypatch)
    assert followed(site, monkeypatch).problem == ""
    assert mark(site) == str(CLAIM)
    assert not set(tokens(site).values()) & set(had.values())
    assert site.member.names("Deployment") == set()


def test_one_that_follows_a_later_place_gets_nothing_and_stays_named(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    site.member.objects[ACCOUNT]["metadata"].setdefault("annotations", {})[registration.CLAIM_ANNOTATION] = "2 cc"
    taken_over(site, monkeypatch)
    site.writes_left[0] = 0
    outcome = followed(site, monkeypatch)
    assert [each.reason for each in outcome.problems] == [Reason.MOVED]
    assert site.state.taken_over
    assert site.state.taken_over.unfenced == ("m1",)


def test_one_with_nothing_of_the_control_plane_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    del site.member.objects[ACCOUNT]
    taken_over(site, monkeypatch)
    site.writes_left[0] = 0
    outcome = followed(site, monkeypatch)
    assert (outcome.problem, written(outcome)) == ("", [])
    assert site.state.taken_over
    assert site.state.taken_over.unfenced == ()


def test_nobody_to_follow_is_nothing_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    state = replace(site.state, members={"m1": PUSH})
    run = fake_run(document({"members": [PUSH]}), FakeCluster("host"), stored=state)
    assert follow.unlisted(run, follow.on_record(run)) == []
    assert follow.follow(run, [], member_join.Clusters()) == []
