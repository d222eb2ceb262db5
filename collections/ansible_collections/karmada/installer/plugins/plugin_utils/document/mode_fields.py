# SPDX-License-Identifier: Apache-2.0
"""Fields of the document that have an effect, by mode. A setting without one is refused, not ignored.

Mode Container is pods, mode Binary is plain hosts; etcd may run on hosts in mode Container, too. Every leaf of the
schema has a row: a new field fails a test until somebody has decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from ..components.table import ETCD, KARMADA_AGENT
from ..components.types import agent_hosts, pulls
from ..problems import Problem, Reason
from . import crd, manifest


class Means(Enum):
    """Modes in which a field has an effect. For settings of a component BINARY covers all that runs on hosts."""

    BOTH = "Binary and Container"
    CONTAINER = "Container"
    BINARY = "Binary"
    HOSTS = "documents with hosts"


_BOTH, _CONTAINER, _BINARY, _HOSTS = Means.BOTH, Means.CONTAINER, Means.BINARY, Means.HOSTS

#: Those that the components have in common, by their path below the component.
COMPONENT_SETTINGS: Mapping[str, Means] = {
    # Where programs come out of images (artifacts.source Image) these say out of which.
    "imageRepository": _BOTH,
    "imageTag": _BOTH,
    "resources.requests.cpu": _BOTH,
    "resources.requests.memory": _BOTH,
    "resources.limits.cpu": _BOTH,
    "resources.limits.memory": _BOTH,
    "extraArgs": _BOTH,
    "extraEnv[].name": _BOTH,
    "extraEnv[].value": _BOTH,
    "featureGates": _BOTH,
    # A unit has no file system of its own that could be limited, and nothing that could be looked up for it.
    "resources.requests.ephemeral-storage": _CONTAINER,
    "resources.limits.ephemeral-storage": _CONTAINER,
    "extraEnv[].valueFrom": _CONTAINER,
    # How many there are follows from the roles of hosts.
    "replicas": _CONTAINER,
    "imagePullPolicy": _CONTAINER,
    "imagePullSecrets[].name": _CONTAINER,
    "labels": _CONTAINER,
    "annotations": _CONTAINER,
    "nodeSelector": _CONTAINER,
    "tolerations[].key": _CONTAINER,
    "tolerations[].operator": _CONTAINER,
    "tolerations[].value": _CONTAINER,
    "tolerations[].effect": _CONTAINER,
    "tolerations[].tolerationSeconds": _CONTAINER,
    "affinity": _CONTAINER,
    "topologySpreadConstraints": _CONTAINER,
    "priorityClassName": _CONTAINER,
    "podDisruptionBudgetConfig.minAvailable": _CONTAINER,
    "podDisruptionBudgetConfig.maxUnavailable": _CONTAINER,
    "extraVolumes": _CONTAINER,
    "extraVolumeMounts": _CONTAINER,
    "securityContext": _CONTAINER,
}
#: All others, by their path below spec.
FIELDS: Mapping[str, Means] = {
    "mode": _BOTH,
    "version": _BOTH,
    "hostCluster.namespace": _CONTAINER,
    "hostCluster.secretRef.name": _CONTAINER,
    "hostCluster.context": _CONTAINER,
    "hostCluster.insecureSkipTLSVerification": _CONTAINER,
    # The issuer of service accounts has it, and the name that clients inside of members know.
    "hostCluster.domain": _BOTH,
    "hosts[].name": _HOSTS,
    "hosts[].address": _HOSTS,
    "hosts[].roles": _HOSTS,
    "hosts[].port": _HOSTS,
    "hosts[].hostKeyFingerprint": _HOSTS,
    "ssh.user": _HOSTS,
    "ssh.port": _HOSTS,
    "ssh.privateKeySecretRef.name": _HOSTS,
    "ssh.knownHostsSecretRef.name": _HOSTS,
    "endpoint.type": _BOTH,
    "endpoint.host": _BOTH,
    "endpoint.port": _BOTH,
    "endpoint.extraSANs": _BOTH,
    "endpoint.virtualIP.address": _BINARY,
    "endpoint.virtualIP.virtualRouterID": _BINARY,
    "endpoint.ipFamilyPolicy": _CONTAINER,
    "endpoint.loadBalancerClass": _CONTAINER,
    "endpoint.serviceAnnotations": _CONTAINER,
    "endpoint.ingress.className": _CONTAINER,
    "endpoint.ingress.annotations": _CONTAINER,
    "endpoint.route.labels": _CONTAINER,
    "endpoint.route.annotations": _CONTAINER,
    "images.mirrorCountry": _BOTH,
    "images.karmadaRegistry": _BOTH,
    "images.kubeRegistry": _BOTH,
    "images.etcdRegistry": _BOTH,
    # On plain hosts it is this machine that pulls, with what its user is logged in to.
    "images.pullPolicy": _CONTAINER,
    "images.pullSecrets[].name": _CONTAINER,
    "artifacts.source": _BOTH,
    "artifacts.url": _BOTH,
    "certificates.validity": _BOTH,
    "certificates.renewBefore": _BOTH,
    "certificates.keyAlgorithm": _BOTH,
    "certificates.administratorGeneration": _BOTH,
    "encryption.provider": _BOTH,
    "overlay.configMapRef.name": _CONTAINER,
    "audit.enabled": _BOTH,
    "audit.configMapRef.name": _BOTH,
    "networkPolicies.enabled": _CONTAINER,
    "networkPolicies.metricsFrom[].podSelector": _CONTAINER,
    "networkPolicies.metricsFrom[].namespaceSelector": _CONTAINER,
    "networkPolicies.metricsFrom[].ipBlock.cidr": _CONTAINER,
    "networkPolicies.metricsFrom[].ipBlock.except": _CONTAINER,
    "registration.karmadactl": _BOTH,
    "installCRD": _BOTH,
    "components.etcd.external.endpoints": _BOTH,
    "components.etcd.external.keyPrefix": _BOTH,
    "components.etcd.external.secretRef.name": _BOTH,
    "components.etcd.local.volumeData.volumeClaim.size": _CONTAINER,
    "components.etcd.local.volumeData.volumeClaim.storageClassName": _CONTAINER,
    "components.etcd.local.volumeData.hostPath.path": _CONTAINER,
    "components.etcd.local.volumeData.emptyDir": _CONTAINER,
    "components.karmadaAPIServer.serviceSubnet": _BOTH,
    "members[].name": _BOTH,
    "members[].mode": _BOTH,
    "members[].agentHosts": _BINARY,
    "members[].secretRef.name": _BOTH,
    "members[].kubeconfigFrom.address": _BOTH,
    "members[].kubeconfigFrom.port": _BOTH,
    "members[].kubeconfigFrom.user": _BOTH,
    "members[].kubeconfigFrom.path": _BOTH,
    "members[].kubeconfigFrom.server": _BOTH,
    "members[].kubeconfigFrom.hostKeyFingerprint": _BOTH,
    "members[].kubeconfigFrom.privateKeySecretRef.name": _BOTH,
    "members[].kubeconfigFrom.knownHostsSecretRef.name": _BOTH,
    "members[].context": _BOTH,
    "members[].insecureSkipTLSVerification": _BOTH,
    "members[].provider": _BOTH,
    "members[].region": _BOTH,
    "members[].zones": _BOTH,
    "members[].labels": _BOTH,
    "members[].taints[].key": _BOTH,
    "members[].taints[].value": _BOTH,
    "members[].taints[].effect": _BOTH,
    "members[].onLeave": _BOTH,
    "members[].scopedRights[].apiGroup": _BOTH,
    "members[].scopedRights[].resources": _BOTH,
    "deletion.policy": _BOTH,
}
#: What to do on hosts, for the fields that have something in their place; by the beginning of their path.
INSTEAD: Mapping[str, str] = {
    "hostCluster.": "there is no host cluster; hosts and ssh say where the control plane runs",
    "endpoint.": "types External and VirtualIP have host, port and virtualIP only",
    "images.pull": "this machine pulls the images, with the logins of who runs the playbook (~/.docker/config.json)",
    "overlay.": "there are no objects to lay it over; use extraArgs, extraEnv and resources of components",
    "networkPolicies.": "use the firewall of the hosts; metrics of components listen on loopback only",
    f"components.{KARMADA_AGENT.field}.replicas": "there is one on each host that a member names in its agentHosts",
    "components.etcd.local.replicas": "there is one member of etcd on each host with the role etcd",
}
#: The same for settings of components, by their first word.
INSTEAD_OF_SETTING: Mapping[str, str] = {
    "replicas": "there is one on each host with the role controlPlane",
    "resources": "a unit cannot be limited in what it stores; mount a file system of the size you want",
    "extraEnv": "write the value itself",
}


def meaning(path: str) -> Means:
    """Modes of a field by its path below spec, with ``[]`` for entries of a list. Raises KeyError without a row."""
    if path in FIELDS:
        return FIELDS[path]
    setting = _setting(path)
    if setting is None:
        raise KeyError(path)
    return COMPONENT_SETTINGS[setting]


def problems(deployment: Mapping[str, Any]) -> list[Problem]:
    """Problems of settings in a resolved document that have no effect in its mode.

    A default of the schema cannot be told from a given value, so a field with its default value is accepted.
    """
    spec = deployment["spec"]
    return [
        Problem(
            f"has no meaning {_where(name, spec)}",
            crd.spelt(("spec", *path)),
            _remedy(name, spec),
            reason=Reason.FIELD_WITHOUT_EFFECT,
        )
        for path, name in _given(spec, manifest.schema()["properties"]["spec"])
        if not _means_something(name, spec) and not _follows_from_the_document(name, deployment)
    ]


def _means_something(name: str, spec: Mapping[str, Any]) -> bool:
    means = meaning(name)
    if means is _HOSTS:
        return bool(spec.get("hosts"))
    return means is _BOTH or (means is _BINARY) == _on_hosts(name, spec)


def _on_hosts(name: str, spec: Mapping[str, Any]) -> bool:
    """Return whether the subject of a field runs on plain hosts: its component, or the whole control plane."""
    if _setting(name) is not None and name.startswith(f"components.{ETCD.field}."):
        return ETCD.is_on_hosts(spec)
    if name.startswith(f"components.{KARMADA_AGENT.field}."):
        # Pods of members, whatever the control plane runs on; units where all of them are.
        agents = [entry for entry in spec["members"] if pulls(entry)]
        return bool(agents) and all(map(agent_hosts, agents))
    return bool(spec["mode"] == "Binary")


def _where(name: str, spec: Mapping[str, Any]) -> str:
    if meaning(name) is _HOSTS:
        return "without hosts"
    if spec["mode"] == "Container" and _on_hosts(name, spec):
        return "where etcd runs on hosts"
    return f"in mode {spec['mode']}"


def _follows_from_the_document(name: str, deployment: Mapping[str, Any]) -> bool:
    """Return whether ``manifest.resolve`` filled in this value, and not the schema."""
    if name != "hostCluster.namespace":
        return False
    return bool(deployment["spec"]["hostCluster"]["namespace"] == deployment["metadata"]["namespace"])


def _remedy(name: str, spec: Mapping[str, Any]) -> str:
    if not _on_hosts(name, spec):
        return "take it out, or set mode: Binary"
    setting = _setting(name)
    reason = next((text for start, text in INSTEAD.items() if name.startswith(start)), "")
    if not reason and setting:
        reason = INSTEAD_OF_SETTING.get(setting.partition(".")[0].removesuffix("[]"), "it is a setting of pods")
    return f"take it out: {reason}" if reason else "take it out"


def _setting(path: str) -> str | None:
    """Part of a path below its component; None for a field that is no setting of a component."""
    above, _, below = path.partition(".")
    if above != "components":
        return None
    component, _, setting = below.partition(".")
    if component == "etcd":
        kind, _, setting = setting.partition(".")
        if kind != "local":
            return None
    return setting if setting in COMPONENT_SETTINGS else None


def _given(
    value: Any, schema: Mapping[str, Any], path: crd.Path = (), name: str = ""
) -> Iterator[tuple[crd.Path, str]]:
    """Leaves with another value than their default, as (path, path without indices)."""
    items = schema.get("items", {})
    if schema.get("properties"):
        for key, each in schema["properties"].items():
            if key in value:
                yield from _given(value[key], each, (*path, key), f"{name}.{key}" if name else key)
    elif items.get("properties"):
        for number, entry in enumerate(value):
            yield from _given(entry, items, (*path, number), f"{name}[]")
    elif "default" not in schema or value != schema["default"]:
        yield path, name
