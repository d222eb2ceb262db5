# SPDX-License-Identifier: Apache-2.0
"""Steps are left out only where each of them would have found nothing to do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import (
    COLLECTION_VERSION,
    Journal,
    Manager,
    State,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import pod_components
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import admin_kubeconfig, bootstrap, stages
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane.differences import differences
from ansible_collections.karmada.installer.plugins.plugin_utils.document import overlay
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, Invalid
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import with_applied_hash
from ansible_collections.karmada.installer.plugins.plugin_utils.pki.files import certificate_files
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
from ansible_collections.karmada.installer.plugins.plugin_utils.run.handover import Handover
from ansible_collections.karmada.installer.plugins.plugin_utils.run.on_hosts import OnHosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import HOST_CLUSTER, Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import document, external_etcd, state

REVISION = "prod-etcd-1"
ONE = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
READY: dict[str, Any] = {
    "APIService": {"conditions": [{"type": "Available", "status": "True"}]},
    "CustomResourceDefinition": {"conditions": [{"type": "Established", "status": "True"}]},
    "Deployment": {"observedGeneration": 1, **dict.fromkeys(ONE, 1)},
    "Namespace": {"phase": "Active"},
    "StatefulSet": {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updateRevision": REVISION},
}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "works.work.karmada.io"},
    "spec": {"group": "work.karmada.io"},
}


class ControlPlane(FakeCluster):
    """Its aggregated API and its webhook work unless they are broken."""

    aggregated, judged = True, True

    def get_raw(self, path: str, **_: Any) -> bytes:
        if not self.aggregated:
            raise ApiError(self.name, "GET", path, 503, "ServiceUnavailable", "no server")
        return b"{}"

    def apply(self, obj: Any, *, dry_run: bool = False, **options: Any) -> Any:
        if self.judged and "spreadConstraints" in obj.get("spec", {}).get("placement", {}):
            raise Invalid(self.name, "PATCH", "/", 422, "Invalid", "denied the request")
        return super().apply(obj, dry_run=dry_run, **options)


class Installed:
    """A control plane that is as its document says, in two clusters in memory."""

    def __init__(self, directory: Path) -> None:
        self.host, self.control_plane = FakeCluster("host"), ControlPlane("control plane")
        self.deployment = document({"components": {"etcd": {"local": {"volumeData": {"emptyDir": {}}}}}})
        first = state()
        self.state: State = replace(
            first,
            collection=COLLECTION_VERSION,
            document=copy.deepcopy(self.deployment),
            etcd=replace(first.etcd, storage="emptyDir", bootstrapped=True),
            journal=Journal(operation="install", run="1", started="2026", finished="2026"),
        )
        self.connection = Connection(kubeconfig_output=str(directory / "kubeconfig"))
        run = self.run()
        wanted = [each.name for each in pod_components(run.spec)]
        keys = workloads.file_set_secrets(run.instance, run.layout, run.material)
        admin = workloads.secret(run.instance, "admin", "admin-cert", certificate_files("admin", run.material))
        for each in [*keys, admin, *run.workloads(wanted), admin_kubeconfig.secret(run)]:
            self.put(self.host, each)
        for stage in stages.STAGES:
            for each in stages.objects(run, stage):
                self.put(self.control_plane, each)
        labels = {**run.instance.selector("etcd"), "controller-revision-hash": REVISION}
        self.host.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "prod-etcd-0", "namespace": "karmada", "labels": labels},
                "spec": {"containers": []},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            }
        )
        Path(str(self.connection.kubeconfig_output)).write_text(admin_kubeconfig.for_person(run))
        Path(str(self.connection.kubeconfig_output)).chmod(0o600)
        owned = {
            f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}": each["metadata"]["uid"]
            for (_, kind, namespace, name), each in self.host.objects.items()
        }
        self.state = self.state.with_owned(HOST_CLUSTER, owned)

    @staticmethod
    def put(cluster: FakeCluster, obj: Any) -> None:
        live = with_applied_hash(obj)
        live["metadata"] = {**live["metadata"], "generation": 1}
        cluster.put({**live, "status": READY[obj["kind"]]} if obj["kind"] in READY else live)

    def run(self, *, check: bool = False) -> Run:
        run = fake_run(self.deployment, self.host, stored=self.state, check=check)
        run.__dict__["control_plane"] = self.control_plane
        run.connection = self.connection
        return run

    def found(self) -> list[str]:
        return differences(self.run())

    def live(self, cluster: FakeCluster, kind: str, name: str) -> Any:
        return next(each for key, each in cluster.objects.items() if (key[1], key[3]) == (kind, name))

    def remove(self, cluster: FakeCluster, kind: str, name: str) -> None:
        del cluster.objects[next(key for key in cluster.objects if (key[1], key[3]) == (kind, name))]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    monkeypatch.setattr(Run, "crds", lambda _: [CRD])
    return Installed(tmp_path)


def test_where_everything_is_as_it_should_be_there_is_none_and_nothing_was_written(installed: Installed) -> None:
    assert installed.found() == []
    assert installed.host.log == installed.control_plane.log == []


def test_bookkeeping_about_an_object_is_no_difference_and_a_run_with_nothing_to_do_writes_nothing(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the operator starts one: from an object that was annotated, and with no file for the kubeconfig."""
    kube_system = installed.host.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
    installed.deployment["metadata"].update(
        uid="of-prod", generation=7, annotations={"installer.karmada.io/run-now": "1"}, labels={"tier": "gold"}
    )
    manager = Manager("karmada", "prod", "of-prod", kube_system["metadata"]["uid"])
    installed.state = replace(installed.state, manager=manager)
    installed.connection = Connection(object_uid="of-prod")
    monkeypatch.setattr("ansible_collections.karmada.installer.plugins.plugin_utils.run.store.Lock", Untaken)
    run = installed.run()
    assert differences(run) == []
    assert not run.finish()
    run.store.release_lock()
    assert installed.host.log == installed.control_plane.log == []
    # What an earlier version recorded has the same bookkeeping as an object had then.
    recorded = {**installed.state.document, "metadata": {**installed.deployment["metadata"], "generation": 3}}
    installed.state = replace(installed.state, document=recorded)
    assert differences(installed.run()) == []
    assert not installed.run().finish()
    # What the document says does count, and which object says it.
    for other in (replace(installed.state, manager=Manager()), replace(installed.state, document=None)):
        installed.state = other
        with pytest.raises(AssertionError, match="nothing is to be written"):
            installed.run().finish()


