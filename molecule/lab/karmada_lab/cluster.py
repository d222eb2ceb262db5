# SPDX-License-Identifier: Apache-2.0
"""Kubernetes clusters: kubeadm in machines of the lab, with containerd, CoreDNS, kube-proxy and storage."""

from __future__ import annotations

import hashlib
import json
import ssl
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from karmada_lab import addons, artifacts, images, machine, seeds
from karmada_lab.errors import LabError
from karmada_lab.images import PAUSE_IMAGE, Image
from karmada_lab.products import Product
from karmada_lab.rootfs import base
from karmada_lab.shell import run, step, wait_for
from karmada_lab.state import (
    ClusterRecord,
    Lab,
    MachineRecord,
    exclusive,
    machine_records,
    read_json,
    save,
    write_json,
    write_text,
)

API_PORT = 6443

_NODE_TOOLS = ("kubeadm", "kubelet", "kubectl", "kube-proxy")


@dataclass(frozen=True)
class Settings:
    """What all clusters of one command have in common."""

    products: Mapping[str, Product]

    @property
    def kubernetes(self) -> str:
        """Version of the clusters."""
        return self.products["kubernetes"].version

    @property
    def etcd(self) -> str:
        """Version of the clusters' etcd."""
        return self.products["etcd"].version


def required_binaries(settings: Settings) -> list[str]:
    """What must be in the cache before a cluster can be made."""
    names = [*_NODE_TOOLS]
    for image in images.cluster_images(Path("/"), settings.kubernetes, settings.etcd, workload=False):
        names += [name for name in image.binaries.values() if "/" not in name]
    return names


def node_name(cluster: str, node: int) -> str:
    """Machine and Node name: the first node is called like the cluster, the others NAME-2, NAME-3."""
    return cluster if node == 0 else f"{cluster}-{node + 1}"


def admin_conf(lab: Lab, cluster: str) -> Path:
    """kubeconfig of the cluster's administrator, mode 0600."""
    return lab.clusters / cluster / "admin.conf"


def audit_log(lab: Lab, cluster: str) -> Path:
    """The API server's audit log (level Metadata), readable on this machine."""
    return machine.folder(lab, node_name(cluster, 0)) / "audit" / "audit.log"


def kubectl(lab: Lab, settings: Settings, cluster: str, *words: str, stdin: str | None = None, check: bool = True) -> str:
    """Run kubectl as the cluster's administrator and return what it printed on standard output."""
    program = artifacts.present(lab, settings.products, "kubectl")
    return run([program, "--kubeconfig", admin_conf(lab, cluster), *words], stdin=stdin, check=check).stdout


# Making one ----------------------------------------------------------------------------------------------------------


def create(
    lab: Lab, settings: Settings, record: ClusterRecord, nodes: list[MachineRecord], extra: Sequence[Image]
) -> None:
    """Make the cluster from nothing: boot its machines, load its images and the extra ones, kubeadm init and join,
    addons; wait for them."""
    save(lab, record)
    first, *others = nodes
    with step(f"{record.name}: boot {len(nodes)} node(s)"):
        for node in nodes:
            _boot(lab, settings, record, node)
    own = {image.reference: image for image in [*own_images(lab, settings), *extra]}
    with step(f"{record.name}: {len(own)} images"):
        for node in nodes:
            _first_images(lab, settings, node, list(own.values()))
    with step(f"{record.name}: kubeadm init at {first.address}"):
        _init(lab, record, settings, first)
    for node in others:
        with step(f"{record.name}: kubeadm join {node.name}"):
            _join(lab, first, node)
    for node in nodes:
        _start_proxy(lab, record, first, node)
    with step(f"{record.name}: node(s) ready, CoreDNS and storage available"):
        kubectl(lab, settings, record.name, "apply", "--server-side", "-f", "-",
                stdin=json.dumps(addons.base_manifest(lab, record)))  # fmt: skip
        _wait_available(lab, settings, record)
    for node in nodes:
        node.ready = True
        save(lab, node)
    record.audit_log = str(audit_log(lab, record.name))
    record.images = sorted(own)
    record.ready = True
    save(lab, record)


def is_usable(lab: Lab, record: ClusterRecord, nodes: Iterable[MachineRecord]) -> bool:
    """Whether a cluster on record was finished, its machines run and its API answers."""
    machines = list(nodes)
    if not record.ready or len(machines) != record.nodes or not all(machine.reusable(lab, node) for node in machines):
        return False
    return api_ready(machines[0].address)


