# SPDX-License-Identifier: Apache-2.0
"""Taking away: only what is ours by label and by record, and never what others put beside it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils import members, removal
from ansible_collections.karmada.installer.plugins.plugin_utils.pki_files import admin_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run
from ansible_collections.karmada.installer.tests.unit.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.samples import OWNER, Rendered, document, rendered, state

OURS = {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": OWNER}
INSTANCE = {**OURS, "app.kubernetes.io/instance": "prod"}


def thing(kind: str, name: str, labels: dict[str, str] | None = None, namespace: str = "karmada") -> dict[str, Any]:
    version = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "Lease": "coordination.k8s.io/v1"}.get(kind, "v1")
    metadata = {"name": name, "labels": labels or {}}
    if kind != "Namespace":
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def installed(policy: str = "Delete", *others: dict[str, Any], own_namespace: bool = True) -> Run:
    """A host cluster with an instance whose objects are all recorded."""
    deployment = document({"deletion": {"policy": policy}})
    found = Rendered(deployment, state=state())
    host = FakeCluster("host cluster", *found.objects)
    namespace = host.put(thing("Namespace", "karmada", INSTANCE if own_namespace else {}))
    host.put(thing("PersistentVolumeClaim", "data-prod-etcd-0", OURS))
    host.put(thing("Lease", "prod-installer", OURS))
    for other in others:
        host.put(other)
    uids = {
        f"{each['kind']} karmada/{each['metadata']['name']}": host.get(
            each["apiVersion"], each["kind"], each["metadata"]["name"], "karmada"
        )["metadata"]["uid"]  # type: ignore[index]
        for each in found.objects
    }
    if own_namespace:
        uids["Namespace karmada"] = namespace["metadata"]["uid"]
    return fake_run(deployment, host, stored=state(owned={"host": uids}))


def remove(run: Run) -> Any:
    removal.stop_components(run)
    removal.remove_control_plane(run)
    removal.remove_state(run)
    return run.host


def left(host: Any) -> set[str]:
    return {f"{kind} {name}" for _, kind, _, name in host.objects}


def test_nothing_is_left_of_an_instance() -> None:
    assert left(remove(installed())) == set()


def test_a_second_removal_does_nothing() -> None:
    run = installed("Retain")
    remove(run)
    run.host.log.clear()
    remove(run)
    assert run.host.log == []


def test_retain_keeps_the_data_and_what_is_needed_to_use_it_again() -> None:
    assert left(remove(installed("Retain"))) == {
        "Namespace karmada",
        "PersistentVolumeClaim data-prod-etcd-0",
        "Secret prod-installer-state",
        "Lease prod-installer",
    }


def test_a_namespace_that_we_did_not_make_stays() -> None:
    assert left(remove(installed(own_namespace=False))) == {"Namespace karmada"}


def test_a_namespace_that_somebody_moved_into_stays_with_what_they_have() -> None:
    host = remove(installed("Delete", thing("ConfigMap", "theirs"), thing("ConfigMap", "kube-root-ca.crt")))
    assert left(host) == {"Namespace karmada", "ConfigMap theirs", "ConfigMap kube-root-ca.crt"}


@pytest.mark.parametrize(
    "labels",
    [{}, {**INSTANCE, "installer.karmada.io/owner": "another"}, {**INSTANCE}],
    ids=["none", "another's", "copied"],
)
def test_what_only_looks_like_ours_stays(labels: dict[str, str]) -> None:
    """A label can be copied by anybody; a UID on record cannot."""
    host = remove(installed("Delete", thing("Secret", "prod-theirs", labels), thing("Deployment", "x", labels)))
    assert {"Secret prod-theirs", "Deployment x"} <= left(host)


def test_an_object_that_was_made_anew_by_others_stays() -> None:
    run = installed()
    again = run.host.get("apps/v1", "Deployment", "prod-webhook", "karmada")
    assert again
    again["metadata"]["uid"] = "somebody-elses"
    run.host.put(again)  # type: ignore[attr-defined]
    assert "Deployment prod-webhook" in left(remove(run))


def test_what_acts_goes_first_and_the_store_last() -> None:
    run = installed()
    remove(run)
    workloads = [line.split()[-1] for line in run.host.log if "Deployment" in line or "StatefulSet" in line]  # type: ignore[attr-defined]
    assert workloads[-2:] == ["prod-apiserver", "prod-etcd"]
    assert {"prod-controller-manager", "prod-scheduler"} <= set(workloads[:-2])


def test_a_check_run_removes_nothing() -> None:
    run = installed()
    run.check = True
    remove(run)
    assert run.host.log == []  # type: ignore[attr-defined]


# -- members -----------------------------------------------------------------------------------------------------------


def member(*others: dict[str, Any], own_namespace: bool = True) -> tuple[FakeCluster, dict[str, str]]:
    cluster = FakeCluster("member m1")
    namespace = members.namespace_on_member(OWNER)
    if not own_namespace:
        namespace["metadata"]["labels"] = {}
    made = [namespace, *members.objects_on_member("m1", OWNER)]
    uids = {each["metadata"]["name"] + each["kind"]: cluster.put(each)["metadata"]["uid"] for each in made}
    for other in others:
        cluster.put(other)
    return cluster, uids


def clean(cluster: FakeCluster, uids: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> set[str]:
    entry = {"name": "m1", "mode": "Push", "secretRef": {"name": "m1"}}
    run = fake_run(document(), FakeCluster("host cluster"), stored=state(owned={"member/m1": uids}))

    class connected:  # noqa: N801 - stands for the function of that name
        def __init__(self, *_: Any) -> None:
            pass

        def __enter__(self) -> FakeCluster:
            return cluster

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(removal, "connected", connected)
    removal.clean_member(run, entry)
    return left(cluster)


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


def test_a_member_that_does_not_answer_is_told_unless_it_is_given_up() -> None:
    joined = {"m1": {"mode": "Push", "secretRef": {"name": "m1"}, "context": None}}
    owned = {"member/m1": {"ClusterRole karmada-controller-manager:karmada-m1": "u"}}
    run = fake_run(document(), FakeCluster("host cluster"), stored=state(members=joined, owned=owned))
    (problem,) = removal.unreachable_members(run, [])
    assert problem.where == "member m1"
    assert "ClusterRole karmada-controller-manager:karmada-m1" in problem.what
    assert removal.unreachable_members(run, ["m1"]) == []


def test_members_that_the_document_no_longer_lists_are_still_cleaned() -> None:
    record = {"mode": "Push", "secretRef": {"name": "old"}, "context": None}
    run = fake_run(document(), FakeCluster("host cluster"), stored=state(members={"gone": record}))
    assert removal.member_entries(run) == [{"name": "gone", **record}]


def test_only_the_kubeconfig_of_this_control_plane_is_removed(tmp_path: Any) -> None:
    run = installed()
    path = tmp_path / "kubeconfig"
    run.connection = type(run.connection)(kubeconfig_output=str(path))
    assert removal.remove_kubeconfig(run) is False
    path.write_text("somebody else's")
    assert removal.remove_kubeconfig(run) is False
    assert path.exists()
    found = rendered()
    path.write_text(admin_kubeconfig(found.material, "https://x"))
    assert removal.remove_kubeconfig(run) is True
    assert not path.exists()
