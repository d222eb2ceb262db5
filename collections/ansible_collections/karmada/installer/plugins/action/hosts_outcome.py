# SPDX-License-Identifier: Apache-2.0
"""How far a run on plain hosts has come. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils import host_outcome
from ansible_collections.karmada.installer.plugins.plugin_utils.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.host_outcome import Reached
from ansible_collections.karmada.installer.plugins.plugin_utils.host_run import HostsRun
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run


class ActionModule(KarmadaAction):
    """Fail with it, unless the run came to its end."""

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """A journal that another run left open tells nothing of this one."""
        del arguments
        if not isinstance(run, HostsRun):
            raise TypeError("a control plane in pods has no plain hosts")
        user = run.spec["ssh"].get("user", "")
        reached = _reached(run)
        if found := host_outcome.problems(run.hosts, run.observed, reached, user):
            raise ProblemsError(found, reached.value)
        return {"changed": False}


def _reached(run: HostsRun) -> Reached:
    journal = run.stored_state.journal if run.stored_state else None
    if journal is None or journal.run != run.holder:
        return Reached.NO_CHANGE
    return Reached.PART if journal.interrupted else Reached.END
