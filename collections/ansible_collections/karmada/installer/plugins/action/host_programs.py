# SPDX-License-Identifier: Apache-2.0
"""Programs of the components of one plain host. Documentation: the module of the same name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils import render_systemd as render
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import Source
from ansible_collections.karmada.installer.plugins.plugin_utils.components import BY_NAME
from ansible_collections.karmada.installer.plugins.plugin_utils.host_action import (
    CONTROL,
    HostAction,
    plain,
    view_of,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.host_run import OBSERVED
from ansible_collections.karmada.installer.plugins.plugin_utils.programs import programs

#: Architectures by the name that the kernel has for them.
ARCHITECTURES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}


class ActionModule(HostAction):
    """Get what the host needs, look what it lacks, send that."""

    TRANSFERS_FILES = True

    def perform(self, variables: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
        """A program that is there costs no transfer, only a look at its checksum."""
        view = view_of(variables)
        components = view.components(BY_NAME)
        settings = view.spec["artifacts"]
        directory = plain(variables["hostvars"][CONTROL]["karmada_connection"]).get("artifacts")
        found = programs(
            view.instance.release,
            ARCHITECTURES[variables[OBSERVED]["facts"]["architecture"]],
            components,
            view.spec,
            Source(settings["source"], settings.get("url"), Path(directory) if directory else None),
        )
        wanted = [
            {"path": render.program(view.instance, component), "sha256": found[component.name].sha256}
            for component in components
        ]
        looked = self.on_host("host_programs", variables, programs=wanted)
        if looked.get("failed") or not looked["missing"] or self._task.check_mode:
            return looked
        here = {render.program(view.instance, each): found[each.name] for each in components}
        return self.on_host(
            "host_programs",
            variables,
            programs=wanted,
            arrived={here[path].sha256: self._send(here[path].path) for path in looked["missing"]},
        )

    def _send(self, file: Path) -> str:
        """Put a file beside the modules of this task, which Ansible removes at its end; returns where."""
        if not self._connection._shell.tmpdir:
            self._make_tmp_path()
        target: str = self._connection._shell.join_path(self._connection._shell.tmpdir, file.name)
        self._transfer_file(str(file), target)
        self._fixup_perms2((self._connection._shell.tmpdir, target))
        return target
