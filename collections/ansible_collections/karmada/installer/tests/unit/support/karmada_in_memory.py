# SPDX-License-Identifier: Apache-2.0
"""A control plane and a member in memory, with as much of Karmada as a member that leaves meets.

Karmada acts whenever the control plane is looked at for the Cluster, so that a test has no threads and no waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden, NotFound
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent, registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import works as member_works
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, Object
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, quickly_rendered

GOING = "2026-01-01T00:00:00Z"
LOOKS_BEFORE_EMPTYING = 8
MADE_BY_APPLY = [{"manager": "karmada-installer", "operation": "Apply", "time": GOING}]


class Killed(Exception):  # noqa: N818 - what happens to a run
    """The run ends here, as a killed one does: nothing of it goes on."""


class Api(FakeCluster):
    """Counts its writes, and ends the run instead of carrying out the one that is left when ``writes_left`` is 0."""

    writes_left: int | None = None
    shared: Api | None = None

    def _write(self) -> None:
        counter = self.shared or self
        if counter.writes_left is not None:
            if counter.writes_left == 0:
                raise Killed
            counter.writes_left -= 1

    def apply(self, obj: Object, *, dry_run: bool = False, **more: Any) -> Any:
        if not dry_run:
            self._write()
        return super().apply(obj, dry_run=dry_run, **more)

    def delete(self, api_version: str, kind: str, name: str, namespace: str | None = None, **more: Any) -> bool:
        self._write()
        return super().delete(api_version, kind, name, namespace, **more)

    def patch_merge(self, *arguments: Any, **more: Any) -> Object:
        self._write()
        return super().patch_merge(*arguments, **more)


class ControlPlane(Api):
    """An API server with Karmada's controllers for one member. ``reaches`` says whether they reach it."""

    def __init__(self, member: Api) -> None:
        super().__init__("control plane")
        self.member, self.reaches = member, True
        #: whether it is the agent that sees to Works
        self.pulls = False
        #: works whose spec a controller writes anew as soon as it can, as it does when a template changes
        self.restless: set[str] = set()
        #: how often a namespace was looked at that is going
        self.looks: Counter[str] = Counter()

    # -- the API server ------------------------------------------------------------------------------------------------

    def create(self, obj: Object, *_: Any, dry_run: bool = False, **__: Any) -> Object:
        namespace = self.objects.get(("v1", "Namespace", None, obj["metadata"]["namespace"]))
        if namespace is None:
            raise NotFound(self.name, "POST", "/", 404, "NotFound", "no such namespace")
        self._admit(obj, namespace)
        assert dry_run
        return obj

    def _admit(self, work: Object, namespace: Object) -> None:
        labels = namespace["metadata"].get("labels") or {}
        if member_works.NO_NEW_WORKS_LABEL in labels and self._key(work) not in self.objects:
            denied = f"policy {member_works.NO_NEW_WORKS_POLICY} denied it"
            raise Forbidden(self.name, "POST", "/", 403, "Forbidden", denied)
        policies = self.names("ValidatingAdmissionPolicy") & self.names("ValidatingAdmissionPolicyBinding")
        if labels.get(member_works.ON_LEAVE_LABEL) == "Retain" and member_works.POLICY in policies:
            ours = member_works.is_going(work) or member_works.is_of_cluster(work) or member_works.retains(work)
            if not ours:
                raise Forbidden(self.name, "PUT", "/", 403, "Forbidden", f"policy {member_works.POLICY} denied it")

    def delete(self, api_version: str, kind: str, name: str, namespace: str | None = None, **more: Any) -> bool:
        live = self.objects.get((api_version, kind, namespace, name))
        held = kind == "Work" and (live or {"metadata": {}})["metadata"].get("finalizers")
        if (kind in ("Cluster", "Namespace") or held) and live:
            self._write()
            live["metadata"]["deletionTimestamp"] = GOING
            self.log.append(f"delete {kind} {name}")
            return True
        return super().delete(api_version, kind, name, namespace, **more)

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        if kind in ("Cluster", "Namespace"):
            self._controllers()
        return super().get(api_version, kind, name, namespace)

    def list(self, api_version: str, kind: str, *where: Any, **more: Any) -> Any:
        if kind == "Work":
            self._finish_works()
        return super().list(api_version, kind, *where, **more)

    # -- Karmada -------------------------------------------------------------------------------------------------------

    def _controllers(self) -> None:
        for (_, kind, namespace, name), work in list(self.objects.items()):
            if kind == "Work" and name in self.restless and not member_works.is_going(work):
                written = {**work, "spec": {**work["spec"], "preserveResourcesOnDeletion": False}}
                try:
                    self._admit(written, self.objects["v1", "Namespace", None, namespace or ""])
                except Forbidden:
                    continue
                work["spec"] = written["spec"]
        clusters = [each for each in self.objects.values() if each["kind"] == "Cluster"]
        self._finish_works()
        for cluster in clusters:
            if member_works.is_going(cluster):
                self._remove(cluster)
        for key, namespace in list(self.objects.items()):
            if key[1] == "Namespace" and member_works.is_going(namespace):
                self._remove_namespace(namespace["metadata"]["name"])

    def _remove(self, cluster: Object) -> None:
        name = cluster["metadata"]["name"]
        space = self.objects.get(("v1", "Namespace", None, member_works.execution_namespace(name)))
        if space is None:
            if member_works.WAKE_ANNOTATION not in (cluster["metadata"].get("annotations") or {}):
                # Its controller has looked before, and does so again in 10 s.
                return
            del self.objects[registration.CLUSTER_API, "Cluster", None, name]
            # the garbage collector
            for key, each in list(self.objects.items()):
                if any(
                    owner["uid"] == cluster["metadata"]["uid"] for owner in each["metadata"].get("ownerReferences", [])
                ):
                    del self.objects[key]
            return
        space["metadata"]["deletionTimestamp"] = GOING
        self._finish_works()

    def _finish_works(self) -> None:
        """What the execution controller does, or the agent, whose rights are in the execution namespace.

        Neither does anything for a Cluster that is not there.
        """
        for key, work in list(self.objects.items()):
            if key[1] != "Work" or not member_works.is_going(work):
                continue
            space = self.objects["v1", "Namespace", None, key[2] or ""]
            able = self.names("Cluster") and self.reaches and not (self.pulls and member_works.is_going(space))
            if work["metadata"].get("finalizers") and able and self._finished(work):
                work["metadata"].pop("finalizers")
            if not work["metadata"].get("finalizers"):
                del self.objects[key]

    def _remove_namespace(self, name: str) -> None:
        """An API server begins to empty a namespace a while after it is to go."""
        self.looks[name] += 1
        inside = [key for key in self.objects if key[2] == name]
        for key in inside:
            if self.looks[name] > LOOKS_BEFORE_EMPTYING:
                self.objects[key]["metadata"]["deletionTimestamp"] = GOING
            going = member_works.is_going(self.objects[key])
            if going and not self.objects[key]["metadata"].get("finalizers"):
                del self.objects[key]
        if not [key for key in self.objects if key[2] == name]:
            del self.objects["v1", "Namespace", None, name]

    def _finished(self, work: Object) -> bool:
        """What the execution controller does with a Work that is going."""
        for ref in member_works.references(work):
            key = (ref.api_version, ref.kind, ref.namespace, ref.name)
            live = self.member.objects.get(key)
            if member_works.retains(work):
                if live is None or not member_works.is_managed(live):
                    return False
                live["metadata"]["labels"].pop("karmada.io/managed")
            elif live is not None and member_works.is_managed(live):
                del self.member.objects[key]
        return True


