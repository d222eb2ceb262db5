# SPDX-License-Identifier: Apache-2.0
"""Cordon, uncordon and drain of members. Documentation: the module of the same name."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.progress import Progress
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.step import edit_live
from ansible_collections.karmada.installer.plugins.plugin_utils.members import access_on_hosts, elsewhere
from ansible_collections.karmada.installer.plugins.plugin_utils.members import scheduling as member_scheduling
from ansible_collections.karmada.installer.plugins.plugin_utils.members import taints as member_taints
from ansible_collections.karmada.installer.plugins.plugin_utils.members.elsewhere import Stranded
from ansible_collections.karmada.installer.plugins.plugin_utils.members.registration import CLUSTER_API
from ansible_collections.karmada.installer.plugins.plugin_utils.members.scheduling import Placed
from ansible_collections.karmada.installer.plugins.plugin_utils.members.taints import Taint
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason, Severity
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_access
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run

#: State that asks which plain hosts have to be looked at before.
LOOKED_FOR = "looked_for"
#: Least seconds between two checks that a member is empty.
PAUSE_SECONDS = 1.0
TAKEN_BACK = (
    "the taints that this run has set are taken away again, and what was to go and has no other place stays; taints "
    "from before stay, too"
)
#: Looks for what is evicted still when the taint is gone: Karmada's controllers may be a moment behind.
LOOKS = 10
#: Remaining placements that a message shows.
SHOWN = 10
_NAME_OF_DRAIN = member_taints.name_of(member_scheduling.DRAIN)


class ActionModule(KarmadaAction):
    """Set or remove the taints of a state; wait until a drained member is empty."""

    # It writes no state, and its changes do not interfere with a run that does.
    KEEPS_LOCK: ClassVar[bool] = False

    FAILURE: ClassVar[Reason] = Reason.NOT_READY_IN_TIME
    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "required": True, "choices": [*member_scheduling.TAINTS, LOOKED_FOR]},
        "members": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": 900},
        "confirm": {"type": "str", "default": ""},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check everything that may be refused, before the first change."""
        if arguments["state"] == LOOKED_FOR:
            return {"changed": False, "hosts": _hosts_to_look_at(run)}
        given = (name.strip() for name in arguments["members"])
        names = list(dict.fromkeys(name for name in given if name)) or list(run.selected)
        if not names:
            raise ProblemsError(member_scheduling.refusals(names, ()))
        with _control_plane(run) as control_plane:
            clusters = {each["metadata"]["name"]: each for each in control_plane.list(CLUSTER_API, "Cluster")}
            problems = member_scheduling.refusals(names, clusters)
            if arguments["state"] == "drained" and (refusal := member_scheduling.drain_refusal(run.spec)):
                problems.append(refusal)
            if problems:
                raise ProblemsError(problems)
            if arguments["state"] == "drained":
                return _drain(run, control_plane, {name: clusters[name] for name in names}, clusters, arguments)
            changes = _change_taints(run, control_plane, names, *member_scheduling.TAINTS[arguments["state"]])
            if arguments["state"] == "uncordoned":
                drained = {name: each for name in names if _NAME_OF_DRAIN in _taints_of(each := clusters[name])}
                changes += _undo_evictions(control_plane, drained, check=run.check)
            bindings = _bindings(control_plane)
            placed = {name: member_scheduling.placed_on(name, bindings) for name in names}
            return changed_result(changes, left=[], now=_now(run, arguments["state"], placed))


def _drain(
    run: Run,
    control_plane: Cluster,
    drained: dict[str, Object],
    clusters: dict[str, Object],
    arguments: dict[str, Any],
) -> dict[str, Any]:
    """Cordon and drain these members. Refused where last replicas would go and nobody has asked for that by name."""
    names, confirmed = list(drained), {name.strip() for name in arguments["confirm"].split(",")}
    stranded = elsewhere.foreseen(_bindings(control_plane), names, list(clusters.values()))
    severity = Severity.WARNING if run.check else Severity.ERROR
    if refusal := elsewhere.refusal(stranded, confirmed, severity):
        if not run.check:
            raise ProblemsError(refusal)
        run.tell(refusal)
    changes = _change_taints(run, control_plane, names, *member_scheduling.TAINTS["drained"])
    try:
        left = _drained(run, control_plane, names, arguments["timeout"], confirmed)
    except ProblemsError:
        _take_back(control_plane, drained)
        raise
    told = [f"{name}: {each}" for name, placed in left.items() for each in placed]
    found = changed_result(changes, left=told, now=[])
    if any(not each.stays for placed in left.values() for each in placed) and not run.check:
        found.update(failed=True, msg=_not_empty(told, arguments["timeout"]))
        return found
    return {**found, "now": _now(run, "drained", {name: left.get(name, []) for name in names})}


def _now(run: Run, state: str, placed: dict[str, list[Placed]]) -> list[str]:
    return [member_scheduling.now(name, state, there, check=run.check) for name, there in placed.items()]


def _change_taints(
    run: Run, control_plane: Cluster, names: list[str], add: Iterable[Taint], remove: Iterable[str]
) -> list[Change]:
    return [
        change
        for name in names
        for change in member_taints.change(
            control_plane, name, lambda live: member_taints.patch_of(live, add, remove), check=run.check
        )
    ]


def _take_back(control_plane: Cluster, drained: dict[str, Object]) -> None:
    """Remove the taints that this run has set, and have members keep what was to go and has no other place."""
    ours = {member_taints.name_of(each) for each in member_scheduling.TAINTS["drained"][0]}
    for name, before in drained.items():
        remove = ours - _taints_of(before)
        member_taints.change(control_plane, name, partial(member_taints.patch_of, add=(), remove=remove))
    begun = {name: before for name, before in drained.items() if _NAME_OF_DRAIN not in _taints_of(before)}
    _undo_evictions(control_plane, begun)


