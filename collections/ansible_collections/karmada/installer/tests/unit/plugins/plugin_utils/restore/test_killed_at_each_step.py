# SPDX-License-Identifier: Apache-2.0
"""A restore, its release and the way back, each killed when a step was done and before it is on record, step by step.

In pods, on hosts, and in pods above etcd on hosts, by the worlds of the tests that kill at writes: here each step has
its turn, and the end is compared as a whole with one that nobody disturbed, or with what was there before. With
``RESTORE_MOMENTS=1`` each step has it in each of these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import (
    PART_RELEASED,
    RestoreState,
    State,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import pod_components
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import beginning, carry_out
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.carry_out import Restoring
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal, Step
from ansible_collections.karmada.installer.tests.unit.support import (
    restore_below_pods_in_memory,
    restore_hosts_in_memory,
    restore_pods_in_memory,
)
from ansible_collections.karmada.installer.tests.unit.support.copies import copied
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run
from ansible_collections.karmada.installer.tests.unit.support.restores_in_memory import (
    MOMENTS,
    OTHER,
    Killed,
    with_another,
)

IN_PODS, ON_HOSTS, ABOVE_HOSTS = "in pods", "on hosts", "in pods above hosts"
ALL = (IN_PODS, ON_HOSTS, ABOVE_HOSTS)
UNTIL_QUARANTINE = tuple(Step)[: tuple(Step).index(Step.OPEN)]
RELEASE = (Step.OPEN, Step.START_ALL, Step.WAKE_AGENTS, Step.LET, Step.BACK_UP_AGAIN, Step.RELEASED)
WAY_BACK = (
    Step.TURN_BACK,
    Step.STOP_ALL,
    Step.SWITCH_BACK,
    Step.START_FORMER,
    Step.OPEN_AGAIN,
    Step.START_ALL,
    Step.WAKE_AGENTS,
    Step.UNDONE,
)
#: Of objects in the host cluster, what each write makes anew.
OF_THE_MOMENT = ("uid", "resourceVersion", "creationTimestamp")
#: Copies of what changes of a world in quarantine, so that not each test has to come there anew.
QUARANTINED: dict[str, Any] = {}
INSTALLED: dict[Any, Any] = {}
UNDISTURBED: dict[tuple[str, Goal], Any] = {}


class Mode(ABC):
    """A control plane in memory, and the runs of playbooks on it."""

    name: str
    of: ModuleType
    #: parts of the world that change
    changing: Sequence[str]

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.monkeypatch, self.folder = monkeypatch, folder
        # What is random is no difference.
        monkeypatch.setattr(beginning, "secrets", SimpleNamespace(token_hex=lambda size: "7" * size * 2))
        self.anew()

    def anew(self) -> None:
        """One that was installed, and that nobody has restored."""
        self.world: Any = self.installed()

    @abstractmethod
    def installed(self) -> Any:
        """Its world."""

    @abstractmethod
    def state(self) -> State:
        """What is on record."""

    @abstractmethod
    def keep(self, state: State) -> None:
        """Have this on record."""

    @abstractmethod
    def serving(self) -> set[str]:
        """Folders of data that members of etcd have read."""

    @abstractmethod
    def there(self) -> Any:
        """Components that run and what starts with a host, objects and files by which they run, and etcd's content."""

    def run(self, goal: Goal, **asked: Any) -> None:
        self.of.take_steps(self.world, goal, **asked)

    def come_to_a_part(self) -> None:
        """Have a part of a restore released there, and another backup that may be restored."""
        self.come_to_quarantine()
        self.run(Goal.RELEASE)
        part = replace(self.recorded(), step=PART_RELEASED, parts={"m1": ()}, aside=())
        self.keep(replace(self.state(), restore=part))
        with_another(self.monkeypatch)

    def come_to_quarantine(self) -> None:
        """Have a restore there that nobody has disturbed until its quarantine."""
        if self.name not in QUARANTINED:
            self.run(Goal.QUARANTINE)
            QUARANTINED[self.name] = {each: copied(getattr(self.world, each)) for each in self.changing}
        for each, found in QUARANTINED[self.name].items():
            setattr(self.world, each, copied(found))
        self.of.assert_quarantined(self.world)

    @contextmanager
    def killed_at(self, step: Step) -> Iterator[None]:
        """Have a run killed when this step is done, and about to be put on record."""
        note: Callable[..., None] = Restoring.note
        reached: list[Step] = []

        def instead(restoring: Restoring, taken: Step, done: str = "") -> None:
            if taken is step:
                reached.append(taken)
                raise Killed
            note(restoring, taken, done)

        with self.monkeypatch.context() as patched:
            patched.setattr(Restoring, "note", instead)
            yield
        assert reached, f"it never came to {step}"

    def recorded(self) -> RestoreState:
        found = self.state().restore
        assert found
        return found

    def before(self) -> Any:
        """What is there and what is on record of all but restores."""
        return self.there(), plain(self.state(), but=("journal", "restore"))

    def ended(self) -> Any:
        """What is there and what is on record, but for who has done it when, and for data that nobody uses."""
        state = self.state()
        journal = replace(state.journal, run="", started="", finished="done" if state.journal.finished else "")
        restore = state.restore and replace(state.restore, started="", bump=0, revision=0, generation=0, aside=())
        etcd = replace(state.etcd, generation=0)
        recorded = plain(replace(state, journal=journal, restore=restore, etcd=etcd))
        return recorded, self._with_any_generation(self.there())

    def _with_any_generation(self, there: Any) -> Any:
        """Half of new data is not used again: a run that goes on makes the next one."""
        text = f"gen-{self.state().etcd.generation}"
        return _replaced(there, text, "gen-n")


