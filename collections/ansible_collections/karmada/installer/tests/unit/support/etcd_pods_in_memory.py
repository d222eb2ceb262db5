# SPDX-License-Identifier: Apache-2.0
"""Pods of etcd in a cluster in memory: they start with the configuration that is there, and what their claims hold."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Mapping
from typing import Any

import yaml
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import (
    FAILED_PRECONDITION,
    NOT_FOUND,
    UNAVAILABLE,
    Member,
    Members,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import plan_types as steps
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import Cause, EndpointStatus, EtcdError
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Applied
from ansible_collections.karmada.installer.tests.unit.support.etcd_in_memory import (
    EtcdInMemory,
    EtcdRefusalError,
    Process,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, Object

NAMESPACE = "karmada"
LABELS = {"app.kubernetes.io/name": "etcd", "app.kubernetes.io/instance": "prod"}
_UIDS = itertools.count(1)


class Killed(BaseException):
    """The run was killed at this moment."""


class PodsOfEtcd(FakeCluster):
    """Host cluster whose StatefulSet prod-etcd has pods. ``until`` writes happen, then the run is killed.

    ``storage`` is that of the members: volumeClaim, or emptyDir, where the data goes with each pod.
    """

    def __init__(self, storage: str = "volumeClaim") -> None:
        super().__init__("host cluster")
        self.storage = storage
        self.etcd = EtcdInMemory()
        #: name of a pod → folders of its volume, and the ID of the member whose log each holds
        self.claims: dict[str, dict[str, str]] = {}
        #: A run applies several objects at once.
        self.one_at_a_time = threading.RLock()
        self.until: int | None = None
        self.writes = 0
        #: name of a member that somebody has forced to go on alone; empty if none is
        self.forced = ""

    def moment(self) -> None:
        """One change of the world, before which the run may be killed."""
        self.writes += 1
        if self.until is not None and self.writes > self.until:
            raise Killed

    # -- the API server, and what runs behind it -------------------------------------------------------------------

    def apply(self, obj: Object, *, dry_run: bool = False, **more: Any) -> Applied:
        """Apply, and have the controller of StatefulSets do its work."""
        with self.one_at_a_time:
            if not dry_run:
                self.moment()
            applied = super().apply(obj, dry_run=dry_run, **more)
            if not dry_run:
                self._reconcile()
            return applied

    def patch_merge(self, *arguments: Any, **more: Any) -> Object:
        with self.one_at_a_time:
            self.moment()
            return super().patch_merge(*arguments, **more)

    def list(self, *arguments: Any, **more: Any) -> list[Object]:
        with self.one_at_a_time:
            return super().list(*arguments, **more)

    def delete(self, api_version: str, kind: str, name: str, *arguments: Any, **more: Any) -> bool:
        """Delete; a pod of the StatefulSet is made anew."""
        with self.one_at_a_time:
            self.moment()
            done = super().delete(api_version, kind, name, *arguments, **more)
            if kind == "Pod":
                self._ended(name)
            self._reconcile()
            return done

    def _ended(self, name: str) -> None:
        """Have a pod be gone, with what is gone with it."""
        self.etcd.processes.pop(name, None)
        if self.storage == "emptyDir":
            self.claims.pop(name, None)

    def _reconcile(self) -> None:
        wanted = self.get("apps/v1", "StatefulSet", "prod-etcd", NAMESPACE)
        if wanted is None:
            return
        names = [f"prod-etcd-{ordinal}" for ordinal in range(wanted["spec"]["replicas"])]
        members = {name for name in self.names("Pod") if name.startswith("prod-etcd-")}
        for name in sorted(members - set(names)):
            super().delete("v1", "Pod", name, NAMESPACE)
            self._ended(name)
        for name in names:
            if name not in self.claims:
                self.add_claim(name)
            if name not in self.names("Pod"):
                self.put({"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata(name)})
                self._start(name)

    def add_claim(self, name: str) -> None:
        """A new and empty volume for a member."""
        self.claims[name] = {}
        if self.storage == "emptyDir":
            return
        metadata = self._metadata(f"data-{name}")
        self.put({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata})

    def _metadata(self, name: str) -> Object:
        return {"name": name, "namespace": NAMESPACE, "labels": LABELS, "uid": f"00000000-0000-{next(_UIDS):012d}"}

    def _configuration(self, name: str) -> Mapping[str, Any] | None:
        found = self.get("v1", "ConfigMap", "prod-etcd-config", NAMESPACE)
        text = (found or {"data": {}})["data"].get(f"{name}.yaml")
        return yaml.safe_load(text) if text else None

    def _start(self, name: str) -> None:
        """Start a member as etcd does: with its log, or with an empty folder where others name it."""
        configuration = self._configuration(name)
        process = self.etcd.processes[name] = Process("")
        if configuration is None:
            return
        folders, folder = self.claims[name], configuration["data-dir"]
        if folder not in folders:
            folders[folder] = self._joined(configuration)
        if folders[folder] in self.etcd.members:
            process.data = folders[folder]
            member = self.etcd.members[process.data]
            self.etcd.members[process.data] = dataclasses.replace(member, name=name)

    def _joined(self, configuration: Mapping[str, Any]) -> str:
        """ID under which a member without a log joins, or an empty text if it ends with an error."""
        assert configuration["initial-cluster-state"] == "existing", "a second cluster was begun"
        given = dict(pair.split("=", 1) for pair in configuration["initial-cluster"].split(","))
        listed = {each.peer_url for each in self.etcd.members.values()}
        mine = [each for each in self.etcd.members.values() if each.peer_url == given[configuration["name"]]]
        # What it is given has to be what the others say. Who had a log and lost it begins without one as well.
        if set(given.values()) != listed or not mine or len(given) == 1:
            return ""
        assert mine[0].learner, f"{mine[0].name} has forgotten what it has acknowledged"
        # Others count on what a learner that has started has of the log: it ends without ("tocommit is out of range").
        return "" if mine[0].name else mine[0].id

    # -- what happens to it ----------------------------------------------------------------------------------------

    def bootstrap(self, names: list[str]) -> None:
        """The first members, with their pods, as an install leaves them."""
        self.etcd = EtcdInMemory.of(names)
        for name in names:
            self.etcd.known.clear()
            self.add_claim(name)
            self.claims[name]["/var/lib/etcd/gen-1"] = self.etcd.processes[name].data
            self.put({"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata(name)})
        for identity, member in list(self.etcd.members.items()):
            self.etcd.members[identity] = dataclasses.replace(member, peer_url=peer_url(member.name))

    def lose_volume(self, name: str) -> None:
        """The claim of a member (or its pod's own disk) goes with all that it holds; its pod comes back with none."""
        self.add_claim(name)
        super().delete("v1", "Pod", name, NAMESPACE)
        self.etcd.processes.pop(name, None)
        self._reconcile()


def peer_url(name: str) -> str:
    """Peer URL of a member in the pod of this name."""
    return f"https://{name}.prod-etcd.{NAMESPACE}.svc.cluster.local:2380"


def _name(url: str) -> str:
    return url.partition("//")[2].partition(".")[0]


class FakeEtcdClient:
    """Client of the members in these pods, with the methods of ``EtcdClient`` that a change of members uses."""

    def __init__(self, world: PodsOfEtcd, urls: list[str], asked: str = "") -> None:
        self.world, self.urls, self.asked = world, tuple(urls), asked

    def at(self, url: str) -> FakeEtcdClient:
        return FakeEtcdClient(self.world, list(self.urls), url)

    def status(self) -> list[EndpointStatus]:
        self.world.etcd._time_passes()
        return [self._status(url) for url in self.urls]

    def _status(self, url: str) -> EndpointStatus:
        etcd, name = self.world.etcd, _name(url)
        process = etcd.processes.get(name)
        if process is None or process.cut or process.data not in etcd.members:
            return EndpointStatus(url, cause=Cause.UNREACHED, message="it does not answer")
        member = etcd.members[process.data]
        if name == self.world.forced:
            return EndpointStatus(url, healthy=True, leader=True, member_id=member.id, index=member.index)
        without = bool(self.world.forced) and etcd.healthy_voters() - 1 <= len(etcd.voters()) // 2
        if without or not etcd.has_majority():
            return EndpointStatus(url, member_id=member.id, message="it knows no leader")
        leads = etcd.leader() == member.id
        return EndpointStatus(
            url,
            healthy=not etcd.full,
            message=etcd.alarm,
            alarms=("NOSPACE",) if etcd.full else (),
            only_full=etcd.full,
            version="3.6.14",
            leader=leads,
            member_id=member.id,
            learner=member.learner,
            index=member.index,
        )

    def members(self) -> Members:
        self._require_majority()
        return self._answer(alone=_name(self.asked) if self.asked and _name(self.asked) == self.world.forced else "")

    def _answer(self, added: str = "", alone: str = "") -> Members:
        every = [each for each in self.world.etcd.members.values() if alone in ("", each.name)]
        listed = tuple(Member(each.id, each.name, (each.peer_url,), (), each.learner) for each in every)
        return Members(self.world.etcd.cluster, listed, added)

    def _require_majority(self) -> None:
        if not self.world.etcd.has_majority():
            raise EtcdError(Cause.WRONG, "it answers: no leader", UNAVAILABLE)

    def add_learner(self, url: str) -> Members:
        self.world.moment()
        self._require_majority()
        etcd = self.world.etcd
        if etcd.healthy_voters() < len(etcd.voters()):
            raise EtcdError(Cause.WRONG, "it answers: unhealthy cluster", UNAVAILABLE)
        assert not any(each.learner or each.peer_url == url for each in etcd.members.values())
        identity = etcd._new_id()
        etcd.members[identity] = steps.Member(identity, "", url, learner=True)
        return self._answer(identity)

    def promote(self, identity: str) -> Members:
        self.world.moment()
        if not self.world.etcd.members[identity].learner:
            raise EtcdError(Cause.WRONG, "it answers: can only promote a learner member", FAILED_PRECONDITION)
        try:
            self.world.etcd.do(steps.Promote("", identity))
        except EtcdRefusalError as error:
            raise EtcdError(Cause.WRONG, str(error), 9) from None
        return self._answer()

    def remove(self, identity: str) -> Members:
        self.world.moment()
        self._require_majority()
        if identity not in self.world.etcd.members:
            raise EtcdError(Cause.WRONG, "it answers: member not found", NOT_FOUND)
        self.world.etcd.do(steps.Remove("", identity))
        assert self.world.etcd.has_majority()
        return self._answer()

    def move_leader(self, identity: str) -> None:
        self.world.moment()
        etcd = self.world.etcd
        assert peer_url(etcd.members[etcd.leader()].name).split("//")[1].split(".")[0] in self.asked, "not the leader"
        etcd.do(steps.MoveLeader("", "", identity))
