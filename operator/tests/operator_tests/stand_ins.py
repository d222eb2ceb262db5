# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the operator: a kind of its own on a stub API server, and runs that end when a test says so."""

from __future__ import annotations

import queue
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.run import phases
from ansible_collections.karmada.installer.tests.unit.support import moments
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi
from karmada_operator import work_queue
from karmada_operator.controller import Controller
from karmada_operator.deciding import keeper
from karmada_operator.events import EventSender
from karmada_operator.executor import Ending, Left, LeftBehind, Outcome, RunSpec, Task
from karmada_operator.health import Health, host_clusters
from karmada_operator.kinds import Key, Kind, Lane
from karmada_operator.metrics import Metrics
from karmada_operator.orders import Seen
from karmada_operator.probes import Probes
from karmada_operator.status_writer import StatusWriter
from karmada_operator.watch import Watcher

GROUP = "test.example/v1"
PREFIX = f"apis/{GROUP}/widgets"
EVENTS = "apis/events.k8s.io/v1/events"
FINALIZER = "test.example/finalizer"
KIND = Kind(GROUP, "Widget", "install.yml", FINALIZER, "remove.yml")
#: Status that a run reports of a control plane that works.
READY = {
    "phase": "Completed",
    "observedGeneration": 1,
    "conditions": [{"type": "Ready", "status": "True", "reason": "AllReady", "message": ""}],
    "members": [{"name": "m1", "ready": True}, {"name": "m2", "ready": False}],
    "certificates": [{"name": "ca", "notAfter": "2027-01-01T00:00:00Z"}],
}
BOUNDS = {**work_queue.BOUNDS, Lane.QUICK: 4, Lane.CHANGES: 3}


def widget(name: str, generation: int = 1, namespace: str = "a", **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": GROUP,
        "kind": "Widget",
        "metadata": {"name": name, "namespace": namespace, "generation": generation, **meta},
    }


def playbook(folder: Path, tasks: str) -> str:
    """Path of a playbook with these tasks; its host is implicit, as in the first play of the collection's playbooks."""
    path = folder / "play.yml"
    head = "- name: P\n  hosts: localhost\n  gather_facts: false\n  tasks:\n"
    path.write_text(head + textwrap.indent(textwrap.dedent(tasks), "    "))
    return str(path)


def alive(argument: str) -> list[int]:
    """Processes anywhere that have this argument."""
    return _with_argument(lambda each: each == argument)


def alive_below(folder: Path) -> list[int]:
    """Processes anywhere with an argument that is this folder or something in it."""
    return _with_argument(lambda each: f"{each}/".startswith(f"{folder}/"))


def _with_argument(wanted: Callable[[str], bool]) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                if any(map(wanted, (entry / "cmdline").read_text().split("\0"))) and stat[0] != "Z":
                    found.append(int(entry.name))
    return found


def edited(api: StubApi, name: str, namespace: str = "a", **meta: Any) -> None:
    """Change the metadata of an object, as its user; what others wrote stays."""
    with api.changed:
        live = api.objects[PREFIX, namespace, name]
        api.put(PREFIX, {**live, "metadata": {**live["metadata"], **meta}})


def live(api: StubApi, name: str, namespace: str = "a") -> dict[str, Any]:
    return api.objects.get((PREFIX, namespace, name), {})


def condition(api: StubApi, kind: str, name: str = "x", namespace: str = "a") -> str:
    """Status and reason of a condition, as ``True AllReady``."""
    for each in live(api, name, namespace).get("status", {}).get("conditions", ()):
        if each["type"] == kind:
            return f"{each['status']} {each['reason']}"
    return ""


def reasons(api: StubApi) -> list[str]:
    """Reasons of all Events, in the order in which they were sent."""
    return [obj["reason"] for (prefix, _, _), obj in sorted(api.objects.items(), key=_version) if prefix == EVENTS]


def phase(api: StubApi) -> object:
    return live(api, "x").get("status", {}).get("phase")


def _version(item: tuple[tuple[str, str, str], dict[str, object]]) -> int:
    return int(item[1]["metadata"]["resourceVersion"])  # type: ignore[index]  # an API object