class InPods(Mode):
    """All of it in pods."""

    name, of = IN_PODS, restore_pods_in_memory
    changing = ("objects", "folders", "serving", "told")

    def installed(self) -> Any:
        found = restore_pods_in_memory.made(self.monkeypatch)
        self._install(found)
        return found

    @staticmethod
    def _install(world: Any) -> None:
        """As a run of ours leaves it: with its marks on every object, all of them on record, and nothing unfinished."""
        if INSTALLED:
            world.objects = copied(INSTALLED)
            return
        run = fake_run(restore_pods_in_memory.DOCUMENT, world, operation="restore")
        before, components = run.state.journal, [each.name for each in pod_components(run.spec)]
        run.apply_to_host_cluster(
            "install",
            lambda: [*workloads.file_set_secrets(run.instance, run.layout, run.material), *run.workloads(components)],
        )
        with run.recording():
            run.save(replace(run.state, journal=before))
        run.close()
        world.told = {"before"}
        INSTALLED.update(copied(world.objects))

    def state(self) -> State:
        return fake_run(restore_pods_in_memory.DOCUMENT, self.world).state

    def keep(self, state: State) -> None:
        run = fake_run(restore_pods_in_memory.DOCUMENT, self.world, operation="release")
        with run.recording():
            run.save(state)
        run.close()

    def serving(self) -> set[str]:
        return set(self.world.serving.values())

    def there(self) -> Any:
        served = {member: self.world.folders[member][folder] for member, folder in self.world.serving.items()}
        return self.world.running(), served, of_pods(self.world.objects)


class OnHosts(Mode):
    """All of it on hosts."""

    name, of = ON_HOSTS, restore_hosts_in_memory
    changing: Sequence[str] = ("machines", "stored", "told")

    def installed(self) -> Any:
        found = restore_hosts_in_memory.made(self.monkeypatch, self.folder)
        found.keep(replace(found.state(), endpoint_host="karmada.example.com", endpoint_type="External"))
        return found

    def state(self) -> State:
        found: State = self.world.state()
        return found

    def keep(self, state: State) -> None:
        self.world.keep(state)

    def serving(self) -> set[str]:
        return {each.serving for each in self.world.machines.values() if each.serving}

    def there(self) -> Any:
        return {
            name: (set(each.running), set(each.enabled), each.folders.get(each.serving), each.authorities)
            for name, each in self.world.machines.items()
        }


