# SPDX-License-Identifier: Apache-2.0
"""The inside of a control plane in memory of which a part is released: Works of two clusters, and whom they reach.

Admission is by what a run has put there. Controllers carry out each Work that is not suspended, as soon as they run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import Part
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.members import works as member_works
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import held, partial
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import WRITERS
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, Object
from ansible_collections.karmada.installer.tests.unit.support.restore_pods_in_memory import World

#: Part of it that is released.
PART: dict[str, Any] = {"parts": [Part(("m1",))]}


class Inside(FakeCluster):
    """The API server of the control plane, which has a moment for each write, and controllers behind it."""

    def __init__(self, world: Any) -> None:
        super().__init__("control plane")
        self.world = world
        #: clusters that were told by a Work, and those Works
        self.carried_out: set[str] = set()
        for cluster in ("m1", "m2"):
            self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space(cluster)}})
            self.put({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": cluster}})
            for name, suspended in (("absent", None), ("false", False), ("by-design", True)):
                self.put(work(cluster, name, suspended))

    def moment(self) -> None:
        """A write is about to happen."""
        self.world.moment()

    def create(self, obj: Object, *, dry_run: bool = False, **_: Any) -> Object:
        assert dry_run
        self.admit(obj)
        return obj

    def apply(self, obj: Object, **more: Any) -> Any:
        with self.world.one_at_a_time:
            self.moment()
            return super().apply(obj, **more)

    def delete(self, *arguments: Any, **more: Any) -> bool:
        self.moment()
        return super().delete(*arguments, **more)

    def patch_merge(self, *arguments: Any, **more: Any) -> Object:
        with self.world.one_at_a_time:
            self.moment()
            kind, name, namespace = arguments[1:4]
            if kind == "Work":
                wanted = arguments[4].get("spec", {}).get("suspendDispatching", True)
                if wanted is not True:
                    self.admit(work(namespace.removeprefix("karmada-es-"), name, wanted))
            changed = super().patch_merge(*arguments, **more)
            self.controllers()
            return changed

    def admit(self, wanted: Object) -> None:
        namespace = wanted["metadata"]["namespace"]
        there = self.objects["v1", "Namespace", None, namespace]["metadata"]
        in_force = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} <= {
            kind for _, kind, _, name in self.objects if name == held.POLICY
        }
        spaces = (there.get("annotations") or {}).get(held.NAMESPACES, "").split(",")
        if not in_force or (there.get("labels") or {}).get(held.LABEL) != held.HELD or held.is_suspended(wanted):
            return
        if held.namespaces_of(wanted) and held.namespaces_of(wanted) <= set(spaces):
            return
        raise Forbidden(self.name, "POST", "/", 403, "Forbidden", f"policy {held.POLICY} denied it")

    def controllers(self) -> None:
        if not WRITERS & self.world.running() or self.world.content() != {"backup"}:
            return
        for each in list(self.objects.values()):
            if each["kind"] == "Work" and (member_works.is_going(each) or not held.is_suspended(each)):
                self.carried_out.add(held.name_of(each))

    def works(self) -> dict[str, Any]:
        """Works: whether they are suspended, and their annotations."""
        return {
            held.name_of(each): (each["spec"].get("suspendDispatching"), each["metadata"].get("annotations") or {})
            for each in self.objects.values()
            if each["kind"] == "Work"
        }

    def labels(self) -> set[str]:
        return {
            each["metadata"]["name"]
            for each in self.objects.values()
            if (each["metadata"].get("labels") or {}).get(held.LABEL)
        }


def space(cluster: str) -> str:
    return member_works.execution_namespace(cluster)


def work(cluster: str, name: str, suspended: bool | None = None) -> Object:
    spec = {} if suspended is None else {"suspendDispatching": suspended}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}}
    return {
        "apiVersion": member_works.WORK_API,
        "kind": "Work",
        "metadata": {"name": name, "namespace": space(cluster)},
        "spec": {**spec, "workload": {"manifests": [manifest]}},
    }


def going_work(cluster: str, name: str) -> Object:
    """A Work that somebody has deleted, and that waits for a controller."""
    found = work(cluster, name)
    found["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["karmada.io/execution-controller"])
    return found


def names(*clusters: str) -> set[str]:
    """Works of these clusters that nobody else has suspended."""
    return {f"{cluster}/{name}" for cluster in clusters for name in ("absent", "false")}


def assert_all_let_go(inside: Inside, before: dict[str, Any]) -> None:
    """Works are as they were before, all have reached their members, and nothing that holds any is left."""
    assert inside.works() == before
    assert not inside.labels()
    assert inside.carried_out == names("m1", "m2")
    assert not inside.names("ValidatingAdmissionPolicy")


def set_to_work(world: World, inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Karmada's controllers work inside the control plane of this world, and its one API server asked there."""
    world.inside = inside
    controllers = World._controllers

    def all_controllers(self: World) -> None:
        controllers(self)
        inside.controllers()

    @contextmanager
    def servers(run: Run) -> Iterator[list[Any]]:
        yield [run.control_plane]

    monkeypatch.setattr(World, "_controllers", all_controllers)
    monkeypatch.setattr(partial, "_api_servers", servers)
    monkeypatch.setattr(partial, "_LOOK_SECONDS", 0)
