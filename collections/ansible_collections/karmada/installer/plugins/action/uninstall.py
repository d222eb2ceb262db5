# SPDX-License-Identifier: Apache-2.0
"""An instance, taken away. Documentation: the module of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils import external_etcd, member_join, removal
from ansible_collections.karmada.installer.plugins.plugin_utils.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.member_join import Entry, Outcome
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run

STAGES = ("confirm", "components", "members", "control_plane", "members_gone", "state")


class ActionModule(KarmadaAction):
    """Remove one part of an instance. An instance that is not there is removed already."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "stage": {"type": "str", "required": True, "choices": list(STAGES)},
        "confirm": {"type": "str", "default": ""},
        "abandon_members": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": int(removal.DELETE_SECONDS)},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Each stage finds out for itself what is left to do, so that it can be run again after any interruption."""
        if run.stored_state is None:
            return self._without_state(run, arguments["stage"], arguments["timeout"])
        stage: str = arguments["stage"]
        timeout: int = arguments["timeout"]
        if stage == "confirm":
            _check(run, arguments)
            return {"changed": False}
        if stage == "members":
            return _clean_members(run, arguments["abandon_members"], timeout)
        if stage == "members_gone":
            return _wait_for_members(run, arguments["abandon_members"], timeout)
        work: dict[str, Callable[[Run, float], list[Change]]] = {
            "components": removal.stop_components,
            "control_plane": removal.remove_control_plane,
            "state": removal.remove_state,
        }
        file_removed = stage == "state" and removal.remove_local_files(run)
        changes = _carried_out(run, stage, lambda: work[stage](run, timeout))
        if stage == "state" and not run.check and run.spec["deletion"]["policy"] == "Retain":
            run.finish()
        found = changed_result(changes)
        found["changed"] |= file_removed
        return found

    def _without_state(self, run: Run, stage: str, timeout: float) -> dict[str, Any]:
        """A run that was killed before it wrote its state left at most a namespace and a Lease of ours."""
        if stage != "state" or run.host.get("v1", "Namespace", run.namespace) is None:
            return {"changed": False, "installed": False}
        return changed_result(removal.remove_state(run, timeout))


def _carried_out(run: Run, stage: str, work: Callable[[], list[Change]]) -> list[Change]:
    if run.check:
        return work()
    with run.writing(f"uninstall: {stage}"):
        return work()


def _check(run: Run, arguments: dict[str, Any]) -> None:
    problems = removal.unreachable_members(run, arguments["abandon_members"]) + external_etcd.release_problems(run)
    if not run.check and arguments["confirm"] != run.name:
        joined = ", ".join(sorted(run.state.members)) or "none"
        data = "is deleted" if run.spec["deletion"]["policy"] == "Delete" else "is kept"
        problems.append(
            Problem(
                what=f"this removes the control plane {run.name}; its data {data}; members that lose it: {joined}",
                where=f"namespace {run.namespace} of the host cluster",
                remedy=f"if that is what you want, say so by its name: -e karmada_confirm={run.name}",
            )
        )
    if problems:
        raise ProblemsError(problems)


def _cleaned(run: Run, abandoned: list[str]) -> list[Entry]:
    return [entry for entry in removal.member_entries(run) if entry["name"] not in abandoned]


def _clean_members(run: Run, abandoned: list[str], timeout: float) -> dict[str, Any]:
    entries = _cleaned(run, abandoned)
    for name in sorted(set(abandoned) & set(run.state.members)):
        left = ", ".join(sorted(run.state.owned.get(f"member/{name}", {})))
        run.say(f"member {name} is given up; left on it: {left}")

    def clean(entry: Entry, outcome: Outcome) -> None:
        outcome.on_member += removal.clean_member(run, entry, timeout)

    if not entries:
        return {"changed": False}
    if run.check:
        outcomes = member_join.of_each(entries, clean)
    else:
        with run.writing("uninstall: members"):
            outcomes = member_join.of_each(entries, clean)
    return _result(outcomes)


def _wait_for_members(run: Run, abandoned: list[str], timeout: float) -> dict[str, Any]:
    """Members are forgotten only when nothing is left on them, so that a run that was killed comes back to them."""
    entries = _cleaned(run, abandoned)
    if run.check or not entries:
        return {"changed": False}
    with run.writing("uninstall: members are gone"):
        outcomes = member_join.of_each(entries, lambda entry, _: removal.wait_for_member(run, entry, timeout))
        state = run.state
        for outcome in outcomes:
            state = state if outcome.problem else state.without_member(outcome.name)
        run.save(state)
    return _result(outcomes)


def _result(outcomes: list[Outcome]) -> dict[str, Any]:
    found = changed_result(change for outcome in outcomes for change in outcome.changes)
    broken = [f"  - {outcome.name}: {outcome.problem}" for outcome in outcomes if outcome.problem]
    if broken:
        found.update(failed=True, msg="\n".join([f"{len(broken)} members could not be cleaned:", *broken]))
    return found
