# SPDX-License-Identifier: Apache-2.0
"""The member of etcd on a plain host. Documentation: the module of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.backup.verification import COUNTED
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import on_hosts, seen_on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import ends
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.look import revision_to_hash
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.report.observe import hashed_bytes
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_answer
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import refusal_of
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_copy import HostCopy
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored


class ActionModule(HostCopy):
    """Ask the member of a host how it is, and hand that on."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "choices": ["seen", "hashed"], "default": "seen"},
        "changing": {"type": "bool", "default": False},
        "keep": {"type": "bool", "default": False},
        "replace": {"type": "list", "elements": "str", "default": []},
        "revision": {"type": "int", "default": 0},
    }

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Ask it; a host without etcd is not asked, and one that cannot be asked is told by the report."""
        run = self.karmada
        if arguments.get("keep"):
            stored = self.state_to_write(needed=True)
            if stored is not None:
                return self._written_and_asked(stored)
            if lost := self.keep_lock():
                return lost
        if self.seen.refusal or (arguments["changing"] and not self._is_due(arguments["replace"])):
            return {"changed": False, "asked": False}
        if not seen_on_hosts.is_asked(run, self.host_name):
            return {"changed": False, "asked": False}
        question = on_hosts.question(self.karmada, self.host_name)
        if arguments["state"] == "hashed":
            statuses = [each.status for each in on_hosts.seen(self.karmada)]
            revision = arguments.get("revision") or revision_to_hash(statuses, hashed_bytes(self.karmada))
            if not revision or not self.seen.etcd.get("status"):
                return {"changed": False, "asked": False}
            question.update(state="hashed", revision=revision)
            if arguments.get("revision"):
                # A proof of a backup, for which numbers of keys do where hashes cannot be compared.
                question["ranges"] = {kind: list(ends(prefix)) for kind, prefix in COUNTED.items()}
        found, refusal = refusal_of(lambda: self.on_host("_etcd_member", **question))
        answer = found["answer"] if not refusal else {"message": refusal[: host_answer.TEXT]}
        self.note(etcd={**self.seen.etcd, **answer} if arguments["state"] == "hashed" else answer)
        return {"changed": False, "asked": not answer.get("message")}

    def _written_and_asked(self, stored: Stored) -> dict[str, Any]:
        """Write a state to the host, and ask its member, in one round trip."""
        run, asked = self.karmada, seen_on_hosts.is_asked(self.karmada, self.host_name)
        wanted = {"name": run.name, "holder": run.holder, "state": "written", **self.written(stored)}
        if asked:
            wanted["member"] = on_hosts.question(run, self.host_name)
        found = self.on_host("_host_state", **wanted)
        if found.get("failed"):
            return found
        self.note_written(stored)
        if asked:
            self.note(etcd=found["answer"])
        return {"changed": False, "asked": asked and not found["answer"].get("message")}

    def _is_due(self, replace: Sequence[str]) -> bool:
        """Return whether members are to change. A state that cannot be read is told by preflight, with all else."""
        try:
            return seen_on_hosts.is_due(self.karmada, replace)
        except (ApiError, ProblemsError):
            return False
