# SPDX-License-Identifier: Apache-2.0
"""Database of a member of etcd on a plain host, as a file here. Documentation: the module of the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.backup import take, verification, workplace
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.host_file import HostFileAction
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_access
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import refusal_of

#: A database grows while it is sent, and what it was before was told a while ago.
_GROWTH, _LEAST_GROWTH = 1.5, 64 << 20


class ActionModule(HostFileAction):
    """Have the member write its database into a file of its host, and fetch that; it goes there at once."""

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The file is in a folder of this run, which the step that makes a backup of it removes."""
        del arguments
        run = self.karmada
        if self._task.check_mode:
            return {"changed": False}
        sender, beginning = on_hosts.answer(run, run.hosts[self.host_name]).status, take.Beginning.now(run.state)
        with workplace.handed_on() as folder:
            workplace.require_room(folder, sender.db_size * take.COPIES)
            run.say(f"snapshot of etcd member {self.host_name}")
            path, found = self._taken(folder, int(sender.db_size * _GROWTH) + _LEAST_GROWTH)
            if found.get("failed"):
                workplace.remove(folder)
                return found
            where = f"etcd of {run.name}"
            verification.check(path, where)
            tools = take.runnable(take.programs(run), folder)
            status = verification.status(path, tools, where, found["acknowledged"])
        told = {"file": str(path), "revision": status.revision, "acknowledged": found["acknowledged"]}
        return {"changed": False, **told, "beginning": beginning.plain}

    def _taken(self, folder: Path, most: int) -> tuple[Path, dict[str, Any]]:
        """The file here, and what the host told of it, or why it has none. It goes there whatever happens."""
        path, reader, found = folder / take.PLAIN, self.login(), dict[str, Any]()
        question = on_hosts.question(self.karmada, self.host_name)
        try:
            found = self.on_host(
                "_etcd_snapshot", state="taken", url=question["url"], folder=question["folder"], reader=reader
            )
            if not found.get("failed"):
                if found["size"] > most:
                    raise self.refused(f"the snapshot has {found['size'] >> 20} MiB, and its database had less before")
                self.fetch(path, found["size"])
        finally:
            # It may have been written though its host did not come to say so.
            _none, refusal = refusal_of(lambda: self.on_host("_etcd_snapshot", state="absent"))
            if refusal and not (found.get("failed") and _is_of_lock(refusal)):
                self.tell_left(refusal)
        return path, found


def _is_of_lock(refusal: str) -> bool:
    """Return whether a host refused because this run has lost its lock there; then it has written nothing, either."""
    reason = host_access.reason_of(refusal)
    return reason is not None and reason.reason is Reason.LOCK_LOST
