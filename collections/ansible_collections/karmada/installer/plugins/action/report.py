# SPDX-License-Identifier: Apache-2.0
"""Report on an instance. Documentation: the module of the same name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils import private_file
from ansible_collections.karmada.installer.plugins.plugin_utils.components import image_pins
from ansible_collections.karmada.installer.plugins.plugin_utils.members.broken import BrokenMember, listing
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.report import forms, report
from ansible_collections.karmada.installer.plugins.plugin_utils.report.html.page import page
from ansible_collections.karmada.installer.plugins.plugin_utils.report.observe import observe
from ansible_collections.karmada.installer.plugins.plugin_utils.report.observe_hosts import (
    observe_etcd_on_hosts,
    observe_hosts,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


def _former(path: str | None) -> dict[str, Any] | None:
    """Report of an earlier run; None if there is none or it cannot be read."""
    try:
        found = json.loads(Path(path).read_text()) if path else None
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _failure(broken: list[BrokenMember]) -> str:
    """Message with which the run fails although it was completed; empty if it succeeds."""
    if not broken:
        return ""
    head = f"everything else is done, but {len(broken)} of the members {'is' if len(broken) == 1 else 'are'}"
    return "\n".join([f"{head} not as the document says:", *listing(broken)])


def _observe(run: Run) -> report.Observation:
    if not run.place.in_pods:
        return observe_hosts(run)
    return observe_etcd_on_hosts(run) if run.place.etcd_apart else observe(run)


class ActionModule(KarmadaAction):
    """Observe the instance; change nothing there."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "broken_members": {"type": "list", "elements": "dict", "default": []},
        "form": {"type": "str", "default": forms.JSON},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the status as data, and a summary for the user."""
        wrong = forms.problem(arguments["form"], run.connection.report_output)
        if wrong:
            raise ProblemsError(wrong)
        broken = [BrokenMember.of(each) for each in arguments["broken_members"]]
        observed = replace(_observe(run), broken_members=broken)
        hints = []
        if run.connection.kubeconfig_output:
            hints.append(f"kubeconfig  {run.connection.kubeconfig_output}")
            if not run.endpoint_host:
                service = f"service/{run.instance.object_name('karmada-apiserver')}"
                hints.append(f"reach it by kubectl port-forward -n {run.namespace} {service} 5443:5443")
        status = report.status(observed, _former(run.connection.report_output))
        if run.connection.report_output:
            # An observation, not part of the wanted state: writing it does not count as a change.
            if not run.check:
                private_file.write(Path(run.connection.report_output), json.dumps(status, indent=2) + "\n")
            hints.append(f"report      {run.connection.report_output}")
        if arguments["form"] == forms.HTML and run.connection.page_output and not run.check:
            text = page(run.name, run.namespace, status, run.now)
            private_file.write(Path(run.connection.page_output), text)
            hints.append(f"page        {run.connection.page_output}")
        if unpinned := image_pins.notice(run.instance):
            hints.append(f"images      {unpinned}")
        summary = report.text(run.name, observed, hints)
        return {
            "changed": False,
            "status": status,
            "warnings_found": [str(each) for each in report.warnings(observed)],
            "problems": [each.plain for each in report.problems(observed)],
            "summary": summary.splitlines(),
            "failure": _failure(broken),
        }