def api_ready(address: str) -> bool:
    """Whether the API server there says it is ready."""
    try:
        # Only asks whether it is up: nothing secret is sent and the answer is not used for anything else.
        context = ssl._create_unverified_context()
        with urllib.request.urlopen(f"https://{address}:{API_PORT}/readyz", timeout=2, context=context) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def own_images(lab: Lab, settings: Settings) -> list[Image]:
    """What every cluster has from the beginning."""
    return images.cluster_images(base(lab), settings.kubernetes, settings.etcd)


def load(lab: Lab, settings: Settings, node: MachineRecord, wanted: Iterable[Image]) -> None:
    """Import images into the node's containerd; archives are made in the cache when missing."""
    for image in wanted:
        machine.execute(lab, node, _import(archive_of(lab, settings, image)))


def archive_of(lab: Lab, settings: Settings, image: Image) -> Path:
    """The image's OCI archive in the cache, made when missing."""
    names = [name for name in image.binaries.values() if "/" not in name]
    resolve = {name: artifacts.present(lab, settings.products, name) for name in names}
    return images.archive(lab, image, base(lab), resolve)


def _import(archive: Path) -> list[str]:
    return ["ctr", "--namespace", "k8s.io", "images", "import", f"/opt/lab/images/{archive.name}"]


def _first_images(lab: Lab, settings: Settings, node: MachineRecord, wanted: Sequence[Image]) -> None:
    """Start containerd with these images, from a copy of a containerd folder that has them where there is one.

    Importing costs a cluster ten seconds of processor time; the first cluster with a set of images pays them and
    leaves a copy for all others.
    """
    archives = [archive_of(lab, settings, image) for image in wanted]
    seed = lab.cache / "containerd" / hashlib.sha256(repr(sorted(a.name for a in archives)).encode()).hexdigest()[:16]
    containerd = machine.folder(lab, node.name) / "containerd"
    with exclusive(seed.with_suffix(".lock"), "another cluster that loads the same images"):
        if not seed.exists():
            machine.execute(lab, node, ["systemctl", "start", "containerd"])
            for archive in archives:
                machine.execute(lab, node, _import(archive))
            machine.execute(lab, node, ["systemctl", "stop", "containerd"])
            seeds.keep(containerd, seed)
        else:
            seeds.use(seed, containerd)
    machine.execute(lab, node, ["systemctl", "enable", "--quiet", "--now", "containerd"])


def _boot(lab: Lab, settings: Settings, record: ClusterRecord, node: MachineRecord) -> None:
    home = machine.folder(lab, node.name)
    (lab.cache / "images").mkdir(parents=True, exist_ok=True)
    binds = {
        "/var/lib/containerd": home / "containerd",
        "/var/lib/kubelet": home / "kubelet",
        "/var/lib/etcd": home / "etcd",
        "/var/log/pods": home / "pod-logs",
        "/var/log/kubernetes/audit": home / "audit",
        "/opt/local-path-provisioner": home / "storage",
    }
    read_only = {
        "/opt/lab/kubernetes": artifacts.folder(lab, settings.products["kubernetes"]) / "bin",
        "/opt/lab/images": lab.cache / "images",
    }
    machine.start(lab, node, _node_files(lab, record, node), binds, read_only)
    links = "".join(f"ln -sf /opt/lab/kubernetes/{name} /usr/local/bin/{name}; " for name in _NODE_TOOLS)
    machine.execute(lab, node, ["sh", "-c", f"{links} systemctl enable --quiet --now lab-node"])


def _node_files(lab: Lab, record: ClusterRecord, node: MachineRecord) -> dict[str, str]:
    pods = lab.node_pod_range(record.index, node.node)
    return {
        "/etc/containerd/config.toml": _CONTAINERD,
        "/etc/systemd/system/containerd.service.d/lab.conf": "[Unit]\nAfter=lab-node.service\n[Service]\nOOMScoreAdjust=0\n",
        "/etc/systemd/system/lab-node.service": _LAB_NODE_UNIT,
        "/usr/local/sbin/lab-node!": _LAB_NODE,
        "/etc/systemd/system/kubelet.service": _KUBELET_UNIT,
        "/etc/systemd/system/kube-proxy.service": _PROXY_UNIT,
        "/etc/kubernetes/kube-proxy.json": json.dumps(_proxy_configuration(lab, record, node)),
        "/etc/kubernetes/audit-policy.json": json.dumps(_AUDIT_POLICY),
        "/etc/cni/net.d/10-lab.conflist": json.dumps(_cni(str(pods))),
        "/etc/crictl.yaml": "runtime-endpoint: unix:///run/containerd/containerd.sock\n",
        "/etc/sysctl.d/90-lab.conf": "net.ipv4.ip_forward=1\n",
    }


