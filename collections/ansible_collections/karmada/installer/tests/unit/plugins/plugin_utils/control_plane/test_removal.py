# SPDX-License-Identifier: Apache-2.0
"""Taking away: only what is ours by label and by record, and never what others put beside it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import removal
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.pki.files import admin_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.removal import INSTANCE, OURS, left, thing
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    Rendered,
    document,
    rendered,
    state,
)


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


def with_an_api_server_that_takes_its_time(run: Run, monkeypatch: pytest.MonkeyPatch, looks: int) -> list[str]:
    """Names of deleted workloads, as they go; the API server goes when it was looked for so often after that."""
    host, gone, left_of_it = run.host_cluster, list[str](), [looks]
    deletes, gets = host.delete, host.get
    apiserver = ("apps/v1", "Deployment", "karmada", "prod-apiserver")

    def delete(version: str, kind: str, name: str, *rest: Any, **options: Any) -> bool:
        if name == apiserver[-1] and kind == "Deployment":
            assert options["propagation"] == "Foreground"
            host.objects[apiserver]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"  # type: ignore[attr-defined]
            return True
        if kind in ("Deployment", "StatefulSet"):
            gone.append(name)
        return deletes(version, kind, name, *rest, **options)

    def get(version: str, kind: str, name: str, *rest: Any, **options: Any) -> Any:
        live = gets(version, kind, name, *rest, **options)
        if name == apiserver[-1] and kind == "Deployment" and live and "deletionTimestamp" in live["metadata"]:
            left_of_it[0] -= 1
            if left_of_it[0] < 0:
                gone.append(name)
                del host.objects[apiserver]  # type: ignore[attr-defined]
                return None
        return live

    monkeypatch.setattr(host, "delete", delete)
    monkeypatch.setattr(host, "get", get)
    return gone


def test_members_are_cleaned_while_the_api_server_stops_and_etcd_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = installed()
    gone = with_an_api_server_that_takes_its_time(run, monkeypatch, 4)
    told = [each.ref.name for each in removal.stop_components(run, 5.0) if each.ref.kind == "Deployment"]
    assert "prod-apiserver" in told
    assert "Deployment prod-apiserver" in left(run.host_cluster), "nobody waits for it"
    assert {"prod-webhook", "prod-scheduler", "prod-controller-manager", "prod-aggregated-apiserver"} <= {*gone}
    # A run that was killed here is gone on with by another one, which begins from the start.
    removal.stop_components(run, 5.0)
    assert "Deployment prod-apiserver" in left(run.host_cluster)
    later = [each.ref.name for each in removal.remove_control_plane(run, 5.0) if each.ref.kind == "Deployment"]
    assert later == [], "it is told once"
    assert gone[-2:] == ["prod-apiserver", "prod-etcd"]
    removal.remove_state(run)
    assert left(run.host_cluster) == set()


def test_nothing_outlives_an_etcd_on_plain_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes right after the members, and the rest of the control plane later."""
    run = installed()
    gone = with_an_api_server_that_takes_its_time(run, monkeypatch, 4)
    monkeypatch.setattr(removal, "etcd_on_hosts", lambda _spec: True)
    removal.stop_components(run, 5.0)
    assert gone[-1] == "prod-apiserver"


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


# -- members -----------------------------------------------------------------------------------------------------------


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
    for check, expected in ((True, [True, True]), (False, [False, False]), (False, [False, False])):
        run = fake_run(document(), FakeCluster("host"), stored=state(), check=check)
        run.connection = type(run.connection)(report_output=str(files[0]))
        for each in files if check else ():
            each.write_text("a report")
        removal.remove_local_files(run)
        assert [each.exists() for each in files] == expected


def test_a_document_that_asks_for_another_version_does_not_stand_in_the_way_of_a_removal() -> None:
    run = fake_run(
        document({"version": "v1.18.1"}), FakeCluster("host"), stored=state(version="v1.18.2"), operation="uninstall"
    )
    removal.remove_control_plane(run)
    assert run.instance.release.karmada == "v1.18.2"
