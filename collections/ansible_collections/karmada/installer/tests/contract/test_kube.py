# SPDX-License-Identifier: Apache-2.0
"""The client, apply, waiting and the lock against a real API server."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components import ip_families
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import cluster as kube
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import errors as api_errors
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import apply_all, delete_all
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.kubeconfig import from_parts
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.lease import Lock
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref, drift, owned_by
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.transport import METADATA
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import wait_until
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run_process import holder_identity
from ansible_collections.karmada.installer.tests.unit.support.clusters import cluster_of
from ansible_collections.karmada.installer.tests.unit.support.moments import until

LABELS = {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": "me"}
WRITES = ("apply", "create", "replace", "patch", "delete")


def writes(cluster: Cluster) -> int:
    return sum(cluster.counts[verb] for verb in WRITES)


def meta(name: str, namespace: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "labels": dict(LABELS)}


def config_map(namespace: str, name: str = "one", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name, namespace), "data": data}


def everything(namespace: str) -> list[dict[str, Any]]:
    """One of each kind that we render, with what API servers like to write their own way."""
    pod = {
        "metadata": {"labels": {"app": "a"}},
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "affinity": {
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 100,
                            "podAffinityTerm": {
                                "topologyKey": "kubernetes.io/hostname",
                                "labelSelector": {"matchLabels": {"app": "a"}},
                            },
                        }
                    ]
                }
            },
            "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
            "initContainers": [],
            "containers": [
                {
                    "name": "server",
                    "image": "x:1",
                    "args": ["--a"],
                    "env": [{"name": "EMPTY", "value": ""}, {"name": "A", "value": "1"}],
                    "ports": [{"name": "https", "containerPort": 5443}, {"name": "m", "containerPort": 8080}],
                    "resources": {"requests": {"cpu": 0.5, "memory": "1024Mi"}, "limits": {"memory": "2048Mi"}},
                    "readinessProbe": {"httpGet": {"path": "/readyz", "port": 5443, "scheme": "HTTPS"}},
                    "volumeMounts": [
                        {"name": "b", "mountPath": "/b", "readOnly": True},
                        {"name": "t", "mountPath": "/t"},
                    ],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
            "volumes": [{"name": "b", "secret": {"secretName": "s"}}, {"name": "t", "emptyDir": {}}],
        },
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
    }
    selector = {"matchLabels": {"app": "a"}}
    return [
        config_map(namespace, k="v"),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": meta("s", namespace),
            "stringData": {"a": "b"},
            "type": "Opaque",
        },
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("a", namespace)},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta("a", namespace),
            "spec": {
                "selector": {"app": "a"},
                "ports": [
                    {"name": "https", "port": 443, "targetPort": 5443},
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                ],
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta("a", namespace),
            "spec": {"replicas": 2, "selector": selector, "template": pod},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": meta("e", namespace),
            "spec": {
                "serviceName": "a",
                "replicas": 3,
                "selector": selector,
                "template": pod,
                "volumeClaimTemplates": [claim],
                "updateStrategy": {"type": "OnDelete"},
            },
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": meta("a", namespace),
            "spec": {"minAvailable": 1, "selector": selector},
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": meta("a", namespace),
            "spec": {
                "podSelector": {},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"a": "b"}}}], "ports": [{"port": 2379}]}],
            },
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": meta("a", namespace),
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}],
        },
    ]


def test_a_second_run_writes_nothing_and_asks_nothing(cluster: Cluster, namespace: str) -> None:
    wanted = everything(namespace)
    assert {one.action for one in apply_all(cluster, wanted)} == {"created"}
    cluster.counts.clear()
    assert {one.action for one in apply_all(cluster, wanted)} == {"unchanged"}
    assert writes(cluster) == 0
    assert cluster.counts["dry-run"] == 0, "our comparison does not know something that the API server does to objects"


@pytest.mark.parametrize("index", range(9))
def test_live_objects_cover_what_was_applied(cluster: Cluster, namespace: str, index: int) -> None:
    desired = everything(namespace)[index]
    assert drift(cluster.apply(desired).object, desired) == []


def test_foreign_fields_survive_and_ours_come_back(cluster: Cluster, namespace: str) -> None:
    created = apply_all(cluster, [config_map(namespace, ours="1", gone="1")])[0]
    found = cluster.get("v1", "ConfigMap", "one", namespace)
    assert found
    assert owned_by(found, "me", set()), "no writer is older than the apply that made it"
    patch = {"data": {"theirs": "x", "ours": "theirs"}, "metadata": {"labels": {"team": "t"}}}
    cluster.patch_merge("v1", "ConfigMap", "one", namespace, patch)
    # The patch above is made by our manager as an Update; what counts is that no Apply owns those fields.
    assert apply_all(cluster, [config_map(namespace, ours="1")], check=True)[0].action == "changed"
    done = apply_all(cluster, [config_map(namespace, ours="1")])
    assert done[0].action == "changed"
    found = cluster.get("v1", "ConfigMap", "one", namespace)
    assert found
    assert found["data"] == {"theirs": "x", "ours": "1"}
    assert found["metadata"]["labels"]["team"] == "t"
    # The API server dates our apply anew when it changes fields: a second later theirs is the older writer.
    assert owned_by(found, "me", {created.uid})


def test_conflicts_preconditions_and_strictness(cluster: Cluster, namespace: str) -> None:
    cluster.apply(config_map(namespace, a="1"), field_manager="somebody")
    with pytest.raises(api_errors.Conflict, match="somebody"):
        cluster.apply(config_map(namespace, a="2"), force=False)
    with pytest.raises(api_errors.Invalid, match=r"unknown field|field not declared"):
        cluster.apply({**config_map(namespace), "spec": {"typo": 1}})
    with pytest.raises(api_errors.Conflict, match="already exists"):
        cluster.create(config_map(namespace))
    with pytest.raises(api_errors.Conflict):
        cluster.delete("v1", "ConfigMap", "one", namespace, uid=str(uuid.uuid4()))
    with pytest.raises(api_errors.NotFound, match="namespaces"):
        cluster.apply(config_map("no-such-namespace"))
    with pytest.raises(api_errors.NotFound, match="resource type"):
        cluster.apply({"apiVersion": "example.com/v1", "kind": "Nope", "metadata": {"name": "x"}}, dry_run=True)
    found = cluster.get("v1", "ConfigMap", "one", namespace)
    assert found
    with pytest.raises(ProblemsError, match="was not made by this installer"):
        apply_all(cluster, [{**config_map(namespace, "two")}, _without_labels(cluster, namespace)])
    assert cluster.delete("v1", "ConfigMap", "one", namespace, uid=found["metadata"]["uid"])


def _without_labels(cluster: Cluster, namespace: str) -> dict[str, Any]:
    cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": namespace}})
    return config_map(namespace, "theirs", a="1")


def test_check_mode_predicts_inside_a_namespace_that_is_not_there(cluster: Cluster) -> None:
    changes = apply_all(cluster, everything("not-yet"), check=True)
    assert {one.action for one in changes} == {"created"}
    assert writes(cluster) == 0
    assert "app.kubernetes.io/managed-by" in changes[0].diff["after"]


def test_a_new_kind_can_be_used_at_once_and_is_waited_for(cluster: Cluster) -> None:
    group = f"g{uuid.uuid4().hex[:8]}.example.com"
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}", "labels": dict(LABELS)},
        "spec": {
            "group": group,
            "names": {"plural": "things", "kind": "Thing"},
            "scope": "Cluster",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }
    thing = {
        "apiVersion": f"{group}/v1",
        "kind": "Thing",
        "metadata": {"name": "x", "labels": dict(LABELS)},
        "spec": {"a": 1},
    }
    assert cluster.get(f"{group}/v1", "Thing", "x") is None
    assert apply_all(cluster, [thing], check=True)[0].action == "created"
    ref = Ref.of(crd)
    waiting = threading.Timer(0.3, apply_all, (cluster, [crd]))
    start = time.monotonic()
    waiting.start()
    wait_until(cluster, [ref], timeout=300)
    assert time.monotonic() - start >= 0.3
    waiting.join()
    done = apply_all(cluster, [thing])
    assert done[0].action == "created"
    assert apply_all(cluster, [thing, crd])[0].action == "unchanged"
    with pytest.raises(api_errors.Expired):
        list(cluster.watch(f"{group}/v1", "Thing", resource_version="1", timeout_seconds=2))
    live = cluster.get(ref.api_version, ref.kind, ref.name)
    assert live
    assert [
        one.action for one in delete_all(cluster, [(done[0].ref, done[0].uid), (ref, live["metadata"]["uid"])])
    ] == [
        "deleted",
        "deleted",
    ]
    assert cluster.get(ref.api_version, ref.kind, ref.name) is None


def test_a_watch_goes_on_from_a_list(cluster: Cluster, namespace: str) -> None:
    version = cluster.list("v1", "ConfigMap", namespace).resource_version
    cluster.apply(config_map(namespace, a="1"))
    cluster.delete("v1", "ConfigMap", "one", namespace)
    watch = cluster.watch("v1", "ConfigMap", namespace, resource_version=version, timeout_seconds=300)
    kinds = (one["type"] for one in watch if one["type"] != "BOOKMARK")
    assert [next(kinds), next(kinds)] == ["ADDED", "DELETED"]
    watch.close()


def test_an_api_server_says_its_own_address(cluster: Cluster) -> None:
    assert ip_families.of_api_server(cluster.api_versions()) == (ip_families.IPV4,)


def test_many_objects_come_in_pages(cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_all(cluster, [config_map(namespace, f"c{index}") for index in range(12)])
    monkeypatch.setattr(kube, "PAGE", 5)
    cluster.counts.clear()
    found = cluster.list("v1", "ConfigMap", namespace)
    assert sorted(one["metadata"]["name"] for one in found) == sorted(f"c{index}" for index in range(12))
    assert cluster.counts["list"] == 3


def test_access_is_reviewed_for_who_we_are(api_server: Any, cluster: Cluster, namespace: str) -> None:
    wanted = [("create", "apps", "deployments", namespace), ("get", "", "pods", namespace, "log")]
    assert cluster.can_i(wanted) == []
    assert cluster.counts["review"] == 1, "an administrator is asked about everything at once"
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    config["users"][0]["user"]["as"] = "nobody"
    with cluster_of(config, name="host cluster") as other:
        assert len(other.can_i(wanted)) == 2
        with pytest.raises(api_errors.Forbidden, match='User "nobody" cannot'):
            other.list("v1", "Pod", namespace)


def test_trust_and_identity_that_do_not_fit_are_told_apart(api_server: Any) -> None:
    ours = {"cert_pem": api_server.client_certificate.read_text(), "key_pem": api_server.client_key.read_text()}
    ca = api_server.ca.read_text()
    with pytest.raises(api_errors.Unreachable, match="not signed by the CA we were given"):
        Cluster(from_parts(api_server.url, ca_pem=None, **ours)).version()
    other_name = Cluster(from_parts(api_server.url, ca_pem=ca, **ours, tls_server_name="example.com"))
    with pytest.raises(api_errors.Unreachable, match="not valid for this address"):
        other_name.version()
    with pytest.raises(api_errors.Unauthorized, match="does not accept our certificate or token"):
        Cluster(from_parts(api_server.url, ca_pem=ca, token="x.y.z")).list("v1", "Pod")
    by_name = Cluster(from_parts(api_server.url, ca_pem=ca, **ours, tls_server_name="localhost"))
    assert by_name.version()["gitVersion"]


def test_the_lock_of_a_killed_process_is_taken_over(api_server: Any, cluster: Cluster, namespace: str) -> None:
    code = (
        "import sys, time\n"
        "from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster\n"
        "from ansible_collections.karmada.installer.plugins.plugin_utils.kube.lease import Lock\n"
        "from ansible_collections.karmada.installer.plugins.plugin_utils.run_process import holder_identity\n"
        "lock = Lock(Cluster.from_kubeconfig(sys.argv[1]), sys.argv[2], 'prod-installer', holder_identity(), 6)\n"
        "lock.acquire()\n"
        "with lock.held():\n"
        "    print('held', flush=True)\n"
        "    time.sleep(600)\n"
    )

    def renewed() -> str:
        found = cluster.get("coordination.k8s.io/v1", "Lease", "prod-installer", namespace)
        assert found
        return str(found["spec"]["renewTime"])

    command = [sys.executable, "-c", code, str(api_server.kubeconfig), namespace]
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        mine = Lock(cluster, namespace, "prod-installer", holder_identity(), 6)
        taken = renewed()
        until(lambda: renewed() != taken, "a renewal")
        with pytest.raises(ProblemsError, match=f"process {process.pid} on"):
            mine.acquire()
        process.kill()
        process.wait()
    mine.acquire()  # without waiting
    lease = cluster.get("coordination.k8s.io/v1", "Lease", "prod-installer", namespace)
    assert lease
    assert lease["spec"]["leaseTransitions"] == 1
    mine.release()


def test_a_port_that_somebody_moved_is_moved_back_with_its_node_port(
    api_server: Any, cluster: Cluster, namespace: str
) -> None:
    ports = [{"name": "https", "port": 443, "targetPort": 8443}, {"name": "metrics", "port": 8080, "targetPort": 8080}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta("s", namespace),
        "spec": {"type": "NodePort", "selector": {"app": "a"}, "ports": ports},
    }
    apply_all(cluster, [service])
    before = cluster.get("v1", "Service", "s", namespace)
    assert before
    moved = [{"op": "replace", "path": "/spec/ports/0/port", "value": 9999}]
    path = f"/api/v1/namespaces/{namespace}/services/s?fieldManager=kubectl"
    assert api_server.request("PATCH", path, moved, "application/json-patch+json")[0] == 200
    (predicted,) = apply_all(cluster, [service], check=True)
    assert predicted.action == "changed"
    (change,) = apply_all(cluster, [service])
    assert change.action == "changed"
    after = cluster.get("v1", "Service", "s", namespace)
    assert after
    assert after["spec"] == before["spec"]
    assert apply_all(cluster, [service])[0].action == "unchanged"


def test_metadata_comes_without_content(cluster: Cluster, namespace: str) -> None:
    stored = cluster.apply(config_map(namespace, a="x" * 100_000)).object
    found = cluster.metadata("v1", "ConfigMap", "one", namespace)
    assert found
    assert (found["uid"], found["labels"]) == (stored["metadata"]["uid"], LABELS)
    answer = cluster._request("get", "GET", f"/api/v1/namespaces/{namespace}/configmaps/one", accept=METADATA)
    assert len(answer.data) < 10_000
    assert cluster.metadata("v1", "ConfigMap", "two", namespace) is None
    assert cluster.metadata("none.example/v1", "None", "one", namespace) is None


def test_a_status_is_applied_to_the_object_that_was_meant(cluster: Cluster, namespace: str) -> None:
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta("one", namespace)}
    selector = {"selector": {"matchLabels": {"app": "a"}}}
    stored = cluster.apply({**budget, "spec": {"minAvailable": 1, **selector}}).object
    counts = dict.fromkeys(("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"), 3)
    named = {**budget, "metadata": {"name": "one", "namespace": namespace, "uid": stored["metadata"]["uid"]}}
    found = cluster.apply_status({**named, "status": counts}, field_manager="tester")
    assert found["status"].items() >= counts.items()
    assert found["spec"]["minAvailable"] == 1
    again = cluster.apply_status({**named, "status": counts}, field_manager="tester")
    assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
    with pytest.raises((api_errors.Conflict, api_errors.Invalid), match="uid"):
        cluster.apply_status(
            {**named, "metadata": {**named["metadata"], "uid": str(uuid.uuid4())}, "status": counts},
            field_manager="tester",
        )
    missing = {**budget, "metadata": {"name": "two", "namespace": namespace}, "status": counts}
    with pytest.raises(api_errors.NotFound):
        cluster.apply_status(missing, field_manager="tester")
    with pytest.raises(api_errors.Invalid):
        cluster.apply_status({**named, "status": {"nonsense": 1}}, field_manager="tester")