class AboveHosts(OnHosts):
    """Etcd on hosts, and the rest in pods above them."""

    name = ABOVE_HOSTS
    changing = ("machines", "objects", "told")

    def installed(self) -> Any:
        return restore_below_pods_in_memory.made(self.monkeypatch, self.folder)

    def there(self) -> Any:
        return super().there(), self.world.host.running(), of_pods(self.world.objects)


def of_pods(objects: dict[Any, Any]) -> dict[Any, Any]:
    """Objects by which pods run."""
    found = {}
    for key, live in objects.items():
        if key[1] == "Pod" or key[3] in ("prod-installer-state", "prod-installer"):
            continue
        plain = copied(live)
        for name in OF_THE_MOMENT:
            plain["metadata"].pop(name, None)
        found[key] = plain
    return found


MODES: dict[str, type[Mode]] = {each.name: each for each in (InPods, OnHosts, AboveHosts)}


def come_back_to(part: RestoreState, undone: RestoreState) -> RestoreState:
    """Record of the part when a restore upon it is undone: clients may have seen revisions of what it had begun."""
    assert undone.revision > part.revision > 0
    aside = {*undone.aside, f"gen-{undone.generation}"}
    return replace(part, aside=tuple(sorted(aside)), came_back=True, revision=undone.revision)


def plain(state: State, but: Sequence[str] = ()) -> dict[str, Any]:
    """Fields of a state, to be compared one by one; of objects that are ours the names, since each has its own UID."""
    found = {each.name: getattr(state, each.name) for each in fields(state) if each.name not in but}
    return {**found, "owned": {where: sorted(uids) for where, uids in state.owned.items()}}


def differing(found: Any, wanted: Any, where: str = "") -> list[str]:
    """Where two of these differ: a whole one is too much to read."""
    if is_dataclass(found) and is_dataclass(wanted):
        return differing(vars(found), vars(wanted), where)
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = {**found, **wanted}
        return [each for key in keys for each in differing(found.get(key), wanted.get(key), f"{where}/{key}")]
    if isinstance(found, tuple) and isinstance(wanted, tuple) and len(found) == len(wanted):
        pairs = enumerate(zip(found, wanted, strict=True))
        return [each for number, pair in pairs for each in differing(*pair, f"{where}/{number}")]
    return [] if found == wanted else [f"{where}: {found!r:.200}, not {wanted!r:.200}"]


def _replaced(found: Any, text: str, other: str) -> Any:
    if isinstance(found, dict):
        return {key: _replaced(each, text, other) for key, each in found.items()}
    if isinstance(found, list | tuple):
        return type(found)(_replaced(each, text, other) for each in found)
    return found.replace(text, other) if isinstance(found, str) else found


def by_turns(steps: Sequence[Step]) -> list[tuple[Step, str]]:
    """Each step everywhere, if every moment is asked for; else in one kind of place, the next step in the next kind.

    On hosts etcd stops with the step of what needs it; it has one of its own for runs that are killed within that.
    """
    if MOMENTS == 1:
        return [(step, mode) for step in steps for mode in ALL if (step, mode) != (Step.STOP_ETCD, ON_HOSTS)]
    modes = [ALL[number % len(ALL)] for number in range(len(steps))]
    return [(step, ABOVE_HOSTS if step is Step.STOP_ETCD else mode) for step, mode in zip(steps, modes, strict=True)]


@pytest.fixture
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mode:
    return MODES[request.param](monkeypatch, tmp_path)


def undisturbed(mode: Mode, goal: Goal) -> Any:
    """End of one that nobody disturbs, in this mode."""
    if (mode.name, goal) not in UNDISTURBED:
        mode.come_to_quarantine()
        if goal is not Goal.QUARANTINE:
            mode.run(goal)
        UNDISTURBED[mode.name, goal] = mode.ended()
        mode.anew()
    return UNDISTURBED[mode.name, goal]


