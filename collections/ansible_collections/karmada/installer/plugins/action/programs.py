# SPDX-License-Identifier: Apache-2.0
"""Download of programs that plain hosts lack. Documentation: the module of the same name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_programs
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_observation import Brought
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_programs import Fetching
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run

#: The fetch of the task in this process; a list of at most one. Ansible takes all turns of a loop in one fork.
_FETCHING: list[Fetching] = []


class ActionModule(HostAction):
    """Fetch programs for all hosts once, to the machine that Ansible runs on; each turn is about the lock of a host."""

    KEEPS_LOCK = True
    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "default": "brought", "choices": ["looked_for", "brought"]},
    }
    COMMON = KarmadaAction.COMMON

    def _performed(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments["state"] == "looked_for":
            turns, lacking = host_programs.turns(run), host_programs.without_files(run)
            if not turns:
                # Nothing is fetched, so this is all that there is to hand on.
                _hand_on(run, lacking)
            return {"changed": False, "turns": turns, "lacking": _told(lacking)}
        try:
            found = self._turn(run, arguments)
        except BaseException:
            _stop()
            raise
        if found.get("failed"):
            _stop()
        return found

    def _turn(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Wait for the fetch, which the first turn begins, and look after the lock of this host if it goes on."""
        if not _FETCHING:
            _FETCHING.append(Fetching(run))
        (fetching,) = _FETCHING
        fetching.say = run.say
        if fetching.wait(host_programs.ROUND_SECONDS / max(1, len(host_programs.locked(run)))):
            lacking = fetching.hand_on(run)
            _hand_on(run, lacking)
            return {"changed": False, "brought": True, "lacking": _told(lacking)}
        # Without its lock the run ends here; a host that only members need is given up instead.
        return {"brought": False, **super()._performed(run, arguments)}

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Renew the lock of this host if no step has lately."""
        del arguments
        return {"changed": False, **self.keep_lock()}


def _hand_on(run: Run, lacking: Mapping[str, Mapping[str, Brought]]) -> None:
    for name in run.hosts:
        run.handover.note(name, lacking=lacking.get(name, {}))


def _told(lacking: Mapping[str, Mapping[str, Brought]]) -> dict[str, list[str]]:
    return {name: sorted(paths) for name, paths in lacking.items()}


def _stop() -> None:
    for each in _FETCHING:
        each.stop()
