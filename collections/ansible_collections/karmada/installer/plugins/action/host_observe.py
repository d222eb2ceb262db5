# SPDX-License-Identifier: Apache-2.0
"""State of a plain host. Documentation: the module of the same name."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.progress import Progress
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_access
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction, refusal_of
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_observation import HostObservation
from ansible_collections.karmada.installer.plugins.plugin_utils.run_process import (
    holder_in_words,
    holder_is_dead,
    is_holder,
)

_PAUSE_SECONDS = 5


class ActionModule(HostAction):
    """Read the state of a host, and hand it on to later steps."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "lock": {"type": "bool", "default": False},
        "wait": {"type": "int", "default": 0},
        "confirm_dead": {"type": "str", "default": ""},
    }

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Observe the host; a reason why it cannot be read is reported by preflight, with all other problems."""
        lock = arguments["lock"] and not self._task.check_mode
        asked = time.time()
        question = {
            "name": self.karmada.name,
            "state": "locked" if lock else "read",
            "holder": self.karmada.holder,
            "address": self.host_entry.address,
            "virtual_ip": self.karmada.spec.endpoint.virtual_ip,
            "folders": [units.DATA, units.PROGRAMS],
        }
        found, refusal = self._ask(question)
        if host_access.says_too_little(refusal):
            asked = time.time()
            found, refusal = self._ask(question)
        holder = found.get("holder", "")
        if refusal and holder and (is_holder(holder, arguments["confirm_dead"]) or holder_is_dead(holder)):
            asked, question["dead_holder"] = time.time(), holder
            found, refusal = self._ask(question)
        began, longest = time.monotonic(), arguments.get("wait", 0)
        told = Progress(self.karmada.say, began, longest, quiet=0.0)
        while refusal and found.get("holder") and time.monotonic() < began + longest:
            # Another run is at work, and may be at its end soon.
            holder = holder_in_words(found["holder"])
            told.tell(f"waiting for {holder}: lock of host {self.host_name}", time.monotonic())
            time.sleep(_PAUSE_SECONDS)
            asked = time.time()
            found, refusal = self._ask(question)
        answered = time.time()
        if lock and refusal and found and not found.get("holder"):
            # It could be locked, and not be read: this run does nothing there, and must not keep others from it.
            self._ask({**question, "state": "released"})
        seen: dict[str, Any] = {key: found[key] for key in ("stored", "files", "facts", "programs") if key in found}
        self.note(refusal=refusal)
        if not refusal:
            known = HostObservation.of(seen)
            self.note(asked=asked, answered=answered, **{name: getattr(known, name) for name in seen})
        return {"changed": False, "reached": not refusal}

    def _ask(self, question: dict[str, Any]) -> tuple[dict[str, Any], str]:
        return refusal_of(lambda: self.on_host("_host_state", **question))
