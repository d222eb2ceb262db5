# SPDX-License-Identifier: Apache-2.0
"""etcd as objects of a host cluster: its members, their Service, their configuration, and their volumes."""

from __future__ import annotations

import yaml

from ..api_object import Object
from ..components import etcd_configuration
from ..components.etcd_state import EtcdState
from ..components.instance import Instance
from ..components.table import ETCD
from ..components.types import Layout, settings_of
from .cluster_layout import BASE, ETCD_DATA
from .etcd_nodes import HOSTNAME_LABEL
from .pods import pod_template, workload_metadata

DEFAULT_SIZE = "5Gi"
#: A class without a provisioner, so that other claims do not bind our volumes, nor ours other volumes.
HOST_PATH_CLASS = "karmada-installer-host-path"
#: Required by the API; a directory of a node has no size.
_HOST_PATH_SIZE = "1Gi"
#: Volume that creates the directory of a member on its node, see host_volumes.
DIRECTORY = "directory"


def service(instance: Instance) -> Object:
    """Headless Service with a DNS name for each member, also before it is ready: members need it to become ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": instance.metadata(ETCD.name, instance.object_name(ETCD.name)),
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


def config_map(instance: Instance, where: Layout, etcd: EtcdState) -> Object:
    """ConfigMap with one key for each member, so that each mounts only its own configuration."""
    extra = settings_of(ETCD, instance.spec).extra_args
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": instance.metadata(ETCD.name, instance.object_name("etcd-config")),
        "data": {
            f"{member.name}.yaml": yaml.safe_dump(
                etcd_configuration.of_member(
                    member,
                    where,
                    token=etcd.token,
                    existing=etcd.bootstrapped,
                    generation=etcd.generation,
                    extra=extra,
                    record=etcd.member(member.name),
                )
            )
            for member in where.etcd_members
        },
    }


def replicas(instance: Instance) -> int:
    """Number of pods: one for each place, and none while it is held."""
    return 0 if ETCD.name in instance.held else _places(instance)


def _places(instance: Instance) -> int:
    """Number of places: one for the highest ordinal on record and all below; before the bootstrap, the document's.

    Never the document's number later on: a pod starts only once etcd has its member.
    """
    if not instance.etcd_members:
        return settings_of(ETCD, instance.spec).replicas
    return max(int(each.name.rpartition("-")[2]) for each in instance.etcd_members) + 1


def stateful_set(instance: Instance, config_hash: str, etcd: EtcdState) -> Object:
    name = instance.object_name(ETCD.name)
    settings = settings_of(ETCD, instance.spec)
    pod = pod_template(instance, ETCD, config_hash, [f"--config-file={BASE}/etcd.yaml"])
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
        "replicas": replicas(instance),
        "podManagementPolicy": "Parallel",
        # The installer, which knows their health, replaces members one at a time; a rollout would not wait for it.
        "updateStrategy": {"type": "OnDelete"},
        "selector": {"matchLabels": instance.selector(ETCD.name)},
        "template": pod,
    }
    if etcd.storage == "emptyDir":
        pod["spec"]["volumes"].append({"name": "data", "emptyDir": {}})
    else:
        if etcd.storage == "hostPath":
            container["volumeMounts"].append(
                {"name": DIRECTORY, "mountPath": f"{ETCD_DATA}-{DIRECTORY}", "readOnly": True}
            )
            spec["volumeClaimTemplates"] = [
                _claim(instance, name, _HOST_PATH_SIZE, HOST_PATH_CLASS) for name in ("data", DIRECTORY)
            ]
        else:
            size = settings.claim_size or DEFAULT_SIZE
            spec["volumeClaimTemplates"] = [_claim(instance, "data", size, settings.storage_class)]
        # Data outlives the StatefulSet; uninstall removes it if both the document and the user say so.
        spec["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": workload_metadata(instance, ETCD),
        "spec": spec,
    }


def _claim(instance: Instance, name: str, size: str, storage_class: str | None) -> Object:
    """Claim of a member; without a class, the host cluster's default class serves it."""
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": size}},
    }
    if storage_class:
        spec["storageClassName"] = storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": instance.labels(ETCD.name)},
        "spec": spec,
    }


def host_directory(instance: Instance) -> str:
    """Directory on the nodes. Its name contains the owner, so that no later control plane finds old data in it."""
    path = settings_of(ETCD, instance.spec).host_path
    return f"{path}/{instance.name}-{instance.owner}"


def host_volumes(instance: Instance, etcd: EtcdState) -> list[Object]:
    """Volumes in directories of the nodes, each bound to its node and its member; empty with other storage.

    A pod with such a volume is only scheduled to that node, so a member finds its data again, and no node has two. The
    pods keep to the restricted Pod Security level, which forbids hostPath volumes in pods.

    Each directory has two volumes. One of kind hostPath creates the directory, but as root; one of kind local sets its
    group to that of the pod, but does not create it. The kubelet retries the second until the first has created it.
    """
    if etcd.storage != "hostPath":
        return []
    path = host_directory(instance)
    kinds = {DIRECTORY: {"hostPath": {"path": path, "type": "DirectoryOrCreate"}}, "data": {"local": {"path": path}}}
    return [
        _host_volume(instance, name, ordinal, node, source)
        for ordinal in range(_places(instance))
        if (node := etcd.node(ordinal))
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
