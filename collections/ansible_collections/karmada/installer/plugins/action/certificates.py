# SPDX-License-Identifier: Apache-2.0
"""Keys and certificates of an instance, as Secrets of its namespace. Documentation: the module of the same name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import pod_components
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import certificates
from ansible_collections.karmada.installer.plugins.plugin_utils.pki.files import certificate_files
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Issue certificates that are missing or invalid; leave the rest untouched."""

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Report why each leaf certificate was issued again, and when each certificate expires."""
        reasons = run.snapshot.issued.reasons
        changes = run.apply_to_host_cluster("certificates", lambda: _secrets(run))
        for name, why in _worth_telling(run, reasons).items():
            run.say(f"{'would issue' if run.check else 'issued'} {name}: {' '.join(why)}")
        return changed_result(changes, reissued=dict(reasons), expiries=certificates.expiries(run.material))


def _worth_telling(run: Run, reasons: Mapping[str, list[str]]) -> Mapping[str, list[str]]:
    """Reasons to report; a first install issues all certificates, which is not worth a message."""
    return {} if len(reasons) == len(run.material.leaves) else reasons


def _secrets(run: Run) -> list[Object]:
    admin = certificates.ADMIN_FILES
    components = [
        each
        for each in pod_components(run.spec, run.instance.pushed)
        # That of a member which is not joined gets its first one with the rest of what it needs.
        if not each.member or all(leaf.name in run.material.leaves for leaf in each.certificates)
    ]
    return [
        *workloads.file_set_secrets(run.instance, run.layout, run.material, components),
        workloads.secret(run.instance, "admin", admin.name, certificate_files(admin.certificate, run.material)),
    ]
