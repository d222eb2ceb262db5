# SPDX-License-Identifier: Apache-2.0
"""Plain hosts with members of etcd beneath a control plane in pods: its state and its clients are in a host cluster."""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State, to_files
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import clients, members_on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.members_on_hosts import Turn
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Applied
from ansible_collections.karmada.installer.plugins.plugin_utils.run.facts import Facts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.handover import Handover
from ansible_collections.karmada.installer.plugins.plugin_utils.run.in_pods import PodsAboveHosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.place import Place
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.etcd_hosts_in_memory import TIMEOUT, HostsOfEtcd
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster

Object = dict[str, Any]
NAMESPACE = "karmada"


def hosts(members: Sequence[str], others: Sequence[str] = (), **addresses: str) -> list[Object]:
    """Entries of hosts, which have no other role; ``others`` have left the document."""
    del others
    return [
        {"name": name, "address": addresses.get(name, f"192.0.2.{name.removeprefix('cp')}"), "roles": ["etcd"]}
        for name in members
    ]


def place_above(host: FakeCluster, facts: Facts, handover: Handover) -> Place:
    """Place of a control plane in pods of this host cluster, above hosts."""
    found = PodsAboveHosts(facts, handover)
    found.__dict__["host_cluster"] = host
    facts.__dict__["_crds"] = []
    return found


def keep(host: FakeCluster, known: State) -> None:
    """Keep a state in this host cluster as an install leaves it."""
    owner = {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": known.owner}
    data = {key: base64.b64encode(content).decode() for key, content in to_files(known).items()}
    metadata = {"name": "prod-installer-state", "namespace": NAMESPACE, "labels": owner}
    host.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})


class HostCluster(FakeCluster):
    """Host cluster each write of which is a moment at which a run may be killed."""

    def __init__(self, world: HostsBelowPods) -> None:
        super().__init__("host cluster")
        self.world, self.rolls, self.one_at_a_time = world, 0, threading.RLock()

    def apply(self, obj: Object, *, dry_run: bool = False, **more: Any) -> Applied:
        """Apply, unless the run is killed before."""
        with self.one_at_a_time:
            if not dry_run:
                self.world.moment()
            before = self.servers() if obj["metadata"]["name"] == "prod-apiserver" else []
            applied = super().apply(obj, dry_run=dry_run, **more)
            self.rolls += bool(before) and self.servers() != before
            return applied

    def servers(self) -> list[str]:
        """Names of the hosts whose members the API server connects to."""
        live = self.get("apps/v1", "Deployment", "prod-apiserver", NAMESPACE)
        if live is None:
            return []
        container = live["spec"]["template"]["spec"]["containers"][0]
        flags = [*container.get("command", ()), *container.get("args", ())]
        (urls,) = (flag.partition("=")[2] for flag in flags if flag.startswith("--etcd-servers="))
        return [f"cp{url.rpartition('.')[2].partition(':')[0]}" for url in urls.split(",")]


class HostsBelowPods(HostsOfEtcd):
    """Hosts with members beneath a control plane in pods. ``until`` changes happen, then the run is killed."""

    def __init__(self, folder: Path, members: Sequence[str]) -> None:
        self.host, self.until = HostCluster(self), -1
        super().__init__(folder, members)
        run = self.run(hosts(members))
        run.apply_to_host_cluster("start the API server", lambda: run.workloads(["karmada-apiserver"]))
        self.host.rolls = 0

    entries = staticmethod(hosts)

    @staticmethod
    def spec(entries: Sequence[Object]) -> Object:
        return {"hosts": list(entries)}

    def keep(self, known: State) -> None:
        keep(self.host, known)

    def state(self) -> State:
        found = self.step(hosts(["cp1"]), Handover(self.folder / "look")).stored_state
        assert found is not None
        return found

    def place(self, facts: Facts, handover: Handover) -> Place:
        return place_above(self.host, facts, handover)

    def observation(self) -> Object:
        return {"answered": 1.0}

    def followed(self, run: Run) -> None:
        """As the rest of a run does it, for all that connects to etcd."""
        run.look_again(run.stored_state)
        run.apply_to_host_cluster("start the API server", lambda: run.workloads(["karmada-apiserver"]))
        self.clients = set(self.host.servers())

    def _written(self, run: Run) -> None:
        """Steps write the state themselves."""

    def _clients(self, run: Run, _turn: Turn, wanted: set[str]) -> None:
        del wanted
        clients.follow(run, TIMEOUT)
        self.clients = set(self.host.servers())
        assert self.clients, "clients are left with nobody"
        members_on_hosts.clients_have_followed(run)
