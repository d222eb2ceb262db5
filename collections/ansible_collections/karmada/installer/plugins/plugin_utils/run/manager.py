# SPDX-License-Identifier: Apache-2.0
"""Object that manages an instance, and whether a run may work on what another one manages.

An instance is managed by the KarmadaDeployment object from which its last run started, if that was an object: the state
records it when the journal opens. A run from a file is refused as long as that object exists and is not paused, and a
run from another object as long as it exists. Preflight asks first. The journal asks again under the lock, because two
runs may have passed preflight side by side.

Before that, the object of a run has to be in the cluster that its kubeconfig leads to: an inventory that was stored may
be used with another credential than it was made with, and the control plane would be made where nobody asked for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..components.state import Manager, State
from ..document.manifest import API_VERSION, GROUP, KIND
from ..kube.cluster import Cluster
from ..kube.errors import ApiError, Forbidden
from ..problems import Problem, ProblemsError, Reason

if TYPE_CHECKING:
    from .run import Run

#: Variable by which a run confirms that an object manages the instance no more.
CONFIRMATION = "karmada_confirm_manager"
#: Annotation with which nothing is done for an object.
PAUSED = f"{GROUP}/paused"
#: Label that keeps the instance when its object is deleted.
KEEP_LABEL = f"{GROUP}/disable-cascading-deletion"
#: Seconds for which a cluster that does not answer is asked again.
PATIENCE = 5.0


@dataclass(frozen=True)
class Verdict:
    """``problems`` keep the run from writing; ``manager`` is recorded if there are none."""

    manager: Manager
    problems: tuple[Problem, ...] = ()


def is_new(run: Run, state: State) -> bool:
    """Return whether a run from an object has to record that this object manages the instance."""
    return run.connection.object_uid is not None and state.manager != _own(run, state.manager)


def recorded(run: Run, state: State) -> Manager:
    """Manager to record when this run opens the journal.

    Raises ProblemsError if another one manages the instance, or if this run's own object is not at home.
    """
    if away := not_at_home(run):
        raise ProblemsError(away)
    found = verdict(run, state)
    if found.problems:
        raise ProblemsError(found.problems)
    return found.manager


def not_at_home(run: Run) -> tuple[Problem, ...]:
    """Problem if the object of this run is not in the cluster where it is looked for, or has another UID there.

    None for a run from a file, and for an account that may not read the object, which no installation needs to. Raises
    ApiError if the cluster does not answer.
    """
    uid, metadata = run.connection.object_uid, run.deployment["metadata"]
    if uid is None:
        return ()
    namespace, name, place = metadata["namespace"], metadata["name"], home(run)
    try:
        live = place.with_patience(retry_seconds=PATIENCE).get(API_VERSION, KIND, name, namespace)
    except Forbidden:
        return ()
    found = live["metadata"]["uid"] if live else ""
    if found == uid:
        return ()
    made = f"from which the inventory was made ({uid})"
    return (
        Problem(
            what=f"{KIND} {namespace}/{name} is another object there ({found}) than the one {made}"
            if live
            else f"{KIND} {namespace}/{name}, {made}, is not there",
            where=f"{place.name} at {place.access.server}",
            remedy="Use the kubeconfig with which the inventory was made. In AWX, give the job template and the "
            "inventory source the same credential. If the object was deleted or made anew since, update the inventory.",
            reason=Reason.DOCUMENT_CHANGED if live else Reason.DOCUMENT_NOT_FOUND,
        ),
    )


def verdict(run: Run, state: State | None) -> Verdict:
    """Verdict on this run by the object that the state names, which is looked at only if it is not the run's own."""
    before = state.manager if state else Manager()
    ours = _own(run, before)
    if before.uid in ("", ours.uid):
        return Verdict(ours)
    if run.confirmed_manager == before.uid:
        return Verdict(ours)
    try:
        place = home(run)
        live = place.with_patience(retry_seconds=PATIENCE).get(API_VERSION, KIND, before.name, before.namespace)
        here = before.cluster in ("", _uid_of(place))
    except (ApiError, ProblemsError) as error:
        return Verdict(before, (_unknown(run, before, "; ".join(str(each).rstrip(".") for each in error.problems)),))
    uid = live["metadata"]["uid"] if live else ""
    if live and (uid == before.uid or (here and uid != ours.uid)):
        paused = (live["metadata"].get("annotations") or {}).get(PAUSED) == "true"
        # It goes on with the instance when the pause is over, so it stays on record.
        return Verdict(before, () if paused and not ours.uid else (_managed(run, before, ours),))
    if not here:
        return Verdict(before, (_unknown(run, before, f"{place.access.server} is another cluster"),))
    # It is gone: nothing else can have its name, not even the object of this run.
    return Verdict(ours)


def _own(run: Run, before: Manager) -> Manager:
    """Object from which this run has its document; empty if it has a file."""
    uid, metadata = run.connection.object_uid, run.deployment["metadata"]
    if uid is None:
        return Manager()
    found = Manager(metadata["namespace"], metadata["name"], uid, _uid_of(home(run)))
    # An account that may not read it does not make it unknown.
    return replace(found, cluster=before.cluster) if before.uid == uid and not found.cluster else found


def home(run: Run) -> Cluster:
    """Cluster that has the object of this run, or that its inventory source names."""
    return run.host_cluster if run.place.host_cluster_is_home else run.home


def is_in_host_cluster(run: Run) -> bool:
    """Return whether the object of this run is in the host cluster, though another kubeconfig may lead there."""
    there = home(run)
    if there is run.host_cluster:
        return True
    uid = _uid_of(run.host_cluster)
    return bool(uid) and uid == _uid_of(there)


def _uid_of(cluster: Cluster) -> str:
    """UID of the namespace kube-system; empty if the account may not read it."""
    try:
        found = cluster.get("v1", "Namespace", "kube-system")
    except Forbidden:
        return ""
    return str(found["metadata"]["uid"]) if found else ""


def _managed(run: Run, manager: Manager, ours: Manager) -> Problem:
    which, source = ("one of the two", f"the object {ours.namespace}/{ours.name}") if ours.uid else ("it", "a file")
    delete = f"delete {which} with the label {KEEP_LABEL}=true, which keeps the control plane"
    pause = f"kubectl annotate kmd --namespace {manager.namespace} {manager.name} {PAUSED}=true"
    by_file = f"Change that object instead, pause it before a run from a file ({pause}), or {delete}"
    return Problem(
        what=f"{manager} manages it, and the document of this run is {source}",
        where=f"control plane {run.name}",
        remedy=f"An instance has one object: {delete}" if ours.uid else by_file,
        reason=Reason.MANAGED_BY_OBJECT,
    )


def _unknown(run: Run, manager: Manager, why: str) -> Problem:
    of_cluster = f" of the cluster {manager.cluster}" if manager.cluster else ""
    return Problem(
        what=f"{manager}{of_cluster} manages it by the installer's state, and whether that is still there cannot be "
        f"seen: {why}",
        where=f"control plane {run.name}",
        remedy="Name a kubeconfig in the inventory source that may read that object. If it certainly is gone, say so "
        f"with its UID: -e {CONFIRMATION}={manager.uid}",
        reason=Reason.MANAGED_BY_OBJECT,
    )
