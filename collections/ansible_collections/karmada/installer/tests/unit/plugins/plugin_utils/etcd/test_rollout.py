# SPDX-License-Identifier: Apache-2.0
"""Members of etcd are replaced without risk for data or for the majority, and in the end all are current."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import members_seen, rollout
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.plan_types import Seen
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.rollout import (
    next_round,
    observe,
    ordinal,
    reason_not_settled,
    renew_broken,
    with_next_revision,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.readiness import reason_not_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.run import store
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import Rendered, document, state
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock
from hypothesis import given
from hypothesis import strategies as st

OLD, NEW = "prod-etcd-1", "prod-etcd-2"
Pod = dict[str, Any]


def stateful_set(replicas: int, **status: Any) -> dict[str, Any]:
    return {
        "kind": "StatefulSet",
        "metadata": {"name": "prod-etcd", "generation": 4},
        "spec": {"replicas": replicas, "updateStrategy": {"type": "OnDelete"}, "template": {"a": 1}},
        "status": {"observedGeneration": 4, "updateRevision": NEW, **status},
    }


def pod(number: int, revision: str = OLD, *, ready: bool = True, going: bool = False) -> Pod:
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"prod-etcd-{number}",
            "labels": {"controller-revision-hash": revision},
            **({"deletionTimestamp": "2026-03-01T12:00:00Z"} if going else {}),
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@st.composite
def clusters(draw: st.DrawFn) -> tuple[int, list[Pod]]:
    """Any state that a cluster may be found in: pods missing, going, not ready, old and new, in any order."""
    replicas = draw(st.sampled_from([1, 3, 5, 7, 11]))
    pods = [
        pod(number, draw(st.sampled_from([OLD, NEW])), ready=draw(st.booleans()), going=draw(st.integers(0, 5)) == 0)
        for number in range(replicas)
        if draw(st.integers(0, 5))
    ]
    return replicas, draw(st.permutations(pods))


def is_old(one: Pod) -> bool:
    return bool(one["metadata"]["labels"]["controller-revision-hash"] == OLD)


def is_ready(one: Pod) -> bool:
    return reason_not_ready(one) is None


@given(clusters())
def test_a_member_that_works_goes_alone_and_only_while_all_others_work(cluster: tuple[int, list[Pod]]) -> None:
    replicas, pods = cluster
    this = next_round(stateful_set(replicas), pods, "volumeClaim")
    assert all(is_old(each) for each in this.replace)
    working = [each for each in this.replace if is_ready(each)]
    if working:
        assert len(this.replace) == 1
        assert len(pods) == replicas
        assert all(is_ready(each) for each in pods)
    if len(this.replace) > 1:
        assert not any(is_ready(each) for each in pods)


@given(clusters(), st.sets(st.integers(0, 10)))
def test_one_that_works_by_its_own_words_goes_as_one_that_is_ready(
    cluster: tuple[int, list[Pod]], working: set[int]
) -> None:
    replicas, pods = cluster
    this = next_round(stateful_set(replicas), pods, "volumeClaim", [f"prod-etcd-{number}" for number in working])
    if any(is_ready(each) or ordinal(each) in working for each in this.replace):
        assert len(this.replace) == 1
        assert len(pods) == replicas
        assert all(is_ready(each) or (is_old(each) and ordinal(each) in working) for each in pods)
    if len(this.replace) > 1:
        assert not any(is_ready(each) or ordinal(each) in working for each in pods)


@given(clusters())
def test_there_is_an_answer_exactly_when_a_member_is_outdated(cluster: tuple[int, list[Pod]]) -> None:
    replicas, pods = cluster
    this = next_round(stateful_set(replicas), pods, "volumeClaim")
    old = [each for each in pods if is_old(each)]
    assert bool(this.replace or this.refused) == bool(old)
    assert not (this.replace and this.refused)
    assert [ordinal(each) for each in this.outdated] == sorted(ordinal(each) for each in old)
    # what is refused could go only at a risk: some other member does not work
    if this.refused:
        assert all(is_ready(each) for each in old)
        assert len([each for each in pods if is_ready(each)]) < replicas


@given(clusters())
def test_a_pod_that_holds_the_data_never_goes(cluster: tuple[int, list[Pod]]) -> None:
    replicas, pods = cluster
    this = next_round(stateful_set(replicas), pods, "emptyDir")
    assert this.replace == ()
    assert ("would be lost" in this.refused) == any(is_old(each) for each in pods)


@given(clusters().filter(lambda cluster: len(cluster[1]) == cluster[0]))
def test_where_new_pods_become_ready_everything_becomes_current(cluster: tuple[int, list[Pod]]) -> None:
    """Unless a member that is current already does not become ready, which is refused and not waited out."""
    replicas, pods = cluster
    live = {ordinal(each): each for each in pods}
    for rounds in itertools.count():
        this = next_round(stateful_set(replicas), list(live.values()), "volumeClaim")
        if not this.replace:
            break
        for each in this.replace:
            live[ordinal(each)] = pod(ordinal(each), NEW)
        assert rounds <= replicas
    stuck = [each for each in pods if not is_old(each) and not is_ready(each)]
    assert bool(this.refused) == bool(stuck and this.outdated)
    assert stuck or not this.outdated


def test_ordinals_are_numbers() -> None:
    pods = [pod(number) for number in (10, 2, 1)] + [pod(number, NEW) for number in (0, 3, 4, 5, 6, 7, 8, 9)]
    this = next_round(stateful_set(11), pods, "volumeClaim")
    assert [ordinal(each) for each in this.outdated] == [1, 2, 10]
    assert [ordinal(each) for each in this.replace] == [1]


def test_what_has_to_be_mended_first_is_named() -> None:
    missing = next_round(stateful_set(3), [pod(0), pod(2, NEW, ready=False)], "volumeClaim")
    assert missing.replace == ()
    assert missing.refused == "prod-etcd-1, prod-etcd-2 must be ready first"


def test_members_that_settings_have_broken_are_mended_by_other_settings() -> None:
    all_broken = [pod(number, ready=False) for number in range(3)]
    assert len(next_round(stateful_set(3), all_broken, "volumeClaim").replace) == 3
    one_broken = [pod(0, ready=False), pod(1), pod(2)]
    assert [ordinal(each) for each in next_round(stateful_set(3), one_broken, "volumeClaim").replace] == [0]


@pytest.mark.parametrize("status", [{"observedGeneration": 3}, {"updateRevision": ""}, {"updateRevision": None}])
def test_before_the_controller_has_looked_nothing_is_known(status: dict[str, Any]) -> None:
    assert reason_not_settled(stateful_set(3, **status))
    assert reason_not_settled(stateful_set(3)) is None


def test_settings_that_are_not_there_yet_make_every_pod_outdated() -> None:
    """What check mode tells: a real run would first change the StatefulSet."""
    current = [pod(number, NEW) for number in range(3)]
    assert next_round(with_next_revision(stateful_set(3), {"a": 1}), current, "volumeClaim").outdated == ()
    changed = with_next_revision(stateful_set(3), {"a": 2})
    assert len(next_round(changed, current, "volumeClaim").outdated) == 3
    assert "emptyDir" in next_round(changed, current, "emptyDir").refused


@pytest.mark.parametrize(("settings", "outdated"), [({}, 0), ({"resources": {"requests": {"cpu": "2"}}}, 1)])
def test_check_mode_asks_what_the_document_would_make_of_it(settings: dict[str, Any], outdated: int) -> None:
    before = Rendered(document(), state=state())
    host = FakeCluster("host cluster", *before.objects)
    live = host.get("apps/v1", "StatefulSet", "prod-etcd", "karmada")
    assert live
    host.put({**live, "status": {"updateRevision": NEW}})
    labels = {**live["spec"]["selector"]["matchLabels"], "controller-revision-hash": NEW}
    host.put(
        {**pod(0), "apiVersion": "v1", "metadata": {"name": "prod-etcd-0", "namespace": "karmada", "labels": labels}}
    )
    deployment = document({"components": {"etcd": {"local": settings}}})
    run = fake_run(deployment, host, stored=state(), check=True)
    found, pods = observe(run, 1)
    assert found
    assert len(next_round(found, pods, "volumeClaim").outdated) == outdated
    assert host.log == []


def nobody_answers(run: Run) -> members_seen.Look:
    """Look at members none of which says anything."""
    pods = {each["metadata"]["name"]: each for each in run.host_cluster.list("v1", "Pod", run.namespace)}
    nobody: Any = SimpleNamespace(urls=())
    return members_seen.Look(Seen(None, (), {}), nobody, pods, {}, {})


def with_pods(monkeypatch: pytest.MonkeyPatch, *pods: Pod, storage: str = "volumeClaim") -> tuple[FakeCluster, Run]:
    """A host cluster in which the controller has seen other settings than these pods have, and a run for it."""
    monkeypatch.setattr(store, "Lock", lambda *_, **__: NoLock())
    # Nobody watches a cluster in memory.
    monkeypatch.setattr(rollout, "wait_until", lambda *_, **__: None)
    host = FakeCluster("host cluster", *Rendered(document(), state=state()).objects)
    live = host.get("apps/v1", "StatefulSet", "prod-etcd", "karmada")
    assert live
    host.put({**live, "status": {"updateRevision": NEW, "observedGeneration": live["metadata"].get("generation", 0)}})
    for each in pods:
        labels = {**live["spec"]["selector"]["matchLabels"], **each["metadata"]["labels"]}
        metadata = {**each["metadata"], "namespace": "karmada", "labels": labels}
        host.put({**each, "apiVersion": "v1", "metadata": metadata})
    stored = state(etcd=replace(state().etcd, storage=storage))
    monkeypatch.setattr(members_seen, "look", nobody_answers)
    return host, fake_run(document(), host, stored=stored)


@pytest.mark.parametrize(
    ("pods", "renewed"),
    [
        # One that an image keeps from starting; nobody waits until its successor is ready.
        ([pod(0, ready=False)], ["prod-etcd-0"]),
        ([pod(0, ready=False), pod(1, ready=False)], ["prod-etcd-0", "prod-etcd-1"]),
        # It has the settings of now, and is to start by itself.
        ([pod(0, NEW, ready=False)], []),
        # A member that works is replaced by the rollout, which asks the others first.
        ([pod(0)], []),
        ([pod(0), pod(1, ready=False)], ["prod-etcd-1"]),
    ],
)
def test_what_older_settings_keep_from_starting_starts_with_those_of_now(
    pods: list[Pod], renewed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    host, run = with_pods(monkeypatch, *pods)
    before = host.names("Pod")
    assert [each.ref.name for each in renew_broken(run, 1)] == renewed
    assert host.names("Pod") == before - set(renewed)


def test_a_pod_that_holds_the_data_is_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    host, run = with_pods(monkeypatch, pod(0, ready=False), storage="emptyDir")
    assert renew_broken(run, 1) == []
    assert host.names("Pod") == {"prod-etcd-0"}
