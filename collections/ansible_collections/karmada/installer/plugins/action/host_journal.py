# SPDX-License-Identifier: Apache-2.0
"""The installer's state and lock on a plain host. Documentation: the module of the same name."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction, refusal_of
from ansible_collections.karmada.installer.plugins.plugin_utils.run.on_plain_hosts import HostsRun
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored, kept_by


class ActionModule(HostAction):
    """Write the state that this run has come to, or let go of the host."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "required": True, "choices": ["written", "absent", "kept", "released"]},
        "required": {"type": "bool", "default": True},
    }

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The journal is bookkeeping: writing it is no change of the control plane."""
        if arguments["state"] == "kept":
            return {"changed": False, **self.keep_lock()}
        return self._carried(arguments)

    def _carried(self, arguments: dict[str, Any]) -> dict[str, Any]:
        run, state = self.karmada, str(arguments["state"])
        if state == "absent" and not self.leaves and run.spec["deletion"]["policy"] == "Retain":
            # It stays where the data stays, with what this run has learnt.
            state = "written"
        seen = self.seen
        if state == "written" and not self.leaves and run.hosts[self.host_name].is_of_members:
            # It has keys of authorities in it. A host that was one of the control plane's before may have it yet.
            if not (seen.get("stored") or {}).get("serial"):
                return {"changed": False}
            state = "absent"
        stored = self._stored(needed=arguments["required"])
        if self._task.check_mode or (state != "released" and stored is None):
            return {"changed": False}
        if stored and state == "written" and not self._lacks(needed=arguments["required"]):
            return {"changed": False}
        if seen.get("refusal"):
            # It could not be reached when this run began, or was somebody else's.
            return {"changed": False}
        wanted = {"name": run.name, "state": state, "holder": run.holder}
        if stored and state == "written":
            kept = run.to_keep(self.host_name)
            wanted |= {"content": json.dumps(kept), "expected": self._expected}
        if arguments["required"]:
            found = self.on_host("_host_state", **wanted)
        else:
            found, refusal = refusal_of(lambda: self.on_host("_host_state", **wanted))
            if refusal:
                self.note(lost={"step": self._task.name, "reason": refusal})
                return {"changed": False}
        if stored and state == "written" and not found.get("failed"):
            self.note(stored=kept)
        return {**found, "changed": bool(found.get("changed")) and state == "absent"}

    def _stored(self, *, needed: bool) -> Stored | None:
        """What the run goes on with. None beneath a control plane in pods: its state is in the host cluster.

        And None if hosts differ in it, unless it is ``needed``: then the run ended with that before its first change.
        """
        if not isinstance(self.karmada, HostsRun):
            return None
        try:
            return self.karmada.stored
        except ProblemsError:
            if needed:
                raise
            return None

    @property
    def _expected(self) -> str:
        """The digest of what this run has seen of the state on this host; empty where there was none."""
        kept = kept_by({self.host_name: self.seen}).get(self.host_name)
        return kept.digest if kept else ""

    def _lacks(self, *, needed: bool) -> bool:
        """Whether this host has to be told.

        Not ``needed`` is to tell of a run that ended before its first change: no host has anything to remember then.
        """
        if not self.karmada.lacks_state(self.host_name):
            return False
        return needed or any((each.get("stored") or {}).get("serial") for each in self.karmada.observed.values())