def _taints_of(cluster: Object) -> set[str]:
    return set(map(member_taints.name_of, cluster["spec"].get("taints") or ()))


def _undo_evictions(control_plane: Cluster, members: dict[str, Object], *, check: bool = False) -> list[Change]:
    """Place again on these members, name → Cluster as it was before, what is being evicted and has no other place."""
    names = {name for name, each in members.items() if not member_scheduling.evicted_by_others(each)}
    undone: list[Change] = []
    for look in range(LOOKS if names else 0):
        if look:
            time.sleep(PAUSE_SECONDS)
        found = [
            change
            for binding in _bindings(control_plane)
            if member_scheduling.eviction_undone(binding, names) is not None
            for change in _undo_eviction(control_plane, Ref.of(binding), names, check=check)
        ]
        undone += found
        if check or (look and not found):
            break
    return undone


def _undo_eviction(control_plane: Cluster, ref: Ref, names: Collection[str], *, check: bool) -> list[Change]:
    def edit(live: Object) -> Object | None:
        return member_scheduling.eviction_undone(live, names)

    try:
        return edit_live(control_plane, ref, edit, check=check)
    except ProblemsError as error:
        if all(each.reason == Reason.OBJECT_NOT_FOUND for each in error.problems):
            # Its object was deleted meanwhile.
            return []
        raise


def _bindings(control_plane: Cluster) -> list[Object]:
    return [
        each
        for kind in member_scheduling.BINDING_KINDS
        for each in control_plane.list(member_scheduling.BINDING_API, kind)
    ]


def _hosts_to_look_at(run: Run) -> list[str]:
    """Names of the plain hosts whose state tells how the control plane is reached; none if something else does."""
    if run.place.in_pods or access_on_hosts.is_given(run.connection):
        return []
    return [name for name, host in run.hosts.items() if not host.is_of_members]


@contextmanager
def _control_plane(run: Run) -> Iterator[Cluster]:
    """Client through the host cluster, with the kubeconfig that was given, or by the state that hosts have told."""
    told = any(run.observed[name].is_looked_at for name in _hosts_to_look_at(run))
    if not (run.place.in_pods or told):
        control_plane = access_on_hosts.client(run.deployment, run.connection, "run karmada.installer.install")
        try:
            yield control_plane
        finally:
            control_plane.close()
        return
    if run.stored_state is None:
        raise ProblemsError(_without_state(run))
    yield run.control_plane


def _without_state(run: Run) -> list[Problem]:
    """Problems of hosts that could not be looked at, so that it is unknown what is there; else that nothing is."""
    if run.store.may_be_unseen:
        refused = {name: each.refusal for name, each in run.observed.items() if each.refusal}
        return [host_access.problem(why, host=name, address=run.hosts[name].address) for name, why in refused.items()]
    where, remedy = run.place.where, "run karmada.installer.install first"
    return [Problem("no control plane is installed there", where, remedy, reason=Reason.NOT_INSTALLED)]


def _drained(
    run: Run, control_plane: Cluster, names: list[str], timeout: float, confirmed: Collection[str]
) -> dict[str, list[Placed]]:
    """Remaining placements of each member, once nothing will move any more or the timeout is over.

    Raises ProblemsError if the scheduler finds no place for an object whose last replica would go, unless the member
    was ``confirmed``.
    """
    start = time.monotonic()
    told = Progress(run.say, start, timeout)
    stranded = _Stranded(run, names, confirmed)
    while True:
        began = time.monotonic()
        bindings = _bindings(control_plane)
        if not run.check:
            stranded.look(bindings)
        left = {name: member_scheduling.placed_on(name, bindings) for name in names}
        going = [f"{name}: {each}" for name, placed in left.items() for each in placed if not each.stays]
        if run.check or not going or time.monotonic() - start > timeout:
            return {name: placed for name, placed in left.items() if placed}
        told.tell(f"{len(going)} resources have not gone, such as {going[0]}", time.monotonic())
        # Lists of thousands of bindings load the API server.
        time.sleep(max(PAUSE_SECONDS, 3 * (time.monotonic() - began)))


class _Stranded:
    """Objects for which the scheduler finds no place, each told once."""

    def __init__(self, run: Run, names: Collection[str], confirmed: Collection[str]) -> None:
        self._run, self._names, self._confirmed = run, names, confirmed
        self._before: set[Stranded] = set()
        self._told: set[Stranded] = set()

    def look(self, bindings: list[Object]) -> None:
        """Tell of those that were found in two looks: the condition may be one from before the eviction.

        Raises ProblemsError if the last replica of one would go from a member that was not confirmed.
        """
        found = set(elsewhere.seen(bindings, self._names))
        sure = sorted(found & self._before - self._told, key=str)
        self._before = found
        if refusal := elsewhere.refusal(sure, self._confirmed):
            raise ProblemsError(refusal, consequence=TAKEN_BACK)
        for each in sure:
            goes = "; it goes from there all the same, as was confirmed" if each.last else ""
            self._run.say(f"the scheduler finds no other place for {each}{goes}")
        self._told |= set(sure)


def _not_empty(told: list[str], timeout: int) -> str:
    more = [f"  and {len(told) - SHOWN} more"] if len(told) > SHOWN else []
    lines = [f"after {timeout} s the members are not empty:", *(f"  - {each}" for each in told[:SHOWN]), *more]
    return "\n".join([*lines, "The taints stay: run again to go on waiting, or uncordon to take them away."])
