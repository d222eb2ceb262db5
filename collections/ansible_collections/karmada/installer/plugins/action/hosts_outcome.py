# SPDX-License-Identifier: Apache-2.0
"""Progress of a run on plain hosts. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.report import host_outcome
from ansible_collections.karmada.installer.plugins.plugin_utils.report.host_outcome import Reached
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Fail with the progress, unless the run was completed."""

    KEEPS_LOCK: ClassVar[bool] = False

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Report the progress of this run only; a journal that another run left open does not count."""
        del arguments
        # Problems of hosts that only serve members are reported with these members.
        hosts = {name: host for name, host in run.hosts.items() if not host.is_of_members}
        in_trouble = any(run.observed[name].lost or run.observed[name].stopped for name in hosts)
        if run.place.in_pods and not in_trouble:
            # The failure is in the pods above, and was reported.
            return {"changed": False}
        observed, reached = {name: run.observed[name] for name in hosts}, _reached(run, in_trouble)
        if found := host_outcome.problems(hosts, observed, reached, run.spec.ssh_user):
            raise ProblemsError(found, reached.value)
        return {"changed": False}


def _reached(run: Run, in_trouble: bool) -> Reached:
    """Progress of this run; ``in_trouble`` says whether a host was lost or could not carry out a step."""
    journal = run.stored_state.journal if run.stored_state else None
    if journal is not None and journal.run == run.holder:
        return Reached.PART if journal.interrupted else Reached.END
    # Members and what is inside a control plane are changed without a journal on hosts.
    changed = run.handover.changes or any(each.done for each in run.observed.values())
    return Reached.PART if in_trouble and changed and not run.check else Reached.NO_CHANGE
