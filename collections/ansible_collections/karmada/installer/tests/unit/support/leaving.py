# SPDX-License-Identifier: Apache-2.0
"""A control plane in memory and a member with applications that leaves it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import apply
from ansible_collections.karmada.installer.plugins.plugin_utils.members import cleanup as member_cleanup
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import leave as member_leave
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import works as member_works
from ansible_collections.karmada.installer.plugins.plugin_utils.members.join import Outcome
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import karmada_in_memory as memory
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.moments import Clock
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document, state

RECORD = {"mode": "Push", "secretRef": {"name": "m1"}, "context": None}
APPLICATIONS = {"web", "db"}


class World:
    """One control plane with one member that is not listed any more; ``leave`` is one run of the step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, on_leave: str = "Retain", **how: bool) -> None:
        self.control_plane, self.member = memory.joined(**how)
        self.reachable = True
        uids = {
            f"{each['kind']} {each['metadata']['name']}": each["metadata"]["uid"]
            for each in self.member.objects.values()
            if "installer.karmada.io/owner" in (each["metadata"].get("labels") or {})
        }
        record = {**RECORD, "onLeave": on_leave, "mode": "Pull" if how.get("pull") else "Push"}
        self.state = state(members={"m1": record}, owned={"member/m1": uids})
        self.said: list[str] = []
        for module in (member_leave, member_cleanup):
            monkeypatch.setattr(module, "connected", lambda *_: memory.to(self.member))
        #: of the step; what it hands to others takes no time at all
        self.clock = Clock()
        monkeypatch.setattr(member_leave, "time", self.clock)
        monkeypatch.setattr(apply, "LONGEST_PAUSE", 0)

    def run(self, *, check: bool = False) -> Run:
        run = fake_run(document(), FakeCluster("host cluster"), stored=self.state, check=check)
        run.__dict__["control_plane"] = self.control_plane
        run.say = self.said.append
        return run

    def leave(self, do: Any = member_leave.leave, *, timeout: float = 60, check: bool = False) -> Outcome:
        run = self.run(check=check)
        if not check:
            for each in member_works.policies(OWNER):
                self.control_plane.put(each)
        cluster = member_join.registered_clusters(run).get("m1") if not check else self._cluster()
        (entry,) = member_leave.entries(run, ["m1"])
        (outcome,) = member_join.of_each([entry], lambda each, out: do(run, each, cluster, timeout, out))
        return outcome

    def _cluster(self) -> Any:
        return self.control_plane.get(registration.CLUSTER_API, "Cluster", "m1")

    @property
    def applications(self) -> set[str]:
        return self.member.names("Deployment")

    def assert_gone(self) -> None:
        assert self.control_plane.names("Cluster") == set()
        assert self.control_plane.names("Work") == set()
        assert self.control_plane.names("Secret") == set()
        assert self.control_plane.names("Namespace") == set()
        left = {(each["kind"], each["metadata"]["name"]) for each in self.member.objects.values()}
        assert left - {("Deployment", name) for name in APPLICATIONS} == {("Namespace", "kube-system")}
