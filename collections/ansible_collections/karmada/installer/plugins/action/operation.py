# SPDX-License-Identifier: Apache-2.0
"""The end of an operation. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Close the journal, or only let go of the lock after a failure."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "required": True, "choices": ["finished", "released"]},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """The journal is bookkeeping: closing it is no change of the control plane."""
        if not run.check:
            if arguments["state"] == "finished":
                run.finish()
            run.release_lock()
        return {"changed": False}
