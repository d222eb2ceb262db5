# SPDX-License-Identifier: Apache-2.0
"""Address of the API server, needed before all else. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.components import endpoint, ip_families
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import KARMADA_APISERVER
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import wait_until
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run

#: Endpoint type → kind of the object whose status has the address.
NAMED_BY_HOST = {"LoadBalancer": "Service", "Route": "Route"}


class ActionModule(KarmadaAction):
    """Apply the Service, Ingress or Route of the API server, and wait for the address that the host cluster assigns."""

    OPTIONS: ClassVar[dict[str, Any]] = {"timeout": {"type": "int", "default": 120}}

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Determine the address before any certificate is issued, because it goes into one."""
        changes = run.apply_to_host_cluster("endpoint", lambda: _objects(run))
        # Preflight could not check this while there was no namespace; nothing runs yet.
        families = run.live.seen_families
        problem = ip_families.problem(run.snapshot.service_subnet, families) if families else None
        if problem:
            raise ProblemsError(problem, consequence="the namespace and the Service stay; run again with another range")
        named_by_host = NAMED_BY_HOST.get(run.spec.endpoint.type)
        if named_by_host and not run.check:
            wait_until(
                run.host_cluster,
                [change.ref for change in changes if change.ref.kind == named_by_host],
                timeout=arguments["timeout"],
                progress=run.say,
                not_ready=lambda live, _related: endpoint.reason_without_address(live),
            )
            run.look_again()
        # The former Ingress or Route stays until the new one exists.
        changes += run.remove_former_passages()
        return changed_result(changes, host=run.endpoint_host, url=run.public_url)


def _objects(run: Run) -> list[Object]:
    service = workloads.component_service(run.instance, KARMADA_APISERVER)
    return [service, *workloads.passage(run.instance, run.place.ingress_controller)]
