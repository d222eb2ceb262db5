# SPDX-License-Identifier: Apache-2.0
"""A member that changes, in memory: joining runs as it is, against a host cluster, a control plane and the member.

There is as much of Karmada as matters when the mode or the connection of a member changes: what
karmada-controller-manager goes on watching until it starts again, and when an agent acts. A test fails when two work
on the member at the same time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.member_join import ActionModule
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import NotReady
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent, former_connections, registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import cleanup as member_cleanup
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import leave as member_leave
from ansible_collections.karmada.installer.plugins.plugin_utils.members import mode as member_mode
from ansible_collections.karmada.installer.plugins.plugin_utils.members import ready as member_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.members.works import execution_namespace
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.store import SecretStore
from ansible_collections.karmada.installer.tests.unit.support import pull_member_in_memory
from ansible_collections.karmada.installer.tests.unit.support.copies import copied
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.karmada_in_memory import (
    MADE_BY_APPLY,
    application,
    work_for,
)
from ansible_collections.karmada.installer.tests.unit.support.pull_member_in_memory import Killed, Object
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state

PUSH: Object = {"name": "m1", "mode": "Push", "secretRef": {"name": "m1"}}
PULL: Object = {**PUSH, "mode": "Pull"}
ON_HOSTS: Object = {**PULL, "agentHosts": ["gw1"]}
MANAGER = "karmada-controller-manager"
HOLDERS = [MANAGER, "karmada-metrics-adapter", "karmada-search"]
FOREVER = 10**6


class Api(pull_member_in_memory.Api):
    """Says of each object who has made it, and lets the site look after each write."""

    site: Site
    #: one write after the other, so that the site looks at something that does not move
    one_at_a_time = threading.RLock()

    def apply(self, obj: Object, *, dry_run: bool = False, **more: Any) -> Any:
        with self.one_at_a_time:
            made = super().apply(obj, dry_run=dry_run, **more)
            if not dry_run:
                stored = self.objects[self._key(obj)]
                stored["metadata"]["managedFields"] = MADE_BY_APPLY
                if (obj["kind"], obj["metadata"]["name"]) == ("Secret", agent.ACCOUNT):
                    # As the member's own controller does.
                    stored["data"] = {"token": "dA==", "ca.crt": "Y2E="}
                self.site.written()
            return made

    def create(self, obj: Object, **more: Any) -> Object:
        with self.one_at_a_time:
            return super().create(obj, **more)

    def delete(self, *where: Any, **more: Any) -> bool:
        with self.one_at_a_time:
            found = super().delete(*where, **more)
            self.site.written()
            return found

    def patch_merge(self, *where: Any, **more: Any) -> Any:
        with self.one_at_a_time:
            self._write()
            found = FakeCluster.patch_merge(self, *where, **more)
            self.site.written()
            return found

    def list(self, *where: Any, **more: Any) -> Any:
        with self.one_at_a_time:
            return super().list(*where, **more)


class Site(pull_member_in_memory.Site):
    """A host cluster with the state and the components that hold connections, a control plane, and a member at work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.host, self.inside = Api("host cluster"), Api("control plane")
        self.member = Api("member m1", *self.member.objects.values())
        for each in (self.host, self.inside, self.member):
            each.writes_left, each.site = self.writes_left, self
        self.inside.judge = self._judged
        fake_run(document(), self.host, stored=state(service_subnet="10.96.0.0/12"))
        server = {"name": "prod-apiserver", "namespace": "karmada"}
        self.host.put({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": server})
        self.token = "t"
        self.said: list[str] = []
        #: component → the number with which its process was started; what it is told to be comes before
        self.started = dict.fromkeys(HOLDERS, "")
        #: components whose pods do not come back
        self.dead: set[str] = set()
        # Of karmada-controller-manager: it holds watches on the member; it has looked at every Work since it does.
        self.watches = self.knows_all = False
        monkeypatch.setattr(member_join, "_credentials", lambda *_: registration.Credentials(self.token, "t", b"c"))
        monkeypatch.setattr(member_ready, "wait_ready", lambda *_: [])
        monkeypatch.setattr(Run, "writing", self._writing)
        monkeypatch.setattr(Run, "workloads", self._workloads)
        monkeypatch.setattr(former_connections, "wait_until", self._starts)
        for module in (member_leave, member_cleanup):
            monkeypatch.setattr(module, "connected", lambda run, entry, *_: self._connected(run, entry))

    # -- what runs -----------------------------------------------------------------------------------------------------

    @staticmethod
    @contextlib.contextmanager
    def _writing(run: Run, _step: str) -> Iterator[None]:
        run.store.state = run.store._read()
        run.look_again(run.store.state)
        yield

    @staticmethod
    def _workloads(run: Run, names: list[str]) -> list[Object]:
        """In the place of what is rendered, which would take certificates."""
        return [
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": run.instance.metadata(name, run.instance.object_name(name)),
                "spec": {"restarts": str(run.instance.restarts.get(name) or "")},
            }
            for name in names
        ]

    def _starts(self, _host: Any, targets: list[Any], **_: Any) -> None:
        for ref in targets:
            if ref.name in self.dead:
                raise NotReady({ref: "it crashes"}, 1)

    def written(self) -> None:
        """What Karmada makes of what was written, and what must never be."""
        for name in HOLDERS:
            live = self.host.objects.get(("apps/v1", "Deployment", "karmada", f"prod-{name.removeprefix('karmada-')}"))
            if live and live["spec"]["restarts"] != self.started[name]:
                self.begins(name, live["spec"]["restarts"])
        if self.mode == "Push" and not self.watches:
            # A Cluster that is new has no Works yet.
            self.watches, self.knows_all = True, not self.works
        assert not (self.watches and self.agent_acts), "two work on the member"
        if self.works:
            assert self.applications == {"web"}

    def begins(self, name: str, number: str) -> None:
        """A component starts again."""
        self.started[name] = number
        if name == MANAGER:
            self.watches = self.knows_all = self.mode == "Push"

    @property
    def mode(self) -> str:
        return member_mode.of_cluster(self.inside.objects.get((registration.CLUSTER_API, "Cluster", None, "m1")))

    @property
    def works(self) -> set[str]:
        return self.inside.names("Work")

    @property
    def applications(self) -> set[str]:
        return self.member.names("Deployment") - {agent.ROW.name}

    @property
    def agent_acts(self) -> bool:
        """In its pods or on a host, with rights on both sides."""
        there = agent.ROW.name in self.member.names("Deployment") or agent.ACCOUNT in self.member.names("Secret")
        granted = "system:karmada:m1:agent" in self.inside.names("ClusterRoleBinding")
        return there and granted and agent.ROW.name in self.member.names("ClusterRoleBinding")

    # -- what a user does ----------------------------------------------------------------------------------------------

    def of(self, entry: Object, *, check: bool = False) -> Run:
        # Agents on hosts are of another mode of the document; the step is the same.
        listed = {key: value for key, value in entry.items() if key != "agentHosts"}
        optional: Object = {"karmadaSearch": {}, "karmadaMetricsAdapter": {}}
        deployment = document({"endpoint": {"type": "NodePort"}, "components": optional, "members": [listed]})
        deployment["spec"]["members"][0].update(entry)
        run = fake_run(deployment, self.host, check=check)
        run.__dict__["control_plane"] = self.inside
        run.say = self.said.append
        return run

    def run(self, entry: Object = PUSH, *, check: bool = False) -> list[str]:
        """What one run of the step changes."""
        return sorted(self.step(entry, "all", check=check)["changes"])

    def step(self, entry: Object, stage: str, *, noted: bool = False, check: bool = False) -> Object:
        action: Any = ActionModule
        arguments = {"stage": stage, "noted": noted, "on_record": False, "timeout": 1, "broken": []}
        arguments["on_broken_member"] = "fail"
        found: Object = action.perform(None, self.of(entry, check=check), arguments)
        assert "failed" not in found, found
        return found

    def joined(self, entry: Object) -> Site:
        """Joined, with an application that was propagated to it."""
        self.run(entry)
        if self.inside.get("v1", "Namespace", execution_namespace("m1")) is None:
            metadata = {"name": execution_namespace("m1")}
            self.inside.put({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        self.member.put(application("web"))
        self.inside.put(work_for(application("web")))
        self.writes_left[0] = FOREVER
        self.said.clear()
        return self

    @property
    def remembered(self) -> State:
        found = self.of(PUSH).stored_state
        assert found
        return found

    def kept(self) -> list[str]:
        """What must be the same after any change: the Cluster, the application, and where its Work is."""
        return [
            self.inside.objects[registration.CLUSTER_API, "Cluster", None, "m1"]["metadata"]["uid"],
            self.member.objects["apps/v1", "Deployment", "shop", "web"]["metadata"]["uid"],
            self.inside.objects["v1", "Namespace", None, execution_namespace("m1")]["metadata"]["uid"],
            *sorted(self.works),
        ]

    def assert_in(self, entry: Object) -> None:
        assert self.mode == entry["mode"]
        assert self.remembered.members["m1"] == registration.record(MemberEntry(entry))
        assert self.remembered.restarts_due == ()
        of_agent = {(ref.kind, ref.name) for ref in agent.references()}
        there = {(each["kind"], each["metadata"]["name"]) for each in self.member.objects.values()}
        if entry["mode"] == "Pull":
            assert self.agent_acts
            assert not self.watches, "karmada-controller-manager goes on working there"
        else:
            assert self.knows_all, "karmada-controller-manager has not looked at what is propagated there"
            assert not of_agent & there
            assert {"ClusterRoleBinding", "RoleBinding", "Role"} & {
                kind for _, kind, _, _ in self.inside.objects
            } == set()
        # What is not on record is not removed when the member leaves, and what is on record is there.
        uids = {each["metadata"]["uid"] for each in self.member.objects.values()}
        assert self.remembered.uids("member/m1") <= uids


STATE = ("v1", "Secret", "karmada", "prod-installer-state")


class SiteOnHosts(Site):
    """The same with a control plane on plain hosts. What a run notes ends with it unless the play has told hosts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        monkeypatch.setattr(SecretStore, "later", True)
        self.known = copied(self.host.objects[STATE])

    def told(self) -> None:
        self.host._write()
        self.known = copied(self.host.objects[STATE])

    def run(self, entry: Object = PUSH, *, check: bool = False) -> list[str]:
        try:
            return self._play(entry, check=check)
        except Killed:
            self.host.objects[STATE] = copied(self.known)
            raise

    def _play(self, entry: Object, *, check: bool) -> list[str]:
        """As the playbooks for plain hosts do it; ``test_playbooks`` sees to that."""
        found = self.step(entry, "registration", check=check)
        if check:
            return sorted(found["changes"])
        if found["to_note"]:
            assert not found["changed"]
            self.told()
            found = self.step(entry, "registration", noted=True)
        self.told()
        changes = found["changes"]
        if found["restarts"] or found["without_agent"]:
            for name in found["restarts"]:
                self.host._write()
                self.begins(name, str(self.remembered.restarts[name]))
            former_connections.ended(self.of(entry))
            changes += self.step(entry, "agents")["changes"]
            self.told()
        return sorted(changes)
