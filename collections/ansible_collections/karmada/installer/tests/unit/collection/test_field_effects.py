# SPDX-License-Identifier: Apache-2.0
"""Every field of the document has an effect: two documents between which only it differs do not come to the same."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import crd_files
from ansible_collections.karmada.installer.plugins.plugin_utils.components import audit_policy, releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    KARMADA_AGENT,
    wanted_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair, has_estimators
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import bootstrap, removal, stages
from ansible_collections.karmada.installer.plugins.plugin_utils.document import overlay, references
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import room
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import host_cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.step import merged
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent, kubeconfig_by_ssh, registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import rights as member_rights
from ansible_collections.karmada.installer.plugins.plugin_utils.members import taints as member_taints
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import certificates, x509
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import kubeconfig as pki_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
from ansible_collections.karmada.installer.plugins.plugin_utils.run import in_pods, place, ssh
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.document_fields import (
    FIELDS,
    MEMBER,
    MODE,
    ON_HOSTS,
    ROWS,
    Object,
    documents,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import (
    FakeCluster,
    fake_run,
    node,
    storage_class,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    EVERYTHING,
    NOW,
    OPTIONAL,
    document,
    rendered,
    state,
)

#: What a document can refer to.
CONFIG_MAPS = {
    **{
        name: {
            "a": f'{{apiVersion: v1, kind: Service, metadata: {{name: prod-webhook, annotations: {{x: "{name}"}}}}}}'
        }
        for name in ("one", "two")
    },
} | {
    name: {"policy.yaml": json.dumps({**audit_policy.POLICY, "rules": [{"level": level}]})}
    for name, level in (("everything", "Metadata"), ("nothing", "None"))
}
MATERIAL = rendered(EVERYTHING).material
HOST = "host cluster"


_CA = MATERIAL.authorities["karmada-ca"].certificate
_CONFIG = pki_kubeconfig.kubeconfig("m1", "https://192.0.2.9:6443", _CA, "admin", "token", context="m1")
#: What a host answers that is asked for its kubeconfig.
ON_HOST = kubeconfig_by_ssh.Answer(0, json.dumps(_CONFIG).encode(), "")


def _files(_run: Any, settings: Object, *_: Any) -> Any:
    """Names of files in the place of what they hold."""
    return nullcontext(tuple(ssh.file_of(field, settings, "/secrets", "") for field in ssh.REFERENCES))


class Recorder:
    """Stands for ``Cluster`` where runs connect; ``asked`` is what they asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def from_kubeconfig(self, path: str | None, context: str | None = None, *, name: str = "") -> FakeCluster:
        self.asked.append(("kubeconfig", path, context, name))
        return a_host()

    def from_secret(self, keys: Object, context: str | None, where: str, _folder: Any, _secret: str) -> None:
        self.asked.append(("secret", keys["kubeconfig"], context, where))

    def __call__(self, access: Any, name: str) -> FakeCluster:
        self.asked.append((name, access and access.server))
        return a_host()


def _refused_unverified(deployment: Object) -> str:
    """What a run says of a host cluster that is not verified."""
    access: Any = SimpleNamespace(insecure=True, server="https://192.0.2.9:6443", given_by="", insecure_by="")
    allowed = bool(Spec(deployment["spec"]).host_cluster.insecure)
    try:
        host_cluster.refuse_unverified(access, "kubeconfig", allowed=allowed)
    except ProblemsError as error:
        return str(error)
    return ""


def a_host() -> FakeCluster:
    labels = {"app.kubernetes.io/instance": "prod", "installer.karmada.io/owner": state().owner}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "karmada", "uid": "u", "labels": labels},
    }
    return FakeCluster(HOST, storage_class("standard"), node("192.0.2.1"), claim)


