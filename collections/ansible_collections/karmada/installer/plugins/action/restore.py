# SPDX-License-Identifier: Apache-2.0
"""Steps of a restore. Documentation: the module of the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.backup import encryption, workplace
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight.findings import findings
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import cleanup, take_over
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.carry_out import Done, Restoring, concerned
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.on_hosts import OnHosts, on_a_host
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal, Step
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.take_over import TakingOver
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Begin a restore, take its next step, note the end of one that the role has taken, or remove its old data."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "goal": {"type": "str", "choices": [each.value for each in Goal], "default": Goal.QUARANTINE.value},
        "state": {
            "type": "str",
            "choices": ["begun", "adopted", "next", "delivered", "forgotten", "noted", "cleaned"],
            "default": "next",
        },
        "step": {"type": "str", "choices": ["", *(each.value for each in OnHosts.tasks)], "default": ""},
        "restores": {"type": "list", "elements": "dict", "default": []},
        "backups": {"type": "list", "elements": "dict", "default": []},
        "name": {"type": "str", "default": ""},
        "confirm": {"type": "str", "default": ""},
        "identity": {"type": "path", "default": ""},
        "foreign_agents": {"type": "list", "elements": "str", "default": []},
        "backup": {"type": "str", "default": ""},
        "troubles": {"type": "list", "elements": "str", "default": []},
        "last": {"type": "bool", "default": True},
        "snapshot": {"type": "dict", "default": {}},
        "clusters": {"type": "list", "elements": "str", "default": []},
        "namespaces": {"type": "list", "elements": "str", "default": []},
        "keep": {"type": "list", "elements": "str", "default": []},
        "let_go": {"type": "list", "elements": "str", "default": []},
        "signer": {"type": "str", "default": ""},
        "take_over": {"type": "str", "default": ""},
        "unfenced": {"type": "list", "elements": "str", "default": []},
        "broken": {"type": "list", "elements": "dict", "default": []},
        "timeout": {"type": "int", "default": 600},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Take one step; the role asks again until there is none."""
        if arguments["state"] == "cleaned":
            removed = cleanup.clean(run, arguments["confirm"], arguments["timeout"])
            return {**changed_result(removed), "step": ""}
        restoring = Restoring(run, Goal(arguments["goal"]), _asked(arguments), arguments["timeout"])
        if arguments["state"] in ("begun", "adopted"):
            return _begun(run, restoring, adopted=arguments["state"] == "adopted")
        if arguments["state"] in ("delivered", "forgotten"):
            return _delivered(restoring) if arguments["state"] == "delivered" else _forgotten(arguments["snapshot"])
        if arguments["state"] == "noted":
            done = Done(arguments["backup"], arguments["troubles"], arguments["last"], arguments["broken"])
            ended = run.check or restoring.end(Step(arguments["step"]), done)
            return {"changed": False, "step": arguments["step"], "again": not ended}
        return _next(run, restoring)


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


def _next(run: Run, restoring: Restoring) -> dict[str, Any]:
    """Take the next step, as far as it is taken from here."""
    if run.check and not (run.stored_state and run.stored_state.restore):
        return {"changed": False, "step": "", "tasks": ""}
    step = restoring.next()
    if step is None and not run.check:
        restoring.look_again()
    if step is None or run.check:
        # What comes after it depends on what comes of it.
        changes = [f"changed Restore {step}"] if step else []
        drift = {"drift": restoring.report.plain} if restoring.report else {}
        return {"changed": bool(step), "changes": changes, "step": "", "tasks": "", **drift}
    tasks = restoring.take(step)
    told = {"components": on_a_host(concerned(step)), "series": restoring.series}
    result = changed_result(restoring.changes, step=step.value, tasks=tasks, **told)
    result["changed"] = True
    if restoring.report:
        result["drift"] = restoring.report.plain
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
        keys=encryption.identities_of(identity) if identity else (),
        clusters=arguments["clusters"],
        namespaces=arguments["namespaces"],
        kept=arguments["keep"],
        let_go=arguments["let_go"],
        signer=arguments["signer"],
        take_over=arguments["take_over"],
        unfenced=arguments["unfenced"],
    )
