# SPDX-License-Identifier: Apache-2.0
"""Components as pods of the host cluster. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    BY_NAME,
    ETCD,
    KARMADA_APISERVER,
    pod_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import removal
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import members as etcd_members
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import NotReady, wait_until
from ansible_collections.karmada.installer.plugins.plugin_utils.report import observe_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Apply the workloads of some components, and wait until they are ready."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "components": {"type": "list", "elements": "str", "required": True, "choices": list(BY_NAME)},
        "apply": {"type": "bool", "default": True},
        "wait": {"type": "bool", "default": True},
        "remove_unwanted": {"type": "bool", "default": True},
        "timeout": {"type": "int", "default": 300},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Apply and wait; when etcd is healthy for the first time, its members may never found a cluster again."""
        names: list[str] = arguments["components"]
        # Per-member components are created when members join.
        names = [name for name in names if not (BY_NAME[name].per_member and BY_NAME[name].is_wanted(run.spec))]
        wanted = [name for name in names if BY_NAME[name] in pod_components(run.spec)]
        changes: list[Change] = []
        if arguments["apply"]:
            if wanted:
                changes += run.apply_to_host_cluster(f"start {', '.join(wanted)}", lambda: run.workloads(wanted))
            if arguments["remove_unwanted"]:
                changes += run.remove_from_host_cluster(
                    "take away what is not wanted", removal.unwanted(run, names, changes)
                )
        if run.check or not arguments["wait"]:
            return changed_result(changes)
        workloads = [run.workload(name) for name in wanted]
        try:
            wait_until(run.host_cluster, workloads, timeout=arguments["timeout"], progress=run.say)
        except NotReady as error:
            if KARMADA_APISERVER.name not in wanted or not ETCD.is_on_hosts(run.spec):
                raise
            raise error.with_hint(observe_hosts.hint_at_etcd(run)) from None
        if ETCD.name in wanted and not run.state.etcd.bootstrapped:
            changes = [*changes, *_end_bootstrap(run)]
        return changed_result(changes)


def _end_bootstrap(run: Run) -> list[Change]:
    """End etcd's bootstrap: from now on a member without its disk waits for replacement and founds no cluster."""
    run.etcd_bootstrapped()
    etcd_members.note(run)
    changes = run.apply_to_host_cluster("end the bootstrap of etcd", lambda: run.workloads([ETCD.name]))
    return [change for change in changes if change.ref == Ref("v1", "ConfigMap", _config_map(run), run.namespace)]


def _config_map(run: Run) -> str:
    return run.instance.object_name("etcd-config")
