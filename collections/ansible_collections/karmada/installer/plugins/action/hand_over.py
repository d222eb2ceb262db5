# SPDX-License-Identifier: Apache-2.0
"""Steps of a hand-over. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.restore.hand_over import Asked, HandingOver
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.on_hosts import OnHosts, on_a_host
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import STOPS, Step
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.turn import Done, concerned, turned
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.delegated_host import DelegableAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(DelegableAction):
    """Begin a hand-over or its way back, and take its next step."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "choices": ["begun", "next"], "default": "next"},
        "step": {"type": "str", "choices": ["", *(each.value for each in OnHosts.tasks)], "default": ""},
        "backups": {"type": "list", "elements": "dict", "default": []},
        "to": {"type": "str", "default": ""},
        "confirm": {"type": "str", "default": ""},
        "undo": {"type": "bool", "default": False},
        "without": {"type": "list", "elements": "str", "default": []},
        "backup": {"type": "str", "default": ""},
        "troubles": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": 600},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Take one step; the role asks again until there is none."""
        wishes = {name: arguments[name] for name in ("backups", "to", "confirm", "undo", "without")}
        handing = HandingOver(run, Asked(**wishes), arguments["timeout"])
        if arguments["state"] == "begun":
            begins = handing.begin()
            return {"changed": begins, "changes": [f"handed over {run.name}"] if begins else [], "step": ""}
        if run.check:
            return _predicted(run, handing)
        taken = Step(arguments["step"]) if arguments["step"] else None
        return _turned(handing, taken, Done(arguments["backup"], arguments["troubles"]))


def _predicted(run: Run, handing: HandingOver) -> dict[str, Any]:
    """Name the next step. What comes after it depends on what comes of it."""
    step = handing.next()
    changes = [f"handed over {run.name}: {step}"] if step else []
    return {"changed": bool(step), "changes": changes, "step": "", "tasks": "", "goes_on": False, **handing.told()}


def _turned(handing: HandingOver, taken: Step | None, done: Done) -> dict[str, Any]:
    """End the step whose rest tasks of the role have done, and take what comes next, up to a step with tasks."""
    turn = turned(handing, taken, done)
    told: dict[str, Any] = {"step": "", "tasks": turn.tasks, "goes_on": turn.goes_on, "series": handing.series}
    if turn.step:
        told |= {"step": turn.step.value, "components": on_a_host(concerned(turn.step, STOPS))}
    return {**changed_result(handing.changes, **told), "changed": bool(turn.step), **handing.told()}
