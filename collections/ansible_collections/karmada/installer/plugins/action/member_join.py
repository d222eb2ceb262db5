# SPDX-License-Identifier: Apache-2.0
"""Joining members of the document. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.members import broken as broken_members
from ansible_collections.karmada.installer.plugins.plugin_utils.members import epoch, follow, former_connections
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import log as member_log
from ansible_collections.karmada.installer.plugins.plugin_utils.members import mode as member_mode
from ansible_collections.karmada.installer.plugins.plugin_utils.members import plan as member_plan
from ansible_collections.karmada.installer.plugins.plugin_utils.members import ready as member_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.members.broken import BrokenMember
from ansible_collections.karmada.installer.plugins.plugin_utils.members.join import Outcome
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason, first_of
from ansible_collections.karmada.installer.plugins.plugin_utils.run import selection as selected_members
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run

STAGES = ("all", "registration", "agents", "readiness", "reasons")


class ActionModule(KarmadaAction):
    """Join listed members, change what differs, leave the rest alone; every member on its own."""

    FAILURE: ClassVar[Reason] = Reason.MEMBER_NOT_READY
    OPTIONS: ClassVar[dict[str, Any]] = {
        "stage": {"type": "str", "default": "all", "choices": list(STAGES)},
        "noted": {"type": "bool", "default": False},
        "on_record": {"type": "bool", "default": False},
        "timeout": {"type": "int", "default": 120},
        "broken": {"type": "list", "elements": "dict", "default": []},
        "on_broken_member": broken_members.OPTION,
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return one entry for each member; fails, after all were tried, if one could not be joined."""
        entries = follow.on_record(run) if arguments["on_record"] else selected_members.entries(run)
        stage: str = arguments["stage"]
        outcomes = {entry.name: Outcome(entry.name) for entry in entries}
        for each in map(BrokenMember.of, arguments["broken"]):
            outcomes[each.name].failed_as(each)
        to_note = False
        if stage in ("all", "registration"):
            registered = _registration(run, _sound(entries, outcomes), noted=arguments["noted"])
            to_note = registered is None
            outcomes.update(registered or {})
        started: list[Change] = []
        if stage == "all" and run.place.in_pods:
            started = former_connections.start_again_in_pods(run)
        elif stage == "registration" and not to_note:
            former_connections.tell(run)
        if stage in ("all", "agents") and not run.check:
            _agents(run, _sound(entries, outcomes), outcomes)
        if stage in ("all", "registration", "agents"):
            found = {name: each.agent for name, each in outcomes.items() if each.agent}
            run.place.hand_on_agents(run, found, more=stage == "agents")
        if stage in ("all", "readiness") and not run.check:
            # The state is saved by now: it lists all objects on members, should the run end during this wait.
            for waited in member_ready.wait_ready(run, _sound(entries, outcomes), arguments["timeout"]):
                outcome = outcomes[waited.name]
                outcome.failed_as(waited)
                outcome.on_member += waited.on_member
                outcome.unready = waited.unready
        run.handover.worked_on = [entry.name for entry in _sound(entries, outcomes)]
        asked = [name for name, each in outcomes.items() if each.unready or (stage == "reasons" and each.problem)]
        for name, why in member_log.reasons(run, asked).items():
            outcomes[name].problem += f"\n{why}"
        result = _result([outcomes[entry.name] for entry in entries], started, arguments["on_broken_member"])
        return {
            **result,
            "has_agents_on_hosts": run.place.has_agents(run),
            "to_note": to_note,
            "restarts": list(former_connections.due(run)),
            "without_agent": [entry.name for entry in entries if member_mode.waits_for_agent(entry, run.state)],
        }


def _sound(entries: list[MemberEntry], outcomes: dict[str, Outcome]) -> list[MemberEntry]:
    return [entry for entry in entries if not outcomes[entry.name].problem]


def _registration(run: Run, entries: list[MemberEntry], *, noted: bool) -> dict[str, Outcome] | None:
    """Survey every member, and change those that differ, with a record of it.

    None if nothing was changed, because hosts must first record what is about to change, and have not (``noted``): the
    access to members on which objects are made, and the components that restart.
    """
    if not entries:
        return {}
    registered = member_join.registered_clusters(run)
    unlisted = follow.unlisted(run, entries)
    entries = [entry for entry in entries if entry not in unlisted]
    inside = member_join.in_control_plane(run, registered)
    outcomes = {
        each.name: each
        for each in member_join.of_each(
            entries,
            lambda entry, outcome: member_join.survey_member(run, entry, registered, outcome, inside),
            run.trace,
        )
    }
    identities = {name: each.cluster_id for name, each in outcomes.items() if each.cluster_id}
    for name, problem in member_plan.same_cluster(identities, registered).items():
        outcomes[name] = Outcome(name)
        outcomes[name].failed_as(BrokenMember.of_problems(name, [problem]))
    if noted and run.store.later:
        _leave_unrecorded(run, entries, outcomes)
    work = [entry for entry in entries if _is_due(entry, outcomes[entry.name], run)]
    holders = frozenset[str]().union(*(outcomes[entry.name].holders for entry in work))
    if work and run.check:
        run.go_on_with(former_connections.noted(run, run.state, holders))
    elif run.store.later and not noted and (foreseen := _foreseen(run, work, registered, holders)) != run.state:
        run.save(foreseen)
        return None
    elif work:
        outcomes.update(_join(run, work, registered, frozenset() if noted else holders))
    if not run.check:
        outcomes.update({each.name: each for each in follow.follow(run, unlisted, registered)})
    return outcomes