def effects(deployment: Object, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Everything that this document makes the engine render or decide, by where it shows."""
    asked, fetched = Recorder(), []
    for module, name in ((place, "Cluster"), (in_pods, "HostCluster"), (references, "Cluster")):
        monkeypatch.setattr(module, name, asked)
    monkeypatch.setattr(references.kubeconfig, "from_secret", asked.from_secret)
    keys = ("kubeconfig", "ca.crt", "tls.crt", "tls.key")
    monkeypatch.setattr(
        Run, "secret", lambda _run, name, _where: {key: json.dumps({"from": name}).encode() for key in keys}
    )
    monkeypatch.setattr(crd_files, "crds", lambda *about: fetched.append(about) or [])
    remembered = state(version=deployment["spec"].get("version") or releases.newest().karmada)
    run = fake_run(deployment, a_host(), stored=remembered)
    material = replace(MATERIAL, external_etcd=run.external_etcd_files)
    # Where they come from is looked at, too.
    run.__dict__.pop("_crds", None)
    del run.place.__dict__["host_cluster"]
    _ = run.host_cluster
    opened = {"host": [*asked.asked, _refused_unverified(deployment)]}
    run.place.__dict__["host_cluster"] = a_host()
    etcd = replace(remembered.etcd, storage=run.place.etcd_storage(), nodes=("node-a", "node-b", "node-c"))
    run.store.state = replace(remembered, etcd=etcd)
    run.look_again(run.store.state)
    run.snapshot.__dict__["issued"] = certificates.Issued(material, {})
    monkeypatch.setattr(Run, "config_maps", CONFIG_MAPS)
    found: dict[str, Any] = {
        "connection to the host cluster": opened["host"],
        "objects of the host cluster": [
            workloads.namespace(run.instance),
            *overlay.laid_over(run.host_cluster_objects(), run.overlays),
        ],
        "storage of etcd": run.place.etcd_storage(),
        "maintenance of etcd": str(room.limits(run)) if run.spec.external_etcd is None else "of others",
        "certificates": _certificates(run, monkeypatch),
        "renewal of certificates": sorted(
            certificates.issue_missing(
                run.instance, state(), run.layout, _present(run), NOW + timedelta(hours=6000)
            ).reasons
        )
        if deployment["spec"]["certificates"]["keyAlgorithm"] == "ECDSA-P256"
        else "all",
        "endpoint": [run.public_url, run.endpoint_host],
        "objects of the control plane": [
            *stages.objects(run, "rights"),
            *bootstrap.foundation("me", run.crds(), run.snapshot.addresses),
            *bootstrap.aggregation(
                "me", run.snapshot.addresses, [component.name for component in wanted_components(run.spec)]
            ),
            *bootstrap.estimator_services(
                "me",
                {
                    each.member: run.place.estimator_address(run.instance, each)
                    for each in wanted_components(run.spec)
                    if each.member
                },
            ),
            *bootstrap.admission("me", run.snapshot.addresses),
            *bootstrap.discovery("me", run.snapshot.addresses),
        ],
        "source of the CRDs": list(fetched),
        "objects of members": _members(run),
        "record of members": [registration.record(entry) for entry in run.spec.members],
        "removal": _removed(deployment),
    }
    asked.asked.clear()
    monkeypatch.setattr(member_join, "Cluster", asked)
    monkeypatch.setattr(kubeconfig_by_ssh, "_run", lambda command: asked.asked.append(command) or ON_HOST)
    monkeypatch.setattr(kubeconfig_by_ssh.ssh_files, "of_settings", _files)
    for entry in run.spec.members:
        with member_join.connected(run, entry):
            pass
    found["connection to members"] = list(asked.asked)
    return found


def _present(run: Run) -> dict[str, KeyPair]:
    """Certificates as an earlier run with the same names left them."""
    return {name: pair for name, pair in MATERIAL.leaves.items() if name == "karmada-webhook-identity"}


def _certificates(run: Run, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made = []
    with monkeypatch.context() as patched:
        patched.setattr(
            x509, "issue", lambda want, _, algorithm, __, validity: made.append((want, algorithm, validity)) or None
        )
        certificates.issue_missing(run.instance, state(), run.layout, {}, NOW)
    return made


def _members(run: Run) -> list[Any]:
    credentials = registration.Credentials("t", "i", b"c")
    return [
        [
            *registration.objects_on_member(
                entry.name,
                "me",
                run.instance.full_name,
                estimator=has_estimators(run.spec),
                rules=member_rights.rules(entry),
            ),
            *registration.secrets_in_control_plane(entry.name, "me", credentials, "u"),
            merged(cluster, member_taints.patch_for(cluster, entry) or {}),
            *(agent.objects_on_member(run.instance, entry.name, "https://192.0.2.1", None) if entry.pulls else ()),
        ]
        for entry in run.spec.members
        for cluster in [registration.cluster(entry, "me", registration.Registration("id", "https://192.0.2.1"))]
    ]


def _removed(deployment: Object) -> list[str]:
    host = a_host()
    run = fake_run(deployment, host, stored=state(), operation="uninstall")
    removal.remove_control_plane(run)
    removal.remove_state(run)
    return host.log


def differing(path: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    one, other = (effects(each, monkeypatch) for each in documents(path))
    return [where for where in one if one[where] != other[where]]


#: Where a field has to show at least, if that is not in the objects of the host cluster.
ELSEWHERE: dict[str, str] = {
    "spec.hostCluster.secretRef.name": "connection to the host cluster",
    "spec.hostCluster.context": "connection to the host cluster",
    "spec.hostCluster.insecureSkipTLSVerification": "connection to the host cluster",
    "spec.artifacts.source": "source of the CRDs",
    "spec.artifacts.url": "source of the CRDs",
    "spec.registration.karmadactl": "objects of the control plane",
    "spec.installCRD": "source of the CRDs",
    "spec.certificates.validity": "certificates",
    "spec.certificates.renewBefore": "renewal of certificates",
    "spec.certificates.keyAlgorithm": "certificates",
    "spec.certificates.administratorGeneration": "objects of the control plane",
    "spec.endpoint.host": "endpoint",
    "spec.endpoint.extraSANs": "certificates",
    "spec.deletion.policy": "removal",
    "spec.components.etcd.local.maintenance.minimumSize": "maintenance of etcd",
    "spec.components.etcd.local.maintenance.freePercent": "maintenance of etcd",
    "spec.members[].secretRef.name": "connection to members",
    "spec.members[].context": "connection to members",
    "spec.members[].insecureSkipTLSVerification": "record of members",
    "spec.members[].onLeave": "record of members",
    "spec.components.etcd.local.volumeData.emptyDir": "storage of etcd",
    **{path: "connection to members" for path in ROWS if path.startswith("spec.members[].kubeconfigFrom.")},
    **{f"spec.members[].taints[].{name}": "objects of members" for name in ("key", "value", "effect")},
    **{f"spec.members[].scopedRights[].{name}": "objects of members" for name in ("apiGroup", "resources")},
    **{
        f"spec.members[].{name}": "objects of members"
        for name in ("name", "mode", "provider", "region", "zones", "labels")
    },
    **{path: "objects of members" for path in ROWS if path.startswith(f"spec.components.{KARMADA_AGENT.field}.")},
}


def shows_in(path: str) -> str:
    """The effect that the test of this row asks for."""
    return ELSEWHERE.get(path, "objects of the host cluster")


def test_every_field_has_a_row_and_every_row_a_field() -> None:
    assert set(ROWS) - {"metadata.name"} | MODE == set(FIELDS) - ON_HOSTS


@pytest.mark.parametrize("path", ROWS)
def test_a_field_has_an_effect(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shows_in(path) in differing(path, monkeypatch)


@pytest.mark.parametrize("field", OPTIONAL)
def test_an_optional_component_has_an_effect_by_being_named(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without, named = (
        effects(document({"components": each, "members": [MEMBER]}), monkeypatch) for each in ({}, {field: {}})
    )
    where = {each for each in without if without[each] != named[each]}
    assert {"objects of the host cluster", "certificates"} <= where
    assert ("objects of the control plane" in where) == (field != "karmadaDescheduler")


def test_a_document_that_says_the_same_has_the_same_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every row would pass."""
    one, other = (effects(document({"members": [MEMBER]}), monkeypatch) for _ in range(2))
    assert [where for where in one if one[where] != other[where]] == []
