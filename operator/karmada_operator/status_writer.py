# SPDX-License-Identifier: Apache-2.0
"""Writer of status: what is told of objects is written by server-side apply, only when it differs, and not too often.

An object is read once, before its first write, because conditions keep the time of their last transition.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, Conflict, Invalid, NotFound
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.lease import LockLost
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError

from .kinds import Key, Kind
from .status import Told, composed

FIELD_MANAGER = "karmada-operator"
#: Seconds between two writes for one object.
BETWEEN = 2.0
#: So many times as long it takes from one write to the next that only has another step of the same phase to tell: what
#: matters, as the end of a run, can be written at once then.
PASSING = 2.5
#: Attempts in a row after which the pause before the next one does not double any more; the first is half of BETWEEN.
DOUBLINGS = 5
#: Seconds that one request may take, unless the operator ends.
PATIENCE = 15.0
_LOG = logging.getLogger(__name__)


@dataclass
class _Page:
    """Status of one object: as it is to be, as it was written last, and when.

    It may be written again from ``free`` on, and is to be at ``due``.
    """

    uid: str
    told: Told
    former: dict[str, Any] | None = None
    written: float = float("-inf")
    free: float = 0.0
    #: As it was read.
    first: dict[str, Any] | None = None
    due: float = 0.0
    pending: bool = True
    #: Attempts in a row that have failed.
    failures: int = 0


class StatusWriter(threading.Thread):
    """Thread that writes what is told, the newest only, at most once in BETWEEN seconds for an object.

    What somebody waits for, as the end of a run, does not wait for that: two writes may follow each other at once.
    """

    def __init__(
        self,
        cluster: Cluster,
        kinds: Mapping[str, Kind],
        on_status: Callable[[Key, Mapping[str, Any]], None] = lambda _key, _status: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name="status", daemon=True)
        # One that cannot be written now must not keep the others waiting: its next attempt has its own time.
        self._cluster = cluster.with_patience(retry_seconds=0.0, read_seconds=PATIENCE)
        self._last = cluster.with_patience(retry_seconds=cluster.retry_seconds)
        self._kinds, self._on_status, self._clock = kinds, on_status, clock
        self._changed = threading.Condition()
        self._pages: dict[Key, _Page] = {}
        self._over = False

    def only_while(self, leads: Callable[[], None]) -> None:
        """Ask before each write, and write nothing any more once that raises LockLost: another one tells now."""
        self._cluster.before_write = self._last.before_write = leads

    def tell(
        self, key: Key, uid: str, change: Callable[[Told], Told], *, passing: bool = False, awaited: bool = False
    ) -> None:
        """Change what is told of an object; ``passing``: it can wait a little, unless it is another phase.

        ``awaited``: it is written at once, and the next write is so much later; but a write that failed has its time.
        """
        with self._changed:
            page = self._pages.get(key)
            if page is None or page.uid != uid:
                page = self._pages[key] = _Page(uid, Told())
            found = change(page.told)
            if found != page.told or page.former is None:
                slow = passing and found.phase == page.told.phase and page.former is not None
                free = self._clock() if awaited and not page.failures else page.free
                due = max(free, page.written + PASSING * BETWEEN if slow else 0.0)
                page.due = min(page.due, due) if page.pending else due
                page.told, page.pending = found, True
                self._changed.notify_all()

    def forget(self, key: Key) -> None:
        """Drop an object that is gone."""
        with self._changed:
            self._pages.pop(key, None)

    def stop(self) -> None:
        """Write what is pending once more, and end."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def run(self) -> None:
        while True:
            with self._changed:
                now = self._clock()
                pending = {key: page for key, page in self._pages.items() if page.pending}
                ready = [key for key, page in pending.items() if page.due <= now or self._over]
                if not ready:
                    if self._over:
                        return
                    self._changed.wait(min((each.due for each in pending.values()), default=now + 60) - now)
                    continue
            for key in ready:
                self._write(key)

    def _write(self, key: Key) -> None:
        with self._changed:
            page = self._pages.get(key)
            if page is None:
                return
            told, page.pending, page.written = page.told, False, self._clock()
            page.free = page.due = max(page.free, page.written) + BETWEEN
            cluster = self._last if self._over else self._cluster
        kind = self._kinds[key.kind]
        try:
            if page.former is None:
                found = cluster.get(kind.api_version, kind.kind, key.name, key.namespace) or {}
                page.former = page.first = found.get("status") or {}
            status = composed(page.former, told, datetime.now(UTC), kind.status_fields, first=page.first)
            if status != page.former:
                metadata = {"name": key.name, "namespace": key.namespace, "uid": page.uid}
                obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "status": status}
                cluster.apply_status(obj, field_manager=FIELD_MANAGER)
                page.former = status
            with self._changed:
                page.failures = 0
                if self._pages.get(key) is page:
                    self._on_status(key, status)
        except (NotFound, Conflict):
            # It is gone, or another one has its name: the watch tells.
            self.forget(key)
        except Invalid as error:
            # No repetition mends it; what is told next may.
            _LOG.error("the status of %s was refused: %s", key, error)
        except LockLost as error:
            _LOG.warning("the status of %s is for another operator to tell: %s", key, error)
            with self._changed:
                self._over = True
                self._pages.clear()
        except (ApiError, ProblemsError) as error:
            _LOG.warning("the status of %s could not be written: %s", key, error)
            self._again(page)
        except Exception:  # noqa: BLE001 - see below
            # One object whose status meets a defect must not keep the others from having theirs told.
            _LOG.exception("the status of an object could not be written", extra={"object": str(key)})
            self._again(page)

    def _again(self, page: _Page) -> None:
        with self._changed:
            page.pending, page.failures = not self._over, page.failures + 1
            page.free = page.due = self._clock() + BETWEEN / 2 * 2.0 ** min(page.failures - 1, DOUBLINGS)
