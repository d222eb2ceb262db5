# SPDX-License-Identifier: Apache-2.0
"""A control plane in pods above members of etcd on hosts, both in memory, that is restored.

The hosts are those of ``restore_hosts_in_memory`` that have a member, where runs take the same tasks; the pods are in a
host cluster of ``restore_pods_in_memory``, which has the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD, pod_components
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import closed, delivery
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support import (
    restore_hosts_in_memory,
    restore_pods_in_memory,
    samples,
)
from ansible_collections.karmada.installer.tests.unit.support.copies import copied
from ansible_collections.karmada.installer.tests.unit.support.etcd_below_pods_in_memory import keep, place_above
from ansible_collections.karmada.installer.tests.unit.support.restore_hosts_in_memory import FORMER, MEMBERS
from ansible_collections.karmada.installer.tests.unit.support.restores_in_memory import GOALS, with_a_backup
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import HOSTS, Runs

ENTRIES = [{**each, "roles": ["etcd"]} for each in HOSTS if each["name"] in MEMBERS]
DOCUMENT = samples.document({"hosts": ENTRIES})
INSTALLED: dict[Any, Any] = {}


class Above(restore_pods_in_memory.World):
    """Host cluster with all but etcd, above the hosts of this world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def moment(self) -> None:
        self.world.moment()

    def content(self) -> set[str]:
        return self.world.content()


class World(restore_hosts_in_memory.World):
    """Hosts with members, and pods above them. ``until`` changes of either happen, then the run is killed."""

    names = MEMBERS

    def __init__(self, folder: Path) -> None:
        self.host = Above(self)
        super().__init__(folder)
        # Hosts keep nothing of it.
        self.stored = Stored()
        self.keep(samples.state(etcd=FORMER, document=DOCUMENT, hosts={each["name"]: each for each in ENTRIES}))

    @property
    def told(self) -> set[str]:  # type: ignore[override]
        return self.host.told

    @told.setter
    def told(self, found: set[str]) -> None:
        self.host.told = found

    @property
    def objects(self) -> dict[Any, Any]:
        """Objects of the host cluster."""
        return self.host.objects

    @objects.setter
    def objects(self, found: dict[Any, Any]) -> None:
        self.host.objects = found

    def state(self) -> State:
        found = self.run(self.runs(), "").stored_state
        assert found
        return found

    def keep(self, known: State) -> None:
        keep(self.host, known)

    def written(self, runs: Runs) -> None:
        assert not runs.handover.stored, "hosts beneath pods get no state"

    def run(self, runs: Runs, operation: str, *, check: bool = False) -> Run:
        holder = f"me@{runs.handover._folder.name}"
        place = partial(place_above, self.host)
        found = runs.step(DOCUMENT, check=check, holder=holder, operation=operation, place=place)
        found.control_plane = self.inside  # type: ignore[assignment]
        return found

    def bring_up(self, runs: Runs, operation: str) -> None:
        restore_pods_in_memory.bring_up(self.run(runs, operation))

    def converge(self, run: Run, name: str, rows: Sequence[str]) -> None:
        ran = ETCD.name in self.machines[name].running
        super().converge(run, name, rows)
        stopped = ran and ETCD.name not in self.machines[name].running
        assert not (stopped and self.host.running()), "its clients have not stopped before it"

    def units(self) -> set[str]:
        return {ETCD.name}

    def components(self) -> set[str]:
        return {each.name for each in pod_components(self.run(self.runs(), "").spec)} | self.units()

    def knows_agents(self) -> bool:
        return bool(self.host.accepting_agents())

    def running(self) -> set[str]:
        return super().running() | self.host.running()

    def _controllers(self) -> None:
        self.host._controllers()


def never(*_: Any, **__: Any) -> None:
    """Stands for what makes new data in volumes."""
    pytest.fail("no data is in a volume")


def made(monkeypatch: pytest.MonkeyPatch, folder: Path) -> World:
    """Pods above hosts, a control plane that nobody has restored."""
    restore_pods_in_memory.stand_in(monkeypatch)
    restore_hosts_in_memory.stand_in(monkeypatch)
    with_a_backup(monkeypatch)
    found = World(folder)
    monkeypatch.setattr(delivery, "prepare", never)
    monkeypatch.setattr(delivery, "forget", never)
    monkeypatch.setattr(closed, "accepting_agents", lambda _run: found.host.accepting_agents())
    run = found.run(found.runs(), GOALS[Goal.QUARANTINE])
    for name in found.machines:
        found.converge(run, name, [ETCD.name])
    install(found, run)
    assert (found.content(), found.running()) == ({"before"}, found.components())
    found.changes, found.told = 0, {"before"}
    return found


def install(world: World, run: Run) -> None:
    """Have its pods there as a run of ours leaves them, made once for all tests."""
    if not INSTALLED:
        components, before = pod_components(run.spec), run.state.journal
        secrets = workloads.file_set_secrets(run.instance, run.layout, run.material, components)
        everything = [*secrets, *run.workloads([each.name for each in components])]
        run.apply_to_host_cluster("install", lambda: everything)
        world.keep(replace(run.state, journal=before))
        INSTALLED.update(copied(world.objects))
    world.objects = copied(INSTALLED)
