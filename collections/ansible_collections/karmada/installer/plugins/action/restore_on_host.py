# SPDX-License-Identifier: Apache-2.0
"""A plain host in a restore. Documentation: the module of the same name."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.module_utils import host_snapshot
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.tools import ETCDUTL
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import take, workplace
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.host_file import HostFileAction
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import on_hosts as etcd_on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import seen_on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.render import etcd_restore, units
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import (
    cleanup,
    left_data,
    new_data,
    on_hosts,
    survivor_copy,
    under_way,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import EVERYTHING
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import refusal_of

SEEN, MADE, COPIED, COUNTED, LISTED, REMOVED = "seen", "made", "copied", "counted", "listed", "removed"
RESTARTED, WOKEN = "restarted", "woken"
_STATES = (SEEN, MADE, COPIED, COUNTED, LISTED, REMOVED, RESTARTED, WOKEN)
#: Bytes that the data of a member may have: a database of etcd has 8 GiB at most, its log a few files of 64 MiB.
_MOST_DATA = 16 << 30


class ActionModule(HostFileAction):
    """Look at a host, make the new data of its member of etcd, copy or remove the old, or ask that for its content."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "choices": [*_STATES], "default": SEEN},
        "snapshot": {"type": "dict", "default": {}},
    }

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Take the step, if it concerns this host. A member that cannot be asked is told later, with all others."""
        if self.karmada.stored_state is None or (self.seen.refusal and arguments["state"] in (SEEN, LISTED)):
            return {"changed": False}
        simple = {SEEN: self._seen, COPIED: self._copied, LISTED: self._listed, REMOVED: self._removed}
        simple |= {RESTARTED: self._restarted, WOKEN: self._woken}
        if act := simple.get(arguments["state"]):
            return act()
        if self.host_name not in new_data.members(self.karmada.state) and arguments["state"] == COUNTED:
            return {"changed": False}
        restore = under_way.restore_of(self.karmada)
        if self.host_name not in restore.members:
            return {"changed": False}
        return self._made(arguments["snapshot"]) if arguments["state"] == MADE else self._counted()

    def _seen(self) -> dict[str, Any]:
        run, instance = self.karmada, self.karmada.instance
        rows = {units.unit_name(instance, each): each.row for each in self.view.components(EVERYTHING)}
        restore = run.state.restore
        new = on_hosts.folder(run, self.host_name) if restore and self.host_name in restore.members else ""
        asked: dict[str, Any] = {**on_hosts.question(run, self.host_name)}
        if admission := on_hosts.admission(run, self.host_name):
            asked["admission"] = admission
        if seen_on_hosts.is_asked(run, self.host_name):
            asked["member"] = etcd_on_hosts.question(run, self.host_name)
        found = self.on_host("_host_restore", state=SEEN, units=list(rows), folder=new, **asked)
        if found.get("failed"):
            return found
        running = sorted({rows[each] for each in found["running"] if each in rows})
        told = {"running": running, "there": found["there"], "status": found.get("status", 0)}
        told["admission"] = found.get("admission", {})
        # What an earlier step has noted of this host stays: what was made, and what was counted.
        self.note(restore={**self.seen.restore, **told}, etcd=found.get("member", {}))
        return {"changed": False}

    def _counted(self) -> dict[str, Any]:
        run, asked = self.karmada, etcd_on_hosts.question(self.karmada, self.host_name)
        found, refusal = refusal_of(
            lambda: self.on_host(
                "_host_restore",
                state=COUNTED,
                url=asked["url"],
                certificates=asked["folder"],
                revision=on_hosts.common(run),
                prefixes=on_hosts.PREFIXES,
            )
        )
        # One that does not tell is no proof, which is told with all others.
        told: dict[str, Any] = {} if refusal else {key: found[key] for key in ("hash", "counts") if key in found}
        self.note(restore={**self.seen.restore, "hash": None, "counts": None, **told})
        return {"changed": False}

    def _made(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Bring the snapshot, and have the data made of it."""
        if self._task.check_mode:
            return {"changed": False}
        run, folder = self.karmada, on_hosts.folder(self.karmada, self.host_name)
        file, size = Path(snapshot["file"]), int(snapshot["size"])
        place = self._place_made()
        if place.get("failed"):
            return place
        found = self.on_host(
            "_host_restore",
            state="expected",
            reader=self.login(),
            size=size,
            room=on_hosts.room(size),
            folder=folder,
        )
        if found.get("failed"):
            return found
        try:
            run.say(f"etcd: sending {size >> 20} MiB to {self.host_name}")
            # It is there already, empty, and for this user alone.
            self._connection.put_file(str(file), host_snapshot.path_of(run.name))
            member, new = on_hosts.member(run, self.host_name), on_hosts.new_data_of(run)
            found = self.on_host(
                "_host_restore",
                state="made",
                user=units.user_name(run.instance, ETCD),
                digest=snapshot["digest"],
                program=units.program(run.instance, ETCDUTL),
                folder=folder,
                flags=etcd_restore.flags(member, new),
            )
        except BaseException:
            self._absent()
            raise
        if found.get("failed"):
            self._absent()
            return found
        self.note(restore={**self.seen.restore, "made": new.generation})
        return {"changed": True, "changes": [*place["changes"], f"created {folder}"]}

    def _place_made(self) -> dict[str, Any]:
        """Have etcd's user and its folders here, which a machine lacks that is new under the name of a lost one.

        Nothing else of etcd comes before the data: a unit would start without it.
        """
        instance, etcd = self.karmada.instance, self.view.tree([ETCD.name])
        tree = {**units.merged([], instance.owner), **{part: etcd[part] for part in ("users", "directories")}}
        return self.on_host("_host_tree", tree=json.dumps(tree), state="present", wait_for="none")

    def _copied(self) -> dict[str, Any]:
        """Have a copy of the data of the member here, and a snapshot made of it; the copy goes there at once."""
        if self._task.check_mode:
            return {"changed": False}
        run, beginning = self.karmada, take.Beginning.now(self.karmada.state)
        with workplace.handed_on() as folder:
            run.say(f"copying what etcd member {self.host_name} has")
            data, archive = etcd_on_hosts.question(run, self.host_name)["data"], folder / "survivor.tar"
            try:
                found = self.on_host("_host_restore", state=COPIED, folder=data, reader=self.login())
                if found.get("failed"):
                    workplace.remove(folder)
                    return found
                if found["size"] > _MOST_DATA:
                    raise self.refused(f"the data of its member has {found['size'] >> 20} MiB, which none of etcd has")
                workplace.require_room(folder, found["size"])
                self.fetch(archive, found["size"])
            finally:
                # It may have been written though its host did not come to say so.
                self._absent()
            copy = survivor_copy.of_archive(run, self.host_name, archive, beginning)
        return {"changed": False, "copied": copy.plain}

    def _listed(self) -> dict[str, Any]:
        """Note which folders with data of etcd are here; also of a host that has no member any more."""
        if self.leaves or self.karmada.hosts[self.host_name].is_of_members:
            return {"changed": False}
        found = self.on_host("_host_restore", state=LISTED, folder=self._place())
        if found.get("failed"):
            return found
        self.note(restore={**self.seen.restore, "folders": found["folders"]})
        return {"changed": False}

    def _removed(self) -> dict[str, Any]:
        """Remove the folders that a restore has put aside, or a former member left, and note that none is left here."""
        run = self.karmada
        folders = list(cleanup.of_host(run, self.host_name))
        if not folders:
            return {"changed": False}
        used = left_data.used(run.state, self.host_name)
        found = self.on_host("_host_restore", state=REMOVED, folder=self._place(), used=used, aside=folders)
        if found.get("failed"):
            return found
        if not self._task.check_mode:
            self.note(restore={**self.seen.restore, "gone": folders})
        changes = [f"remove directory {each}" for each in found["removed"]]
        return {"changed": bool(changes), "changes": changes}

    def _place(self) -> str:
        """Folder with the folders of etcd's data on this host."""
        return str(PurePosixPath(etcd_on_hosts.question(self.karmada, self.host_name)["data"]).parent)

    def _restarted(self) -> dict[str, Any]:
        """Restart what is to begin anew, if it runs here."""
        names = on_hosts.restarted(self.karmada, self.host_name)
        if not names:
            return {"changed": False}
        found = self.on_host("_host_restore", state=RESTARTED, units=names)
        if found.get("failed"):
            return found
        changes = [f"restart {each}" for each in found["restarted"]]
        return {"changed": bool(changes), "changes": changes}

    def _woken(self) -> dict[str, Any]:
        """Restart the agents that run here. Where that fails they log in later by themselves, and nothing waits."""
        names = on_hosts.agents(self.karmada, self.host_name)
        if not names or self.seen.refusal:
            return {"changed": False}
        found, refusal = refusal_of(lambda: self.on_host("_host_restore", state=RESTARTED, units=names))
        if refusal:
            what = f"its agents could not be restarted, and may take minutes to log in again: {refusal}"
            self.karmada.tell(Problem.warning(what, Reason.HOST_STEP_FAILED, f"host {self.host_name}"))
            return {"changed": False}
        changes = [f"restart {each}" for each in found["restarted"]]
        return {"changed": bool(changes), "changes": changes}

    def _absent(self) -> None:
        """Delete the snapshot, which is not encrypted; where that fails, the next run does it."""
        _none, refusal = refusal_of(lambda: self.on_host("_host_restore", state="absent"))
        if refusal:
            self.tell_left(refusal)
