# SPDX-License-Identifier: Apache-2.0
"""Taking away: only what is ours by label and by record, and never what others put beside it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import bootstrap, removal
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.members import cleanup as member_cleanup
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.pki.files import admin_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    OPTIONAL,
    OWNER,
    Rendered,
    document,
    rendered,
    state,
)

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
    return run.host_cluster


def left(host: Any) -> set[str]:
    return {f"{kind} {name}" for _, kind, _, name in host.objects}


def test_nothing_is_left_of_an_instance() -> None:
    assert left(remove(installed())) == set()


def test_a_second_removal_does_nothing() -> None:
    run = installed("Retain")
    remove(run)
    run.host_cluster.log.clear()
    remove(run)
    assert run.host_cluster.log == []


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
    again = run.host_cluster.get("apps/v1", "Deployment", "prod-webhook", "karmada")
    assert again
    again["metadata"]["uid"] = "somebody-elses"
    run.host_cluster.put(again)  # type: ignore[attr-defined]
    assert "Deployment prod-webhook" in left(remove(run))


def test_what_acts_goes_first_and_the_store_last() -> None:
    run = installed()
    removal.stop_components(run)
    workloads = [each for each in left(run.host_cluster) if each.split()[0] in ("Deployment", "StatefulSet")]
    assert workloads == ["StatefulSet prod-etcd"]
    assert {"PersistentVolumeClaim data-prod-etcd-0", "Secret prod-apiserver-cert"} <= left(run.host_cluster)


def test_no_api_server_is_left_without_its_etcd() -> None:
    run = installed()
    removal.remove_control_plane(run)
    workloads = [line.split()[-1] for line in run.host_cluster.log if "Deployment" in line or "StatefulSet" in line]  # type: ignore[attr-defined]
    assert workloads[-1] == "prod-etcd"
    assert "prod-apiserver" in workloads


@pytest.mark.parametrize("others", [[], [thing("ConfigMap", "theirs")]], ids=["namespace goes", "namespace stays"])
def test_what_is_done_meanwhile_finds_the_state_until_the_namespace_goes(others: list[dict[str, Any]]) -> None:
    run = installed("Delete", *others)
    bookkeeping = {"Secret prod-installer-state", "Lease prod-installer"}
    found: list[set[str]] = []
    removal.remove_state(run, meanwhile=lambda: found.append(left(run.host_cluster)))
    assert ("Namespace karmada" in found[0], bookkeeping <= found[0]) == (bool(others), bool(others))
    assert not bookkeeping & left(run.host_cluster)


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_the_state_stays_when_what_is_done_meanwhile_fails(policy: str) -> None:
    run = installed(policy, thing("ConfigMap", "theirs"))

    def fail() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        removal.remove_state(run, meanwhile=fail)
    assert {"Secret prod-installer-state", "Lease prod-installer"} <= left(run.host_cluster)


@pytest.mark.parametrize(("deleted", "going"), [(None, False), ("2026-01-01T00:00:00Z", True)])
def test_a_namespace_is_going_once_its_deletion_was_asked_for(deleted: str | None, going: bool) -> None:
    run = installed()
    [namespace] = [each for each in run.host_cluster.objects.values() if each["kind"] == "Namespace"]  # type: ignore[attr-defined]
    if deleted:
        namespace["metadata"]["deletionTimestamp"] = deleted
    assert removal.namespace_is_going(run) is going


def test_a_check_run_removes_nothing() -> None:
    run = installed()
    run.check = True
    remove(run)
    assert run.host_cluster.log == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(("others", "namespace_goes"), [([], True), ([thing("ConfigMap", "theirs")], False)])
def test_a_check_run_tells_what_a_run_removes(others: list[dict[str, Any]], namespace_goes: bool) -> None:
    """The namespace too, though all that is ours is still in it."""
    run = installed("Delete", *others)
    run.check = True
    each_told = [
        str(change.ref)
        for stage in (removal.stop_components, removal.remove_control_plane, removal.remove_state)
        for change in stage(run)
    ]
    told = set(each_told)
    assert len(each_told) == len(told), "nothing twice"
    before = {f"{kind} {namespace}/{name}" for _, kind, namespace, name in run.host_cluster.objects if namespace}  # type: ignore[attr-defined]
    if namespace_goes:
        assert "Namespace karmada" in told
        # These go with it.
        assert before - told == {"Secret karmada/prod-installer-state", "Lease karmada/prod-installer"}
    else:
        assert before - told == {"ConfigMap karmada/theirs"}
        assert "Namespace karmada" not in told


@pytest.mark.parametrize("kind", ["Role", "Widget", "PersistentVolumeClaim", "ServiceAccount"])
def test_whatever_others_have_in_our_namespace_keeps_it(kind: str) -> None:
    said: list[str] = []
    run = installed("Delete", thing(kind, "theirs"))
    run.say = said.append
    assert left(remove(run)) == {"Namespace karmada", f"{kind} theirs"}
    assert said == [
        f"hint: namespace karmada in host cluster stays, because it holds what is not ours: {kind} karmada/theirs"
    ]


def test_what_follows_from_other_objects_keeps_no_namespace() -> None:
    pod = thing("Pod", "web-x")
    pod["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web"}]
    host = remove(installed("Delete", pod, thing("Event", "e"), thing("Endpoints", "prod-apiserver")))
    assert left(host) == set()


def test_a_namespace_stays_when_it_cannot_be_known_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    run = installed("Delete", thing("Role", "hidden"))
    run.say = said.append
    listed = FakeCluster.list

    def refusing(cluster: FakeCluster, version: str, kind: str, *arguments: Any, **options: Any) -> Any:
        if kind == "Role":
            raise Forbidden("host cluster", "GET", "/", 403, "Forbidden", "no")
        return listed(cluster, version, kind, *arguments, **options)

    monkeypatch.setattr(FakeCluster, "list", refusing)
    assert left(remove(run)) == {"Namespace karmada", "Role hidden"}
    assert "may not list Role. If it is: kubectl delete namespace karmada" in said[0]


def made_by_an_instance_that_left(run: Run, *, manager: str = "karmada-installer") -> None:
    """The namespace of this run is one that another instance made, or that was only labelled so."""
    namespace = thing(
        "Namespace", "karmada", {**INSTANCE, "app.kubernetes.io/instance": "old", "installer.karmada.io/owner": "gone"}
    )
    entry = {"manager": manager, "operation": "Apply", "time": "2026-01-01T00:00:00Z"}
    namespace["metadata"]["managedFields"] = [entry]
    run.host_cluster.put(namespace)  # type: ignore[attr-defined]


def test_the_last_instance_that_leaves_removes_the_namespace_that_another_one_made() -> None:
    run = installed(own_namespace=False)
    made_by_an_instance_that_left(run)
    assert left(remove(run)) == set()


@pytest.mark.parametrize(
    "others",
    [[thing("Secret", "test-installer-state")], [thing("Lease", "test-installer")], [thing("ConfigMap", "theirs")]],
    ids=["an instance", "an instance that begins", "somebody"],
)
def test_an_instance_that_is_not_the_last_one_leaves_the_namespace(others: list[dict[str, Any]]) -> None:
    run = installed("Delete", *others, own_namespace=False)
    made_by_an_instance_that_left(run)
    assert left(remove(run)) == {
        "Namespace karmada",
        *(f"{each['kind']} {each['metadata']['name']}" for each in others),
    }


def test_a_namespace_that_only_has_our_labels_stays() -> None:
    run = installed(own_namespace=False)
    made_by_an_instance_that_left(run, manager="kubectl")
    assert left(remove(run)) == {"Namespace karmada"}


def test_without_the_right_to_it_a_namespace_of_another_instance_stays_and_that_is_said() -> None:
    said: list[str] = []
    run = installed(own_namespace=False)
    run.say = said.append
    made_by_an_instance_that_left(run)
    run.host_cluster.denied = {("delete", "namespaces")}  # type: ignore[attr-defined]
    assert left(remove(run)) == {"Namespace karmada"}
    assert said == ["hint: namespace karmada in host cluster stays, because the account may not delete it"]


def test_an_instance_that_was_never_there_takes_no_namespace_away() -> None:
    run = fake_run(document(), FakeCluster("host cluster"))
    made_by_an_instance_that_left(run)
    removal.remove_state(run)
    assert left(run.host_cluster) == {"Namespace karmada"}


def test_a_claim_with_our_label_and_a_name_of_somebody_else_stays() -> None:
    host = remove(installed("Delete", thing("PersistentVolumeClaim", "theirs", OURS)))
    assert "PersistentVolumeClaim theirs" in left(host)


# -- what is no longer wanted ------------------------------------------------------------------------------------------

OPTIONAL_NAMES = ["karmada-descheduler", "karmada-search", "karmada-metrics-adapter"]


def changed_mind(before: dict[str, Any], now: dict[str, Any], *others: dict[str, Any], known: bool = True) -> Run:
    """An instance that was installed with ``before``, and a run with ``now``."""
    found = rendered(before)
    host = FakeCluster("host cluster", *found.objects)
    for other in others:
        host.put(other)
    uids = {
        f"{kind} karmada/{name}": each["metadata"]["uid"]
        for (_version, kind, _namespace, name), each in host.objects.items()
        if known and not name.endswith("-theirs")
    }
    return fake_run(document(now), host, stored=state(owned={"host": uids}))


def names_of(objects: list[dict[str, Any]]) -> set[str]:
    return {f"{each['kind']} {each['metadata']['name']}" for each in objects}


def kept(spec: dict[str, Any]) -> list[Change]:
    """What applying this spec reports: it is there, and stays."""
    return [Change(Ref.of(each), "unchanged") for each in rendered(spec).objects]


@pytest.mark.parametrize("name", OPTIONAL_NAMES)
def test_a_component_that_is_switched_off_is_taken_away_whole(name: str) -> None:
    field = BY_NAME[name].field
    others = {each: {} for each in OPTIONAL if each != field}
    before = {**OPTIONAL, field: {"replicas": 2}}
    run = changed_mind({"components": before}, {"components": others})
    made = names_of(rendered({"components": before}).objects) - names_of(rendered({"components": others}).objects)
    assert names_of(removal.unwanted(run, OPTIONAL_NAMES, kept({"components": others}))) == made
    assert {kind.split()[0] for kind in made} >= {"Deployment", "Secret", "PodDisruptionBudget", "NetworkPolicy"}


def test_components_that_are_not_asked_about_stay() -> None:
    run = changed_mind({"components": OPTIONAL}, {})
    assert removal.unwanted(run, ["karmada-webhook", "etcd"], kept({})) == []
    found = removal.unwanted(run, ["karmada-search"], kept({}))
    assert {each["metadata"]["labels"]["app.kubernetes.io/name"] for each in found} == {"karmada-search"}


def test_what_is_wanted_stays() -> None:
    run = changed_mind({"components": OPTIONAL}, {"components": OPTIONAL})
    assert removal.unwanted(run, OPTIONAL_NAMES, kept({"components": OPTIONAL})) == []


@pytest.mark.parametrize("known", [True, False], ids=["of others", "without record"])
def test_what_only_looks_like_a_part_of_an_unwanted_component_stays(known: bool) -> None:
    label = {**INSTANCE, "app.kubernetes.io/name": "karmada-search"}
    run = changed_mind({"components": OPTIONAL}, {}, thing("Secret", "prod-search-theirs", label), known=known)
    found = names_of(removal.unwanted(run, OPTIONAL_NAMES, []))
    assert "Secret prod-search-theirs" not in found
    assert bool(found) == known


def test_a_budget_goes_when_one_replica_is_left_and_stays_when_it_is_applied() -> None:
    two = {"components": {"karmadaWebhook": {"replicas": 2}, "karmadaScheduler": {"replicas": 2}}}
    now = {"components": {"karmadaScheduler": {"replicas": 2}}}
    run = changed_mind(two, now)
    names = ["karmada-webhook", "karmada-scheduler"]
    assert names_of(removal.unwanted(run, names, kept(now))) == {"PodDisruptionBudget prod-webhook"}


def test_network_policies_go_when_they_are_switched_off_each_with_its_component() -> None:
    off = {"networkPolicies": {"enabled": False}}
    run = changed_mind({}, off)
    found = removal.unwanted(run, ["karmada-webhook", "etcd"], kept(off))
    assert names_of(found) == {"NetworkPolicy prod-webhook", "NetworkPolicy prod-etcd"}


@pytest.mark.parametrize("check", [True, False], ids=["check", "for good"])
def test_what_is_unwanted_is_removed_and_forgotten_but_not_in_check_mode(
    check: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = changed_mind({"components": OPTIONAL}, {})
    run.check = check
    monkeypatch.setattr(Run, "writing", lambda *_: nullcontext())
    saved: list[Any] = []
    monkeypatch.setattr(Run, "save", lambda _run, new: saved.append(new))
    unwanted = removal.unwanted(run, OPTIONAL_NAMES, [])
    changes = run.remove_from_host_cluster("take away", unwanted)
    assert {change.action for change in changes} == {"deleted"}
    assert len(changes) == len(unwanted)
    assert ("Deployment prod-search" in left(run.host_cluster)) == check
    assert "Deployment prod-webhook" in left(run.host_cluster)
    if check:
        assert saved == []
    else:
        owned = saved[0].owned["host"]
        assert "Deployment karmada/prod-search" not in owned
        assert "Deployment karmada/prod-webhook" in owned


def test_in_the_control_plane_only_what_is_ours_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "writing", lambda *_: nullcontext())
    run = changed_mind({"components": OPTIONAL}, {})
    found = rendered({"components": OPTIONAL})
    made = bootstrap.aggregation(OWNER, found.addresses, OPTIONAL_NAMES)
    made += bootstrap.foundation(OWNER, [], found.addresses)
    theirs = next(each for each in made if each["metadata"]["name"] == "v1beta1.metrics.k8s.io")
    theirs["metadata"]["labels"] = {}
    inside = FakeCluster("control plane", *made)
    run.__dict__["control_plane"] = inside
    refs = [each for name in OPTIONAL_NAMES for each in bootstrap.of_component(name)]
    changes = run.remove_from_control_plane("take away", refs)
    assert {change.action for change in changes} == {"deleted"}
    assert inside.names("APIService") == {"v1beta1.metrics.k8s.io"}
    assert inside.names("Service") == {"karmada-aggregated-apiserver"}
    assert run.remove_from_control_plane("take away", refs) == []


# -- members -----------------------------------------------------------------------------------------------------------


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


def test_only_the_kubeconfig_of_this_control_plane_is_removed(tmp_path: Any) -> None:
    run = installed()
    path = tmp_path / "kubeconfig"
    run.connection = type(run.connection)(kubeconfig_output=str(path))
    assert removal.remove_local_files(run) is False
    path.write_text("somebody else's")
    assert removal.remove_local_files(run) is False
    assert path.exists()
    found = rendered()
    path.write_text(admin_kubeconfig(found.material, "https://x"))
    assert removal.remove_local_files(run) is True
    assert not path.exists()


def test_the_report_goes_in_both_of_its_forms(tmp_path: Any) -> None:
    files = [tmp_path / "prod.report.json", tmp_path / "prod.report.html"]
    for check, left in ((True, [True, True]), (False, [False, False]), (False, [False, False])):
        run = fake_run(document(), FakeCluster("host"), stored=state(), check=check)
        run.connection = type(run.connection)(report_output=str(files[0]))
        for each in files if check else ():
            each.write_text("a report")
        removal.remove_local_files(run)
        assert [each.exists() for each in files] == left


def test_a_document_that_asks_for_another_version_does_not_stand_in_the_way_of_a_removal() -> None:
    run = fake_run(
        document({"version": "v1.18.1"}), FakeCluster("host"), stored=state(version="v1.18.2"), operation="uninstall"
    )
    removal.remove_control_plane(run)
    assert run.instance.release.karmada == "v1.18.2"
