# SPDX-License-Identifier: Apache-2.0
"""Pods of etcd with their data in directories of nodes: volumes bind to claims, and a lost node takes its data."""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Applied
from ansible_collections.karmada.installer.plugins.plugin_utils.render import etcd_nodes
from ansible_collections.karmada.installer.tests.unit.support.etcd_in_memory import EtcdInMemory
from ansible_collections.karmada.installer.tests.unit.support.etcd_pods_in_memory import (
    NAMESPACE,
    PodsOfEtcd,
    peer_url,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, Object


class PodsOnNodes(PodsOfEtcd):
    """Host cluster whose nodes keep the data of members in directories."""

    def __init__(self, *nodes: str) -> None:
        super().__init__()
        #: node → folders in its directory, and the ID of the member whose log each holds
        self.disks: dict[str, dict[str, str]] = {}
        self.lost: set[str] = set()
        for name in nodes:
            self.add_node(name)

    def add_node(self, name: str, *, ready: bool = True) -> None:
        """Put a node there, or another status of it."""
        self.disks.setdefault(name, {})
        self.put(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {etcd_nodes.HOSTNAME_LABEL: name}},
                "spec": {},
                "status": {"conditions": [{"type": "Ready", "status": str(ready)}], "addresses": []},
            }
        )

    def lose_node(self, name: str) -> None:
        """A node is gone with its disk: what runs there runs no more, and nobody says so."""
        self.lost.add(name)
        self.disks[name] = {}
        self.add_node(name, ready=False)
        for pod in list(self.etcd.processes):
            if self._node_of(pod) == name:
                self.etcd.processes.pop(pod)

    # -- claims and volumes ------------------------------------------------------------------------------------------

    def add_claim(self, name: str) -> None:
        """The claims of a pod, which no volume is bound to yet."""
        self.claims[name] = {}
        for kind in ("data", "directory"):
            self._put_claim(f"{kind}-{name}")

    def _put_claim(self, name: str) -> None:
        self.put({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": self._metadata(name)})

    def _live(self, kind: str, name: str) -> Object | None:
        """Object itself, of which others get copies."""
        namespace = None if kind in ("Node", "PersistentVolume") else NAMESPACE
        return self.objects.get(("v1", kind, namespace, name))

    def cordon(self, name: str) -> None:
        """Have a node take no pods."""
        node = self._live("Node", name)
        assert node
        node["spec"]["unschedulable"] = True

    def apply(self, obj: Object, *, dry_run: bool = False, **more: Any) -> Applied:
        """Apply; where a volume leads to cannot be changed."""
        live = self._live("PersistentVolume", obj["metadata"]["name"]) if obj["kind"] == "PersistentVolume" else None
        assert live is None or live["spec"]["nodeAffinity"] == obj["spec"]["nodeAffinity"], "that is immutable"
        return super().apply(obj, dry_run=dry_run, **more)

    def delete(self, api_version: str, kind: str, name: str, *arguments: Any, **more: Any) -> bool:
        """Delete; a claim stays while a pod on a node has it, and a pod while a node does not say that it has ended."""
        with self.one_at_a_time:
            if kind == "PersistentVolumeClaim":
                self.moment()
                claim = self._live(kind, name)
                assert claim
                claim["metadata"]["deletionTimestamp"] = "now"
                self._reconcile()
                return True
            if kind == "Pod" and self._node_of(name) in self.lost and more.get("grace_seconds") != 0:
                return True
            return super().delete(api_version, kind, name, *arguments, **more)

    def _claim(self, name: str, kind: str = "data") -> Object | None:
        return self._live("PersistentVolumeClaim", f"{kind}-{name}")

    def _volume(self, name: str) -> Object | None:
        """Volume that the claim of a pod is bound to, or now becomes bound to."""
        claim = self._claim(name)
        for each in [found for key, found in self.objects.items() if key[1] == "PersistentVolume"]:
            reference = each["spec"]["claimRef"]
            if claim and reference["name"] == f"data-{name}":
                uid = reference.setdefault("uid", claim["metadata"]["uid"])
                return each if uid == claim["metadata"]["uid"] else None
        return None

    def _node_of(self, name: str) -> str:
        pod = self._live("Pod", name)
        return (pod or {}).get("spec", {}).get("nodeName", "")

    # -- controllers -------------------------------------------------------------------------------------------------

    def _reconcile(self) -> None:
        for claim in [each for each in self.list("v1", "PersistentVolumeClaim") if _is_going(each)]:
            metadata = claim["metadata"]
            if not self._node_of(metadata["name"].partition("-")[2]):
                FakeCluster.delete(self, "v1", "PersistentVolumeClaim", metadata["name"], NAMESPACE)
        super()._reconcile()
        for name in [each for each in self.names("Pod") if each.startswith("prod-etcd-")]:
            for kind in ("data", "directory"):
                if self._claim(name, kind) is None:
                    self._put_claim(f"{kind}-{name}")
            self._volume(name)
            if not self._node_of(name):
                self._start(name)

    def _start(self, name: str) -> None:
        """Start the pod on the node of its volume; it stays pending without one, and where its node is lost."""
        volume, pod = self._volume(name), self._live("Pod", name)
        if volume is None or pod is None or _is_going(self._claim(name) or {"metadata": {}}):
            return
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        (node,) = term["matchExpressions"][0]["values"]
        if node not in self.lost:
            pod["spec"] = {"nodeName": node}
            self.claims[name] = self.disks[node]
            super()._start(name)

    # -- what happens to it ------------------------------------------------------------------------------------------

    def bootstrap(self, names: list[str]) -> None:
        """The first members, on the first nodes."""
        self.etcd = EtcdInMemory.of(names)
        self.etcd.known.clear()
        for name, node in zip(names, self.disks, strict=False):
            self.add_claim(name)
            self.disks[node]["/var/lib/etcd/gen-1"] = self.etcd.processes[name].data
            self.claims[name] = self.disks[node]
            metadata = self._metadata(name)
            self.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}})
        for identity, member in list(self.etcd.members.items()):
            self.etcd.members[identity] = dataclasses.replace(member, peer_url=peer_url(member.name))


def _is_going(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]
