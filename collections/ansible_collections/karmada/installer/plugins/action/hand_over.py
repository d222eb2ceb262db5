# SPDX-License-Identifier: Apache-2.0
"""Steps of a hand-over. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.restore.hand_over import Asked, HandingOver
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.on_hosts import OnHosts, on_a_host
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Step
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.turn import Done, concerned
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Begin a hand-over or its way back, take its next step, or note the end of one that the role has taken."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "choices": ["begun", "next", "noted"], "default": "next"},
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
        if arguments["state"] == "noted":
            if not run.check:
                handing.end(Step(arguments["step"]), Done(arguments["backup"], arguments["troubles"]))
            return {"changed": False, "step": arguments["step"]}
        return _next(run, handing)


def _next(run: Run, handing: HandingOver) -> dict[str, Any]:
    """Take the next step, as far as it is taken from here."""
    if step := handing.next():
        if run.check:
            # What comes after it depends on what comes of it.
            return {"changed": True, "changes": [f"handed over {run.name}: {step}"], "step": "", "tasks": ""}
        tasks, series = handing.take(step), handing.series
        result = changed_result(handing.changes, step=step.value, tasks=tasks, series=series)
        return {**result, "changed": True, "components": on_a_host(concerned(step))}
    return {"changed": False, "step": "", "tasks": "", **handing.told()}
