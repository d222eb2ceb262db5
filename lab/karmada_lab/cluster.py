# SPDX-License-Identifier: Apache-2.0
"""Kubernetes clusters: kubeadm in machines of the lab, with containerd, CoreDNS, kube-proxy and storage."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from karmada_lab import addons, artifacts, configuration, images, machine, seeds
from karmada_lab.configuration import API_PORT
from karmada_lab.errors import LabError
from karmada_lab.images import Image
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

NODE_TOOLS = ("kubeadm", "kubelet", "kubectl", "kube-proxy")


@dataclass(frozen=True)
class Settings:
    """Settings that all clusters of one command have in common."""

    products: Mapping[str, Product]

    @property
    def kubernetes(self) -> str:
        """Version of the clusters."""
        return self.products["kubernetes"].version

    @property
    def etcd(self) -> str:
        """Version of the clusters' etcd."""
        return self.products["etcd"].version


def ensure_binaries(lab: Lab, settings: Settings, source: str) -> None:
    """Bring what clusters themselves need into the cache: one build for each product."""
    own = images.cluster_images(base(lab), settings.kubernetes, settings.etcd)
    names = [name for image in own for name in image.from_artifacts]
    artifacts.ensure(lab, settings.products, [*NODE_TOOLS, *names], source)


def node_name(cluster: str, node: int) -> str:
    """Machine and Node name: the first node is called like the cluster, the others NAME-2, NAME-3."""
    return cluster if node == 0 else f"{cluster}-{node + 1}"


def admin_conf(lab: Lab, cluster: str) -> Path:
    """kubeconfig of the cluster's administrator, mode 0600."""
    return lab.clusters / cluster / "admin.conf"


def audit_log(lab: Lab, cluster: str) -> Path:
    """The API server's audit log (level Metadata), readable on this machine."""
    return machine.folder(lab, node_name(cluster, 0)) / "audit" / "audit.log"


def kubectl(
    lab: Lab, settings: Settings, cluster: str, *words: str, stdin: str | None = None, check: bool = True
) -> str:
    """Run kubectl as the cluster's administrator and return what it printed on standard output."""
    program = artifacts.present(lab, settings.products, "kubectl")
    return run([program, "--kubeconfig", admin_conf(lab, cluster), *words], stdin=stdin, check=check).stdout


# Making one ----------------------------------------------------------------------------------------------------------


def create(
    lab: Lab, settings: Settings, record: ClusterRecord, nodes: list[MachineRecord], extra: Sequence[Image]
) -> None:
    """Make the cluster from nothing: boot its machines, load its images and the extra ones, kubeadm init and join,
    addons; wait for them.
    """
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
    # kubeadm's label keeps load balancers off control plane nodes; here they are often the only ones.
    label = "node.kubernetes.io/exclude-from-external-load-balancers-"
    kubectl(lab, settings, record.name, "label", "node", first.name, label)
    for node in others:
        with step(f"{record.name}: kubeadm join {node.name}"):
            _join(first, node)
    for node in nodes:
        _start_proxy(first, node)
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
    """Return whether a cluster on record was finished, its machines run and its API answers."""
    machines = list(nodes)
    if not record.ready or len(machines) != record.nodes or not all(machine.reusable(node) for node in machines):
        return False
    return api_ready(lab, record.name, machines[0].address)


def api_ready(lab: Lab, cluster: str, address: str) -> bool:
    """Return whether the cluster's API server says it is ready."""
    try:
        found = re.search(r"certificate-authority-data: (\S+)", admin_conf(lab, cluster).read_text())
        if found is None:
            return False
        context = ssl.create_default_context(cadata=base64.b64decode(found.group(1)).decode())
        connection = http.client.HTTPSConnection(address, API_PORT, timeout=2, context=context)
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False


def own_images(lab: Lab, settings: Settings) -> list[Image]:
    """Images that every cluster has from the beginning."""
    return images.cluster_images(base(lab), settings.kubernetes, settings.etcd)