@dataclass
class FakeRun:
    """A run that lasts until ``end`` or ``cancel``."""

    spec: RunSpec
    said: queue.Queue[Task | Ending | LeftBehind] = field(default_factory=queue.Queue)
    cancelled: str = ""
    over: bool = False

    def follow(self) -> Iterator[Task | Ending]:
        while True:
            found = self.said.get(timeout=2 * moments.IN_VAIN_SECONDS)
            if isinstance(found, LeftBehind):
                raise found
            yield found
            if isinstance(found, Ending):
                return

    def task(self, role: str) -> None:
        self.said.put(Task("Play", role, f"does {role}", phases.begun(role, "", "install")))

    def end(self, outcome: Outcome = Outcome.SUCCEEDED, **more: Any) -> None:
        self.over = True
        self.said.put(Ending(outcome, **more))

    def leave(self) -> None:
        """Go on, as a Job does when its operator ends."""
        self.over = True
        self.said.put(LeftBehind(f"{self.spec.run_id} goes on"))

    def cancel(self, why: str) -> None:
        self.cancelled = why
        self.end(Outcome.CANCELLED, message=why)


class FakeExecutor:
    """Hands every run to the test, or ends it at once by ``at_once``."""

    def __init__(self) -> None:
        self.started: queue.Queue[FakeRun] = queue.Queue()
        self.at_once: Callable[[FakeRun], object] | None = None
        self.under_way: list[FakeRun] = []
        self.most = 0
        self.guard = threading.Lock()
        self.order: list[str] = []
        #: what an earlier operator has started
        self.left_over: list[Left] = []
        self._closed = False

    def start(self, spec: RunSpec) -> FakeRun:
        run = FakeRun(spec)
        with self.guard:
            if self._closed:
                raise OSError("the operator ends")
            # Of one control plane nothing is worked on side by side.
            instances = [each.spec.deployment or each.spec.name for each in self.under_way if not each.over]
            assert (spec.deployment or spec.name) not in instances
            self.order.append(spec.name)
            self.under_way.append(run)
        if self.at_once:
            self.at_once(run)
        self.started.put(run)
        return run

    def left(self) -> list[Left]:
        return self.left_over

    def close(self) -> None:
        with self.guard:
            self._closed, under_way = True, list(self.under_way)
        for each in under_way:
            each.cancel("the operator ends")

    def next(self) -> FakeRun:
        """The next run that is started; the test waits for it."""
        return self.started.get(timeout=moments.IN_VAIN_SECONDS)


@dataclass
class Operator:
    """An operator at work."""

    controller: Controller
    executor: FakeExecutor
    metrics: Metrics
    leading: threading.Event


@contextmanager
def operating(
    cluster: Cluster, executor: FakeExecutor | None = None, kinds: Mapping[str, Kind] | None = None
) -> Iterator[Operator]:
    kinds = kinds or {"Widget": KIND}
    executor, metrics, leading = executor or FakeExecutor(), Metrics(), threading.Event()
    writer = StatusWriter(cluster, kinds, metrics.on_status)
    events = EventSender(cluster, kinds, "test")

    def watchers(changed: Callable[[Key], None]) -> list[Watcher[Seen]]:
        return [Watcher(cluster, GROUP, name, keeper(kind), changed) for name, kind in kinds.items()]

    health, probes = Health(cluster, [None], opened=host_clusters(cluster)), Probes(lambda *_: None)
    controller = Controller(
        cluster, kinds, watchers, executor, writer, events, metrics, health, probes=probes, bounds=BOUNDS
    )
    working = threading.Thread(target=controller.work, args=(lambda: not leading.is_set(),))
    for thread in (writer, events, working):
        thread.start()
    try:
        yield Operator(controller, executor, metrics, leading)
    finally:
        leading.set()
        for each in executor.under_way:
            each.end()
        writer.stop()
        events.stop()
        for thread in (working, writer, events):
            thread.join(300)
            assert not thread.is_alive(), thread.name
