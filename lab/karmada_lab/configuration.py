# SPDX-License-Identifier: Apache-2.0
"""Configuration of a cluster node: files laid into its machine, kubeadm's documents, kubelet, kube-proxy, CNI. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from karmada_lab import addons
from karmada_lab.images import PAUSE_IMAGE
from karmada_lab.state import IPV4, IPV6, ClusterRecord, Lab, MachineRecord, Network

API_PORT = 6443

_FORWARDING = {IPV4: "net.ipv4.ip_forward", IPV6: "net.ipv6.conf.all.forwarding"}
_EVERYWHERE = {IPV4: "0.0.0.0/0", IPV6: "::/0"}


def node_files(lab: Lab, record: ClusterRecord, node: MachineRecord) -> dict[str, str]:
    pods = lab.ranges(record, "node_pod", node.node)
    return {
        "/etc/containerd/config.toml": _CONTAINERD,
        "/etc/systemd/system/containerd.service.d/lab.conf": _CONTAINERD_UNIT,
        "/etc/systemd/system/lab-node.service": _LAB_NODE_UNIT,
        "/usr/local/sbin/lab-node!": _LAB_NODE,
        "/etc/systemd/system/kubelet.service": _KUBELET_UNIT,
        "/etc/systemd/system/kube-proxy.service": _PROXY_UNIT,
        "/etc/kubernetes/kube-proxy.json": json.dumps(_proxy_configuration(lab, record, node)),
        "/etc/kubernetes/audit-policy.json": json.dumps(_AUDIT_POLICY),
        "/etc/cni/net.d/10-lab.conflist": json.dumps(_cni(pods)),
        "/etc/crictl.yaml": "runtime-endpoint: unix:///run/containerd/containerd.sock\n",
        "/etc/sysctl.d/90-lab.conf": "".join(f"{_FORWARDING[each.version]}=1\n" for each in pods),
    }


def kubeadm_documents(lab: Lab, record: ClusterRecord, etcd: str, first: MachineRecord) -> str:
    """kubeadm's configuration: several documents, each JSON (which is YAML)."""
    init = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": first.address, "bindPort": API_PORT},
        "nodeRegistration": registration(first),
    }
    audit = "/var/log/kubernetes/audit"
    policy = "/etc/kubernetes/audit-policy.json"
    configuration = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "clusterName": record.name,
        "kubernetesVersion": record.kubernetes,
        "controlPlaneEndpoint": api_address(first),
        "imageRepository": "registry.k8s.io",
        # Small keys: making and using them costs a fraction of RSA's processor time.
        "encryptionAlgorithm": "ECDSA-P256",
        "networking": {"serviceSubnet": _joined(lab.ranges(record, "service")), "dnsDomain": "cluster.local"},
        "apiServer": {
            "certSANs": [*first.addresses, first.name, "127.0.0.1", "::1", "localhost"],
            "extraArgs": _arguments({
                "audit-log-path": f"{audit}/audit.log", "audit-policy-file": policy, "audit-log-maxsize": "512",
                "v": "1", "goaway-chance": "0", "profiling": "false",
            }),
            "extraVolumes": [
                {"name": "audit", "hostPath": audit, "mountPath": audit, "pathType": "DirectoryOrCreate"},
                {"name": "policy", "hostPath": policy, "mountPath": policy, "readOnly": True, "pathType": "File"},
            ],
        },
        "controllerManager": {"extraArgs": _arguments({"leader-elect": "false", "v": "1", "profiling": "false"})},
        "scheduler": {"extraArgs": _arguments({"leader-elect": "false", "v": "1", "profiling": "false"})},
        "etcd": {
            "local": {
                "imageRepository": "quay.io/coreos",
                "imageTag": etcd,
                # A throw-away cluster: losing it in a power cut is fine, waiting for the disk is not.
                "extraArgs": _arguments({"unsafe-no-fsync": "true"}),
            }
        },
    }  # fmt: skip
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": addons.dns_addresses(lab, record),
        "clusterDomain": "cluster.local",
        "resolvConf": "/etc/resolv.conf",
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "oomScoreAdj": 0,
        "maxPods": 200,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
    }
    return "".join(f"---\n{json.dumps(document, indent=1)}\n" for document in (init, configuration, kubelet))


def api_address(first: MachineRecord) -> str:
    """Host and port of the cluster's API server, as a URL has them."""
    return f"{f'[{first.address}]' if ':' in first.address else first.address}:{API_PORT}"


def registration(node: MachineRecord) -> dict[str, Any]:
    return {
        "name": node.name,
        "criSocket": "unix:///run/containerd/containerd.sock",
        "taints": [],
        "imagePullPolicy": "IfNotPresent",
        "kubeletExtraArgs": _arguments({"node-ip": ",".join(node.addresses), "v": "1"}),
    }


def _joined(ranges: Sequence[Network]) -> str:
    return ",".join(str(each) for each in ranges)


def _arguments(flags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in flags.items()]


def _proxy_configuration(lab: Lab, record: ClusterRecord, node: MachineRecord) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/kube-proxy.conf"},
        "hostnameOverride": node.name,
        "clusterCIDR": _joined(lab.ranges(record, "cluster_pod")),
        "detectLocalMode": "ClusterCIDR",
        # Connection tracking limits are kernel-wide: not ours to change.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nftables": {"minSyncPeriod": "0.2s"},
    }


def _cni(pods: Sequence[Network]) -> dict[str, Any]:
    """Each pod on a cable of its own, routed: unlike a bridge this needs no bridge netfilter for Services to work.

    No masquerading here: `network.route_pods` has one rule for it, which keeps pod addresses between nodes.
    """
    return {
        "cniVersion": "0.4.0",
        "name": "lab",
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": str(each)}] for each in pods],
                    "routes": [{"dst": _EVERYWHERE[each.version]} for each in pods],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        ],
    }


_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}

_CONTAINERD = f"""version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Without CAP_SYS_RESOURCE a lower OOM score than the parent's cannot be set.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/etc/containerd/certs.d"
"""

_CONTAINERD_UNIT = """[Unit]
After=lab-node.service
[Service]
OOMScoreAdjust=0
"""

_LAB_NODE_UNIT = """[Unit]
Description=Control groups and mounts as containerd and the kubelet need them
Before=containerd.service kubelet.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/lab-node
[Install]
WantedBy=multi-user.target
"""

_LAB_NODE = """#!/bin/sh
# systemd-nspawn hands down control groups of version 1 read-only.
set -eu
mount --make-rshared /
while read -r _ point kind _; do
  case $kind in cgroup) mount -o remount,bind,rw "$point" ;; esac
done </proc/self/mounts
if [ -d /sys/fs/cgroup ] && grep -q ' /sys/fs/cgroup tmpfs ro' /proc/self/mounts; then
  mount -o remount,rw /sys/fs/cgroup
fi
"""

_KUBELET_UNIT = """[Unit]
Description=kubelet
After=containerd.service lab-node.service
[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=/usr/local/bin/kubelet --config=/var/lib/kubelet/config.yaml --kubeconfig=/etc/kubernetes/kubelet.conf \\
  --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf $KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=2
KillMode=process
OOMScoreAdjust=0
[Install]
WantedBy=multi-user.target
"""

_PROXY_UNIT = """[Unit]
Description=kube-proxy
After=lab-node.service
[Service]
ExecStart=/usr/local/bin/kube-proxy --config=/etc/kubernetes/kube-proxy.json --v=1
Restart=always
RestartSec=2
OOMScoreAdjust=0
[Install]
WantedBy=multi-user.target
"""
