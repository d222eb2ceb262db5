# SPDX-License-Identifier: Apache-2.0
"""Everything that can be known before the first change. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils import host_preflight, image_probe
from ansible_collections.karmada.installer.plugins.plugin_utils.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.checks import all_problems, uninstall_problems
from ansible_collections.karmada.installer.plugins.plugin_utils.host_run import HostsRun
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.report import EMPTY_DIR_WARNING
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run_with_hosts import RunWithHosts


class ActionModule(KarmadaAction):
    """Collect every problem; change nothing."""

    # It comes first. Looking for the lock would fail before anything is collected, and only after long retries.
    KEEPS_LOCK: ClassVar[bool] = False

    OPTIONS: ClassVar[dict[str, Any]] = {
        "scope": {"type": "str", "default": "install", "choices": ["install", "uninstall"]},
        "abandon_hosts": {"type": "list", "elements": "str", "default": []},
        "pull_images": {"type": "bool", "default": False},
        "pull_timeout": {"type": "int", "default": 120},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Without problems, say what this run is about to work with."""
        if arguments["scope"] == "uninstall":
            _refuse(uninstall_problems(run, arguments["abandon_hosts"]))
            return {"changed": False, "installed": run.stored_state is not None}
        _refuse(all_problems(run, arguments["abandon_hosts"]))
        for hint in host_preflight.hints(run) if isinstance(run, RunWithHosts) else ():
            run.say(f"hint: {hint}")
        in_pods = not isinstance(run, HostsRun)
        if in_pods and arguments["pull_images"] and run.check:
            run.say("whether images can be pulled is not tried in check mode, because it takes pods")
        elif in_pods and arguments["pull_images"]:
            _refuse(image_probe.problems(run, arguments["pull_timeout"]))
        release, state = run.instance.release, run.stored_state
        if state and state.journal.interrupted:
            run.say(f"the last {state.journal.operation} stopped at: {state.journal.step}; going on from there")
        if run.state.etcd.storage == "emptyDir":
            run.say(f"warning: {EMPTY_DIR_WARNING}")
        return {
            "changed": False,
            "installed": state is not None,
            "versions": {"karmada": release.karmada, "kubernetes": release.kubernetes, "etcd": release.etcd},
            "etcd_storage": run.state.etcd.storage,
        }


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise ProblemsError(problems)