def application(name: str) -> Object:
    """An object that is propagated."""
    metadata = {"name": name, "namespace": "shop", "labels": {"karmada.io/managed": "true", "app": name}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}


def work_for(obj: Object, member: str = "m1", **spec: Any) -> Object:
    """The Work of an object."""
    metadata = {
        "name": f"{obj['kind'].lower()}-{obj['metadata']['name']}",
        "namespace": member_works.execution_namespace(member),
        "finalizers": ["karmada.io/execution-controller"],
    }
    spec = {"workload": {"manifests": [obj]}, **spec}
    return {"apiVersion": member_works.WORK_API, "kind": "Work", "metadata": metadata, "spec": spec}


def joined(
    name: str = "m1", *, ready: bool = True, estimator: bool = False, pull: bool = False
) -> tuple[ControlPlane, Api]:
    """A member as joining leaves it, with two applications, and what Karmada has put there for the Cluster."""
    made = registration.objects_on_member(name, OWNER, "karmada/prod", estimator=estimator)
    if pull:
        made += agent_on(name)
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": f"id-{name}"}}
    member = Api(f"member {name}", system)
    for each in (registration.namespace_on_member(OWNER), *made):
        each["metadata"]["managedFields"] = MADE_BY_APPLY
        member.put(each)
    control_plane = ControlPlane(member)
    member.shared = control_plane
    entry = {"name": name, "mode": "Pull" if pull else "Push"}
    cluster = registration.cluster(
        MemberEntry(entry), OWNER, registration.Registration(f"id-{name}", "https://192.0.2.1")
    )
    cluster["status"] = {"conditions": [{"type": "Ready", "status": "True" if ready else "False", "reason": "X"}]}
    stored = control_plane.put(cluster)
    owner = {"kind": "Cluster", "name": name, "uid": stored["metadata"]["uid"], "apiVersion": registration.CLUSTER_API}
    credentials = registration.Credentials("t", "i", b"c", "e" if estimator else "")
    for secret in registration.secrets_in_control_plane(name, OWNER, credentials, stored["metadata"]["uid"]):
        control_plane.put(secret)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": member_works.execution_namespace(name)}}
    control_plane.put(space)
    if pull:
        control_plane.pulls = True
        for each in agent.rights(name, OWNER):
            control_plane.put(each)
        for lease in agent.leases(name):
            metadata = {"name": lease.name, "namespace": lease.namespace}
            control_plane.put({"apiVersion": lease.api_version, "kind": "Lease", "metadata": metadata})
    for app in ("web", "db"):
        member.put(application(app))
        control_plane.put(work_for(application(app), name))
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        right = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {
                "name": registration.IMPERSONATOR,
                "labels": {"karmada.io/managed": "true"},
                "annotations": {"work.karmada.io/namespace": member_works.execution_namespace(name)},
            },
        }
        member.put(right)
        work = work_for(right, name)
        work["metadata"]["ownerReferences"] = [owner]
        control_plane.put(work)
    return control_plane, member


def agent_on(name: str) -> list[Object]:
    """The agent of a member, with an identity of which nobody reads anything."""
    spec = {"endpoint": {"type": "NodePort"}, "members": [{"name": name, "mode": "Pull", "secretRef": {"name": name}}]}
    who = agent.Identity(KeyPair(b"c", b"k"), "https://192.0.2.1", b"ca", "issued")
    instance = quickly_rendered(spec).instance
    return [
        agent.identity_secret(name, OWNER, instance.full_name, who),
        *agent.objects_on_member(instance, name, "https://192.0.2.1", who),
    ]


@contextmanager
def to(member: Api) -> Iterator[Api]:
    """In the place of ``connected``."""
    yield member
