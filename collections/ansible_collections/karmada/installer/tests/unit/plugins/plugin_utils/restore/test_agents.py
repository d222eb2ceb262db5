# SPDX-License-Identifier: Apache-2.0
"""Agents in pods of members are restarted after a restore, and no member keeps that from the others."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import KARMADA_AGENT
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import MEMBER_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.lease import LockLost
from ansible_collections.karmada.installer.plugins.plugin_utils.labels import MEMBER_LABEL, NAME_LABEL, OWNER_LABEL
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason, Severity
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import agents
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document, state


def pod(member: str, name: str = "karmada-agent-1", owner: str = OWNER) -> dict[str, Any]:
    labels = {NAME_LABEL: KARMADA_AGENT.name, OWNER_LABEL: owner, MEMBER_LABEL: member}
    metadata = {"name": name, "namespace": MEMBER_NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


class Members:
    """Members ``first`` and ``second`` in mode Pull, both with an agent of ours, and a run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.first = FakeCluster("member first", pod("first"))
        self.second = FakeCluster("member second", pod("second"), pod("second", "of-others", "another"))
        listed = [
            {"name": name, "mode": "Pull", "secretRef": {"name": name}} for name in ("first", "second", "to-come")
        ]
        spec = {"members": listed, "endpoint": {"type": "LoadBalancer"}}
        joined = {each["name"]: {key: each[key] for key in ("mode", "secretRef")} for each in listed[:2]}
        self.run = fake_run(document(spec), FakeCluster("host"), stored=state(members=joined))
        self.changes: list[Change] = []
        self.traces: list[str] = []
        self.run.trace = self.traces.append
        self.refuses: Exception | None = None
        monkeypatch.setattr(agents.join, "connected", self._connected)

    @contextmanager
    def _connected(self, _run: Any, entry: Any) -> Any:
        if entry.name == "first" and self.refuses:
            raise self.refuses
        yield {"first": self.first, "second": self.second}[entry.name]

    def wake(self) -> list[Problem]:
        agents.wake(self.run, self.changes)
        return list(self.run.told)

    @property
    def pods_of_second(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.second.list("v1", "Pod")]


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> Members:
    return Members(monkeypatch)


def test_the_pods_of_our_agents_go_and_no_others(members: Members) -> None:
    assert members.wake() == []
    assert [str(each.ref) for each in members.changes] == [f"Pod {MEMBER_NAMESPACE}/karmada-agent-1"] * 2
    assert members.first.list("v1", "Pod") == []
    assert members.pods_of_second == ["of-others"]


def test_that_of_a_member_that_the_document_has_forgotten_goes_too(members: Members) -> None:
    spec = {"members": [{"name": "first", "mode": "Pull", "secretRef": {"name": "first"}}]}
    spec |= {"endpoint": {"type": "LoadBalancer"}}
    members.run = fake_run(document(spec), FakeCluster("host"), stored=members.run.state)
    assert members.wake() == []
    assert members.pods_of_second == ["of-others"]


@pytest.mark.parametrize(
    "listed", [[{}], [{"metadata": None}], [{"metadata": {"name": "x"}}], [{"metadata": []}], ["x"], [None]], ids=str
)
def test_a_member_that_lists_what_is_no_pod_is_told_and_the_others_are_restarted(
    members: Members, monkeypatch: pytest.MonkeyPatch, listed: list[Any]
) -> None:
    monkeypatch.setattr(members.first, "list", lambda *_, **__: listed)
    (told,) = members.wake()
    assert (told.where, told.reason, told.severity) == ("member first", Reason.MEMBER_UNREACHABLE, Severity.WARNING)
    assert "its agent could not be restarted" in told.what
    assert "cannot be worked with" in told.what
    assert members.traces
    assert members.pods_of_second == ["of-others"]
    assert len(members.changes) == 1


def test_one_that_does_not_answer_is_told_and_the_others_are_restarted(members: Members) -> None:
    members.refuses = Unreachable("member first", "GET", "/", 0, "", "no answer")
    (told,) = members.wake()
    assert "no answer" in told.what
    assert members.pods_of_second == ["of-others"]


def test_one_that_lists_pods_without_end_holds_nobody_up(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "MEMBER_SECONDS", 2.0)
    many = [{"metadata": {"name": f"p{number}", "uid": "u"}} for number in range(50_000)]
    monkeypatch.setattr(members.first, "list", lambda *_, **__: many)
    monkeypatch.setattr(members.first, "delete", lambda *_, **__: not time.sleep(0.1))
    (told,) = members.wake()
    assert "its pods could not be deleted in 2 s" in told.what
    assert 1 < len(members.changes) < 50
    assert members.pods_of_second == ["of-others"]


def test_a_lost_lock_ends_the_run(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise LockLost("lost")

    monkeypatch.setattr(members.run, "require_lock", lost)
    with pytest.raises(LockLost):
        members.wake()
    assert members.changes == []
