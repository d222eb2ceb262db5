# SPDX-License-Identifier: Apache-2.0
"""Figures for monitoring, and the HTTP server that gives them, beside probes of this process."""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups, restores
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from . import schedules
from .kinds import Key, Lane

_LOG = logging.getLogger(__name__)
_OBJECT = ("kind", "namespace", "name")
#: ``status.membersReady``, as 2/3.
_COUNTS = re.compile("([0-9]+)/([0-9]+)")
_SECONDS = (1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1800, 3600)


def members_of(status: Mapping[str, Any]) -> tuple[int, int]:
    """Count of the members that are ready, and of all: their list in a status has room for some, broken ones first."""
    if found := _COUNTS.fullmatch(str(status.get("membersReady") or "")):
        return int(found[1]), int(found[2])
    listed = [bool(each.get("ready")) for each in status.get("members") or ()]
    return sum(listed), len(listed)


class Metrics:
    """All figures of one operator."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        gauge, counter = partial(Gauge, registry=self.registry), partial(Counter, registry=self.registry)
        histogram = partial(Histogram, buckets=_SECONDS, registry=self.registry)
        ours, theirs = "karmada_operator_", "karmada_instance_"
        self.leader = gauge(f"{ours}leader", "1 in the process that leads and starts runs, 0 in the others.")
        self.runs = counter(
            f"{ours}runs",
            "Runs that have ended. Outcome: succeeded, failed, cancelled, timed_out, lost (ended without a word).",
            ("kind", "operation", "outcome"),
        )
        self.run_seconds = histogram(
            f"{ours}run_seconds",
            "Seconds from the start of a run, or from where this process found it, to its end.",
            ("kind", "operation"),
        )
        self.run_memory = gauge(
            f"{ours}run_memory_peak_mib",
            "Most memory that all processes of the last run had at once, in MiB.",
            ("kind",),
        )
        self.waited = histogram(
            f"{ours}queue_wait_seconds",
            "Seconds that objects waited for their turn, beyond the time they were due.",
            ("lane",),
        )
        self.depth = gauge(f"{ours}queue_depth", "Objects that are due and wait.", ("lane",))
        self.active = gauge(
            f"{ours}queue_active",
            "Objects that are worked on; in other lanes than quick, with a run that is under way or about to be.",
            ("lane",),
        )
        self.retries = counter(f"{ours}retries", "Runs for what failed just before.", ("kind",))
        self.errors = counter(
            f"{ours}api_errors", "Turns of objects that ended in a request to an API server that failed.", ("kind",)
        )
        self.last_success = gauge(
            f"{ours}last_success_timestamp_seconds",
            "End of the last run that succeeded, since this process leads.",
            _OBJECT,
        )
        self.ready = gauge(f"{theirs}ready", "1 if condition Ready is True, else 0.", _OBJECT)
        self.members = gauge(
            f"{theirs}members",
            "Member clusters that are ready (ready=true), and those that are not.",
            (*_OBJECT, "ready"),
        )
        self.expiry = gauge(
            f"{theirs}certificate_expiry_timestamp_seconds",
            "When the first certificate expires, as the last report had it.",
            _OBJECT,
        )
        self.backup_age = gauge(
            "karmada_backup_age_seconds", "Age of the newest verified backup; absent before there is one.", _OBJECT
        )
        self.backup_healthy = gauge(
            "karmada_backup_healthy",
            "1 if a verified backup is young enough (condition BackupHealthy), else 0.",
            _OBJECT,
        )
        self.backup_size = gauge("karmada_backup_size_bytes", "Size of the newest verified backup in bytes.", _OBJECT)
        self.backup_seconds = gauge(
            "karmada_backup_duration_seconds", "Seconds that the newest verified backup took.", _OBJECT
        )

    def on_status(self, key: Key, status: Mapping[str, Any]) -> None:
        """Take the figures out of a status that was written."""
        conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
        if key.kind == backups.KIND:
            self._on_backups(key, status, conditions)
            return
        if key.kind == restores.KIND:
            return
        self.ready.labels(*key).set(conditions.get("Ready") == "True")
        ready, total = members_of(status)
        for label, count in (("true", ready), ("false", total - ready)):
            self.members.labels(*key, label).set(count)
        ends = [datetime.fromisoformat(each["notAfter"]).timestamp() for each in status.get("certificates") or ()]
        if ends:
            self.expiry.labels(*key).set(min(ends))

    def _on_backups(self, key: Key, status: Mapping[str, Any], conditions: Mapping[str, str]) -> None:
        self.backup_healthy.labels(*key).set(conditions.get("BackupHealthy") == "True")
        newest = status.get("newest") or {}
        begun = schedules.moment_of(newest.get("startTime"))
        if begun is None:
            return
        start = begun.timestamp()
        # It grows older between two writes.
        self.backup_age.labels(*key).set_function(lambda: max(0.0, time.time() - start))
        self.backup_size.labels(*key).set(newest["sizeBytes"])
        self.backup_seconds.labels(*key).set(newest["durationSeconds"])

    def forget(self, key: Key) -> None:
        """Drop the figures of an object that is gone."""
        of_backups = (self.backup_age, self.backup_healthy, self.backup_size, self.backup_seconds)
        for each in (self.ready, self.expiry, self.last_success, *of_backups):
            each.remove_by_labels(dict(zip(_OBJECT, key, strict=True)))
        self.members.remove_by_labels(dict(zip(_OBJECT, key, strict=True)))

    def of_queue(self, depth: Mapping[Lane, int], active: Mapping[Lane, int]) -> None:
        """Set the figures of the queue."""
        for lane in Lane:
            self.depth.labels(lane.value).set(depth[lane])
            self.active.labels(lane.value).set(active[lane])


Probe = Callable[[], str]


class Server(threading.Thread):
    """``/metrics``, ``/healthz`` and ``/readyz``. A probe returns what is wrong, empty if nothing is."""

    def __init__(self, address: tuple[str, int], metrics: Metrics, *, healthy: Probe, ready: Probe) -> None:
        super().__init__(name="http", daemon=True)
        pages: dict[str, Callable[[], tuple[int, str, bytes]]] = {
            "/metrics": lambda: (200, CONTENT_TYPE_LATEST, generate_latest(metrics.registry)),
            "/healthz": lambda: _probed(healthy()),
            "/readyz": lambda: _probed(ready()),
        }
        self._server = _Listener(address, type("Handler", (_Handler,), {"pages": pages}))
        self.port = int(self._server.server_address[1])

    def run(self) -> None:
        self._server.serve_forever()

    def stop(self) -> None:
        """Close the server."""
        self._server.shutdown()
        self._server.server_close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - as in the class above it
        """Log what went wrong as one line; that who asked did not wait for the answer is no news."""
        if not isinstance(sys.exception(), OSError):
            _LOG.exception("a page could not be shown to %s", client_address[0])


class _Handler(BaseHTTPRequestHandler):
    pages: Mapping[str, Callable[[], tuple[int, str, bytes]]]
    timeout = 10.0

    def do_GET(self) -> None:
        page = self.pages.get(self.path.partition("?")[0])
        code, kind, body = page() if page else (404, "text/plain", b"not found\n")
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Probes every few seconds are no news."""


def _probed(trouble: str) -> tuple[int, str, bytes]:
    return (503, "text/plain", f"{trouble}\n".encode()) if trouble else (200, "text/plain", b"ok\n")
