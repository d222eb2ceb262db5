# SPDX-License-Identifier: Apache-2.0
"""Programs of the components of a plain host. Documentation: the module of the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction


class ActionModule(HostAction):
    """Send the programs that the host lacks."""

    KEEPS_LOCK = True
    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
    }

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Send them from this machine, to which they were fetched after the host was observed."""
        if arguments["state"] == "absent":
            return self.on_host("_host_program_files", state="absent")
        lacking = self.seen.lacking
        if not lacking:
            return {"changed": False, "installed": []}
        if self._task.check_mode:
            return {"changed": True, "installed": sorted(lacking)}
        arrived = {}
        for each in lacking.values():
            if lost := self.keep_lock():
                return lost
            arrived[each.sha256] = self._send(Path(each.file))
        found = self.on_host(
            "_host_program_files",
            programs=[{"path": path, "sha256": each.sha256} for path, each in sorted(lacking.items())],
            arrived=arrived,
        )
        if not found.get("failed"):
            sent = {path: each.sha256 for path, each in lacking.items()}
            self.note(lacking={}, programs={**self.seen.programs, **sent})
        return found

    def _send(self, file: Path) -> str:
        """Put a file beside the modules of this task, which Ansible removes at its end; returns its path.

        The folder is created now, and not by TRANSFERS_FILES before ``perform``: most hosts lack nothing, and one that
        lacks nothing may be unreachable.
        """
        if not self._connection._shell.tmpdir:
            self._make_tmp_path()
        target: str = self._connection._shell.join_path(self._connection._shell.tmpdir, file.name)
        self._transfer_file(str(file), target)
        return target
