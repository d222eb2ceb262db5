# SPDX-License-Identifier: Apache-2.0
"""Members are left as they were before they joined: what is ours goes, and namespaces that hang are told of."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import removal
from ansible_collections.karmada.installer.plugins.plugin_utils.members import cleanup as member_cleanup
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.removal import OURS, left, thing
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    OWNER,
    document,
    state,
)


def member(*others: dict[str, Any], own_namespace: bool = True) -> tuple[FakeCluster, dict[str, str]]:
    cluster = FakeCluster("member m1")
    namespace = registration.namespace_on_member(OWNER)
    if not own_namespace:
        namespace["metadata"]["labels"] = {}
    made = [namespace, *registration.objects_on_member("m1", OWNER, "karmada/prod")]
    uids = {each["metadata"]["name"] + each["kind"]: cluster.put(each)["metadata"]["uid"] for each in made}
    for other in others:
        cluster.put(other)
    return cluster, uids


M1 = {"name": "m1", "mode": "Push", "secretRef": {"name": "m1"}}


def clean(cluster: FakeCluster, uids: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> set[str]:
    run = fake_run(document(), FakeCluster("host cluster"), stored=state(owned={"member/m1": uids}))
    connect(cluster, monkeypatch)
    member_cleanup.clean_member(run, MemberEntry(M1))
    return left(cluster)


def connect(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is connected to a member is connected to this one."""

    class connected:  # noqa: N801 - stands for the function of that name
        def __init__(self, *_: Any) -> None:
            pass

        def __enter__(self) -> FakeCluster:
            return cluster

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(member_cleanup, "connected", connected)


def impersonation(kind: str, member_name: str) -> dict[str, Any]:
    metadata = {
        "name": "karmada-impersonator",
        "labels": {"karmada.io/managed": "true"},
        "annotations": {"work.karmada.io/namespace": f"karmada-es-{member_name}"},
    }
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata}


def test_a_member_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, uids = member(impersonation("ClusterRole", "m1"), impersonation("ClusterRoleBinding", "m1"))
    assert clean(cluster, uids, monkeypatch) == set()


def test_an_agent_is_gone_before_what_it_would_create_again(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = thing("Deployment", "karmada-agent", OURS, "karmada-cluster")
    cluster, uids = member(deployment, impersonation("ClusterRole", "m1"))
    uids["agent"] = cluster.get("apps/v1", "Deployment", "karmada-agent", "karmada-cluster")["metadata"]["uid"]
    deleted: list[tuple[str, Any]] = []
    delete = cluster.delete

    def noted(api_version: str, kind: str, name: str, *more: Any, **options: Any) -> bool:
        deleted.append((f"{kind} {name}", options.get("propagation")))
        return delete(api_version, kind, name, *more, **options)

    monkeypatch.setattr(cluster, "delete", noted)
    run = fake_run(document(), FakeCluster("host cluster"), stored=state(owned={"member/m1": uids}))
    connect(cluster, monkeypatch)
    member_cleanup.clean_member(run, MemberEntry({**M1, "mode": "Pull"}))
    assert deleted[0] == ("Deployment karmada-agent", "Foreground"), "with its pods"
    assert "ClusterRole karmada-impersonator" in [each for each, _ in deleted[1:]]
    assert left(cluster) == set()


@pytest.mark.parametrize("owner", [OWNER, "somebody-else"])
def test_what_a_probe_of_a_killed_run_left_on_a_member_goes_if_it_is_ours(
    owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind = registration.namespace_on_member(owner)
    left_behind["metadata"] |= {
        "name": "karmada-installer-reach-probe",
        "managedFields": [{"manager": "karmada-installer", "operation": "Apply", "time": "2026-01-01T00:00:00Z"}],
    }
    cluster, uids = member(left_behind)
    kept = set() if owner == OWNER else {"Namespace karmada-installer-reach-probe"}
    assert clean(cluster, uids, monkeypatch) == kept


def test_workloads_of_a_member_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = thing("Deployment", "web", {"karmada.io/managed": "true"}, "default")
    cluster, uids = member(theirs)
    assert clean(cluster, uids, monkeypatch) == {"Deployment web"}


def test_what_another_control_plane_has_on_a_member_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, uids = member(
        impersonation("ClusterRole", "m2"), thing("Secret", "other", {}, "karmada-cluster"), own_namespace=False
    )
    assert clean(cluster, uids, monkeypatch) == {
        "ClusterRole karmada-impersonator",
        "Secret other",
        "Namespace karmada-cluster",
    }


@pytest.mark.parametrize("going", [True, False])
def test_only_a_namespace_that_is_going_is_waited_for(going: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that stays because others live in it is none of our business any more."""
    cluster, uids = member()
    if going:
        [namespace] = [each for each in cluster.objects.values() if each["kind"] == "Namespace"]
        namespace["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    connect(cluster, monkeypatch)
    run = fake_run(document(), FakeCluster("host cluster"), stored=state(owned={"member/m1": uids}))
    waited: list[Any] = []
    monkeypatch.setattr(removal, "delete_all", lambda _cluster, targets, **options: waited.append((targets, options)))
    member_cleanup.wait_for_member(run, MemberEntry(M1))
    assert [(ref.kind, ref.name) for targets, _ in waited for ref, _ in targets] == (
        [("Namespace", "karmada-cluster")] if going else []
    )
    assert all(options["wait"] for _, options in waited)


@pytest.mark.parametrize("finalizers", [[], ["example.com/hold"]], ids=["empty", "held"])
def test_the_namespace_of_a_member_is_waited_for_at_once_only_if_something_holds_it(
    finalizers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is going already, and held, is no reason to leave the namespace, but one that it may never go."""
    held = thing("Secret", "held", namespace="karmada-cluster")
    held["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=finalizers)
    cluster, uids = member(held)
    waits: dict[str, bool] = {}
    delete_all = removal.delete_all

    def noted(cluster: Any, targets: Any, **options: Any) -> Any:
        waits.update({ref.kind: options["wait"] for ref, _ in targets})
        return delete_all(cluster, targets, **options)

    monkeypatch.setattr(removal, "delete_all", noted)
    clean(cluster, uids, monkeypatch)
    assert waits.pop("Namespace") is bool(finalizers)
    assert waits
    assert all(waits.values())


def test_a_member_that_does_not_answer_is_told_unless_it_is_given_up() -> None:
    joined = {"m1": {"mode": "Push", "secretRef": {"name": "m1"}, "context": None}}
    owned = {"member/m1": {"ClusterRole karmada-controller-manager:karmada-m1": "u"}}
    run = fake_run(document(), FakeCluster("host cluster"), stored=state(members=joined, owned=owned))
    (problem,) = member_cleanup.unreachable_members(run, [])
    assert problem.where == "member m1"
    assert "ClusterRole karmada-controller-manager:karmada-m1" in problem.what
    assert member_cleanup.unreachable_members(run, ["m1"]) == []


def test_members_that_the_document_no_longer_lists_are_still_cleaned() -> None:
    record = {"mode": "Push", "secretRef": {"name": "old"}, "context": None}
    run = fake_run(document(), FakeCluster("host cluster"), stored=state(members={"gone": record}))
    assert [each.plain for each in member_cleanup.member_entries(run)] == [{"name": "gone", **record}]
