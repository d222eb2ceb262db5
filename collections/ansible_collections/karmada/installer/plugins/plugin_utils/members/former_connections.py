# SPDX-License-Identifier: Apache-2.0
"""Restarts of components that hold connections to members, after such a connection has changed.

Each process of Karmada connects to a member once to watch it. It keeps this connection although its token is refused
from then on, and although the mode of the member has changed: then karmada-controller-manager would go on working
beside the agent of the member, or would not begin to watch what exists already (Karmada v1.18: its informers of a
member end only with the Cluster, and its controllers look at the mode of a Cluster when a Work changes).

Restarts are recorded before anything changes. The count is part of the rendered component, which tells restarted
instances from others, in pods and on hosts; and it is due until a run has completed it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from ..api_object import Object
from ..components.spec import MemberEntry
from ..components.state import State
from ..components.table import KARMADA_CONTROLLER_MANAGER, KARMADA_METRICS_ADAPTER, KARMADA_SEARCH, wanted_components
from ..components.types import MEMBER_NAMESPACE
from ..kube.apply import Change
from ..kube.cluster import Cluster
from ..kube.wait import wait_until
from ..run.run import Run
from . import mode as member_mode
from . import registration

#: Time within which a component must start.
START_SECONDS = 300.0
#: Fields of a Cluster that describe the connection to it.
_WAY = ("apiEndpoint", "proxyURL", registration.INSECURE)


def of_change(entry: MemberEntry, live: Object, wanted: Object, *, new_token: bool) -> frozenset[str]:
    """Components (rows of the table) whose connection to a member becomes outdated by this change.

    ``live`` and ``wanted`` are its Cluster before and after; ``new_token`` is true if its Secret in the control plane
    gets another token or authority.
    """
    before, after = live["spec"], wanted["spec"]
    other_mode = member_mode.changes(entry, live)
    moved = any(before.get(key) != after.get(key) for key in _WAY)
    found = set()
    if other_mode or ((new_token or moved) and not entry.pulls):
        found.add(KARMADA_CONTROLLER_MANAGER.name)
    if new_token or moved:
        found.add(KARMADA_SEARCH.name)
    # It reconnects by itself to another address.
    if new_token:
        found.add(KARMADA_METRICS_ADAPTER.name)
    return frozenset(found)


def is_new_token(inside: Cluster, secret: Object) -> bool:
    """Return whether this Secret of the control plane gets another token or authority."""
    former = inside.get("v1", "Secret", secret["metadata"]["name"], MEMBER_NAMESPACE)
    return bool((former or secret).get("data") != secret["data"])


def noted(run: Run, state: State, holders: Iterable[str]) -> State:
    """State in which a restart of these components is due, if the document has them."""
    there = {component.row for component in wanted_components(run.spec)}
    due = sorted(there & set(holders))
    restarts = {**state.restarts, **{name: state.restarts.get(name, 0) + 1 for name in due}}
    return replace(state, restarts=restarts, restarts_due=tuple(sorted({*state.restarts_due, *due})))


def due(run: Run) -> tuple[str, ...]:
    """Components of the document whose restart is due."""
    there = {component.row for component in wanted_components(run.spec)}
    return tuple(name for name in run.state.restarts_due if name in there)


def tell(run: Run) -> None:
    """Report the components that restart, and why."""
    for name in due(run):
        run.say(f"{name} starts again, because it holds a connection to a member as it was before")


def ended(run: Run) -> None:
    """Record that no restart is due any more. Only inside ``writing``."""
    run.save(replace(run.state, restarts_due=()))


def start_again_in_pods(run: Run, timeout: float = START_SECONDS) -> list[Change]:
    """Replace the pods of these components, one component after the other, each waited for.

    Raises NotReady when one does not become ready: its old pods keep running, and the next run tries again.
    """
    changes: list[Change] = []
    tell(run)
    for name in due(run):
        changes += run.apply_to_host_cluster(f"start {name} again", partial(run.workloads, [name]))
        if not run.check:
            wait_until(run.host_cluster, [run.workload(name)], timeout=timeout, progress=run.say)
    if not run.check and run.state.restarts_due:
        with run.writing("note that components have started again"):
            ended(run)
    return changes
