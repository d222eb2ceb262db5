# SPDX-License-Identifier: Apache-2.0
"""The component table as objects of a host cluster."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils import components as table
from ansible_collections.karmada.installer.plugins.plugin_utils import endpoint, etcd_configuration, network_policies
from ansible_collections.karmada.installer.plugins.plugin_utils.component_types import (
    SYSTEM_NAMESPACE,
    Component,
    EtcdMember,
    Health,
    Layout,
    Names,
    settings_of,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components import (
    AGGREGATED_SERVERS,
    ETCD,
    KARMADA_AGGREGATED_APISERVER,
    KARMADA_APISERVER,
    KARMADA_METRICS_ADAPTER,
    KARMADA_SEARCH,
    KARMADA_WEBHOOK,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.host_path import HOSTNAME_LABEL
from ansible_collections.karmada.installer.plugins.plugin_utils.instance import Instance
from ansible_collections.karmada.installer.plugins.plugin_utils.ip_families import IPV4, IPV6
from ansible_collections.karmada.installer.plugins.plugin_utils.pki_files import Material, contents
from ansible_collections.karmada.installer.plugins.plugin_utils.state import EtcdState

Object = dict[str, Any]

BASE = "/etc/karmada"
ETCD_DATA = "/var/lib/etcd"
#: Not root, and no user of any distribution.
USER_ID = 65532
CONFIG_HASH_ANNOTATION = "installer.karmada.io/config-hash"
#: Every address of a pod, by the family that kube-apiserver is to take its own address from; both listen on both.
_BIND_ADDRESSES: Mapping[int, str] = {IPV4: "0.0.0.0", IPV6: "::"}  # noqa: S104 - a pod's own network namespace
#: The port that callers use; pods listen above 1024 because they hold no capability.
SERVICE_PORTS: Mapping[str, int] = {
    KARMADA_APISERVER.name: endpoint.API_PORT,
    KARMADA_AGGREGATED_APISERVER.name: 443,
    KARMADA_WEBHOOK.name: 443,
    KARMADA_SEARCH.name: 443,
    KARMADA_METRICS_ADAPTER.name: 443,
}
#: Settings that mean in the document what they mean in a pod.
_POD_SETTINGS = ("affinity", "nodeSelector", "priorityClassName", "tolerations")
#: etcd reads these for every connection, so a renewal replaces no member; one with its data in the pod could not be.
_READ_AGAIN_BY_ETCD = ("tls.crt", "tls.key")
DEFAULT_ETCD_CLAIM = {"size": "5Gi"}
#: A class that no provisioner serves, so that nobody else's claim gets one of our volumes, and ours no other.
HOST_PATH_CLASS = "karmada-installer-host-path"
#: Volumes want to say a size; a directory of a node has none.
_HOST_PATH_SIZE = "1Gi"
#: Makes the directory of a member on its node, see host_volumes.
_DIRECTORY = "directory"


def layout(instance: Instance, *endpoint_hosts: str) -> Layout:
    """Where the pods of this instance find each other. ``endpoint_hosts`` is what clients outside use."""
    return Layout(
        base=BASE,
        data=ETCD_DATA,
        bind_address=_BIND_ADDRESSES[instance.service_networks[0].version],
        apiserver_url=service_url(instance, KARMADA_APISERVER),
        etcd_members=etcd_members(instance),
        service_account_issuer=f"https://kubernetes.default.svc.{instance.cluster_domain}",
        service_subnet=instance.service_subnet,
        server_names=_server_names(instance, endpoint_hosts),
    )


def service_url(instance: Instance, component: Component) -> str:
    """Where a component is reached within the host cluster."""
    return f"https://{instance.service_host(component.name)}:{SERVICE_PORTS[component.name]}"


def etcd_members(instance: Instance) -> tuple[EtcdMember, ...]:
    """The members the document asks for, each with the stable name of its pod; none of an external etcd."""
    name, host = instance.object_name(ETCD.name), instance.service_host(ETCD.name)
    return tuple(
        EtcdMember(
            name=f"{name}-{ordinal}",
            client_url=f"https://{name}-{ordinal}.{host}:{ETCD.ports['client']}",
            peer_url=f"https://{name}-{ordinal}.{host}:{ETCD.ports['peer']}",
        )
        for ordinal in range(settings_of(ETCD, instance.spec).get("replicas", 0))
    )


def _server_names(instance: Instance, endpoint_hosts: Sequence[str]) -> dict[str, Names]:
    loopback = Names(dns=("localhost",), ips=("127.0.0.1", "::1"))
    settings = instance.spec["endpoint"]
    outside = [name for name in (*endpoint_hosts, settings.get("host"), *settings.get("extraSANs", ())) if name]
    return {
        KARMADA_APISERVER.name: loopback
        + _service_names(instance, KARMADA_APISERVER.name)
        + Names(
            dns=(
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                f"kubernetes.default.svc.{instance.cluster_domain}",
            ),
            ips=tuple(str(network[1]) for network in instance.service_networks),
        )
        + Names.of(outside),
        # The aggregator verifies the name that the APIService gives, not the one it dials.
        **{
            name: loopback + _service_names(instance, name) + Names(dns=(f"{name}.{SYSTEM_NAMESPACE}.svc",))
            for name in AGGREGATED_SERVERS
        },
        KARMADA_WEBHOOK.name: loopback + _service_names(instance, KARMADA_WEBHOOK.name),
        "kube-controller-manager": loopback,
        # A wildcard, so that a new member needs no new certificate.
        "etcd-server": loopback + _etcd_names(instance),
        "etcd-peer": _etcd_names(instance),
    }


def _service_names(instance: Instance, component: str) -> Names:
    name, namespace = instance.object_name(component), instance.namespace
    return Names(dns=(name, f"{name}.{namespace}", f"{name}.{namespace}.svc", instance.service_host(component)))


def _etcd_names(instance: Instance) -> Names:
    service = f"{instance.object_name(ETCD.name)}.{instance.namespace}.svc"
    full = instance.service_host(ETCD.name)
    return Names(dns=(service, full, f"*.{service}", f"*.{full}"))


def namespace(instance: Instance) -> Object:
    """The namespace, for when it does not exist yet. All pods pass the strictest Pod Security level."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": instance.namespace,
            "labels": {
                **instance.labels("namespace"),
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/warn": "restricted",
            },
        },
    }


