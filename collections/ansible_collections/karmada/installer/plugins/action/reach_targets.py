# SPDX-License-Identifier: Apache-2.0
"""Targets that plain hosts must reach. Documentation: the module of the same name."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import KARMADA_CONTROLLER_MANAGER
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import (
    members_with_agent_hosts,
    pushed_members,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import ways_on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import member_checks, reach_from_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.reach import Target
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Hand on to each host its targets."""

    # As for preflight, which uses the result.
    KEEPS_LOCK: ClassVar[bool] = False

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Determine the targets without failing: preflight reports problems, with all others."""
        del arguments
        # Beneath a control plane in pods, it is the pods that reach members.
        hosts = _of_members(run) if KARMADA_CONTROLLER_MANAGER.is_on_hosts(run.spec) else {}
        # Whether the host cluster answers, and its state can be read, is told by preflight.
        with suppress(ApiError, ProblemsError):
            for host, peers in ways_on_hosts.targets(run).items():
                hosts[host] = [*hosts.get(host, ()), *peers]
        for host, targets in hosts.items():
            run.handover.note(host, targets=tuple(targets))
        return {"changed": False, "hosts": {host: [each.name for each in targets] for host, targets in hosts.items()}}


def _of_members(run: Run) -> dict[str, list[Target]]:
    """Host → what it has to reach for the members that it serves."""
    looked_at = pushed_members(run.spec) or members_with_agent_hosts(run.spec)
    registered = member_checks.registered_clusters(run) if looked_at else Clusters()
    found = [*reach_from_hosts.targets(run, registered), *reach_from_hosts.endpoint_name(run)]
    hosts = dict.fromkeys(reach_from_hosts.looking(run), found) if found else {}
    return hosts | reach_from_hosts.for_agents(run, registered)