@pytest.mark.parametrize(("step", "mode"), by_turns(UNTIL_QUARANTINE), indirect=["mode"])
def test_a_restore_that_is_killed_at_a_step_ends_as_an_undisturbed_one(mode: Mode, step: Step) -> None:
    wanted = undisturbed(mode, Goal.QUARANTINE)
    with mode.killed_at(step):
        mode.run(Goal.QUARANTINE)
    assert mode.world.told <= {"before"}
    mode.run(Goal.QUARANTINE)
    mode.of.assert_quarantined(mode.world)
    assert not differing(mode.ended(), wanted)


@pytest.mark.parametrize(("step", "mode"), by_turns(UNTIL_QUARANTINE), indirect=["mode"])
def test_a_restore_that_is_killed_at_a_step_is_undone(mode: Mode, step: Step) -> None:
    before = mode.before()
    with mode.killed_at(step):
        mode.run(Goal.QUARANTINE)
    mode.run(Goal.UNDO)
    mode.of.assert_undisturbed(mode.world)
    assert not differing(mode.before(), before)


@pytest.mark.parametrize(("step", "mode"), by_turns(RELEASE), indirect=["mode"])
def test_a_release_that_is_killed_at_a_step_ends_as_an_undisturbed_one(mode: Mode, step: Step) -> None:
    wanted = undisturbed(mode, Goal.RELEASE)
    mode.come_to_quarantine()
    with mode.killed_at(step):
        mode.run(Goal.RELEASE)
    mode.run(Goal.RELEASE)
    assert not differing(mode.ended(), wanted)
    assert mode.recorded().step == "Released"
    assert mode.world.told == {"before", "backup"}


@pytest.mark.parametrize(("step", "mode"), by_turns(WAY_BACK), indirect=["mode"])
def test_a_way_back_that_is_killed_at_a_step_ends_as_what_was_before(mode: Mode, step: Step) -> None:
    before = mode.before()
    mode.come_to_quarantine()
    with mode.killed_at(step):
        mode.run(Goal.UNDO)
    mode.run(Goal.UNDO)
    mode.of.assert_undisturbed(mode.world)
    assert mode.recorded().step == "Undone"
    assert not differing(mode.before(), before)


@pytest.mark.parametrize(("step", "mode"), by_turns(UNTIL_QUARANTINE), indirect=["mode"])
def test_a_restore_upon_a_part_that_is_killed_at_a_step_comes_to_its_quarantine_and_leads_back(
    mode: Mode, step: Step
) -> None:
    mode.come_to_a_part()
    part, before = mode.recorded(), mode.before()
    with mode.killed_at(step):
        mode.run(Goal.QUARANTINE, confirm=OTHER)
    mode.run(Goal.QUARANTINE, confirm=OTHER)
    found = mode.recorded()
    assert (found.step, found.backup, found.former_restore) == (Step.COMPARE, OTHER, part)
    assert mode.serving() == {f"gen-{found.generation}"}
    assert not carry_out.WRITERS & mode.world.running()
    mode.run(Goal.UNDO)
    assert mode.recorded() == come_back_to(part, found)
    assert mode.serving() == {f"gen-{part.generation}"}
    assert not differing(mode.before(), before)


@pytest.mark.parametrize(("step", "mode"), by_turns(WAY_BACK), indirect=["mode"])
def test_a_way_back_to_a_part_that_is_killed_at_a_step_ends_there(mode: Mode, step: Step) -> None:
    mode.come_to_a_part()
    part, before = mode.recorded(), mode.before()
    mode.run(Goal.QUARANTINE, confirm=OTHER)
    undone = mode.recorded()
    with mode.killed_at(step):
        mode.run(Goal.UNDO)
    mode.run(Goal.UNDO)
    assert mode.recorded() == come_back_to(part, undone)
    assert not differing(mode.before(), before)
    # Once more it has nothing to do.
    mode.run(Goal.UNDO)
    assert mode.recorded().step == PART_RELEASED
