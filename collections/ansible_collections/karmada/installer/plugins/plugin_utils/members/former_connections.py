# SPDX-License-Identifier: Apache-2.0
"""Components that hold connections to members, and start again when one of these is not what it was.

Karmada makes a connection to watch a member once for each process. It keeps it although the token in it is refused from
then on, and although the mode of the member has changed: then karmada-controller-manager would go on working beside the
agent of the member, or would not begin to watch what is there (Karmada v1.18: its informers of a member end with the
Cluster only, and its controllers look at the mode of a Cluster when a Work changes).

That they are to start again is on record before anything changes. It is part of what is rendered of them, as a number,
so that what runs without it is told from what does not, in pods and on hosts; and it is due until a run has seen it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ..api_object import Object
from ..components.state import State
from ..components.table import KARMADA_CONTROLLER_MANAGER, KARMADA_METRICS_ADAPTER, KARMADA_SEARCH, wanted_components
from ..components.types import MEMBER_NAMESPACE, pulls
from ..kube.apply import Change
from ..kube.cluster import Cluster
from ..kube.objects import Ref
from ..kube.wait import wait_until
from ..run.run import Run
from . import mode as member_mode
from . import registration

#: How long a component may take to start.
START_SECONDS = 300.0
#: What a Cluster says of the way to it.
_WAY = ("apiEndpoint", "proxyURL", registration.INSECURE)


def of_change(entry: Mapping[str, Any], live: Object, wanted: Object, *, new_token: bool) -> frozenset[str]:
    """Who holds a connection to a member that this change leaves behind: names of rows of the component table.

    ``live`` is its Cluster as it is, ``wanted`` as it is to be; ``new_token`` says that its Secret in the control plane
    gets another token or authority.
    """
    before, after = live["spec"], wanted["spec"]
    other_mode = member_mode.changes(entry, live)
    moved = any(before.get(key) != after.get(key) for key in _WAY) and not other_mode
    found = set()
    if other_mode or ((new_token or moved) and not pulls(entry)):
        found.add(KARMADA_CONTROLLER_MANAGER.name)
    if new_token or moved:
        found.add(KARMADA_SEARCH.name)
    # It connects anew by itself to another address.
    if new_token:
        found.add(KARMADA_METRICS_ADAPTER.name)
    return frozenset(found)


def is_new_token(inside: Cluster, secret: Object) -> bool:
    """Whether this Secret of the control plane gets another token or authority than it had so far."""
    former = inside.get("v1", "Secret", secret["metadata"]["name"], MEMBER_NAMESPACE)
    return bool((former or secret).get("data") != secret["data"])


def noted(run: Run, state: State, holders: Iterable[str]) -> State:
    """The state in which these components are to start again, as far as the document has them."""
    there = {component.row for component in wanted_components(run.spec)}
    due = sorted(there & set(holders))
    restarts = {**state.restarts, **{name: state.restarts.get(name, 0) + 1 for name in due}}
    return replace(state, restarts=restarts, restarts_due=tuple(sorted({*state.restarts_due, *due})))


def due(run: Run) -> tuple[str, ...]:
    """The components that are to start again and are there."""
    there = {component.row for component in wanted_components(run.spec)}
    return tuple(name for name in run.state.restarts_due if name in there)


def tell(run: Run) -> None:
    """Say who starts again, and why."""
    for name in due(run):
        run.say(f"{name} starts again, because it holds a connection to a member as it was before")


def ended(run: Run) -> None:
    """Note that all of them have started again. Only inside ``writing``."""
    run.save(replace(run.state, restarts_due=()))


def start_again_in_pods(run: Run, timeout: float = START_SECONDS) -> list[Change]:
    """Replace the pods of these components, one component after the other, each waited for.

    Raises NotReady when one does not come back: what runs goes on, and the next run tries again.
    """
    changes: list[Change] = []
    tell(run)
    for name in due(run):
        changes += run.apply_to_host_cluster(f"start {name} again", partial(run.workloads, [name]))
        if not run.check:
            workload = Ref("apps/v1", "Deployment", run.instance.object_name(name), run.namespace)
            wait_until(run.host_cluster, [workload], timeout=timeout, progress=run.say)
    if not run.check and run.state.restarts_due:
        with run.writing("note that components have started again"):
            ended(run)
    return changes