def _leave_unrecorded(run: Run, entries: list[MemberEntry], outcomes: dict[str, Outcome]) -> None:
    """Fail members that could not be looked at when the records were made which hosts have now.

    A run that was killed after changing such a member would leave objects on it that no other run knows of.
    """
    for name in (entry.name for entry in entries if entry.name not in run.state.members):
        if not outcomes[name].problem:
            what = "it could be looked at only after the hosts had recorded which members this run joins"
            where, remedy = f"spec.members[{name}]", "see that it answers each time"
            found = Problem(what, where, remedy, reason=Reason.MEMBER_UNREACHABLE)
            outcomes[name].failed_as(BrokenMember.of_problems(name, [found]))


def _is_due(entry: MemberEntry, outcome: Outcome, run: Run) -> bool:
    return not outcome.problem and member_join.needs_work(entry, outcome, run.state)


def _join(run: Run, work: list[MemberEntry], registered: Clusters, holders: frozenset[str]) -> dict[str, Outcome]:
    with run.writing(f"join {first_of([entry.name for entry in work])}"):
        state = _foreseen(run, work, registered, holders)
        run.save(state)
        outcomes = member_join.of_each(
            work, lambda entry, outcome: member_join.register_member(run, entry, registered, outcome), run.trace
        )
        for entry, outcome in zip(work, outcomes, strict=True):
            if outcome.on_member:
                state = member_join.recorded(state, entry, outcome.on_member)
            if not outcome.problem and not member_mode.waits_for_agent(entry, state):
                state = member_join.settled(state, entry)
        run.save(epoch.settled(state, [outcome.name for outcome in outcomes if not outcome.problem]))
        run.go_on_with(run.state)
    return {outcome.name: outcome for outcome in outcomes}


def _foreseen(run: Run, work: list[MemberEntry], registered: Clusters, holders: frozenset[str]) -> State:
    """State before any change: the access to each member, by which its objects are found after an interruption.

    It includes the restarts that are due after the change.
    """
    state = former_connections.noted(run, run.state, holders)
    for entry in work:
        state = member_join.recorded(state, entry, [])
        state = member_mode.begun(state, entry, registered.get(entry.name))
    return state


def _agents(run: Run, entries: list[MemberEntry], outcomes: dict[str, Outcome]) -> None:
    """Install agents on members that were in mode Push, once karmada-controller-manager has let go of them."""
    work = [entry for entry in entries if member_mode.waits_for_agent(entry, run.state)]
    if not work:
        return
    with run.writing(f"start the agents of {first_of([entry.name for entry in work])}"):
        state = run.state
        for done in member_join.of_each(
            work, lambda entry, outcome: member_join.install_agent(run, entry, outcome), run.trace
        ):
            outcome = outcomes[done.name]
            outcome.on_member += done.on_member
            outcome.in_control_plane += done.in_control_plane
            outcome.failed_as(done)
            outcome.agent = done.agent
            entry = next(each for each in work if each.name == done.name)
            state = member_join.recorded(state, entry, done.on_member)
            if not done.problem:
                state = member_join.settled(state, entry)
        run.save(state)


def _result(outcomes: list[Outcome], started: list[Change], on_broken_member: str) -> dict[str, Any]:
    broken = [each for outcome in outcomes if (each := outcome.broken)]
    found = changed_result(
        (*(change for outcome in outcomes for change in outcome.changes), *started),
        members=[
            {
                "name": outcome.name,
                "joined": not outcome.problem,
                "changes": [f"{change.action} {change.ref}" for change in outcome.changes],
                "problem": outcome.problem,
                "next": outcome.next_step,
            }
            for outcome in outcomes
        ],
        broken_members=[each.plain for each in broken],
        not_ready=[outcome.name for outcome in outcomes if outcome.unready],
    )
    if broken and on_broken_member == broken_members.FAIL:
        head = f"{len(broken)} of {len(outcomes)} members are not joined; the others are:"
        found.update(failed=True, msg="\n".join([head, *broken_members.listing(broken)]))
    return found
