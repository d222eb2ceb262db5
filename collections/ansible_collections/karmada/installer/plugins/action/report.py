# SPDX-License-Identifier: Apache-2.0
"""Report on an instance. Documentation: the module of the same name."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils import private_file, run_process
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import series
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD, KARMADA_APISERVER
from ansible_collections.karmada.installer.plugins.plugin_utils.document.inventory_source import short
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.members.broken import BrokenMember, listing
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Severity
from ansible_collections.karmada.installer.plugins.plugin_utils.report import (
    artifact,
    block,
    forms,
    predicted,
    report,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.report.observe import observe
from ansible_collections.karmada.installer.plugins.plugin_utils.report.observe_hosts import (
    observe_etcd_on_hosts,
    observe_hosts,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.run import manager
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.said import say_report


def _failure(broken: list[BrokenMember]) -> str:
    """Message with which the run fails although it was completed; empty if it succeeds."""
    if not broken:
        return ""
    head = f"everything else is done, but {len(broken)} of the members {'is' if len(broken) == 1 else 'are'}"
    return "\n".join([f"{head} not as the document says:", *listing(broken)])


def _observe(run: Run) -> report.Observation:
    """Observe everything where it runs."""
    if KARMADA_APISERVER.is_on_hosts(run.spec):
        return observe_hosts(run)
    return observe_etcd_on_hosts(run) if ETCD.is_on_hosts(run.spec) else observe(run)


def _tell_of_another_cluster(run: Run) -> None:
    """Tell that the object of this run is not where its kubeconfig leads, so that nothing of it is found there."""
    with suppress(ApiError, ProblemsError):
        for each in manager.not_at_home(run):
            run.tell(replace(each, severity=Severity.WARNING))


def _about(run: Run, observed: report.Observation, made: list[str]) -> block.About:
    """Facts of the block beside the observations. A check names no file, because it writes none."""
    there = bool(observed.components)
    about = block.About(
        name=run.name,
        release=run.instance.release.karmada,
        place=run.place.where,
        check=run.check,
        installed=run.stored_state is not None,
        changes=made,
        address=run.public_url if there else "",
        names_unpinned=run.operation == "report",
    )
    if run.check:
        return about
    kubeconfig, tunnel = run.connection.kubeconfig_output or "", ""
    if there and kubeconfig and not run.endpoint_host:
        service = f"service/{run.instance.object_name('karmada-apiserver')}"
        tunnel = f"kubectl port-forward -n {run.namespace} {service} 5443:5443"
    return replace(
        about,
        seconds=run_process.seconds_since_start(run_process.main_pid()),
        tunnel=tunnel,
        kubeconfig=short(kubeconfig) if there and kubeconfig else "",
        report_file=short(run.connection.report_output) if run.connection.report_output else "",
    )


class ActionModule(KarmadaAction):
    """Observe the instance; change nothing there."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "broken_members": {"type": "list", "elements": "dict", "default": []},
        "form": {"type": "str", "default": forms.JSON},
        "fail_on_drift": {"type": "bool", "default": False},
        "backups": {"type": "list", "elements": "dict", "default": []},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Show the report, leave it in its files, and return it as data."""
        wrong = forms.problem(arguments["form"], run.connection.report_output)
        if wrong:
            raise ProblemsError(wrong)
        _tell_of_another_cluster(run)
        broken = [BrokenMember.of(each) for each in arguments["broken_members"]]
        observed = replace(_observe(run), broken_members=broken, changes=run.handover.changes, check=run.check)
        names = series.names(run, arguments["backups"])
        if names is not None:
            # One that somebody has taken away is overdue for ever, and one that has no backup yet is not on record.
            observed = replace(observed, backups={name: observed.backups.get(name) for name in names})
        status = report.status(observed, run.former_report)
        if run.connection.report_output and not run.check:
            # An observation, not part of the wanted state: writing it does not count as a change.
            private_file.write(Path(run.connection.report_output), json.dumps(status, indent=2) + "\n")
        page_file = run.connection.page_output if arguments["form"] == forms.HTML and not run.check else None
        if page_file:
            # Only this form of the report needs it.
            from ansible_collections.karmada.installer.plugins.plugin_utils.report.html.page import (  # noqa: PLC0415
                page,
            )

            private_file.write(Path(page_file), page(run.name, run.namespace, status, run.now))
        made = [str(each) for each in observed.changes]
        about = replace(_about(run, observed, made), page_file=short(page_file) if page_file else "")
        summary = block.text(observed, about).splitlines()
        say_report(summary)
        drift = predicted.failure(run.name, observed.changes) if run.check and arguments["fail_on_drift"] else ""
        return {
            "changed": False,
            "status": status,
            "artifact": artifact.of_status(status),
            "warnings_found": [str(each) for each in report.warnings(observed)],
            "problems": [each.plain for each in report.problems(observed)],
            "summary": summary,
            "failure": "\n".join(filter(None, [_failure(broken), drift])),
        }
