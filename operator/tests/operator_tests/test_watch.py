# SPDX-License-Identifier: Apache-2.0
"""List and watch against an API server that misbehaves: in the end what is known is what is there."""

from __future__ import annotations

import json
import queue
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.karmada.installer.tests.unit.support.clusters import cluster_of
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi
from karmada_operator import watch, wishes
from karmada_operator.kinds import Key
from karmada_operator.orders import Seen
from karmada_operator.watch import Watcher, seen_of

GROUP = "test.example/v1"
PREFIX = f"apis/{GROUP}/widgets"
FINALIZER = "test.example/finalizer"


@pytest.fixture
def api() -> Iterator[StubApi]:
    with StubApi() as found:
        found.types[GROUP] = [{"name": "widgets", "kind": "Widget", "namespaced": True}]
        yield found


@contextmanager
def watching(api: StubApi, **options: Any) -> Iterator[tuple[Watcher[Seen], queue.Queue[Key]]]:
    changed: queue.Queue[Key] = queue.Queue()
    cluster = cluster_of(api.kubeconfig(), name="stub")
    cluster.retry_seconds = 0.2
    watcher = Watcher(cluster, GROUP, "Widget", lambda obj: seen_of(obj, FINALIZER), changed.put, **options)
    watcher.start()
    try:
        yield watcher, changed
    finally:
        watcher.stop()
        watcher.join(300)
        cluster.close()
        assert not watcher.is_alive()


def widget(name: str, generation: int = 1, namespace: str = "a", **meta: Any) -> dict[str, Any]:
    return {
        "apiVersion": GROUP,
        "kind": "Widget",
        "metadata": {"name": name, "namespace": namespace, "generation": generation, **meta},
    }


def key(name: str, namespace: str = "a") -> Key:
    return Key("Widget", namespace, name)


def generations(watcher: Watcher[Seen]) -> dict[str, int]:
    return {each.name: seen.generation for each in watcher.known() if (seen := watcher.get(each))}


def current(api: StubApi) -> dict[str, int]:
    return {name: obj["metadata"]["generation"] for (_, _, name), obj in api.objects.items()}


def test_what_is_kept_of_an_object() -> None:
    obj = widget(
        "x",
        3,
        uid="u",
        resourceVersion="7",
        finalizers=["test.example/finalizer"],
        labels={"operator.karmada.io/disable-cascading-deletion": "true"},
        annotations={wishes.PAUSED: "true", "other": "x" * 1000},
        deletionTimestamp="2026-01-01T00:00:00Z",
    )
    obj["spec"] = {"big": "x" * 1000}
    obj["status"] = {"observedGeneration": 3, "conditions": [{"type": "Ready", "status": "True"}]}
    seen = seen_of(obj, FINALIZER)
    assert (seen.uid, seen.generation, seen.version) == ("u", 3, "7")
    assert seen.claimed
    assert seen.deleting
    assert seen.keep
    assert seen.settled
    assert seen.wishes.paused
    assert "xxx" not in repr(seen)
    obj["status"]["observedGeneration"] = 2
    assert not seen_of(obj, FINALIZER).settled
    assert (seen.quarantined, seen.held) == (False, "")
    held = {"type": "Held", "status": "True", "reason": "PartReleased"}
    obj["status"] = {"phase": "Quarantined", "conditions": [*obj["status"]["conditions"], held]}
    assert (seen_of(obj, FINALIZER).quarantined, seen_of(obj, FINALIZER).held) == (True, "PartReleased")


def test_what_is_there_what_comes_and_what_goes(api: StubApi) -> None:
    api.put(PREFIX, widget("x"))
    with watching(api) as (watcher, changed):
        assert changed.get(timeout=300) == key("x")
        assert watcher.synced.is_set()
        api.put(PREFIX, widget("y"))
        assert changed.get(timeout=300) == key("y")
        api.put(PREFIX, widget("x", 2))
        assert changed.get(timeout=300) == key("x")
        assert generations(watcher) == {"x": 2, "y": 1}
        api.remove(PREFIX, "a", "x")
        assert changed.get(timeout=300) == key("x")
        assert generations(watcher) == {"y": 1}


