# SPDX-License-Identifier: Apache-2.0
"""Fields of the document, and for each two documents between which only it differs.

ROWS is one table: tests hold it against the schema as a whole, and the page of field tests is generated from it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    KARMADA_AGENT,
    PROGRAMS,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    document,
    external_etcd,
)

Object = dict[str, Any]

MEMBER = {"name": "m1", "secretRef": {"name": "m1"}}
_SCOPED = {"apiGroup": "apps", "resources": ["deployments"]}
_NODE_PORT = {"endpoint": {"type": "NodePort"}}
_CLAIM = {"volumeClaim": {"size": "1Gi"}}


def _resources(component: str) -> dict[str, tuple[Any, Any]]:
    return {
        f"{component}.resources.{kind}.{name}": (None, "1")
        for kind in ("requests", "limits")
        for name in ("cpu", "memory", "ephemeral-storage")
    }


def _settings(component: str) -> dict[str, tuple[Any, Any]]:
    """Those that every component has."""
    return {
        f"{component}.imagePullPolicy": (None, "Always"),
        f"{component}.imagePullSecrets[].name": ("one", "two"),
        f"{component}.labels": (None, {"team": "platform"}),
        f"{component}.annotations": (None, {"example.com/note": "text"}),
        f"{component}.nodeSelector": (None, {"pool": "control"}),
        f"{component}.tolerations[].key": ("a", "b"),
        f"{component}.tolerations[].operator": ("Equal", "Exists"),
        f"{component}.tolerations[].value": ("a", "b"),
        f"{component}.tolerations[].effect": ("NoSchedule", "NoExecute"),
        f"{component}.tolerations[].tolerationSeconds": (1, 2),
        f"{component}.affinity": (None, {"podAntiAffinity": {}}),
        f"{component}.topologySpreadConstraints": (None, [{"topologyKey": "zone"}]),
        f"{component}.priorityClassName": (None, ""),
        f"{component}.podDisruptionBudgetConfig.minAvailable": (None, 1),
        f"{component}.podDisruptionBudgetConfig.maxUnavailable": (None, "50%"),
        f"{component}.extraEnv[].name": ("A", "B"),
        f"{component}.extraEnv[].value": ("a", "b"),
        f"{component}.extraEnv[].valueFrom": ({"fieldRef": {}}, {"secretKeyRef": {}}),
        f"{component}.extraVolumes": (None, [{"name": "scratch", "emptyDir": {}}]),
        f"{component}.extraVolumeMounts": (None, [{"name": "scratch", "mountPath": "/scratch"}]),
        f"{component}.securityContext": (None, {"runAsUser": 1000}),
        f"{component}.imageRepository": (None, "example.com/image"),
        f"{component}.imageTag": (None, "tag"),
        f"{component}.replicas": (1, 3),
        f"{component}.extraArgs": (None, {"v": "4"}),
        **_resources(component),
    }


#: path → two values of the field; None leaves it out. [] is the only entry of a list.
ROWS: dict[str, tuple[Any, Any]] = {
    "metadata.name": ("prod", "test"),
    "spec.version": ("v1.18.1", "v1.18.2"),
    "spec.hostCluster.namespace": (None, "other"),
    "spec.hostCluster.secretRef.name": ("one", "two"),
    "spec.hostCluster.context": (None, "two"),
    "spec.hostCluster.insecureSkipTLSVerification": (None, True),
    "spec.hostCluster.domain": (None, "cluster.example"),
    "spec.endpoint.type": (None, "NodePort"),
    "spec.endpoint.host": (None, "karmada.example.com"),
    "spec.endpoint.ipFamilyPolicy": (None, "SingleStack"),
    "spec.endpoint.loadBalancerClass": (None, "example.com/inner"),
    "spec.endpoint.serviceAnnotations": (None, {"example.com/inner": "true"}),
    "spec.endpoint.ingress.className": (None, "inner"),
    "spec.endpoint.ingress.annotations": (None, {"example.com/inner": "true"}),
    "spec.endpoint.route.labels": (None, {"router": "inner"}),
    "spec.endpoint.route.annotations": (None, {"example.com/inner": "true"}),
    "spec.endpoint.port": (None, 32000),
    "spec.endpoint.extraSANs": (None, ["karmada.example.com"]),
    "spec.images.mirrorCountry": (None, "cn"),
    "spec.images.karmadaRegistry": (None, "example.com/mirror"),
    "spec.images.kubeRegistry": (None, "example.com/mirror"),
    "spec.images.etcdRegistry": (None, "example.com/mirror"),
    "spec.images.pullPolicy": (None, "Always"),
    "spec.images.pullSecrets[].name": ("one", "two"),
    "spec.artifacts.source": (None, "GoModules"),
    "spec.artifacts.url": (None, "https://example.com/mirror"),
    "spec.certificates.validity": (None, "4380h"),
    "spec.certificates.renewBefore": (None, "24h"),
    "spec.certificates.keyAlgorithm": (None, "RSA-3072"),
    "spec.certificates.administratorGeneration": (1, 2),
    "spec.encryption.provider": (None, "identity"),
    "spec.overlay.configMapRef.name": ("one", "two"),
    "spec.audit.enabled": (True, False),
    "spec.audit.configMapRef.name": ("everything", "nothing"),
    "spec.networkPolicies.enabled": (True, False),
    "spec.networkPolicies.metricsFrom[].podSelector": ({}, {"matchLabels": {"app": "prometheus"}}),
    "spec.networkPolicies.metricsFrom[].namespaceSelector": ({}, {"matchLabels": {"team": "monitoring"}}),
    "spec.networkPolicies.metricsFrom[].ipBlock.cidr": ("192.0.2.0/24", "198.51.100.0/24"),
    "spec.networkPolicies.metricsFrom[].ipBlock.except": (None, ["192.0.2.1/32"]),
    "spec.registration.karmadactl": (False, True),
    "spec.installCRD": (True, False),
    "spec.components.etcd.local.volumeData.volumeClaim.size": ("1Gi", "2Gi"),
    "spec.components.etcd.local.volumeData.volumeClaim.storageClassName": (None, "fast"),
    "spec.components.etcd.local.volumeData.hostPath.path": ("/var/lib/a", "/var/lib/b"),
    "spec.components.etcd.local.volumeData.emptyDir": (None, {}),
    "spec.components.etcd.external.endpoints": (["https://a.example.com:2379"], ["https://b.example.com:2379"]),
    "spec.components.etcd.external.keyPrefix": ("/karmada/a", "/karmada/b"),
    "spec.components.etcd.external.secretRef.name": ("a", "b"),
    **_settings("spec.components.etcd.local"),
    **{
        path: values
        for component in PROGRAMS
        if component.field != "etcd"
        for path, values in _settings(f"spec.components.{component.field}").items()
        # Nothing but the Cluster is away while an agent is.
        if not (component is KARMADA_AGENT and ".podDisruptionBudgetConfig." in path)
    },
    **{
        f"spec.components.{component.field}.featureGates": (None, {"AllAlpha": True})
        for component in PROGRAMS
        if component.takes_feature_gates
    },
    "spec.components.karmadaAPIServer.serviceSubnet": (None, "10.112.0.0/16"),
    "spec.members[].name": ("m1", "m2"),
    "spec.members[].mode": ("Push", "Pull"),
    "spec.members[].secretRef.name": ("m1", "m2"),
    "spec.members[].kubeconfigFrom.address": ("192.0.2.1", "192.0.2.2"),
    "spec.members[].kubeconfigFrom.port": (22, 2222),
    "spec.members[].kubeconfigFrom.user": (None, "admin"),
    "spec.members[].kubeconfigFrom.path": ("/etc/a", "/etc/b"),
    "spec.members[].kubeconfigFrom.server": (None, "https://192.0.2.3:6443"),
    "spec.members[].kubeconfigFrom.hostKeyFingerprint": (None, f"SHA256:{'A' * 43}"),
    "spec.members[].kubeconfigFrom.privateKeySecretRef.name": ("one", "two"),
    "spec.members[].kubeconfigFrom.knownHostsSecretRef.name": ("one", "two"),
    "spec.members[].context": (None, "two"),
    "spec.members[].insecureSkipTLSVerification": (None, True),
    "spec.members[].provider": (None, "example"),
    "spec.members[].region": (None, "eu"),
    "spec.members[].zones": (None, ["a"]),
    "spec.members[].labels": (None, {"tier": "prod"}),
    "spec.members[].taints[].key": ("a", "b"),
    "spec.members[].taints[].value": (None, "b"),
    "spec.members[].taints[].effect": ("NoSchedule", "NoExecute"),
    "spec.members[].onLeave": ("Retain", "Delete"),
    "spec.members[].scopedRights[].apiGroup": ("apps", "example.com"),
    "spec.members[].scopedRights[].resources": (["deployments"], ["deployments", "daemonsets"]),
    "spec.deletion.policy": ("Delete", "Retain"),
    "spec.components.etcd.local.maintenance.minimumSize": ("100Mi", "1Gi"),
    "spec.components.etcd.local.maintenance.freePercent": (50, 30),
}
#: What has to stand around a field for a document with it to be valid or to use it.
AROUND: dict[str, Object] = {
    "spec.endpoint.port": _NODE_PORT,
    "spec.networkPolicies.metricsFrom[].ipBlock.except": {
        "networkPolicies": {"metricsFrom": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}
    },
    "spec.endpoint.loadBalancerClass": {"endpoint": {"type": "LoadBalancer"}},
    **{
        path: {"endpoint": {"type": "Ingress", "host": "karmada.example.com"}}
        for path in ROWS
        if path.startswith("spec.endpoint.ingress.")
    },
    **{path: {"endpoint": {"type": "Route"}} for path in ROWS if path.startswith("spec.endpoint.route.")},
    "spec.components.etcd.local.volumeData.volumeClaim.storageClassName": {
        "components": {"etcd": {"local": {"volumeData": _CLAIM}}}
    },
    **{path: external_etcd() for path in ROWS if path.startswith("spec.components.etcd.external.")},
    # of a type that goes with either mode
    **{path: {**_NODE_PORT, "members": [MEMBER]} for path in ROWS if path.startswith("spec.members[]")},
    **{
        path: {"members": [{**MEMBER, "taints": [{"key": "a", "effect": "NoSchedule"}]}]}
        for path in ROWS
        if path.startswith("spec.members[].taints[]")
    },
    **{
        path: {"members": [{"name": "m1", "kubeconfigFrom": {"address": "192.0.2.1", "path": "/etc/a"}}]}
        for path in ROWS
        if path.startswith("spec.members[].kubeconfigFrom.")
    },
    **{
        path: {"members": [{**MEMBER, "scopedRights": [_SCOPED]}]}
        for path in ROWS
        if path.startswith("spec.members[].scopedRights[]")
    },
    **{
        path: {**_NODE_PORT, "members": [{**MEMBER, "mode": "Pull"}]}
        for path in ROWS
        if path.startswith(f"spec.components.{KARMADA_AGENT.field}.")
    },
    # so that what differs is the field, and not whether the component is there
    **{
        path: {
            "components": {component.field: {"replicas": 1}},
            **({"members": [MEMBER]} if component.per_member else {}),
        }
        for component in PROGRAMS
        if component.optional
        for path in ROWS
        if path.startswith(f"spec.components.{component.field}.")
    },
}


def _with_variable(path: str) -> Object:
    """A variable needs its name."""
    spec = copy.deepcopy(AROUND.get(path, {}))
    put({"spec": spec}, f"{path.partition('[]')[0]}[].name", "A")
    return spec


#: Two documents between which only the mode differs do not exist: one names hosts.
MODE = {"spec.mode"}


def leaves(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every field of a schema that has no fields of its own."""
    if schema.get("properties"):
        for name, each in schema["properties"].items():
            yield from leaves(each, f"{path}.{name}")
    elif schema.get("items", {}).get("properties"):
        yield from leaves(schema["items"], f"{path}[]")
    else:
        yield path, schema


