# SPDX-License-Identifier: Apache-2.0
"""Removal of an instance. Documentation: the module of the same name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import removal
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import external as external_etcd
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.members import cleanup as member_cleanup
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import works as member_works
from ansible_collections.karmada.installer.plugins.plugin_utils.members.counts import counted
from ansible_collections.karmada.installer.plugins.plugin_utils.members.join import Outcome
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.redaction import printable
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run

#: Seconds for the control plane to say what is on members, and number of members that a line names.
ANSWER_SECONDS, SHOWN = 5.0, 5
STAGES = ("confirm", "components", "members", "control_plane", "state")


class ActionModule(KarmadaAction):
    """Remove one part of an instance. One that does not exist counts as removed."""

    FAILURE: ClassVar[Reason] = Reason.REMOVAL_BLOCKED
    OPTIONS: ClassVar[dict[str, Any]] = {
        "stage": {"type": "str", "required": True, "choices": list(STAGES)},
        "confirm": {"type": "str", "default": ""},
        "abandon_members": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": int(removal.DELETE_SECONDS)},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Take the stage from the live state, so that it can run again after any interruption."""
        if not run.place.in_pods:
            return _on_hosts(run, arguments)
        if run.stored_state is None:
            return self._without_state(run, arguments["stage"], arguments["timeout"])
        stage: str = arguments["stage"]
        timeout: int = arguments["timeout"]
        abandoned: list[str] = arguments["abandon_members"]
        if stage == "confirm":
            _check(run, arguments)
            return {"changed": False, "installed": True, "now": _now(run)}
        if stage == "members":
            return _clean_members(run, abandoned, timeout)
        work: dict[str, Callable[[], list[Change]]] = {
            "components": lambda: removal.stop_components(run, timeout),
            "control_plane": lambda: removal.remove_control_plane(run, timeout),
            "state": lambda: removal.remove_state(run, timeout, lambda: _wait_for_members(run, abandoned, timeout)),
        }
        file_removed = stage == "state" and removal.remove_local_files(run)
        with _writing(run, stage):
            changes = work[stage]()
        if stage == "state" and not run.check and run.spec.deletion_policy == "Retain":
            run.finish()
        found = changed_result(changes)
        found["changed"] |= file_removed
        return found

    def _without_state(self, run: Run, stage: str, timeout: float) -> dict[str, Any]:
        """Remove our namespace and Lease, all that a run leaves that was killed before it wrote its state."""
        if stage != "state" or run.host_cluster.get("v1", "Namespace", run.namespace) is None:
            return _not_there(run)
        return changed_result(removal.remove_state(run, timeout))