def test_what_decides_nothing_is_told_to_nobody(api: StubApi) -> None:
    api.put(PREFIX, widget("x"))
    with watching(api) as (watcher, changed):
        assert changed.get(timeout=300) == key("x")
        for number in range(5):
            api.put(PREFIX, {**widget("x", labels={"n": str(number)}), "status": {"phase": str(number)}})
        api.put(PREFIX, widget("y"))
        assert changed.get(timeout=300) == key("y")
        assert generations(watcher) == {"x": 1, "y": 1}


def test_late_and_doubled_events_take_nothing_back(api: StubApi) -> None:
    old = api.put(PREFIX, widget("x"))
    with watching(api) as (watcher, changed):
        assert changed.get(timeout=300) == key("x")
        new = api.put(PREFIX, widget("x", 2))
        assert changed.get(timeout=300) == key("x")
        with api.changed:
            version = api.version
            # The event of the version before, the current one twice, and the end of an object that had the name before.
            late = {**old, "metadata": {**old["metadata"], "uid": "another"}}
            for kind, obj in (("MODIFIED", old), ("MODIFIED", new), ("MODIFIED", new), ("DELETED", late)):
                version += 1
                api.events.append((version, kind, obj))
            api.version = version
            api.changed.notify_all()
        api.put(PREFIX, widget("y"))
        assert changed.get(timeout=300) == key("y")
        assert generations(watcher) == {"x": 2, "y": 1}


def test_an_object_made_anew_under_its_name_is_told(api: StubApi) -> None:
    first = api.put(PREFIX, widget("x"))
    with watching(api) as (watcher, changed):
        changed.get(timeout=300)
        api.put(PREFIX, widget("x", uid="second"))
        assert changed.get(timeout=300) == key("x")
        seen = watcher.get(key("x"))
        assert seen
        assert seen.uid == "second" != first["metadata"]["uid"]


def test_versions_that_are_gone_cause_a_new_list(api: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WATCH_SECONDS", 1)
    api.put(PREFIX, widget("x"))
    api.put(PREFIX, widget("gone"))
    with watching(api) as (watcher, changed):
        until(watcher.synced.is_set)
        api.faults.append(Fault("reset", path="watch=1", times=3))
        with api.changed:
            # Nobody hears of these: the events are compacted away at once.
            api.remove(PREFIX, "a", "gone")
            api.put(PREFIX, widget("x", 5))
            api.forget()
        until(lambda: generations(watcher) == {"x": 5}, "a new list")
        assert {changed.get(timeout=300) for _ in range(4)} == {key("x"), key("gone")}


def cut(path: str) -> list[bytes]:
    return [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        b'10\r\n{"type": "ADDED"',
    ]


def nonsense(path: str) -> list[bytes]:
    body = json.dumps({"type": "ADDED", "object": {"metadata": {}}}).encode() + b"\n"
    return [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", path="widgets", status=429, headers={"Retry-After": "0"}, times=3),
        Fault("status", path="widgets", status=500, times=4),
        Fault("status", path="watch=1", status=410, times=2),
        Fault("status", path="widgets", status=403, times=2),
        Fault("reset", path="widgets", times=4),
        Fault("slow", path="widgets", seconds=0.3, times=3),
        Fault("raw", path="watch=1", pieces=cut, last=True, times=3),
        Fault("raw", path="watch=1", pieces=nonsense, last=True, times=2),
        Fault("status", path="widgets", status=200, body="<html>a proxy</html>", times=3),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}-{fault.path}",
)
def test_bad_moments_are_outlived(api: StubApi, fault: Fault) -> None:
    api.put(PREFIX, widget("x"))
    api.faults.append(Fault(**vars(fault)))
    with watching(api) as (watcher, _changed):
        until(watcher.synced.is_set, "a list")
        api.put(PREFIX, widget("y"))
        until(lambda: generations(watcher) == {"x": 1, "y": 1}, "an event")
        until(lambda: api.faults[0].times == 0, "the fault") if fault.path == "watch=1" else None
        api.put(PREFIX, widget("z"))
        until(lambda: generations(watcher) == {"x": 1, "y": 1, "z": 1}, "an event after it")


