# SPDX-License-Identifier: Apache-2.0
"""What plain hosts have to reach. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils import member_checks, member_reach
from ansible_collections.karmada.installer.plugins.plugin_utils.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.component_types import pushed_members
from ansible_collections.karmada.installer.plugins.plugin_utils.host_run import HostsRun
from ansible_collections.karmada.installer.plugins.plugin_utils.member_plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run


class ActionModule(KarmadaAction):
    """Hand on to each host what it has to reach."""

    # As with preflight, for which this looks.
    KEEPS_LOCK: ClassVar[bool] = False

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Nothing fails here: what is wrong is told by preflight, with everything else."""
        del arguments
        if not isinstance(run, HostsRun):
            raise TypeError("this control plane is not on plain hosts")
        registered = member_checks.registered_clusters(run) if pushed_members(run.spec) else Clusters()
        found = member_reach.targets(run, registered)
        hosts = member_reach.looking(run) if found else []
        for host in hosts:
            run.handover.note(host, targets=[each.plain for each in found])
        return {"changed": False, "hosts": {host: [each.name for each in found] for host in hosts}}