def _on_hosts(run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
    """Take the part of an uninstall that does not happen on the hosts themselves."""
    stage, timeout, abandoned = arguments["stage"], arguments["timeout"], arguments["abandon_members"]
    if run.stored_state is None:
        return _not_there(run)
    found: dict[str, Any] = {"changed": False}
    if stage == "confirm":
        _check(run, arguments)
        found["now"] = _now(run)
    elif stage == "members":
        found = _clean_members(run, abandoned, timeout)
    elif stage == "control_plane":
        found = changed_result(external_etcd.release(run))
    elif stage == "state":
        _wait_for_members(run, abandoned, timeout)
        found["changed"] = removal.remove_local_files(run)
    return {**found, "installed": True}


def _not_there(run: Run) -> dict[str, Any]:
    return {
        "changed": False,
        "installed": False,
        "now": f"{run.name} is not installed there; nothing is left to remove",
    }


def _now(run: Run) -> str:
    """Line for the end of an uninstall, made while the control plane can be asked for what stays on members."""
    kept = "; its data is kept" if run.spec.deletion_policy == "Retain" else ""
    return f"{run.name} {'would be' if run.check else 'is'} gone{kept}; {_stays(run)}"


def _stays(run: Run) -> str:
    try:
        if not run.control_plane_exists:
            return "it had propagated nothing"
        inside = run.control_plane.with_patience(retry_seconds=ANSWER_SECONDS)
        found = member_works.by_member(inside.list(member_works.WORK_API, "Work"))
    except (ApiError, ProblemsError) as error:
        return f"what stays on members could not be counted ({printable(error, 200)})"
    verbs = ("would stay", "would stay") if run.check else ("stays", "stay")
    told = [f"{counted((ref.kind for ref in refs), *verbs)} on {name}" for name, refs in sorted(found.items()) if refs]
    more = [f"and more on {len(told) - SHOWN} other members"] if len(told) > SHOWN else []
    return ", ".join([*told[:SHOWN], *more]) or f"nothing {verbs[0]} on members"


def _writing(run: Run, stage: str) -> AbstractContextManager[None]:
    """Right to write. A terminating namespace takes the lock along, and admits neither another one nor a state."""
    if run.check:
        return nullcontext()
    if removal.namespace_is_going(run):
        run.store.retire_lock()
        return nullcontext()
    return run.writing(f"uninstall: {stage}")


def _check(run: Run, arguments: dict[str, Any]) -> None:
    problems = member_cleanup.unreachable_members(run, arguments["abandon_members"]) + external_etcd.release_problems(
        run
    )
    if not run.check and not run.is_confirmed(arguments["confirm"]):
        joined = ", ".join(sorted(run.state.members) if run.state.leads_members else ()) or "none"
        data = "is deleted" if run.spec.deletion_policy == "Delete" else "is kept"
        problems.append(
            Problem(
                what=f"this removes the control plane {run.confirmation}; its data {data}; "
                f"members that lose it: {joined}",
                where=run.place.where,
                remedy=f"if that is what you want, say so by its name: -e karmada_confirm={run.confirmation}",
                reason=Reason.CONFIRMATION_REQUIRED,
            )
        )
    if problems:
        raise ProblemsError(problems)


def _cleaned(run: Run, abandoned: list[str]) -> list[MemberEntry]:
    return [entry for entry in member_cleanup.member_entries(run) if entry.name not in abandoned]


def _clean_members(run: Run, abandoned: list[str], timeout: float) -> dict[str, Any]:
    entries = _cleaned(run, abandoned)
    for name in sorted(set(abandoned) & set(run.state.members)):
        left = ", ".join(sorted(run.state.owned.get(f"member/{name}", {})))
        run.tell(Problem.hint(f"member {name} is given up; left on it: {left}", Reason.LEFT_BEHIND))

    def clean(entry: MemberEntry, outcome: Outcome) -> None:
        outcome.on_member += member_cleanup.clean_member(run, entry, timeout)

    if not entries:
        return {"changed": False}
    with _writing(run, "members"):
        outcomes = member_join.of_each(entries, clean, run.trace)
    found = changed_result(change for outcome in outcomes for change in outcome.changes)
    broken = [f"  - {outcome.name}: {outcome.problem}" for outcome in outcomes if outcome.problem]
    if broken:
        found.update(failed=True, msg="\n".join([f"{len(broken)} members could not be cleaned:", *broken]))
    return found


def _wait_for_members(run: Run, abandoned: list[str], timeout: float) -> None:
    """Wait until the members' namespaces are gone, and only then forget the members, so that a killed run is resumed.

    Raises ProblemsError for those that stay. They are empty, so nothing of ours is left in them.
    """
    entries = _cleaned(run, abandoned)
    if run.check or not entries:
        return
    outcomes = member_join.of_each(
        entries, lambda entry, _: member_cleanup.wait_for_member(run, entry, timeout), run.trace
    )
    if not removal.namespace_is_going(run):
        state = run.state
        for outcome in outcomes:
            state = state if outcome.problem else state.without_member(outcome.name)
        run.save(state)
    remedy = "mend what holds it; all that was in it is gone"
    problems = [
        Problem(each.problem, f"member {each.name}", remedy, reason=Reason.REMOVAL_BLOCKED)
        for each in outcomes
        if each.problem
    ]
    if problems:
        raise ProblemsError(problems)
