# SPDX-License-Identifier: Apache-2.0
"""Members of the document, joined. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils import (
    broken_members,
    member_join,
    member_log,
    member_plan,
    selected_members,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.broken_members import BrokenMember
from ansible_collections.karmada.installer.plugins.plugin_utils.host_run import HostsRun
from ansible_collections.karmada.installer.plugins.plugin_utils.member_join import Entry, Outcome
from ansible_collections.karmada.installer.plugins.plugin_utils.member_plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run


class ActionModule(KarmadaAction):
    """Join what is listed and not joined, change what differs, leave the rest alone; every member on its own."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "stage": {"type": "str", "default": "all", "choices": ["all", "registration", "readiness", "reasons"]},
        "timeout": {"type": "int", "default": 120},
        "broken": {"type": "list", "elements": "dict", "default": []},
        "on_broken_member": broken_members.OPTION,
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """The result holds one entry per member; the step fails, after all were tried, when one could not be joined."""
        entries = selected_members.entries(run)
        stage: str = arguments["stage"]
        outcomes = {entry["name"]: Outcome(entry["name"]) for entry in entries}
        for each in map(BrokenMember.of, arguments["broken"]):
            outcomes[each.name] = Outcome(each.name, problem=each.problem, next_step=each.next_step)
        if stage in ("all", "registration"):
            outcomes.update(_registration(run, _sound(entries, outcomes)))
            if isinstance(run, HostsRun):
                run.hand_on_agents({name: each.agent for name, each in outcomes.items() if each.agent})
        if stage in ("all", "readiness") and not run.check:
            # What is on record now: a run that ends while it waits knows what it has put on members.
            for waited in member_join.wait_ready(run, _sound(entries, outcomes), arguments["timeout"]):
                outcome = outcomes[waited.name]
                outcome.problem, outcome.next_step, outcome.unready = waited.problem, waited.next_step, waited.unready
        asked = [name for name, each in outcomes.items() if each.unready or (stage == "reasons" and each.problem)]
        for name, why in member_log.reasons(run, asked).items():
            outcomes[name].problem += f"\n{why}"
        found = _result([outcomes[entry["name"]] for entry in entries], arguments["on_broken_member"])
        return {**found, "has_agents_on_hosts": isinstance(run, HostsRun) and run.has_agents_on_hosts}


def _sound(entries: list[Entry], outcomes: dict[str, Outcome]) -> list[Entry]:
    return [entry for entry in entries if not outcomes[entry["name"]].problem]


def _registration(run: Run, entries: list[Entry]) -> dict[str, Outcome]:
    """Every member surveyed, and those that differ from what they should be changed, with a record of it."""
    if not entries:
        return {}
    registered = member_join.registered_clusters(run)
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
        broken = BrokenMember.of_problems(name, [problem])
        outcomes[name] = Outcome(name, problem=broken.problem, next_step=broken.next_step)
    work = [entry for entry in entries if _is_due(entry, outcomes[entry["name"]], run)]
    if work and not run.check:
        outcomes.update(_join(run, work, registered))
    return outcomes


def _is_due(entry: Entry, outcome: Outcome, run: Run) -> bool:
    return not outcome.problem and member_join.needs_work(entry, outcome, run.state)


def _join(run: Run, work: list[Entry], registered: Clusters) -> dict[str, Outcome]:
    with run.writing(f"join {', '.join(entry['name'] for entry in work)}"):
        # How each is reached is known before anything is made there: what was made can be found after any interruption.
        state = run.state
        for entry in work:
            state = member_join.recorded(state, entry, [])
        run.save(state)
        outcomes = member_join.of_each(
            work, lambda entry, outcome: member_join.register_member(run, entry, registered, outcome), run.trace
        )
        for entry, outcome in zip(work, outcomes, strict=True):
            if outcome.on_member:
                state = member_join.recorded(state, entry, outcome.on_member)
        run.save(state)
    return {outcome.name: outcome for outcome in outcomes}


def _result(outcomes: list[Outcome], on_broken_member: str) -> dict[str, Any]:
    broken = [each for outcome in outcomes if (each := outcome.broken)]
    found = changed_result(
        (change for outcome in outcomes for change in outcome.changes),
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
