# SPDX-License-Identifier: Apache-2.0
"""Removal of members that are no longer listed. Documentation: the module of the same name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.members import broken as broken_members
from ansible_collections.karmada.installer.plugins.plugin_utils.members import follow
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import leave as member_leave
from ansible_collections.karmada.installer.plugins.plugin_utils.members import plan as member_plan
from ansible_collections.karmada.installer.plugins.plugin_utils.members import works as member_works
from ansible_collections.karmada.installer.plugins.plugin_utils.members.broken import BrokenMember
from ansible_collections.karmada.installer.plugins.plugin_utils.members.counts import counted
from ansible_collections.karmada.installer.plugins.plugin_utils.members.join import Outcome
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.members.registration import RETAIN
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import (
    Problem,
    ProblemsError,
    Reason,
    first_of,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.run import selection as selected_members
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run

STAGES = ("confirm", "leave")


class ActionModule(KarmadaAction):
    """Remove members that are ours and no longer listed; every member on its own."""

    FAILURE: ClassVar[Reason] = Reason.MEMBER_LEAVING
    OPTIONS: ClassVar[dict[str, Any]] = {
        "stage": {"type": "str", "default": "leave", "choices": list(STAGES)},
        "confirm": {"type": "str", "default": ""},
        "abandon": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": 180},
        "on_broken_member": broken_members.OPTION,
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return one entry for each member that leaves; fails, after all were tried, if one could not."""
        found = _performed(run, arguments)
        if arguments["stage"] == "confirm":
            return found
        return {**found, "has_agents_on_hosts": run.place.has_agents(run)}


def _performed(run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
    if run.stored_state is None:
        return {"changed": False, "members": [], "broken_members": [], "now": []}
    listed = [entry.name for entry in run.spec.members]
    # Before the first change there need not be a control plane.
    registered = Clusters() if arguments["stage"] == "confirm" else member_join.registered_clusters(run)
    plan = member_plan.plan(listed, run.state.members, registered, run.state.owner)
    leaving = [name for name in plan.leave if selected_members.holds(run, name)]
    _confirmed(run, leaving, arguments["confirm"])
    if arguments["stage"] == "confirm" or not leaving:
        return {"changed": False, "members": [_waiting(name) for name in leaving], "broken_members": [], "now": []}
    return _leave(run, leaving, registered, arguments)


def _confirmed(run: Run, leaving: Sequence[str], confirmed: str) -> None:
    problem = member_plan.unconfirmed(leaving, confirmed, run.name)
    if problem and not run.check:
        raise ProblemsError(problem)


def _leave(run: Run, names: Sequence[str], registered: Clusters, arguments: dict[str, Any]) -> dict[str, Any]:
    entries, abandoned, timeout = member_leave.entries(run, names), arguments["abandon"], arguments["timeout"]
    stays: dict[str, set[Ref]] = {}

    def work(entry: MemberEntry, outcome: Outcome) -> None:
        retained = entry.name not in abandoned and (entry.on_leave or RETAIN) == RETAIN
        if entry.name in registered and retained:
            space = member_works.execution_namespace(entry.name)
            works = list(run.control_plane.list(member_works.WORK_API, "Work", space))
            stays[entry.name] = member_works.propagated(works)
        do = member_leave.give_up if entry.name in abandoned else member_leave.leave
        do(run, entry, registered.get(entry.name), timeout, outcome)

    if run.check:
        return _result(run, entries, member_join.of_each(entries, work, run.trace), arguments, stays)
    if any(name in registered for name in names):
        member_leave.install_policies(run)
    taken = run.state.taken_over
    unfenced = [each for each in entries if taken and each.name in {*taken.unfenced} - {*abandoned}]
    # The place that was left still knows it, and its agent is there. Who does not answer is told below.
    followed = {each.name: each for each in follow.follow(run, unfenced, registered)}
    with run.writing(f"leave {first_of(names)}"):
        outcomes = member_join.of_each(entries, work, run.trace)
        for outcome in outcomes:
            if before := followed.get(outcome.name):
                outcome.on_member[:0] = before.on_member
                outcome.in_control_plane[:0] = before.in_control_plane
        result = _result(run, entries, outcomes, arguments, stays)
        state = run.state
        for outcome in outcomes:
            state = state if outcome.problem else state.without_member(outcome.name)
        run.save(state)
    return result


def _waiting(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "gone": False,
        "changes": [],
        "workloads": "",
        "stays": 0,
        "problem": "",
        "left": "",
        "next": "",
    }


def _result(
    run: Run,
    entries: Sequence[MemberEntry],
    outcomes: Sequence[Outcome],
    arguments: dict[str, Any],
    stays: Mapping[str, set[Ref]],
) -> dict[str, Any]:
    found = changed_result(
        (change for outcome in outcomes for change in outcome.changes),
        members=[
            {
                "name": outcome.name,
                "gone": not outcome.problem,
                "changes": [f"{change.action} {change.ref}" for change in outcome.changes],
                "workloads": entry.on_leave or RETAIN,
                "stays": len(stays.get(outcome.name, ())),
                "problem": outcome.problem,
                "left": outcome.left if not outcome.problem else member_leave.remains_on(run, outcome.name),
                "next": _next_step(outcome, arguments["abandon"]),
            }
            for entry, outcome in zip(entries, outcomes, strict=True)
        ],
    )
    gone = [outcome.name for outcome in outcomes if not outcome.problem]
    for name in gone:
        if stays.get(name):
            run.tell(member_works.left_on(name, stays[name], check=run.check))
    found["now"] = [_now(run, name, stays.get(name)) for name in gone]
    # Whoever is gone is forgotten, which is a change even where nothing else was left to remove.
    found["changed"] = found["changed"] or any(each["gone"] for each in found["members"])
    for each in found["members"]:
        if each["gone"] and each["left"]:
            run.tell(Problem.hint(f"left on member {each['name']}: {each['left']}", Reason.LEFT_BEHIND))
    broken = [
        BrokenMember(
            each["name"],
            f"it has not left: {each['problem']}" + (f"; left on it: {each['left']}" if each["left"] else ""),
            each["next"],
            outcome.problems,
        )
        for each, outcome in zip(found["members"], outcomes, strict=True)
        if each["problem"]
    ]
    found["broken_members"] = [each.plain for each in broken]
    if broken and arguments["on_broken_member"] == broken_members.FAIL:
        head = f"{len(broken)} of {len(outcomes)} members that leave are not gone:"
        found.update(failed=True, msg="\n".join([head, *broken_members.listing(broken)]))
    return found


def _now(run: Run, name: str, stays: Collection[Ref] | None) -> str:
    """One line: how a member is after this step. ``stays`` None: nothing was to stay, or nothing was registered."""
    head = f"{name} {'would leave' if run.check else 'has left'}"
    if stays is None:
        return head
    verbs = ("would stay", "would stay") if run.check else ("stays", "stay")
    return f"{head}; {counted((ref.kind for ref in stays), *verbs)} on it"


def _next_step(outcome: Outcome, abandoned: list[str]) -> str:
    if not outcome.problem:
        return "remove there by hand what is left, if the cluster is still in use" if outcome.left else ""
    if outcome.name in abandoned:
        return outcome.next_step
    return (
        f"{outcome.next_step}, which goes on from here; or give the member up, with all that is left on it: "
        f'-e \'{{"member_leave_abandon": ["{outcome.name}"]}}\''
    )
