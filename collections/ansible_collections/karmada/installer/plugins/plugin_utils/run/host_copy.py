# SPDX-License-Identifier: Apache-2.0
"""Base of the actions that bring the state of a run to the copy that a plain host keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..problems import ProblemsError
from .host_action import HostAction
from .state_on_hosts import Kept, Stored

#: Notes of the report on a host without an API server that held a copy: one that an earlier version of this collection
#: gave it, or one that no run has left there.
KEYS_TAKEN = (
    "it had the keys of all authorities from an earlier time, and has no API server; this run took them away. If "
    "others could read them there, renew the authorities"
)
COPY_TAKEN = (
    "it held a copy of a state of the installer that is none of this control plane's, and has no API server; this run "
    "took it away"
)


class HostCopy(HostAction):
    """Action about the copy of the state on one host."""

    def state_to_write(self, *, needed: bool) -> Stored | None:
        """State that this host lacks; None if it has it, or is not to get it, as hosts that only members need.

        Raises ProblemsError if hosts disagree on it and it is ``needed``, before the first change.
        """
        stored = self.state_of_run(needed=needed)
        if self._task.check_mode or stored is None or self.seen.refusal or self.leaves:
            return None
        if self.karmada.hosts[self.host_name].is_of_members or not self._lacks(stored, needed=needed):
            return None
        return stored

    def state_of_run(self, *, needed: bool) -> Stored | None:
        """State that the run continues from. None beneath a control plane in pods: its state is in the host cluster.

        Also None if hosts disagree on it; raises ProblemsError instead if it is ``needed``, before the first change.
        """
        try:
            return self.karmada.store.stored
        except ProblemsError:
            if needed:
                raise
            return None

    def written(self, stored: Stored) -> dict[str, Any]:
        """Arguments with which the module ``_host_state`` writes a state."""
        return {"content": json.dumps(self._kept(stored)), "expected": self._expected}

    def note_written(self, stored: Stored) -> None:
        """Note that the host has this state now."""
        seen, kept = self.seen, self._kept(stored)
        self.note(stored=Kept.of(kept), told=(*seen.told, *_told(seen.stored, stored, kept)))

    def _kept(self, stored: Stored) -> dict[str, Any]:
        return stored.for_host(self.karmada.hosts[self.host_name])

    @property
    def _expected(self) -> str:
        """Digest of the state on this host as this run has read it; empty without one."""
        kept = self.seen.stored
        return kept.digest if kept.serial else ""

    def _lacks(self, stored: Stored, *, needed: bool) -> bool:
        """Return whether the state must be written to this host.

        Not ``needed`` after a run that ended before its first change: then it is not written if no host has a state.
        """
        kept = self.karmada.store.kept_by_hosts.get(self.host_name)
        if stored.is_kept(self.karmada.hosts[self.host_name], kept):
            return False
        return needed or any(each.stored.serial for each in self.karmada.observed.values())


def _told(before: Kept, after: Stored, kept: Mapping[str, Any]) -> Iterator[str]:
    """Texts for the report about the state that a host had ``before`` it was given what it keeps now."""
    # The one that each host had is among the predecessors of the new one.
    if before.digest not in after.lineage and (said := before.unlike(after)):
        yield said
    if before.copies and not kept["files"]:
        known = any(copy.digest in (after.digest, *after.lineage) for copy in before.copies)
        yield KEYS_TAKEN if known else COPY_TAKEN
