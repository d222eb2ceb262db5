# SPDX-License-Identifier: Apache-2.0
"""Addons that run in every cluster of the lab (CoreDNS, storage) and what runs on demand (MetalLB)."""

from __future__ import annotations

import json
from typing import Any

from karmada_lab.images import BUSYBOX_IMAGE
from karmada_lab.products import COREDNS_VERSION, LOCAL_PATH_VERSION
from karmada_lab.state import ClusterRecord, Lab

Object = dict[str, Any]


def dns_addresses(lab: Lab, record: ClusterRecord) -> list[str]:
    """ClusterIPs of kube-dns: the tenth of each Service range, like kubeadm's."""
    return [str(each[10]) for each in lab.ranges(record, "service")]


def base_manifest(lab: Lab, record: ClusterRecord) -> Object:
    """CoreDNS and local-path-provisioner, as one List."""
    return {"apiVersion": "v1", "kind": "List", "items": [*_coredns(dns_addresses(lab, record)), *_local_path()]}


# Names outside the cluster do not exist here: say so at once instead of asking a server that refuses.
_COREFILE = """cluster.local in-addr.arpa ip6.arpa {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 5
    }
    cache 5
    loadbalance
    reload
}
. {
    errors
    health {
        lameduck 1s
    }
    ready
    prometheus :9153
    template ANY ANY {
        rcode NXDOMAIN
    }
    reload
}
"""


def _coredns(addresses: list[str]) -> list[Object]:
    labels = {"k8s-app": "kube-dns"}
    name = "coredns"
    rules = [
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    ]
    container = {
        "name": name,
        "image": f"registry.k8s.io/coredns/coredns:{COREDNS_VERSION}",
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "resources": {"requests": {"cpu": "10m", "memory": "30Mi"}},
        "ports": [
            {"containerPort": 53, "name": "dns", "protocol": "UDP"},
            {"containerPort": 53, "name": "dns-tcp", "protocol": "TCP"},
            {"containerPort": 9153, "name": "metrics", "protocol": "TCP"},
        ],
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 30, "timeoutSeconds": 10},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 2},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    return [
        _object("v1", "ServiceAccount", name, "kube-system"),
        _object("v1", "ConfigMap", name, "kube-system", data={"Corefile": _COREFILE}),
        *_cluster_role("system:coredns", rules, name, "kube-system"),
        _deployment(
            name, "kube-system", labels,
            {
                "serviceAccountName": name, "dnsPolicy": "Default", "priorityClassName": "system-cluster-critical",
                "containers": [container], "volumes": [{"name": "config", "configMap": {"name": name}}],
            },
        ),
        _object(
            "v1", "Service", "kube-dns", "kube-system",
            spec={
                "clusterIP": addresses[0], "clusterIPs": addresses, "selector": labels,
                "ipFamilyPolicy": "PreferDualStack",
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                    {"name": "metrics", "port": 9153, "protocol": "TCP"},
                ],
            },
            labels={**labels, "kubernetes.io/name": "CoreDNS"},
        ),
    ]  # fmt: skip


_HELPER_POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "helper-pod"},
    "spec": {
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "helper-pod", "image": BUSYBOX_IMAGE, "imagePullPolicy": "IfNotPresent"}],
    },
}


def _local_path() -> list[Object]:
    namespace, name = "local-path-storage", "local-path-provisioner"
    paths = {"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["/opt/local-path-provisioner"]}
    data = {
        "config.json": json.dumps({"nodePathMap": [paths]}),
        # Open to all: volumes of this kind are not handed over to a pod's fsGroup.
        "setup": '#!/bin/sh\nset -eu\nmkdir -m 0777 -p "$VOL_DIR"\n',
        "teardown": '#!/bin/sh\nset -eu\nrm -rf "$VOL_DIR"\n',
        "helperPod.yaml": json.dumps(_HELPER_POD),
    }
    rules = [
        {"apiGroups": [""], "resources": ["nodes", "persistentvolumeclaims", "configmaps", "pods", "pods/log"],
         "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "patch", "update", "delete"]},
        {"apiGroups": [""], "resources": ["persistentvolumes"],
         "verbs": ["get", "list", "watch", "create", "patch", "update", "delete"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["get", "list", "watch"]},
    ]  # fmt: skip
    container = {
        "name": name,
        "image": f"docker.io/rancher/local-path-provisioner:{LOCAL_PATH_VERSION}",
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "local-path-provisioner",
            "start",
            "--config",
            "/etc/config/config.json",
            "--service-account-name",
            name,
        ],
        "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/config/"}],
    }
    return [
        _object("v1", "Namespace", namespace),
        _object("v1", "ServiceAccount", name, namespace),
        *_cluster_role(name, rules, name, namespace),
        _object("v1", "ConfigMap", "local-path-config", namespace, data=data),
        _deployment(
            name, namespace, {"app": name},
            {
                "serviceAccountName": name, "containers": [container],
                "volumes": [{"name": "config", "configMap": {"name": "local-path-config"}}],
            },
        ),
        _object(
            "storage.k8s.io/v1", "StorageClass", "local-path",
            annotations={"storageclass.kubernetes.io/is-default-class": "true"},
            provisioner="rancher.io/local-path", volumeBindingMode="WaitForFirstConsumer", reclaimPolicy="Delete",
        ),
    ]  # fmt: skip


def _object(
    api: str, kind: str, name: str, namespace: str = "", labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None, **content: Any,
) -> Object:  # fmt: skip
    metadata: Object = {"name": name}
    for key, value in (("namespace", namespace), ("labels", labels), ("annotations", annotations)):
        if value:
            metadata[key] = value
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **content}


def _cluster_role(name: str, rules: list[Object], account: str, namespace: str) -> list[Object]:
    group = "rbac.authorization.k8s.io"
    return [
        _object(f"{group}/v1", "ClusterRole", name, rules=rules),
        _object(
            f"{group}/v1", "ClusterRoleBinding", name,
            roleRef={"apiGroup": group, "kind": "ClusterRole", "name": name},
            subjects=[{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        ),
    ]  # fmt: skip


def _deployment(name: str, namespace: str, labels: dict[str, str], pod: Object) -> Object:
    return _object(
        "apps/v1", "Deployment", name, namespace, labels=labels,
        spec={
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"tolerations": [{"operator": "Exists"}], **pod}},
        },
    )  # fmt: skip


def metallb_pool(lab: Lab, record: ClusterRecord) -> Object:
    """The addresses MetalLB may hand out in this cluster, announced on the bridge (layer 2)."""
    namespace, name = "metallb-system", "lab"
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            _object("metallb.io/v1beta1", "IPAddressPool", name, namespace,
                    spec={"addresses": [str(each) for each in lab.ranges(record, "load_balancer")]}),
            _object("metallb.io/v1beta1", "L2Advertisement", name, namespace,
                    spec={"ipAddressPools": [name], "interfaces": ["eth0"]}),
        ],
    }  # fmt: skip