SPEC = manifest.schema()["properties"]["spec"]
FIELDS = dict(leaves(SPEC, "spec"))


#: Fields that mean something for plain hosts only; test_host_field_effects has their rows.
ON_HOSTS = {
    path
    for path in FIELDS
    if path.startswith(("spec.hosts[].", "spec.ssh.", "spec.endpoint.virtualIP.", "spec.members[].agentHosts"))
}


def put(target: Any, path: str, value: Any) -> None:
    """Set, or with None remove, the field at a path."""
    whole = target
    *above, last = path.replace("[]", ".[]").split(".")
    for part, following in zip(above, [*above[1:], last], strict=True):
        target = target[0] if part == "[]" else target.setdefault(part, [{}] if following == "[]" else {})
    if value is None:
        target.pop(last, None)
        if not target and len(above) > 1:
            put(whole, path.rpartition(".")[0], None)
    else:
        target[last] = value


AROUND.update({path: _with_variable(path) for path in ROWS if path.endswith((".extraEnv[].value", ".valueFrom"))})


def documents(path: str) -> tuple[Object, Object]:
    """The two documents of a row, resolved; raises when one of them is not valid."""
    found = []
    for value in ROWS[path]:
        whole = {"metadata": {"name": "prod"}, "spec": copy.deepcopy(AROUND.get(path, {}))}
        put(whole, path, value)
        found.append(document(whole["spec"], name=whole["metadata"]["name"]))
    return found[0], found[1]
