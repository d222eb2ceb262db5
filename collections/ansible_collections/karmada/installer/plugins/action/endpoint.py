# SPDX-License-Identifier: Apache-2.0
"""The address of the API server, before anything needs it. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils import endpoint, ip_families
from ansible_collections.karmada.installer.plugins.plugin_utils import render_kubernetes as render
from ansible_collections.karmada.installer.plugins.plugin_utils.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.components import KARMADA_APISERVER
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.wait import wait_until


class ActionModule(KarmadaAction):
    """Make the Service, and wait for what only the host cluster can say: the address of a load balancer."""

    OPTIONS: ClassVar[dict[str, Any]] = {"timeout": {"type": "int", "default": 120}}

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """The address goes into a certificate, so it has to be known before any is issued."""
        changes = run.apply_to_host("endpoint", lambda: [render.component_service(run.instance, KARMADA_APISERVER)])
        # Preflight could not see this while there was no namespace; nothing runs yet.
        problem = ip_families.problem(run.service_subnet, run.seen_families) if run.seen_families else None
        if problem:
            raise ProblemsError(problem, consequence="the namespace and the Service stay; run again with another range")
        if run.spec["endpoint"]["type"] == "LoadBalancer" and not run.check:
            wait_until(
                run.host,
                [change.ref for change in changes],
                timeout=arguments["timeout"],
                progress=run.say,
                not_ready=lambda service, _related: (
                    None
                    if endpoint.address_of_load_balancer(service)
                    else "the load balancer has given it no address yet"
                ),
            )
            run.forget_endpoint()
        return changed_result(changes, host=run.endpoint_host, url=run.public_url)
