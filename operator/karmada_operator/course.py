# SPDX-License-Identifier: Apache-2.0
"""Course of a run in the objects of an instance: which of their changes are its own. Pure.

A run writes by server-side apply, so each of its writes moves the hash or the time that it leaves in the metadata
(``mark_of``). A change of the spec that moves neither is somebody else's. Where a watch lists anew, our write and a
later one of somebody else may be seen at once: then the times of both tell, to the second (``edited_since``). What the
run deletes is in its report.

Objects without a generation, as Services, ConfigMaps and Secrets, show by their uid only that somebody has interfered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import of_member
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import recorded_hash
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.readiness import reason_not_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.labels import (
    FIELD_MANAGER,
    INSTANCE_LABEL,
    MEMBER_LABEL,
    NAME_LABEL,
)

from .kinds import Key


@dataclass(frozen=True, slots=True)
class Piece:
    """Parts of an object of an instance that are kept. ``generation`` is 0 for a kind that has none.

    Of a workload, ``trouble`` says why it is not ready, empty if it is; ``component`` is what a report calls it, and
    ``ready`` the number of its pods that are.

    ``mark`` changes with each write of ours that changes something, and with those of nobody else. ``touched`` says
    whether somebody else has written the spec in a later second than that of our last write.
    """

    uid: str
    generation: int
    instance: str
    trouble: str
    mark: str = ""
    touched: bool = False
    component: str = ""
    ready: int = 0
    version: str = field(default="", compare=False)


Snapshot = dict[Key, Piece]


def piece_of(obj: Object) -> Piece:
    """Parts that are kept of an object of which the metadata is there only."""
    meta = obj["metadata"]
    generation = int(meta.get("generation") or 0)
    return Piece(
        uid=str(meta["uid"]),
        generation=generation,
        # One text for all objects of an instance.
        instance=intern(str((meta.get("labels") or {}).get(INSTANCE_LABEL, ""))),
        trouble="",
        # Without a generation nobody can tell an edit, so it is not asked whose it was.
        mark=mark_of(obj) if generation else "",
        touched=bool(generation) and edited_since(obj),
        version=str(meta.get("resourceVersion", "")),
    )


def workload_of(obj: Object) -> Piece:
    """Parts of a Deployment or StatefulSet that are kept."""
    labels = obj["metadata"].get("labels") or {}
    return replace(
        piece_of(obj),
        component=of_member(str(labels.get(NAME_LABEL, "")), str(labels.get(MEMBER_LABEL, ""))),
        ready=int((obj.get("status") or {}).get("readyReplicas") or 0),
        trouble=reason_not_ready(obj) or ("it is scaled to no pods" if obj["spec"].get("replicas") == 0 else ""),
    )


def mark_of(obj: Object) -> str:
    """Hash that our last write left in an object, and its time to the second; the status is not ours.

    An API server moves that time with each apply that changes something, as the repair of what somebody has edited,
    after which the hash is what it was; writes of others, and of controllers, leave both.
    """
    # Half of the hash is enough to tell two apart, and a thousand objects have seven workloads each.
    return f"{(recorded_hash(obj) or '')[:32]} {_our_time(obj)}"


def edited_since(obj: Object) -> bool:
    """Return whether somebody else has written the spec of an object in a later second than we have last."""
    ours = _our_time(obj)
    others = [
        str(each.get("time", ""))
        for each in obj["metadata"].get("managedFields") or ()
        if each.get("manager") != FIELD_MANAGER and "f:spec" in (each.get("fieldsV1") or ())
    ]
    # All are written in one form, in UTC, so their order is that of the texts.
    return bool(ours) and max(others, default="") > ours


def _our_time(obj: Object) -> str:
    """Time of our last write as an API server writes it; empty if there was none."""
    entries = obj["metadata"].get("managedFields") or ()
    ours = [each for each in entries if each.get("manager") == FIELD_MANAGER and not each.get("subresource")]
    return max((str(each.get("time", "")) for each in ours), default="")


def deleted_by(report: Mapping[str, Any]) -> frozenset[tuple[str, str]] | None:
    """Kind and "namespace/name" of what a run has deleted, by its report; None where that has no room for all."""
    changes = report.get("changes") or ()
    if int(report.get("changesTotal") or 0) > len(changes):
        return None
    return frozenset((str(each["kind"]), str(each["name"])) for each in changes if each.get("action") == "deleted")


class Course:
    """Objects of an instance since a run began, or since they were looked at first, when nothing ran.

    ``answered`` are objects that somebody edits in each run, as a controller may that reacts to our writes: one more
    run has answered that, and from then on it is taken as it is.
    """

    def __init__(self, there: Snapshot, answered: frozenset[Key] = frozenset()) -> None:
        self._newest = dict(there)
        self._answered = answered
        #: Each that somebody else has edited since our last write, as it was before.
        self._before: Snapshot = {}
        #: See ``deleted_by``; until a run has told, every deletion is one of its own.
        self.deleted: frozenset[tuple[str, str]] | None = None

    @property
    def edited(self) -> frozenset[Key]:
        """Objects that somebody else has edited since our last write."""
        return frozenset(self._before)

    def see(self, key: Key, live: Piece | None) -> None:
        """Take an event of the watch."""
        if live is None:
            return
        known = self._newest.get(key)
        self._newest[key] = live
        if known is None or live.uid != known.uid or live.mark != known.mark:
            self._before.pop(key, None)
            # What was there before anybody looked may have been edited long ago.
            if known is not None and live.touched:
                self._before[key] = replace(live, generation=live.generation - 1)
        elif live.generation != known.generation:
            self._before.setdefault(key, known)

    def left(self, now: Snapshot) -> Snapshot:
        """Objects as the run has left them, or would have if nobody had interfered, given what is there now."""
        edited = {key: was for key, was in self._before.items() if key in now and key not in self._answered}
        gone = {}
        if self.deleted is not None:
            gone = {
                key: was
                for key, was in self._newest.items()
                if key not in now and (key.kind, f"{key.namespace}/{key.name}") not in self.deleted
            }
        return {**now, **edited, **gone}
