# SPDX-License-Identifier: Apache-2.0
"""The administrator's kubeconfig, as a Secret and as a file. Documentation: the module of the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils import private_file
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import admin_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import apply_all
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run import manager
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Publish the credentials of a new control plane."""

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Apply the Secret, for programs in the host cluster, and write the file, for the user."""
        changes = run.apply_to_host_cluster("admin kubeconfig", lambda: [admin_kubeconfig.secret(run)])
        if (beside := admin_kubeconfig.beside_object(run)) is not None:
            if away := manager.not_at_home(run):
                raise ProblemsError(away)
            changes += apply_all(manager.home(run), [beside], check=run.check)
        found = changed_result(changes, secret=f"{run.namespace}/{run.instance.object_name('admin-config')}")
        if run.connection.kubeconfig_output:
            path = Path(run.connection.kubeconfig_output)
            action = "changed" if path.exists() else "created"
            if private_file.write(path, admin_kubeconfig.for_person(run), check=run.check):
                found["changed"] = True
                found["changes"].append(f"{action} File {path}")
            found["path"] = str(path)
        return found
