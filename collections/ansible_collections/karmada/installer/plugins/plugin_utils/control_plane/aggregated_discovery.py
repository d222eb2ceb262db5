# SPDX-License-Identifier: Apache-2.0
"""Discovery of the aggregated API by API servers, before controllers start that depend on it.

An API server that starts reads its resources at once, often before it knows the Service that leads to them, and then
not for a minute, though it passes on requests meanwhile (``ApiResources.unread_versions``). A controller manager that
starts in this minute finds no Clusters and drops what it is told of Works (WorkWithinPushClusterPredicate of Karmada,
in pkg/util/helper/predicate.go): what nobody changes after that does not come to its member for hours.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from ..components.table import (
    KARMADA_AGGREGATED_APISERVER,
    KARMADA_APISERVER,
    KARMADA_CONTROLLER_MANAGER,
    KARMADA_SCHEDULER,
)
from ..document import overlay
from ..kube.apply import Change, compare
from ..kube.objects import Ref
from ..run.run import Run
from . import bootstrap, differences, probes

#: Annotation of the APIService. Any change of that object makes each API server read the resources again.
READ_AGAIN = "installer.karmada.io/read-again"
#: An API server reads them again by itself after one minute; clocks of nodes may differ by the rest.
_LATELY = timedelta(seconds=90)
#: Time for what an API server is reading already.
_READING_SECONDS = 1.0
_LOOK_SECONDS = 0.25


def bring_up_to_date(run: Run, registered: Iterable[Change], timeout_seconds: float) -> None:
    """Have all API servers read the resources again, if one may not know them and controllers in pods start next.

    ``registered``: changes that this run has made to APIServices, after which they read as well. What is written for it
    is taken back. Raises ProblemsError if the resources are not known in time.
    """
    ref = next(each for each in bootstrap.of_component(KARMADA_AGGREGATED_APISERVER.name) if each.kind == "APIService")
    reads = any(each.ref == ref and each.action != "unchanged" for each in registered)
    if _is_known(run) and (reads or not _another_may_not_know(run)):
        return
    if not _controllers_start(run):
        return
    run.say(f"having the API servers read the resources of {probes.AGGREGATED} again")
    with _changed(run, ref):
        servers = run.servers(KARMADA_AGGREGATED_APISERVER.name)
        probes.aggregated_api_is_found(run.control_plane, timeout_seconds, run.say, servers)


def _is_known(run: Run) -> bool:
    """Look for as long as an API server may need to read."""
    end = time.monotonic() + _READING_SECONDS
    while probes.not_found(run.control_plane):
        if time.monotonic() > end:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _another_may_not_know(run: Run) -> bool:
    """Return whether there are several API servers in pods, of which only one has answered, and one is new."""
    pods = run.host_cluster.list("v1", "Pod", run.namespace, labels=run.instance.pod_selector(KARMADA_APISERVER.name))
    if len(pods) < 2:
        return False
    begin = datetime.now(UTC) + run.host_cluster.clock_ahead() - _LATELY
    started = [
        ((container.get("state") or {}).get("running") or {}).get("startedAt")
        for pod in pods
        for container in (pod.get("status") or {}).get("containerStatuses") or []
    ]
    return any(datetime.fromisoformat(each) > begin for each in started if each)


def _controllers_start(run: Run) -> bool:
    """Return whether controllers or schedulers are to become others than they are, or are not ready."""
    objects = run.workloads([KARMADA_CONTROLLER_MANAGER.name, KARMADA_SCHEDULER.name])
    return any(differences.differing(compare(run.host_cluster, overlay.laid_over(objects, run.overlays))))


@contextmanager
def _changed(run: Run, ref: Ref) -> Iterator[None]:
    """Keep the APIService another one than it was."""

    def annotate(value: str | None) -> None:
        patch = {"metadata": {"annotations": {READ_AGAIN: value}}}
        run.control_plane.patch_merge(ref.api_version, ref.kind, ref.name, None, patch)

    with run.writing("control plane: discovery of the aggregated API"):
        annotate(datetime.now(UTC).isoformat(timespec="milliseconds"))
        try:
            yield
        finally:
            annotate(None)
