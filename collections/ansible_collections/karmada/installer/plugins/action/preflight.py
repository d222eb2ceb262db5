# SPDX-License-Identifier: Apache-2.0
"""Checks before the first change. Documentation: the module of the same name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.components import image_pins
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import pod_components
from ansible_collections.karmada.installer.plugins.plugin_utils.members import broken as broken_members
from ansible_collections.karmada.installer.plugins.plugin_utils.members.broken import BrokenMember
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import (
    document_seen,
    host_preflight,
    image_probe,
    reach_from_pods,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight.findings import (
    EtcdMembersAsked,
    Findings,
    findings,
    uninstall_problems,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.report.report import EMPTY_DIR_WARNING
from ansible_collections.karmada.installer.plugins.plugin_utils.run import selection as selected_members
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Collect every problem; change nothing."""

    # It runs first. A check of the lock would fail before problems are collected, and only after long retries.
    KEEPS_LOCK: ClassVar[bool] = False

    OPTIONS: ClassVar[dict[str, Any]] = {
        "scope": {"type": "str", "default": "install", "choices": ["install", "uninstall"]},
        "abandon_hosts": {"type": "list", "elements": "str", "default": []},
        "confirm_host_cluster": {"type": "str", "default": ""},
        "confirm_etcd_members": {"type": "int", "default": 0},
        "document_seen": {"type": "dict", "default": {}},
        "etcd_replace": {"type": "list", "elements": "str", "default": []},
        "etcd_abandon_nodes": {"type": "list", "elements": "str", "default": []},
        "on_broken_member": broken_members.OPTION,
        "pull_images": {"type": "bool", "default": False},
        "pull_timeout": {"type": "int", "default": 120},
        "reach_members": {"type": "bool", "default": False},
        "reach_timeout": {"type": "int", "default": 60},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Fail with all problems; without any, report what this run will work with."""
        if arguments["scope"] == "uninstall":
            _refuse(uninstall_problems(run, arguments["abandon_hosts"], arguments["confirm_host_cluster"]))
            return {"changed": False, "installed": run.stored_state is not None}
        etcd_members = EtcdMembersAsked(
            arguments["confirm_etcd_members"],
            tuple(arguments["etcd_replace"]),
            tuple(arguments["etcd_abandon_nodes"]),
        )
        found = findings(run, arguments["abandon_hosts"], arguments["confirm_host_cluster"], etcd_members)
        if changed := document_seen.problems(run, arguments["document_seen"], answers=not found.problems):
            found = replace(found, problems=[*changed, *found.problems])
        if arguments["reach_members"] and run.check:
            run.tell(
                Problem.hint("what pods reach is not tried in check mode, because it takes pods", Reason.CHECK_SKIPPED)
            )
        elif arguments["reach_members"] and not found.problems:
            found = found.with_members(reach_from_pods.problems(run, arguments["reach_timeout"]))
        _refuse(found.all if found.problems or arguments["on_broken_member"] == broken_members.FAIL else [])
        broken = _told(run, found)
        for hint in host_preflight.hints(run) if run.hosts else ():
            run.tell(hint)
        if unpinned := image_pins.notice(run.instance):
            run.tell(Problem.hint(unpinned, Reason.IMAGE_NOT_PINNED))
        pulls = arguments["pull_images"] and pod_components(run.spec)
        if pulls and run.check:
            run.tell(
                Problem.hint(
                    "whether images can be pulled is not tried in check mode, because it takes pods",
                    Reason.CHECK_SKIPPED,
                )
            )
        elif pulls:
            _refuse(image_probe.problems(run, arguments["pull_timeout"]))
        release, state = run.instance.release, run.stored_state
        if state and state.journal.interrupted:
            run.tell(
                Problem.hint(
                    f"the last {state.journal.operation} stopped at: {state.journal.step}; going on from there",
                    Reason.INTERRUPTED_RUN,
                )
            )
        if run.state.etcd.storage == "emptyDir":
            run.tell(Problem.warning(EMPTY_DIR_WARNING, Reason.DATA_NOT_DURABLE))
        return {
            "changed": False,
            "installed": state is not None,
            "versions": {"karmada": release.karmada, "kubernetes": release.kubernetes, "etcd": release.etcd},
            "etcd_storage": run.state.etcd.storage,
            "broken_members": [each.plain for each in broken],
            "document_seen": document_seen.of_run(run),
        }


def _told(run: Run, found: Findings) -> list[BrokenMember]:
    """Report the members that cannot be worked on, and return them."""
    broken = [BrokenMember.of_problems(name, problems) for name, problems in found.members.items()]
    if broken:
        head = f"{len(broken)} of {len(selected_members.entries(run))} members cannot be worked on and stay as they are"
        rest = "The run does all the rest, and fails at its end:"
        run.say("\n".join([f"{head}. {rest}", *broken_members.listing(broken)]))
    return broken


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise ProblemsError(problems)
