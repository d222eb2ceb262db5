# SPDX-License-Identifier: Apache-2.0
"""Events (events.k8s.io) about objects. Equal ones within ten minutes become one series."""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, NotFound
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError

from .executor import told
from .kinds import Key, Kind

API_VERSION, KIND = "events.k8s.io/v1", "Event"
CONTROLLER = "installer.karmada.io/operator"
#: Seconds for which an equal event continues a series.
SERIES = 600.0
#: Events that wait to be sent; more are dropped, because nothing rests on them.
MOST = 1000
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Event:
    """Something to tell about an object; ``reason`` in CamelCase, ``note`` a sentence without secrets."""

    key: Key
    uid: str
    reason: str
    note: str
    warning: bool = False


@dataclass
class _Series:
    name: str
    count: int
    last: float


class EventSender(threading.Thread):
    """Thread that sends events in their order. ``instance`` names this process."""

    def __init__(
        self, cluster: Cluster, kinds: Mapping[str, Kind], instance: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(name="events", daemon=True)
        self._cluster, self._kinds, self._instance, self._clock = cluster, kinds, instance[:128], clock
        self._waiting: queue.Queue[Event | None] = queue.Queue(MOST)
        self._series: dict[Event, _Series] = {}

    def send(self, key: Key, uid: str, reason: str, note: object, *, warning: bool = False) -> None:
        """Queue an event; returns at once."""
        try:
            self._waiting.put_nowait(Event(key, uid, reason, told(note), warning))
        except queue.Full:
            _LOG.warning("too many events: one of %s is dropped", key)

    def stop(self) -> None:
        """End when everything that waits was sent."""
        self._waiting.put(None)

    def run(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._send(event)
            except (ApiError, ProblemsError) as error:
                _LOG.warning("an event of %s could not be sent: %s", event.key, error)
            except Exception:  # noqa: BLE001 - see below
                # Those of other objects are to be sent all the same.
                _LOG.exception("an event could not be sent", extra={"object": str(event.key)})

    def _send(self, event: Event) -> None:
        now = self._clock()
        self._series = {each: series for each, series in self._series.items() if now - series.last < SERIES}
        series = self._series.get(event)
        if series is not None:
            series.count, series.last = series.count + 1, now
            patch = {"series": {"count": series.count, "lastObservedTime": _now()}}
            try:
                self._cluster.patch_merge(API_VERSION, KIND, series.name, event.key.namespace, patch)
            except NotFound:
                # The API server forgets events after an hour, or somebody deleted it.
                del self._series[event]
            else:
                return
        obj = self._object(event)
        self._cluster.create(obj)
        self._series[event] = _Series(obj["metadata"]["name"], 1, now)

    def _object(self, event: Event) -> dict[str, Any]:
        kind, moment = self._kinds[event.key.kind], _now()
        unique = hashlib.sha256(f"{event}{self._instance}{moment}".encode()).hexdigest()[:16]
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": f"{event.key.name[:200]}.{unique}", "namespace": event.key.namespace},
            "eventTime": moment,
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "reason": event.reason,
            "type": "Warning" if event.warning else "Normal",
            "note": event.note,
            "regarding": {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "namespace": event.key.namespace,
                "name": event.key.name,
                "uid": event.uid,
            },
        }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
