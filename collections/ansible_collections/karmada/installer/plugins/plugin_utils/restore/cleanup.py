# SPDX-License-Identifier: Apache-2.0
"""Old data of etcd: what a restore has put aside goes, by a word of the user, and claims of members that are none.

With them go the folders that members have left which were replaced or removed (``left_data``).

In volumes, folders are emptied by a pod beside each member (``render.etcd_cleanup``). On plain hosts tasks of the role
have a module remove them (``module_utils.host_old_data``), between ``begin`` and ``end``. What is on record stays so
until all is gone, and what members have left on hosts is seen anew, so a run that was killed is carried on by the next
one, which looks after each once more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

from ..api_object import Object
from ..components import hosts as component_hosts
from ..components.etcd_configuration import folder_of
from ..components.state import State
from ..kube.apply import Change
from ..kube.errors import ApiError
from ..kube.limits import AT_ONCE
from ..kube.objects import Ref
from ..kube.readiness import reason_not_ready
from ..problems import Problem, ProblemsError, Reason
from ..redaction import shown
from ..render import etcd_cleanup
from ..run import restoring
from ..run.run import Run
from . import check_on_hosts, left_data, pods, unused_claims
from .left_data import Folder
from .means import writing

OPERATION = "restore_cleanup"
_STEP = "remove old data of etcd"
_LOOK_SECONDS = 0.5
#: Lines of etcd's last words: why it did not start, and a stack.
_LINES = 100


def due(state: State) -> tuple[str, ...]:
    """Folders that a restore has put aside and that no member uses. Raises AssertionError if one is in use."""
    aside = state.restore.aside if state.restore else ()
    used = {folder_of(state.etcd.generation, each) for each in state.etcd.members} | {folder_of(state.etcd.generation)}
    if used & set(aside):
        raise AssertionError(f"data in use is on record as put aside: {', '.join(sorted(used & set(aside)))}")
    return tuple(aside)


def clean(run: Run, confirm: str, timeout: float) -> list[Change]:
    """Empty the folders in volumes that a restore has put aside, or a member left, and delete claims of members that
    etcd has no more.

    Raises ProblemsError if a restore is under way, or if it is not confirmed.
    """
    stored, folders = _asked_for(run)
    claims, left = unused_claims.unused(run), left_data.in_volumes(stored)
    # A run that was killed may have removed all, and not have said so yet.
    killed = stored.journal.interrupted and stored.journal.operation == OPERATION
    if not folders and not claims and not left and (run.check or not killed):
        return []
    changes = [
        Change(_claim(run, member), "changed", None, note=f"{folder} emptied")
        for folder, members in _in_volumes(stored).items()
        for member in members
    ]
    changes += unused_claims.changes(run, claims)
    if run.check:
        return changes
    if folders or claims or left:
        names = [each["metadata"]["name"] for each in claims]
        told = left_data.volumes_in_words(left)
        _require_confirmed(run, stored, folders, f"the volumes of {', '.join(_members(stored))}", confirm, names, told)
    with run.writing(_STEP):
        # A run that had the lock before may have ended it.
        deadline = time.monotonic() + timeout
        for folder, members in _in_volumes(run.state).items():
            run.say(f"etcd: removing {folder} from the volumes of {', '.join(members)}")
            _empty(run, folder, members, deadline)
        unused_claims.delete(run, unused_claims.unused(run), deadline)
        _over(run)
    return changes


def begin(run: Run, confirm: str) -> bool:
    """Record that hosts are to remove folders (``of_host``); returns whether they are. Looks only, in check mode.

    Raises ProblemsError if a restore or a change of members is under way, if it is not confirmed, or if a host cannot
    be looked at.
    """
    stored, folders = _asked_for(run)
    left = _left(run, folders)
    # A run that was killed may have removed all, and not have said so yet.
    killed = stored.journal.interrupted and stored.journal.operation == OPERATION
    if not folders and not left and (run.check or not killed):
        return False
    if troubles := check_on_hosts.in_trouble(run):
        raise ProblemsError(troubles, "nothing was removed")
    if left and (problem := left_data.changing(stored)):
        raise ProblemsError(problem, "nothing was removed")
    if run.check:
        return True
    if folders or left:
        told = left_data.in_words(left)
        _require_confirmed(run, stored, folders, f"the hosts {', '.join(_with_etcd(run))}", confirm, left=told)
    with writing(run, _STEP):
        pass
    run.go_on_with(run.state)
    for name in run.hosts:
        if there := of_host(run, name):
            run.say(f"etcd: removing {', '.join(there)} from {name}")
    return True


def end(run: Run) -> None:
    """Put on record that the hosts have removed them. Raises ProblemsError if one has not said so."""
    gone = {name: set(run.handover.observed(name).restore.get("gone", ())) for name in run.hosts}
    if left := [name for name in run.hosts if not set(of_host(run, name)) <= gone[name]]:
        what = f"{', '.join(left)} did not say that old data of etcd is gone there"
        problem = Problem(what, run.place.where, "run it again", reason=Reason.NOT_READY_IN_TIME)
        raise ProblemsError(problem, "what was removed stays so, and the next run goes on from there")
    with run.writing(_STEP):
        _over(run)
    run.go_on_with(run.state)


def of_host(run: Run, name: str) -> tuple[str, ...]:
    """Folders that this host is to remove, as far as they are there."""
    aside = due(run.state) if name in _with_etcd(run) else ()
    left = (each.name for each in left_data.seen(run).get(name, ()))
    return tuple(dict.fromkeys([*aside, *left]))


def _left(run: Run, aside: Sequence[str]) -> dict[str, tuple[Folder, ...]]:
    """Host → folders there that nobody needs, but those that are to go from it as put ``aside``."""
    known = _with_etcd(run)
    found = {
        name: tuple(each for each in folders if name not in known or each.name not in aside)
        for name, folders in left_data.seen(run).items()
    }
    return {name: folders for name, folders in found.items() if folders}


def _with_etcd(run: Run) -> list[str]:
    """Hosts that may have what a restore has put aside."""
    return [each.name for each in component_hosts.hosts_of(run.spec, component_hosts.ETCD_ROLE)]


def _asked_for(run: Run) -> tuple[State, tuple[str, ...]]:
    """State, and the folders by it. Raises ProblemsError where no old data can be removed now."""
    stored = run.stored_state
    if stored is None:
        remedy = "run karmada.installer.install first"
        raise ProblemsError(Problem("there is no etcd yet", run.place.where, remedy, reason=Reason.NOT_INSTALLED))
    if problem := restoring.problem(stored, OPERATION, run.place.where):
        raise ProblemsError(
            replace(problem, what=f"{problem.what}; old data goes when that is over"), "nothing was removed"
        )
    return stored, due(stored)


def _over(run: Run) -> None:
    """Note that nothing is put aside or left any more, and that the operation has come to its end."""
    journal = replace(run.state.journal, finished=datetime.now(UTC).isoformat(), step="")
    restore = replace(run.state.restore, aside=()) if run.state.restore else None
    gone = run.state.etcd.left_beside()
    etcd = replace(run.state.etcd, left=tuple(each for each in run.state.etcd.left if each not in gone))
    run.save(replace(run.state, journal=journal, restore=restore, etcd=etcd))


def _in_volumes(state: State) -> dict[str, tuple[str, ...]]:
    """Folder → members from whose volumes it goes: what was put aside, from those that the restore knew."""
    found = {folder: tuple(_members(state)) for folder in due(state)}
    for folder, members in left_data.in_volumes(state).items():
        found[folder] = tuple(dict.fromkeys([*found.get(folder, ()), *members]))
    return found


def _members(state: State) -> list[str]:
    """Members whose volumes may have such folders: those that the restore knew, and that are still there."""
    known = set(state.restore.members) if state.restore else set()
    return [each.name for each in state.etcd.members if each.name in known]


def _claim(run: Run, member: str) -> Ref:
    return Ref("v1", "PersistentVolumeClaim", f"data-{member}", run.namespace)


def _require_confirmed(
    run: Run,
    state: State,
    folders: Sequence[str],
    whence: str,
    confirm: str,
    claims: Sequence[str] = (),
    left: str = "",
) -> None:
    if confirm == run.name:
        return
    from_when = f"of the restore from {state.restore.backup} ({state.restore.name})" if state.restore else ""
    of_folders = f"{', '.join(folders)} would be removed for good from {whence}: data {from_when}"
    of_claims = f"{', '.join(claims)} would be deleted with all data: volume claims of members that etcd has no more"
    of_left = f"{left} would be removed for good: data that no member of etcd uses any more"
    what = "; ".join([of_folders] * bool(folders) + [of_claims] * bool(claims) + [of_left] * bool(left))
    if confirm:
        what = f"{confirm} was confirmed, and this is {run.name}; {what}"
    remedy = f"if that is meant: -e restore_cleanup_confirm={run.name}"
    problem = Problem(what, run.place.where, remedy, reason=Reason.CONFIRMATION_REQUIRED)
    raise ProblemsError(problem, "nothing was removed")


def _empty(run: Run, folder: str, members: Sequence[str], deadline: float) -> None:
    """Empty a folder in the volume of each of these members. Raises ProblemsError with those where that failed."""
    pods.forget(run, etcd_cleanup.NAME)
    nodes = pods.nodes(run)
    pods.make(run, [etcd_cleanup.pod(run.instance, each, folder, nodes.get(each, "")) for each in members])
    names = [etcd_cleanup.pod_name(member, folder) for member in members]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = [each for each in pool.map(lambda name: _wait(run, name, deadline), names) if each]
    if told:
        raise ProblemsError(told, "what was removed stays so, and the next run goes on from there")
    pods.forget(run, etcd_cleanup.NAME)


def _wait(run: Run, name: str, deadline: float) -> Problem | None:
    """Problem of a pod that has not emptied its folder; None if it has."""
    remedy, place = "mend that, and run it again", f"pod {name}"
    while True:
        live: Object | None = run.host_cluster.get("v1", "Pod", name, run.namespace)
        phase = ((live or {}).get("status") or {}).get("phase", "")
        if live is None or phase in ("Failed", "Succeeded"):
            break
        if time.monotonic() > deadline:
            what = f"it does not come to its end in time ({reason_not_ready(live) or phase})"
            return Problem(what, place, remedy, reason=Reason.NOT_READY_IN_TIME)
        time.sleep(_LOOK_SECONDS)
    if live is None:
        return Problem("somebody has deleted it", place, remedy, reason=Reason.NOT_READY_IN_TIME)
    try:
        said = run.host_cluster.logs(name, run.namespace, etcd_cleanup.CLEANER, _LINES)
    except ApiError as error:
        said = str(error)
    if etcd_cleanup.is_empty(said):
        return None
    why = next((line for line in said.splitlines() if '"error"' in line), said[-500:])
    return Problem(f"it has not emptied the folder: {shown(why)}", place, remedy, reason=Reason.NOT_READY_IN_TIME)