def _metadata(instance: Instance, component: str, name: str) -> Object:
    return {"name": name, "namespace": instance.namespace, "labels": instance.labels(component)}


def secret(instance: Instance, component: str, name: str, files: Mapping[str, bytes]) -> Object:
    """A Secret of the instance with these files as its keys."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": _metadata(instance, component, instance.object_name(name)),
        "data": {key: base64.b64encode(value).decode() for key, value in sorted(files.items())},
    }


def file_set_secrets(instance: Instance, where: Layout, material: Material) -> list[Object]:
    """One Secret for each file set of the table; shared ones once."""
    secrets: dict[str, Object] = {}
    for component in table.wanted_components(instance.spec):
        for files in table.enabled_file_sets(component, instance.spec):
            if files.name not in secrets:
                secrets[files.name] = secret(instance, component.name, files.name, contents(files, material, where))
    return list(secrets.values())


def component_objects(
    instance: Instance, component: Component, where: Layout, material: Material, etcd: EtcdState
) -> list[Object]:
    """Everything one component consists of, its Secrets apart: workload, Service, configuration."""
    return _component_objects(instance, component, where, _config_hash(instance, component, where, material), etcd)


def outline(instance: Instance, where: Layout, etcd: EtcdState) -> list[Object]:
    """Every object of the components without what depends on keys: what can be judged before there are any."""
    file_sets = {
        files.name: component.name
        for component in table.wanted_components(instance.spec)
        for files in table.enabled_file_sets(component, instance.spec)
    }
    return [
        *(secret(instance, component, name, {}) for name, component in file_sets.items()),
        *(
            each
            for component in table.wanted_components(instance.spec)
            for each in _component_objects(instance, component, where, "", etcd)
        ),
        *passage(instance, ""),
    ]


def _component_objects(
    instance: Instance, component: Component, where: Layout, config_hash: str, etcd: EtcdState
) -> list[Object]:
    if component is ETCD:
        return [
            *host_volumes(instance, etcd),
            _etcd_config_map(instance, where, etcd),
            _etcd_service(instance),
            _etcd_stateful_set(instance, config_hash, etcd),
            *_disruption_budget(instance, ETCD),
            *network_policies.of_component(instance, ETCD),
        ]
    objects = [
        *_config_maps(instance, component),
        _deployment(instance, component, where, config_hash),
        *_disruption_budget(instance, component),
        *network_policies.of_component(instance, component),
    ]
    if component.served_port:
        objects.append(component_service(instance, component))
    return objects


def _config_files(instance: Instance, component: Component) -> dict[str, tuple[str, dict[str, str]]]:
    """Directory → name and content of the component's files without secrets."""
    found = {
        files.directory: (files.name, files.contents(instance.spec, instance.config_maps))
        for files in component.config_files
    }
    return {directory: (name, content) for directory, (name, content) in found.items() if content}


