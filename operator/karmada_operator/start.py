# SPDX-License-Identifier: Apache-2.0
"""Start and end of the operator."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.redaction import redacted
from ansible_collections.karmada.installer.plugins.plugin_utils.run_process import holder_identity

from . import jobs, kinds, leader
from .controller import Controller
from .deciding import keeper
from .events import EventSender
from .executor import Executor
from .health import Health, host_clusters
from .jobs import JobExecutor
from .kinds import Key, Lane
from .metrics import Metrics, Server
from .orders import Seen
from .probes import Probes, beside_objects
from .processes import ProcessExecutor
from .status_writer import StatusWriter
from .watch import Watcher
from .work_queue import BOUNDS

#: Seconds between two looks for orphans whose exit status nobody took.
REAP = 10.0
_LOG = logging.getLogger("karmada_operator")


class JsonLines(logging.Formatter):
    """One JSON object a line, with the object and the run where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """See ``logging.Formatter``."""
        found = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": redacted(record.getMessage()),
        }
        for name in ("object", "run"):
            if hasattr(record, name):
                found[name] = str(getattr(record, name))
        if record.exc_info:
            found["trace"] = redacted(self.formatException(record.exc_info))
        return json.dumps(found)


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Settings of this process."""
    parser = argparse.ArgumentParser(prog="karmada-operator", description=sys.modules[__name__].__doc__)
    parser.add_argument("--namespace", action="append", default=[], help="serve this one only; may be repeated")
    parser.add_argument("--selector", help="serve objects with these labels only, as one of several operators")
    parser.add_argument("--watches", type=Path, default=kinds.DEFAULT, help="table of kinds and playbooks")
    parser.add_argument("--runs", type=Path, default=Path("/run/karmada-operator"), help="folder of runs, on a tmpfs")
    parser.add_argument("--artifacts", type=Path, help="directory with artifacts that were prepared, for all objects")
    parser.add_argument("--jobs", type=Path, help="template of a Job: each run is one, and not processes of this one")
    parser.add_argument("--most-runs", type=int, default=BOUNDS[Lane.CHANGES], help="installs at once")
    parser.add_argument("--most-deletions", type=int, default=BOUNDS[Lane.DELETIONS], help="deletions at once")
    parser.add_argument("--most-restores", type=int, default=BOUNDS[Lane.RESTORES], help="restores at once")
    parser.add_argument("--most-backups", type=int, default=BOUNDS[Lane.BACKUPS], help="backups at once")
    parser.add_argument("--lease-namespace", default=os.environ.get("POD_NAMESPACE", "default"))
    parser.add_argument("--lease-name", default=leader.LEASE, help="another one for each selector")
    parser.add_argument("--listen", default="0.0.0.0", help="address of metrics and probes")  # noqa: S104 - for the kubelet
    parser.add_argument("--port", type=int, default=8080, help="0: any")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM, or until the Lease is lost."""
    settings = arguments(argv)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    stopping = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stopping.set())
    try:
        table = kinds.load(settings.watches)
        cluster = Cluster.from_kubeconfig(os.environ.get("K8S_AUTH_KUBECONFIG"), os.environ.get("K8S_AUTH_CONTEXT"))
        template = jobs.load(settings.jobs) if settings.jobs else None
    except (ValueError, OSError, ProblemsError) as error:
        _LOG.critical("cannot start: %s", error)
        return 2
    with cluster:
        executor: Executor = (
            ProcessExecutor(settings.runs, artifacts=settings.artifacts)
            if template is None
            else JobExecutor(cluster, settings.lease_namespace, settings.lease_name, template)
        )
        return _serve(settings, table, cluster, executor, stopping)


def _serve(
    settings: argparse.Namespace,
    table: dict[str, kinds.Kind],
    cluster: Cluster,
    executor: Executor,
    stopping: threading.Event,
) -> int:
    metrics, identity = Metrics(), holder_identity()
    writer = StatusWriter(cluster, table, metrics.on_status)
    events = EventSender(cluster, table, identity.partition("/")[0])

    places = settings.namespace or [None]

    def watchers(changed: Callable[[Key], None]) -> list[Watcher[Seen]]:
        def watcher(kind: kinds.Kind, place: str | None) -> Watcher[Seen]:
            keep, labels = keeper(kind), settings.selector
            return Watcher(cluster, kind.api_version, kind.kind, keep, changed, namespace=place, labels=labels)

        return [watcher(kind, place) for kind in table.values() for place in places]

    health = Health(cluster, places, opened=host_clusters(cluster))
    bounds = {
        **BOUNDS,
        Lane.CHANGES: settings.most_runs,
        Lane.DELETIONS: settings.most_deletions,
        Lane.RESTORES: settings.most_restores,
        Lane.BACKUPS: settings.most_backups,
    }
    probes = Probes(beside_objects(cluster))
    controller = Controller(
        cluster, table, watchers, executor, writer, events, metrics, health, probes=probes, bounds=bounds
    )
    leading = threading.Event()
    server = Server(
        (settings.listen, settings.port),
        metrics,
        healthy=lambda: controller.trouble() if leading.is_set() else "",
        ready=lambda: controller.not_synced() if leading.is_set() else "",
    )
    for each in (server, writer, events):
        each.start()
    if isinstance(executor, ProcessExecutor):
        threading.Thread(target=_reap, args=(executor, stopping), name="reap", daemon=True).start()
    _LOG.info("listens on port %d", server.port)

    def work(may_go_on: Callable[[], bool], leads: Callable[[], None]) -> None:
        leading.set()
        metrics.leader.set(1)
        writer.only_while(leads)
        try:
            controller.work(may_go_on)
        finally:
            # The next leader tells what is from then on.
            writer.stop()
            writer.join(20)

    kept = leader.lead(cluster, settings.lease_namespace, identity, work, stopping, name=settings.lease_name)
    metrics.leader.set(0)
    writer.stop()
    events.stop()
    events.join(10)
    server.stop()
    return 0 if kept else 1


def _reap(executor: ProcessExecutor, stopping: threading.Event) -> None:
    while not stopping.wait(REAP):
        executor.reap()