def test_a_half_open_connection_does_not_blind_it(api: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server holds the watch and says nothing, as one whose machine is gone."""
    monkeypatch.setattr(watch, "WATCH_SECONDS", -9)
    api.faults.append(Fault("hang", path="watch=1", times=1))
    with watching(api) as (watcher, _changed):
        until(lambda: api.faults[0].times == 0)
        monkeypatch.setattr(watch, "WATCH_SECONDS", 5)
        api.put(PREFIX, widget("x"))
        until(lambda: generations(watcher) == {"x": 1}, "the next watch")


def test_an_object_that_cannot_be_judged_hides_no_other(api: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = watch.seen_of

    def judged(obj: dict[str, Any], finalizer: str) -> Seen:
        if obj["metadata"]["name"] == "odd" and obj["metadata"]["generation"] > 1:
            raise KeyError("spec")
        return judge(obj, finalizer)

    monkeypatch.setitem(globals(), "seen_of", judged)
    api.put(PREFIX, widget("odd", 2))
    api.put(PREFIX, widget("well"))
    with watching(api) as (watcher, _changed):
        until(lambda: generations(watcher) == {"well": 1})
        # Also where it turns bad later, and in an event: it stays as it was known.
        api.put(PREFIX, widget("odd", 1))
        until(lambda: generations(watcher) == {"odd": 1, "well": 1})
        api.put(PREFIX, widget("odd", 2))
        api.put(PREFIX, widget("new"))
        until(lambda: generations(watcher) == {"odd": 1, "well": 1, "new": 1})
        api.put(PREFIX, widget("well", 3))
        until(lambda: generations(watcher) == {"odd": 1, "well": 3, "new": 1})


def test_it_stops_while_it_waits(api: StubApi) -> None:
    with watching(api) as (watcher, _changed):
        until(watcher.synced.is_set)


def test_a_bad_day_ends_with_what_is_there(api: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edits by chance while everything goes wrong by chance; the seed is in the output."""
    seed = random.randrange(100_000)
    print(f"{seed=}")  # noqa: T201 - shown with a failure
    chance = random.Random(seed)
    monkeypatch.setattr(watch, "WATCH_SECONDS", 1)
    monkeypatch.setattr(watch, "SHORTEST", 0.01)
    api.page = 3
    kinds = [
        lambda: Fault("reset", path="widgets"),
        lambda: Fault("status", path="widgets", status=chance.choice([429, 500, 410, 503])),
        lambda: Fault("raw", path="watch=1", pieces=cut, last=True),
        lambda: Fault("slow", path="widgets", seconds=0.05),
    ]
    with watching(api) as (watcher, _changed):
        for number in range(150):
            name = f"w{chance.randrange(8)}"
            if name in current(api) and chance.random() < 0.3:
                api.remove(PREFIX, "a", name)
            else:
                api.put(PREFIX, widget(name, number))
            if chance.random() < 0.3:
                api.faults.append(chance.choice(kinds)())
            if chance.random() < 0.1:
                api.forget()
        until(lambda: generations(watcher) == current(api), "what is there")


@pytest.mark.parametrize("host", [{}, {"namespace": "a"}, {"namespace": "b", "secretRef": {"name": "remote"}}])
def test_who_stays_at_home_or_brings_a_kubeconfig_needs_nobodys_leave(host: dict[str, object]) -> None:
    obj = {**widget("x", uid="u"), "spec": {"hostCluster": host}}
    assert seen_of(obj, FINALIZER).elsewhere == ""