def _config_maps(instance: Instance, component: Component) -> list[Object]:
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _metadata(instance, component.name, instance.object_name(name)),
            "data": content,
        }
        for name, content in _config_files(instance, component).values()
    ]


def _config_hash(instance: Instance, component: Component, where: Layout, material: Material) -> str:
    """Changes when a mounted file changes, so that the pods that read it are replaced one after the other."""
    digest = hashlib.sha256()
    for files in table.enabled_file_sets(component, instance.spec):
        for name, content in sorted(contents(files, material, where).items()):
            if component is ETCD and name in _READ_AGAIN_BY_ETCD:
                continue
            digest.update(f"{files.directory}/{name}\0".encode())
            digest.update(hashlib.sha256(content).digest())
    for directory, (_, plain) in sorted(_config_files(instance, component).items()):
        for name, text in sorted(plain.items()):
            digest.update(f"{directory}/{name}\0".encode())
            digest.update(hashlib.sha256(text.encode()).digest())
    if component is ETCD:
        # Its settings are in a file too; not all of that file, because the end of the bootstrap changes nothing for a
        # member that runs.
        digest.update(json.dumps(settings_of(ETCD, instance.spec).get("extraArgs", {}), sort_keys=True).encode())
    return digest.hexdigest()[:32]


def component_service(instance: Instance, component: Component) -> Object:
    """The Service of a component; the API server's is shaped by the document's endpoint."""
    settings = instance.spec["endpoint"]
    target = component.ports[component.served_port]
    metadata = _metadata(instance, component.name, instance.object_name(component.name))
    spec: Object = {
        "type": "ClusterIP",
        "selector": instance.selector(component.name),
        "ports": [
            {
                "name": component.served_port,
                "port": SERVICE_PORTS[component.name],
                "protocol": "TCP",
                "targetPort": target,
            }
        ],
    }
    if component.ready_when_registered:
        spec["publishNotReadyAddresses"] = True
    if component is KARMADA_APISERVER:
        spec.update(
            type=endpoint.service_type(settings),
            ports=endpoint.service_ports(settings, target),
            ipFamilyPolicy=settings["ipFamilyPolicy"],
        )
        if settings.get("loadBalancerClass"):
            spec["loadBalancerClass"] = settings["loadBalancerClass"]
        if settings.get("serviceAnnotations"):
            metadata["annotations"] = dict(settings["serviceAnnotations"])
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def passage(instance: Instance, ingress_controller: str) -> list[Object]:
    """The Ingress or Route that passes TLS through to the API server's Service, where the document asks for one.

    ``ingress_controller`` is what the IngressClass says of who serves it.
    """
    settings = instance.spec["endpoint"]
    kind = endpoint.PASSAGES.get(settings["type"])
    if not kind:
        return []
    name = instance.object_name(KARMADA_APISERVER.name)
    metadata = _metadata(instance, KARMADA_APISERVER.name, name)
    own: Mapping[str, Any] = settings.get(kind.kind.lower()) or {}
    annotations = {**own.get("annotations", {})}
    if kind.kind == "Ingress":
        annotations = {**endpoint.pass_through(ingress_controller), **annotations}
        spec = _ingress_spec(settings["host"], name, own.get("className"))
    else:
        metadata["labels"] = {**own.get("labels", {}), **metadata["labels"]}
        spec = {
            "to": {"kind": "Service", "name": name, "weight": 100},
            "port": {"targetPort": endpoint.PORT_NAME},
            "tls": {"termination": "passthrough"},
            "wildcardPolicy": "None",
        }
        if settings.get("host"):
            spec["host"] = settings["host"]
    if annotations:
        metadata["annotations"] = annotations
    return [{"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}]


def _ingress_spec(host: str, service: str, class_name: str | None) -> Object:
    """All that comes for a name goes to the Service; the path is there because an Ingress has one."""
    backend = {"service": {"name": service, "port": {"number": endpoint.API_PORT}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    spec: Object = {"tls": [{"hosts": [host]}], "rules": [{"host": host, "http": {"paths": [path]}}]}
    return {**spec, "ingressClassName": class_name} if class_name else spec


def _etcd_service(instance: Instance) -> Object:
    """Gives each member a name of its own, before it is ready too: members find each other by it to become ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(instance, ETCD.name, instance.object_name(ETCD.name)),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": instance.selector(ETCD.name),
            "ports": [
                {"name": name, "port": ETCD.ports[name], "protocol": "TCP", "targetPort": ETCD.ports[name]}
                for name in ("client", "peer")
            ],
        },
    }


def _etcd_config_map(instance: Instance, where: Layout, etcd: EtcdState) -> Object:
    """One key per member, so that no member can read a configuration that is not its own."""
    extra = settings_of(ETCD, instance.spec).get("extraArgs", {})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(instance, ETCD.name, instance.object_name("etcd-config")),
        "data": {
            f"{member.name}.yaml": yaml.safe_dump(
                etcd_configuration.of_member(
                    member,
                    where,
                    token=etcd.token,
                    existing=etcd.bootstrapped,
                    generation=etcd.generation,
                    extra=extra,
                )
            )
            for member in where.etcd_members
        },
    }


def _etcd_stateful_set(instance: Instance, config_hash: str, etcd: EtcdState) -> Object:
    name = instance.object_name(ETCD.name)
    settings = settings_of(ETCD, instance.spec)
    pod = _pod_template(instance, ETCD, config_hash, [f"--config-file={BASE}/etcd.yaml"])
    container = pod["spec"]["containers"][0]
    pod_name = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    container["env"] = [*container.get("env", []), pod_name]
    container["volumeMounts"] += [
        {
            "name": "configuration",
            "mountPath": f"{BASE}/etcd.yaml",
            "subPathExpr": "$(POD_NAME).yaml",
            "readOnly": True,
        },
        {"name": "data", "mountPath": ETCD_DATA},
    ]
    pod["spec"]["volumes"].append({"name": "configuration", "configMap": {"name": instance.object_name("etcd-config")}})
    spec: Object = {
        "serviceName": name,
        "replicas": settings["replicas"],
        "podManagementPolicy": "Parallel",
        # Members are replaced one at a time by the installer, which knows their health; never by a rollout.
        "updateStrategy": {"type": "OnDelete"},
        "selector": {"matchLabels": instance.selector(ETCD.name)},
        "template": pod,
    }
    if etcd.storage == "emptyDir":
        pod["spec"]["volumes"].append({"name": "data", "emptyDir": {}})
    else:
        if etcd.storage == "hostPath":
            container["volumeMounts"].append(
                {"name": _DIRECTORY, "mountPath": f"{ETCD_DATA}-{_DIRECTORY}", "readOnly": True}
            )
            spec["volumeClaimTemplates"] = [_host_path_claim(instance, name) for name in ("data", _DIRECTORY)]
        else:
            spec["volumeClaimTemplates"] = [_etcd_claim(instance)]
        # Data outlives the StatefulSet; the uninstall removes it when the document and the person both say so.
        spec["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _workload_metadata(instance, ETCD),
        "spec": spec,
    }


def _etcd_claim(instance: Instance) -> Object:
    wanted = (settings_of(ETCD, instance.spec).get("volumeData") or {}).get("volumeClaim") or DEFAULT_ETCD_CLAIM
    claim: Object = {
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": wanted["size"]}},
    }
    if wanted.get("storageClassName"):
        claim["storageClassName"] = wanted["storageClassName"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "labels": instance.labels(ETCD.name)},
        "spec": claim,
    }


def _host_path_claim(instance: Instance, name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": instance.labels(ETCD.name)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": "Filesystem",
            "storageClassName": HOST_PATH_CLASS,
            "resources": {"requests": {"storage": _HOST_PATH_SIZE}},
        },
    }


def host_directory(instance: Instance) -> str:
    """The directory on the nodes. The owner is in its name, so that no later control plane finds old data in it."""
    path = settings_of(ETCD, instance.spec)["volumeData"]["hostPath"]["path"]
    return f"{path}/{instance.name}-{instance.owner}"


def host_volumes(instance: Instance, etcd: EtcdState) -> list[Object]:
    """Volumes in directories of the nodes, each bound to the node and the member that it is for; none otherwise.

    A pod with such a volume is only ever started on that node, so a member finds its data again, and no node has two.
    The pods stay within the restricted Pod Security level, which forbids them directories of the node as such.

    There are two volumes to one directory. A volume of kind hostPath makes the directory but leaves it to root; one of
    kind local gives it to the group of the pod but does not make it. The node retries the second until the first is
    there.
    """
    if etcd.storage != "hostPath":
        return []
    path = host_directory(instance)
    kinds = {_DIRECTORY: {"hostPath": {"path": path, "type": "DirectoryOrCreate"}}, "data": {"local": {"path": path}}}
    return [
        _host_volume(instance, name, ordinal, node, source)
        for ordinal, node in enumerate(etcd.nodes[: settings_of(ETCD, instance.spec)["replicas"]])
        for name, source in kinds.items()
    ]


def _host_volume(instance: Instance, name: str, ordinal: int, node: str, source: Object) -> Object:
    pod = f"{instance.object_name(ETCD.name)}-{ordinal}"
    term = {"matchExpressions": [{"key": HOSTNAME_LABEL, "operator": "In", "values": [node]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{pod}-{name}-{instance.owner}", "labels": instance.labels(ETCD.name)},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": _HOST_PATH_SIZE},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": instance.namespace,
                "name": f"{name}-{pod}",
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": HOST_PATH_CLASS,
            "volumeMode": "Filesystem",
            **source,
        },
    }


def _deployment(instance: Instance, component: Component, where: Layout, config_hash: str) -> Object:
    pod = _pod_template(instance, component, config_hash, component.flags(instance.spec, where))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _workload_metadata(instance, component),
        "spec": {
            "replicas": settings_of(component, instance.spec)["replicas"],
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": instance.selector(component.name)},
            # The old pod serves until the new one does.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": pod,
        },
    }


def _spread(instance: Instance, component: Component) -> Object:
    """Evenly over the nodes. An anti-affinity would add nothing but an order between two of the same preference."""
    spread: Object = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": instance.selector(component.name)},
        # A node whose taint keeps the pods away would count as one that has room, and the others would never be full.
        "nodeTaintsPolicy": "Honor",
    }
    if component is ETCD:
        # Two members on one node fail together: only where there are fewer nodes than members.
        return {**spread, "whenUnsatisfiable": "DoNotSchedule"}
    # In a rollout the pods that are about to go do not count, or the new ones would be spread around them.
    return {**spread, "whenUnsatisfiable": "ScheduleAnyway", "matchLabelKeys": ["pod-template-hash"]}


def _pod_template(instance: Instance, component: Component, config_hash: str, flags: list[str]) -> Object:
    settings = settings_of(component, instance.spec)
    images = instance.spec["images"]
    file_sets = table.enabled_file_sets(component, instance.spec)
    config_files = _config_files(instance, component)
    container: Object = {
        "name": component.name,
        "image": component.image.reference(images, instance.release, settings),
        "imagePullPolicy": settings.get("imagePullPolicy") or images["pullPolicy"],
        "command": [component.binary, *flags],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in component.ports.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": _volume_name(directory), "mountPath": f"{BASE}/{directory}", "readOnly": True}
            for directory in (*(files.directory for files in file_sets), *config_files)
        ],
        **_probes(component.health, component.ports),
    }
    if settings.get("resources"):
        container["resources"] = settings["resources"]
    if settings.get("extraEnv"):
        container["env"] = list(settings["extraEnv"])
    container["volumeMounts"] += settings.get("extraVolumeMounts") or []
    pod: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "securityContext": {
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "runAsGroup": USER_ID,
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [
            {
                "name": _volume_name(files.directory),
                "secret": {"secretName": instance.object_name(files.name), "defaultMode": 0o440},
            }
            for files in file_sets
        ]
        + [
            {"name": _volume_name(directory), "configMap": {"name": instance.object_name(name)}}
            for directory, (name, _) in config_files.items()
        ]
        + (settings.get("extraVolumes") or []),
        "topologySpreadConstraints": settings.get("topologySpreadConstraints") or [_spread(instance, component)],
        **{key: settings[key] for key in _POD_SETTINGS if settings.get(key)},
    }
    pod["securityContext"].update(settings.get("securityContext") or {})
    if pull_secrets := settings.get("imagePullSecrets", images.get("pullSecrets")):
        pod["imagePullSecrets"] = [{"name": each["name"]} for each in pull_secrets]
    return {
        "metadata": {
            "labels": {**(settings.get("labels") or {}), **instance.labels(component.name)},
            "annotations": {**(settings.get("annotations") or {}), CONFIG_HASH_ANNOTATION: config_hash},
        },
        "spec": pod,
    }


def _workload_metadata(instance: Instance, component: Component) -> Object:
    """A workload carries the document's labels and annotations as its pods do."""
    settings = settings_of(component, instance.spec)
    metadata = _metadata(instance, component.name, instance.object_name(component.name))
    metadata["labels"] = {**(settings.get("labels") or {}), **metadata["labels"]}
    if settings.get("annotations"):
        metadata["annotations"] = dict(settings["annotations"])
    return metadata


def _disruption_budget(instance: Instance, component: Component) -> list[Object]:
    """With one replica a budget would only keep nodes from being drained, so there is none unless it is asked for."""
    settings = settings_of(component, instance.spec)
    budget = settings.get("podDisruptionBudgetConfig") or ({"maxUnavailable": 1} if settings["replicas"] > 1 else None)
    if budget is None:
        return []
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": _metadata(instance, component.name, instance.object_name(component.name)),
            "spec": {**budget, "selector": {"matchLabels": instance.selector(component.name)}},
        }
    ]


def _volume_name(directory: str) -> str:
    return directory.replace("/", "-")


def _probes(health: Health, ports: Mapping[str, int]) -> dict[str, Object]:
    """Short periods where a start is waited for, long ones where a running process is watched."""

    def get(path: str) -> Object:
        return {"path": path, "port": ports[health.port], "scheme": health.scheme.value}

    return {
        # A large etcd or a cold cache may take its time; liveness takes over once the process has answered.
        "startupProbe": {"httpGet": get(health.live), "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 600},
        "readinessProbe": {
            "httpGet": get(health.ready),
            "periodSeconds": 2,
            "timeoutSeconds": 15,
            "failureThreshold": 3,
        },
        "livenessProbe": {
            "httpGet": get(health.live),
            "periodSeconds": 10,
            "timeoutSeconds": 15,
            "failureThreshold": 6,
        },
    }
