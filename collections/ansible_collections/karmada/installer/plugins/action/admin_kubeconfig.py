# SPDX-License-Identifier: Apache-2.0
"""The administrator's kubeconfig, as a Secret and as a file. Documentation: the module of the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils import private_file
from ansible_collections.karmada.installer.plugins.plugin_utils import render_kubernetes as render
from ansible_collections.karmada.installer.plugins.plugin_utils.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.components import KARMADA_APISERVER
from ansible_collections.karmada.installer.plugins.plugin_utils.instance_facts import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.pki_files import admin_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run


class ActionModule(KarmadaAction):
    """Publish the credentials of a new control plane."""

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """The Secret is for programs in the host cluster, the file for the person at the keyboard."""
        changes = run.apply_to_host("admin kubeconfig", lambda: [_secret(run)])
        found = changed_result(changes, secret=f"{run.namespace}/{run.instance.object_name('admin-config')}")
        if run.connection.kubeconfig_output:
            path = Path(run.connection.kubeconfig_output)
            found["changed"] |= private_file.write(path, _for_person(run), check=run.check)
            found["path"] = str(path)
        return found


def _secret(run: Run) -> Object:
    content = admin_kubeconfig(run.material, run.public_url).encode()
    return render.secret(run.instance, "admin", "admin-config", {"kubeconfig": content})


def _for_person(run: Run) -> str:
    """With a ClusterIP a person gets in by port-forward, and so finds the API server on their own machine."""
    if not run.endpoint_host:
        return admin_kubeconfig(run.material, f"https://localhost:{KARMADA_APISERVER.ports['https']}")
    return admin_kubeconfig(run.material, run.public_url)