def test_an_object_whose_control_plane_is_elsewhere_has_the_kubeconfig_beside_it(installed: Installed) -> None:
    assert admin_kubeconfig.beside_object(installed.run()) is None, "a file has its own"
    installed.connection = Connection(object_uid="of-prod")
    assert admin_kubeconfig.beside_object(installed.run()) is None, "it is there already"
    installed.deployment["metadata"]["namespace"] = "objects"
    installed.deployment["spec"]["hostCluster"]["namespace"] = "karmada"
    installed.state = replace(installed.state, document=installed.deployment)
    assert installed.found() == ["Secret objects/prod-admin-config is missing"]
    beside = admin_kubeconfig.beside_object(installed.run())
    assert beside
    assert beside["data"] == admin_kubeconfig.secret(installed.run())["data"]
    (owner,) = beside["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("KarmadaDeployment", "prod", "of-prod")
    installed.put(installed.host, beside)
    assert installed.found() == []


@pytest.mark.parametrize("same", [True, False], ids=["of the same cluster", "of another one"])
def test_the_kubeconfig_is_beside_an_object_that_reaches_its_own_cluster_by_a_kubeconfig(
    same: bool, installed: Installed
) -> None:
    """Two owners of one Secret would each undo what the other has written, and it would go with the object."""
    installed.connection = Connection(object_uid="of-prod")
    installed.deployment["spec"]["hostCluster"]["secretRef"] = {"name": "own"}
    run, system = installed.run(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
    run.__dict__["home"] = FakeCluster("home")
    uid = installed.host.put(system)["metadata"]["uid"] if same else "of-another"
    run.__dict__["home"].put({**system, "metadata": {"name": "kube-system", "uid": uid}})
    assert (admin_kubeconfig.beside_object(run) is None) is same


def test_a_member_of_etcd_that_is_to_be_replaced_is_a_difference(installed: Installed) -> None:
    assert differences(installed.run(), ["prod-etcd-1"]) == ["prod-etcd-1: to be replaced"]


class Untaken:
    """Lease that a run with nothing to do neither takes nor touches."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def acquire(self, *_: Any) -> None:
        raise AssertionError("nothing is to be written")

    def release(self) -> None:
        """Nothing to release."""


def drifted(it: Installed) -> None:
    it.live(it.host, "Deployment", "prod-scheduler")["spec"]["replicas"] = 0


def not_ready(it: Installed) -> None:
    it.live(it.host, "Deployment", "prod-scheduler")["status"] = {"observedGeneration": 1, "replicas": 1}


def older_member(it: Installed) -> None:
    it.live(it.host, "Pod", "prod-etcd-0")["metadata"]["labels"]["controller-revision-hash"] = "prod-etcd-0"


def no_revision(it: Installed) -> None:
    del it.live(it.host, "StatefulSet", "prod-etcd")["status"]["updateRevision"]


def not_bootstrapped(it: Installed) -> None:
    it.state = replace(it.state, etcd=replace(it.state.etcd, bootstrapped=False))
    for each in it.run().workloads(["etcd"]):
        if each["kind"] == "ConfigMap":
            it.put(it.host, each)


def of_somebody_else(it: Installed) -> None:
    it.deployment["spec"]["components"] = document(external_etcd())["spec"]["components"]
    it.state = replace(it.state, document=copy.deepcopy(it.deployment))


def unwanted(it: Installed) -> None:
    metadata = it.run().instance.metadata("karmada-search", "prod-search")
    live = it.host.put({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata})
    it.state = it.state.with_owned(HOST_CLUSTER, {"Deployment karmada/prod-search": live["metadata"]["uid"]})


def api_of_nobody(it: Installed) -> None:
    run = it.run()
    run.deployment["spec"]["components"]["karmadaSearch"] = {}
    for each in stages.objects(run, "addons"):
        it.put(it.control_plane, each)
    del run.deployment["spec"]["components"]["karmadaSearch"]


def registration_of_before(it: Installed) -> None:
    for each in bootstrap.registration(it.run().instance.owner):
        it.put(it.control_plane, each)


def other_file(it: Installed) -> None:
    Path(str(it.connection.kubeconfig_output)).write_text("{}")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (drifted, "Deployment karmada/prod-scheduler is not as it should be"),
        (lambda it: it.remove(it.host, "Deployment", "prod-webhook"), "Deployment karmada/prod-webhook is missing"),
        (lambda it: it.remove(it.host, "Secret", "prod-admin-config"), "Secret karmada/prod-admin-config is missing"),
        (not_ready, "Deployment karmada/prod-scheduler: "),
        (no_revision, "the controller has not given it a revision yet"),
        (not_bootstrapped, "etcd has not worked yet"),
        (of_somebody_else, "etcd is looked at by steps of its own"),
        (older_member, "members of etcd run with older settings"),
        (unwanted, "Deployment karmada/prod-search is not wanted"),
        (other_file, "kubeconfig is not as it should be"),
        (lambda it: it.remove(it.control_plane, "CustomResourceDefinition", CRD["metadata"]["name"]), "is missing"),
        (
            lambda it: it.live(it.control_plane, "APIService", "v1alpha1.cluster.karmada.io").update(status={}),
            "APIService v1alpha1.cluster.karmada.io: ",
        ),
        (api_of_nobody, "APIService v1alpha1.search.karmada.io is not wanted"),
        (registration_of_before, "ClusterRoleBinding system:karmada:agent-rbac-generator is not wanted"),
        (lambda it: setattr(it.control_plane, "aggregated", False), "no server"),
        (lambda it: setattr(it.control_plane, "judged", False), "was accepted"),
        (lambda it: setattr(it.control_plane, "dead", True), "no answer"),
        (lambda it: setattr(it, "state", replace(it.state, owned={})), "is not on record"),
        (lambda it: setattr(it, "state", replace(it.state, collection="0.0.1")), "another version"),
        (lambda it: setattr(it, "state", replace(it.state, document=None)), "not installed"),
        (
            lambda it: setattr(it, "state", replace(it.state, journal=replace(it.state.journal, finished=""))),
            "did not come to its end",
        ),
        (lambda it: it.deployment["spec"].update(members=[{"name": "m1"}]), "another one"),
    ],
)
def test_whatever_is_not_as_it_should_be_is_one(
    installed: Installed, change: Callable[[Installed], None], told: str
) -> None:
    change(installed)
    assert any(told in each for each in installed.found()), installed.found()


def test_an_overlay_is_part_of_what_should_be(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    def laid_over(objects: list[Any], _overlays: Any) -> list[Any]:
        return [{**each, "metadata": {**each["metadata"], "labels": {"more": "1"}}} for each in objects]

    monkeypatch.setattr(overlay, "laid_over", laid_over)
    assert installed.found()


def test_a_check_leaves_no_step_out(installed: Installed) -> None:
    assert differences(installed.run(check=True)) == ["a check tells what each step would do"]


def test_of_a_control_plane_on_hosts_it_is_what_is_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "crds", lambda _: [CRD])
    hosts = [{"name": "cp1", "address": "192.0.2.1"}]
    deployment = document({"mode": "Binary", "hosts": hosts, "endpoint": {"type": "External", "host": "192.0.2.9"}})
    done = Journal(operation="install", run="1", started="2026", finished="2026")
    stored = state(document=copy.deepcopy(deployment), collection=COLLECTION_VERSION, journal=done)
    control_plane = ControlPlane("control plane")

    def step() -> Run:
        run = Run(
            deployment,
            Connection(kubeconfig_output=str(tmp_path / "kubeconfig")),
            operation="install",
            holder="me",
            check=False,
            say=lambda _: None,
            place=partial(OnHosts, handover=Handover(tmp_path / "run")),
        )
        run.store.state = stored
        run.__dict__["control_plane"] = control_plane
        return run

    (tmp_path / "kubeconfig").write_text(admin_kubeconfig.for_person(step()))
    (tmp_path / "kubeconfig").chmod(0o600)
    assert any("is missing" in each for each in differences(step()))
    for stage in stages.STAGES:
        for each in stages.objects(step(), stage):
            Installed.put(control_plane, each)
    assert differences(step()) == []
    (tmp_path / "kubeconfig").unlink()
    assert differences(step()) == [f"{tmp_path}/kubeconfig is not as it should be"]
