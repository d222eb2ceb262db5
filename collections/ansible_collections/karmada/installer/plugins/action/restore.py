# SPDX-License-Identifier: Apache-2.0
"""Steps of a restore. Documentation: the module of the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.backup import encryption, workplace
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import Part, parts_of
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight.findings import findings
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import cleanup, survivor, take_over
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.carry_out import Restoring
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.on_hosts import OnHosts, on_a_host
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal, Step
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.take_over import TakingOver
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.turn import Done, concerned, turned
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.delegated_host import DelegableAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(DelegableAction):
    """Begin a restore, take its next step, note the end of one that the role has taken, or remove its old data."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "goal": {"type": "str", "choices": [each.value for each in Goal], "default": Goal.QUARANTINE.value},
        "state": {
            "type": "str",
            "choices": ["judged", "begun", "adopted", "next", "held", "delivered", "forgotten", "cleaned", "removed"],
            "default": "next",
        },
        "step": {"type": "str", "choices": ["", *(each.value for each in OnHosts.tasks)], "default": ""},
        "restores": {"type": "list", "elements": "dict", "default": []},
        "backups": {"type": "list", "elements": "dict", "default": []},
        "name": {"type": "str", "default": ""},
        "confirm": {"type": "str", "default": ""},
        "identity": {"type": "path", "default": ""},
        "foreign_agents": {"type": "list", "elements": "str", "default": []},
        "without_backup": {"type": "str", "default": ""},
        "survivor": {"type": "str", "default": ""},
        "backup": {"type": "str", "default": ""},
        "troubles": {"type": "list", "elements": "str", "default": []},
        "last": {"type": "bool", "default": True},
        "snapshot": {"type": "dict", "default": {}},
        "clusters": {"type": "list", "elements": "str", "default": []},
        "namespaces": {"type": "list", "elements": "str", "default": []},
        "parts": {"type": "list", "elements": "dict", "default": []},
        "keep": {"type": "list", "elements": "str", "default": []},
        "let_go": {"type": "list", "elements": "str", "default": []},
        "signer": {"type": "str", "default": ""},
        "take_over": {"type": "str", "default": ""},
        "unfenced": {"type": "list", "elements": "str", "default": []},
        "joined": {"type": "list", "elements": "str", "default": []},
        "broken": {"type": "list", "elements": "dict", "default": []},
        "timeout": {"type": "int", "default": 600},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Take one step; the role asks again until there is none."""
        if arguments["state"] in ("cleaned", "removed"):
            return _cleaned(run, arguments)
        restoring = Restoring(run, Goal(arguments["goal"]), _asked(arguments), arguments["timeout"])
        if arguments["state"] == "judged":
            earlier = run.stored_state.restore if run.stored_state else None
            return {"changed": False, "sender": survivor.sender(run, restoring.asked, earlier)}
        if arguments["state"] in ("begun", "adopted"):
            try:
                return _begun(run, restoring, adopted=arguments["state"] == "adopted")
            finally:
                _forgotten(arguments["snapshot"])
        if arguments["state"] in ("delivered", "forgotten"):
            return _delivered(restoring) if arguments["state"] == "delivered" else _forgotten(arguments["snapshot"])
        if run.check:
            return _predicted(restoring)
        return _held(restoring) if arguments["state"] == "held" else _turned(restoring, arguments)


def _cleaned(run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
    """Remove old data from volumes; of plain hosts, tell what is to go there, or note that it has gone."""
    if not ETCD.is_on_hosts(run.spec):
        removed = cleanup.clean(run, arguments["confirm"], arguments["timeout"])
        return {**changed_result(removed), "step": "", "on_hosts": False}
    if arguments["state"] == "cleaned":
        return {"changed": False, "step": "", "on_hosts": cleanup.begin(run, arguments["confirm"])}
    if not run.check:
        cleanup.end(run)
    return {"changed": False, "step": ""}


def _begun(run: Run, restoring: Restoring, *, adopted: bool) -> dict[str, Any]:
    """Begin a restore, or a move to here."""
    if not adopted and (run.stored_state is None or take_over.is_under_way(run.stored_state)):
        return _taken_over(run, restoring)
    if adopted:
        TakingOver(run, restoring.asked, restoring.means).begin()
    else:
        take_over.refuse_place_of_another(run, restoring.asked)
    begins = adopted or restoring.begin()
    return {"changed": begins, "changes": [f"began Restore {run.name}"] if begins else [], "step": ""}


def _taken_over(run: Run, restoring: Restoring) -> dict[str, Any]:
    """Have the keys of a backup be the first state of this place, unless an earlier run has done so."""
    taking = TakingOver(run, restoring.asked, restoring.means)
    if taking.goes_on():
        return {"changed": False, "step": "", "adopted": not run.check}
    taking.judge()
    # By the state that this place would get: what members have of the control plane is ours then.
    if problems := findings(run).all:
        raise ProblemsError(problems, "nothing was changed")
    if not run.check:
        taking.adopt()
    return {"changed": True, "changes": [f"took {run.name} over"], "step": "", "adopted": not run.check}


def _predicted(restoring: Restoring) -> dict[str, Any]:
    """Name the next step. What comes after it depends on what comes of it."""
    step = restoring.predicted()
    changes = [f"changed Restore {step}"] if step else []
    return {"changed": bool(step), "changes": changes, "step": "", "tasks": "", "goes_on": False}


def _held(restoring: Restoring) -> dict[str, Any]:
    """Write what holds members, and what lets others go, as it is on record."""
    anew = restoring.release.begin()
    return changed_result(restoring.changes, anew=anew)


def _turned(restoring: Restoring, arguments: dict[str, Any]) -> dict[str, Any]:
    """End the step whose rest tasks of the role have done, and take what comes next, up to a step with tasks."""
    taken = Step(arguments["step"]) if arguments["step"] else None
    done = Done(arguments["backup"], arguments["troubles"], arguments["last"], arguments["joined"], arguments["broken"])
    turn = turned(restoring, taken, done)
    told: dict[str, Any] = {"step": "", "tasks": turn.tasks, "again": turn.again, "goes_on": turn.goes_on}
    if turn.step:
        told |= {
            "step": turn.step.value,
            "components": on_a_host(concerned(turn.step, restoring.means.stops)),
            "series": restoring.series,
        }
    elif not taken:
        restoring.look_again()
    result = changed_result(restoring.changes, **told)
    result["changed"] = bool(turn.step) and not turn.again
    if restoring.report:
        result["drift"] = restoring.report.plain
    # Also if more is asked for, which may be refused.
    released = restoring.release.told()
    if released is not None:
        result["released"] = released
    return result


def _delivered(restoring: Restoring) -> dict[str, Any]:
    found = restoring.deliver()
    return {"changed": False, "snapshot": {"file": str(found.path), "size": found.size, "digest": found.digest}}


def _forgotten(snapshot: dict[str, Any]) -> dict[str, Any]:
    if file := snapshot.get("file"):
        workplace.remove(Path(file).parent)
    return {"changed": False}


def _asked(arguments: dict[str, Any]) -> Asked:
    identity = arguments["identity"]
    return Asked(
        restores=arguments["restores"],
        backups=arguments["backups"],
        name=arguments["name"],
        confirm=arguments["confirm"],
        foreign_agents=arguments["foreign_agents"],
        without_backup=arguments["without_backup"],
        survivor=arguments["survivor"],
        fetched=arguments["snapshot"] if arguments["state"] == "begun" else {},
        keys=encryption.identities_of(identity) if identity else (),
        parts=_parts(arguments),
        kept=arguments["keep"],
        let_go=arguments["let_go"],
        signer=arguments["signer"],
        take_over=arguments["take_over"],
        unfenced=arguments["unfenced"],
    )


def _parts(arguments: dict[str, Any]) -> tuple[Part, ...]:
    """Parts of a release: those that were named together, and the one whose names stand in variables of their own.

    Raises ProblemsError: a part that is misspelt must not become everything.
    """
    one = {name: arguments[name] for name in ("clusters", "namespaces") if arguments[name]}
    together = "name clusters, namespaces or both in each, as in [{clusters: [member2], namespaces: [shop]}]"
    alone = "name clusters and namespaces that there are; an empty name comes of a variable that is not set"
    return (
        *_parts_in("restore_release_parts", arguments["parts"], together),
        *_parts_in("restore_release_clusters, restore_release_namespaces", [one] if one else [], alone),
    )


def _parts_in(variables: str, written: list[dict[str, Any]], remedy: str) -> tuple[Part, ...]:
    try:
        return parts_of(written)
    except ValueError as error:
        problem = Problem(str(error), variables, remedy, reason=Reason.INVALID_ARGUMENT)
        raise ProblemsError(problem, "nothing was released") from None