def _init(lab: Lab, record: ClusterRecord, settings: Settings, first: MachineRecord) -> None:
    documents = kubeadm_documents(lab, record, settings, first)
    machine.execute(lab, first, ["sh", "-c", "umask 077; cat >/etc/kubernetes/kubeadm.yaml"], stdin=documents)
    machine.execute(
        lab, first,
        ["kubeadm", "init", "--config", "/etc/kubernetes/kubeadm.yaml", "--ignore-preflight-errors=all",
         "--skip-phases=addon,preflight,show-join-command"],
        timeout=300,
    )  # fmt: skip
    write_text(admin_conf(lab, record.name), machine.execute(lab, first, ["cat", "/etc/kubernetes/admin.conf"]).stdout, 0o600)


def _join(lab: Lab, first: MachineRecord, node: MachineRecord) -> None:
    words = machine.execute(lab, first, ["kubeadm", "token", "create", "--print-join-command"]).stdout.split()
    token = words[words.index("--token") + 1]
    ca_hash = words[words.index("--discovery-token-ca-cert-hash") + 1]
    document = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "token": token, "apiServerEndpoint": f"{first.address}:{API_PORT}", "caCertHashes": [ca_hash],
            }
        },
        "nodeRegistration": _registration(node),
    }  # fmt: skip
    machine.execute(lab, node, ["sh", "-c", "umask 077; cat >/etc/kubernetes/join.yaml"], stdin=json.dumps(document))
    machine.execute(
        lab, node,
        ["kubeadm", "join", "--config", "/etc/kubernetes/join.yaml", "--ignore-preflight-errors=all",
         "--skip-phases=preflight"],
        timeout=300,
    )  # fmt: skip


def _start_proxy(lab: Lab, record: ClusterRecord, first: MachineRecord, node: MachineRecord) -> None:
    """kube-proxy as a unit, with an identity of its own (system:kube-proxy is bound to what it needs by default)."""
    conf = machine.execute(
        lab, first, ["kubeadm", "kubeconfig", "user", "--client-name=system:kube-proxy", "--config", "/etc/kubernetes/kubeadm.yaml"]
    ).stdout
    command = "umask 077; cat >/etc/kubernetes/kube-proxy.conf; systemctl enable --quiet --now kube-proxy"
    machine.execute(lab, node, ["sh", "-c", command], stdin=conf)


def _wait_available(lab: Lab, settings: Settings, record: ClusterRecord) -> None:
    def ready() -> bool:
        nodes = json.loads(kubectl(lab, settings, record.name, "get", "nodes", "-o", "json", check=False) or "{}")
        good = [
            node for node in nodes.get("items", [])
            if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
        ]  # fmt: skip
        deployments = json.loads(
            kubectl(lab, settings, record.name, "get", "deployments", "-A", "-o", "json", check=False) or "{}"
        )
        items = deployments.get("items", [])
        available = [item for item in items if item["status"].get("availableReplicas", 0) >= 1]
        return len(good) == record.nodes and len(items) >= 2 and len(available) == len(items)

    wait_for(f"nodes and addons of cluster {record.name}", ready, timeout=240, interval=0.5)


def add_metallb(lab: Lab, settings: Settings, record: ClusterRecord) -> None:
    """MetalLB by its own manifest, and a pool of addresses on the bridge; returns when the pool was accepted."""
    manifest = artifacts.metallb_manifest(settings.products["metallb"])
    kubectl(lab, settings, record.name, "apply", "--server-side", "-f", str(manifest))
    kubectl(lab, settings, record.name, "rollout", "status", "-n", "metallb-system", "deployment/controller",
            "--timeout=180s")  # fmt: skip
    pool = json.dumps(addons.metallb_pool(lab, record))

    def accepted() -> bool:
        # Refused until the webhook of the controller has its certificate.
        return bool(kubectl(lab, settings, record.name, "apply", "--server-side", "-f", "-", stdin=pool, check=False))

    wait_for(f"MetalLB's webhook in cluster {record.name}", accepted, timeout=120, interval=1)
    kubectl(lab, settings, record.name, "rollout", "status", "-n", "metallb-system", "daemonset/speaker",
            "--timeout=180s")  # fmt: skip
    record.addons = sorted({*record.addons, "metallb"})
    save(lab, record)


