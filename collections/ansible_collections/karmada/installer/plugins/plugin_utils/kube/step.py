# SPDX-License-Identifier: Apache-2.0
"""Steps: the desired content of one API server, as data, and the interpreter that looks, predicts and writes.

A sequence of steps is written once for survey, check run and run; mostly as a generator, which reads the API server
when a step's turn comes. The interpreter does in a run what it predicts in a check run, and a look after that finds
nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from ..api_object import Object
from ..problems import Problem, ProblemsError, Reason
from .apply import ApplyFailed, Change, Target, Treat, apply_all, delete_all, must_be_ours, survey
from .cluster import Cluster
from .errors import Conflict
from .limits import AT_ONCE
from .objects import Ref, diff

#: JSON merge patch for an object as it is; None if nothing is to change.
Edit = Callable[[Object], Object | None]
#: Attempts to edit an object that others keep writing.
_TRIES = 20

Late = TypeVar("Late")


class Mode(Enum):
    """Mode in which the interpreter takes steps."""

    #: Find what differs, by reading only and without diffs.
    LOOK = "look"
    #: Find what would change, as check mode reports it, with the API server's diffs.
    PREDICT = "predict"
    WRITE = "write"


@dataclass(frozen=True)
class Step:
    """Objects that must exist, then edits of single objects, then deletions, each waited for.

    ``treat`` decides on objects that exist (see ``apply.Treatment``). ``edits`` are for lists and labels that others
    write, too. ``delete`` are references with the UID that the object must have, or None.
    """

    objects: Sequence[Object] = ()
    treat: Treat = must_be_ours
    edits: Mapping[Ref, Edit] = field(default_factory=dict)
    delete: Sequence[Target] = ()
    propagation: str = "Background"


@dataclass
class StepRunner:
    """Interpreter of steps on one API server. ``changes`` grows with each step, also with one that fails half-way.

    ``workers`` is the number of concurrent requests while writing, ``timeout`` the seconds for a deletion to finish.
    """

    cluster: Cluster
    mode: Mode
    changes: list[Change]
    say: Callable[[str], None]
    workers: int = AT_ONCE
    timeout: float = 120.0

    @property
    def writes(self) -> bool:
        """True if steps are carried out."""
        return self.mode is Mode.WRITE

    def late(self, look: Callable[[], Late], make: Callable[[], Late]) -> Late:
        """Value of ``make`` in a run that writes, else of ``look``: for what is known only once it was made."""
        return make() if self.writes else look()

    def take(self, steps: Iterable[Step]) -> list[Change]:
        """Take steps one after the other; returns their changes, which are added to ``changes`` as well.

        Raises like ``apply_all``, ``delete_all`` and ``edit_live``.
        """
        first = len(self.changes)
        for step in steps:
            try:
                self.changes += self._applied(step)
                wanted = {} if self.writes else {Ref.of(each): each for each in step.objects}
                for ref, edit in step.edits.items():
                    self.changes += edit_live(self.cluster, ref, edit, check=not self.writes, planned=wanted.get(ref))
                self.changes += self._deleted(step)
            except ApplyFailed as error:
                self.changes += error.changes
                raise
        return self.changes[first:]

    def _applied(self, step: Step) -> list[Change]:
        if self.mode is Mode.LOOK:
            return survey(self.cluster, step.objects, treat=step.treat, workers=self._at_once)
        return apply_all(
            self.cluster, step.objects, treat=step.treat, workers=self._at_once, check=self.mode is Mode.PREDICT
        )

    def _deleted(self, step: Step) -> list[Change]:
        return delete_all(
            self.cluster,
            step.delete,
            check=not self.writes,
            workers=self._at_once,
            timeout=self.timeout,
            progress=self.say,
            propagation=step.propagation,
        )

    @property
    def _at_once(self) -> int:
        """Concurrent requests: one where nothing is written, since a second connection costs more than it saves."""
        return self.workers if self.writes else 1


def edit_live(
    cluster: Cluster, ref: Ref, edit: Edit, *, check: bool = False, planned: Object | None = None
) -> list[Change]:
    """Write what ``edit`` makes of an object as it is, without losing concurrent writes of others.

    Nothing is written with ``check``; ``planned`` is the object that will be made, if it does not exist yet. Returns an
    empty list if nothing differs. Raises ProblemsError if the object does not exist, or if others keep writing it.
    """
    for _ in range(_TRIES):
        live = cluster.get(*ref)
        found = live or planned
        if found is None:
            raise ProblemsError(
                Problem(f"there is no such {ref.kind}", f"{ref} in {cluster.name}", reason=Reason.OBJECT_NOT_FOUND)
            )
        patch = edit(found)
        if patch is None:
            return []
        after = merged(found, patch)
        if not check:
            version = {"resourceVersion": found["metadata"].get("resourceVersion")}
            guarded = {**patch, "metadata": {**patch.get("metadata", {}), **version}}
            try:
                after = cluster.patch_merge(*ref, guarded)
            except Conflict:
                continue
        return [Change(ref, "changed", found["metadata"].get("uid"), diff(live, after))]
    raise ProblemsError(
        Problem(
            what="somebody changed it each time it was to be changed",
            where=f"{ref} in {cluster.name}",
            remedy="look who writes to it, and run again",
            reason=Reason.WRITE_CONFLICT,
        )
    )


def merged(obj: Mapping[str, object], patch: Mapping[str, object]) -> Object:
    """Apply a JSON merge patch to an object (RFC 7386)."""
    after = {key: value for key, value in obj.items() if patch.get(key, value) is not None}
    for key, value in patch.items():
        if isinstance(value, Mapping):
            former = after.get(key)
            after[key] = merged(former if isinstance(former, Mapping) else {}, value)
        elif value is not None:
            after[key] = value
    return after


def one_per_object(changes: Iterable[Change]) -> list[Change]:
    """Changes that made a difference, with successive changes of one object merged into one."""
    found: dict[tuple[Ref, bool], Change] = {}
    for change in changes:
        if change.action == "unchanged":
            continue
        place = (change.ref, change.action == "deleted")
        if first := found.get(place):
            told = {**first.diff, **({"after": change.diff["after"]} if change.diff else {})}
            found[place] = replace(change, action=first.action, diff=told)
        else:
            found[place] = change
    return list(found.values())