def load(lab: Lab, settings: Settings, node: MachineRecord, wanted: Iterable[Image]) -> None:
    """Import images into the node's containerd; archives are made in the cache when missing."""
    for image in wanted:
        machine.execute(node, _import(archive_of(lab, settings, image)))


def archive_of(lab: Lab, settings: Settings, image: Image) -> Path:
    """The image's OCI archive in the cache, made when missing."""
    products = artifacts.for_image(settings.products, image)
    resolve = {name: artifacts.present(lab, products, name) for name in image.from_artifacts}
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
            machine.execute(node, ["systemctl", "start", "containerd"])
            for archive in archives:
                machine.execute(node, _import(archive))
            machine.execute(node, ["systemctl", "stop", "containerd"])
            seeds.keep(containerd, seed)
        else:
            seeds.use(seed, containerd)
    machine.execute(node, ["systemctl", "enable", "--quiet", "--now", "containerd"])


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
    machine.start(lab, node, configuration.node_files(lab, record, node), binds, read_only)
    links = "".join(f"ln -sf /opt/lab/kubernetes/{name} /usr/local/bin/{name}; " for name in NODE_TOOLS)
    machine.execute(node, ["sh", "-c", f"{links} systemctl enable --quiet --now lab-node"])


def _init(lab: Lab, record: ClusterRecord, settings: Settings, first: MachineRecord) -> None:
    documents = configuration.kubeadm_documents(lab, record, settings.etcd, first)
    machine.execute(first, ["sh", "-c", "umask 077; cat >/etc/kubernetes/kubeadm.yaml"], stdin=documents)
    machine.execute(first,
        ["kubeadm", "init", "--config", "/etc/kubernetes/kubeadm.yaml", "--ignore-preflight-errors=all",
         "--skip-phases=addon,preflight,show-join-command"],
        timeout=300,
    )  # fmt: skip
    write_text(
        admin_conf(lab, record.name), machine.execute(first, ["cat", "/etc/kubernetes/admin.conf"]).stdout, 0o600
    )


def _join(first: MachineRecord, node: MachineRecord) -> None:
    words = machine.execute(first, ["kubeadm", "token", "create", "--print-join-command"]).stdout.split()
    token = words[words.index("--token") + 1]
    ca_hash = words[words.index("--discovery-token-ca-cert-hash") + 1]
    document = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "token": token, "apiServerEndpoint": configuration.api_address(first), "caCertHashes": [ca_hash],
            }
        },
        "nodeRegistration": configuration.registration(node),
    }  # fmt: skip
    machine.execute(node, ["sh", "-c", "umask 077; cat >/etc/kubernetes/join.yaml"], stdin=json.dumps(document))
    machine.execute(node,
        ["kubeadm", "join", "--config", "/etc/kubernetes/join.yaml", "--ignore-preflight-errors=all",
         "--skip-phases=preflight"],
        timeout=300,
    )  # fmt: skip


def _start_proxy(first: MachineRecord, node: MachineRecord) -> None:
    """kube-proxy as a unit, with an identity of its own (system:kube-proxy is bound to what it needs by default)."""
    conf = machine.execute(
        first,
        [
            "kubeadm",
            "kubeconfig",
            "user",
            "--client-name=system:kube-proxy",
            "--config",
            "/etc/kubernetes/kubeadm.yaml",
        ],
    ).stdout
    command = "umask 077; cat >/etc/kubernetes/kube-proxy.conf; systemctl enable --quiet --now kube-proxy"
    machine.execute(node, ["sh", "-c", command], stdin=conf)


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


def trust_registry(node: MachineRecord, hosts: Sequence[str], ca: str) -> None:
    """Make the node's containerd trust the registry, known as each of hosts (NAME:PORT); takes effect at once."""
    for host in hosts:
        folder = f"/etc/containerd/certs.d/{host}"
        text = f'server = "https://{host}"\n[host."https://{host}"]\n  ca = "{folder}/ca.crt"\n'
        machine.execute(node, ["sh", "-c", f"mkdir -p {folder}; cat >{folder}/ca.crt"], stdin=ca)
        machine.execute(node, ["sh", "-c", f"cat >{folder}/hosts.toml"], stdin=text)


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