def trust_registry(lab: Lab, node: MachineRecord, hosts: Sequence[str], ca: str) -> None:
    """Make the node's containerd trust the registry, known as each of hosts (NAME:PORT); takes effect at once."""
    for host in hosts:
        folder = f"/etc/containerd/certs.d/{host}"
        text = f'server = "https://{host}"\n[host."https://{host}"]\n  ca = "{folder}/ca.crt"\n'
        machine.execute(lab, node, ["sh", "-c", f"mkdir -p {folder}; cat >{folder}/ca.crt"], stdin=ca)
        machine.execute(lab, node, ["sh", "-c", f"cat >{folder}/hosts.toml"], stdin=text)


# Configuration -------------------------------------------------------------------------------------------------------


def kubeadm_documents(lab: Lab, record: ClusterRecord, settings: Settings, first: MachineRecord) -> str:
    """kubeadm's configuration: several documents, each JSON (which is YAML)."""
    init = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "localAPIEndpoint": {"advertiseAddress": first.address, "bindPort": API_PORT},
        "nodeRegistration": _registration(first),
    }
    audit = "/var/log/kubernetes/audit"
    policy = "/etc/kubernetes/audit-policy.json"
    configuration = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "clusterName": record.name,
        "kubernetesVersion": settings.kubernetes,
        "controlPlaneEndpoint": f"{first.address}:{API_PORT}",
        "imageRepository": "registry.k8s.io",
        # Small keys: making and using them costs a fraction of RSA's processor time.
        "encryptionAlgorithm": "ECDSA-P256",
        "networking": {"serviceSubnet": str(lab.service_range(record.index)), "dnsDomain": "cluster.local"},
        "apiServer": {
            "certSANs": [first.address, first.name, "127.0.0.1", "localhost"],
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
                "imageTag": settings.etcd,
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
        "clusterDNS": [addons.dns_address(lab, record)],
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


def _registration(node: MachineRecord) -> dict[str, Any]:
    return {
        "name": node.name,
        "criSocket": "unix:///run/containerd/containerd.sock",
        "taints": [],
        "imagePullPolicy": "IfNotPresent",
        "kubeletExtraArgs": _arguments({"node-ip": node.address, "v": "1"}),
    }


def _arguments(flags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in flags.items()]


def _proxy_configuration(lab: Lab, record: ClusterRecord, node: MachineRecord) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/kube-proxy.conf"},
        "hostnameOverride": node.name,
        "clusterCIDR": str(lab.cluster_pod_range(record.index)),
        "detectLocalMode": "ClusterCIDR",
        # Connection tracking limits are kernel-wide: not ours to change.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "nftables": {"minSyncPeriod": "0.2s"},
    }


def _cni(pods: str) -> dict[str, Any]:
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
                "ipam": {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]},
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
Environment=KUBECONFIGS="--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=/bin/sh -c 'exec /usr/local/bin/kubelet $KUBECONFIGS --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS'
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


# kubeconfig ----------------------------------------------------------------------------------------------------------


def merged_kubeconfig(lab: Lab, settings: Settings, names: list[str]) -> dict[str, Any]:
    """One kubeconfig with a context, a cluster and a user for each named cluster, all called like the cluster."""
    result: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Config", "preferences": {}, "clusters": [], "contexts": [], "users": [],
        "current-context": names[0] if names else "",
    }  # fmt: skip
    for name in names:
        conf = _parsed_admin_conf(lab, settings, name)
        result["clusters"].append({"name": name, "cluster": conf["clusters"][0]["cluster"]})
        result["users"].append({"name": name, "user": conf["users"][0]["user"]})
        result["contexts"].append({"name": name, "context": {"cluster": name, "user": name}})
    return result


def _parsed_admin_conf(lab: Lab, settings: Settings, name: str) -> dict[str, Any]:
    """The administrator's kubeconfig as an object; kubectl reads its YAML once, JSON is kept beside it."""
    parsed = lab.clusters / name / "admin.json"
    if not parsed.exists():
        if not admin_conf(lab, name).exists():
            raise LabError(f"cluster {name} has no kubeconfig yet; `lab status` shows what is up")
        value = json.loads(kubectl(lab, settings, name, "config", "view", "--raw", "-o", "json"))
        write_json(parsed, value)
        parsed.chmod(0o600)
    return read_json(parsed)


def nodes_of(lab: Lab, cluster: str) -> list[MachineRecord]:
    """Machines on record for the cluster, first node first."""
    found = [record for record in machine_records(lab).values() if record.kind == "node" and record.cluster == cluster]
    return sorted(found, key=lambda record: record.node)
