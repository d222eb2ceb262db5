# SPDX-License-Identifier: Apache-2.0
"""Steps of a release that ask which part is meant: what is left is held, and let go by a later run (``partial``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..components.state import RestoreState
from ..kube.apply import Change
from ..problems import Problem, Reason
from ..run.run import Run
from . import held, partial
from .check import Asked
from .means import Means
from .plan import Goal, Step, is_partial, is_quarantined
from .under_way import restore_of


@dataclass(frozen=True)
class Releasing:
    """A release by one run. ``save`` puts fields of the restore on record, ``changes`` gets what was changed."""

    run: Run
    goal: Goal
    asked: Asked
    means: Means
    changes: list[Change]
    save: Callable[..., Any]

    @property
    def _journal(self) -> RestoreState:
        return restore_of(self.run)

    @property
    def _decides(self) -> bool:
        """True if the next step depends on what is held, and there is an API server to ask."""
        journal = self._journal
        return self.goal is Goal.RELEASE and (is_quarantined(journal) or journal.step == Step.PART_RELEASED)

    def parts(self) -> held.Parts:
        """Parts that are to be released by now. Raises ProblemsError for names that there are not."""
        return self._wanted() if self._decides else self._journal.parts or held.EVERYTHING

    def loose(self) -> list[str]:
        """Parts that should be held by the record and are not, each with its reason."""
        journal = self._journal
        if not self._decides or journal.step not in (Step.HOLD, Step.PART_RELEASED) or not is_partial(journal):
            return []
        return partial.wrong(self.run, journal.parts, self.means.admitting)

    def hold(self) -> None:
        """Hold what is not to be released. Nothing runs yet that writes to members."""
        parts = self.parts()
        self.save(parts=dict(parts))
        self._settle(parts)

    def let(self) -> bool:
        """Let go what is released by now: what an earlier run has held, and what was held when the backup was taken.

        Returns whether there is anything to hold or to let go.
        """
        for each in self.loose():
            what = f"it was not held any more, and may have reached members: {each}"
            self.run.tell(Problem.warning(what, Reason.QUARANTINE_OPEN, self.run.place.where))
        # What an earlier run has begun comes to its end as it is on record; more is asked for after that.
        parts, journal = self.parts(), self._journal
        if dict(parts) != dict(journal.parts or held.EVERYTHING):
            # What was begun to be let go is let go, whatever the next run is asked.
            self.save(parts=dict(parts), step=Step.WAKE_AGENTS, came_back=False)
        self._settle(parts)
        return bool(partial.holding(self.run, parts) or partial.letting(self.run, parts))

    def begin(self) -> bool:
        """Write what holds the rest, where tasks of the role have that done once it is on record.

        Returns whether something is let go, so that what was refused to controllers until now is not any more.
        """
        parts = self._recorded
        self.changes.extend(partial.begin(self.run, parts, self.asked.kept, self.asked.let_go).changes)
        return partial.lets_go(self.run, parts)

    def end(self, *, last: bool) -> bool:
        """See that all is held or let go by the record; returns False if hosts are to be looked at again before.

        Raises ProblemsError.
        """
        settled = self.means.settled(self._recorded, last=last)
        if settled is not None:
            self._tell(settled)
        return settled is not None

    def part_released(self) -> None:
        """Say what is released, and that the rest is not."""
        self.run.say(f"released is {held.in_words(self._journal.parts)}; the rest is held until it is released, too")

    def told(self) -> dict[str, Any] | None:
        """Clusters that are released in part or as a whole, and those that are held; empty if none is held any more.

        None before a part has come to its end.
        """
        journal = self._journal
        if journal.step != Step.PART_RELEASED:
            return {} if journal.step == Step.RELEASED else None
        released = [{"name": name, "namespaces": [*spaces]} for name, spaces in journal.parts.items()]
        return {"restore": journal.name, "clusters": released, "held": partial.holding(self.run, journal.parts)}

    def _wanted(self) -> held.Parts:
        if self.goal is not Goal.RELEASE:
            # Another playbook goes on with it, and has no say.
            return self._journal.parts or held.EVERYTHING
        return partial.wanted(self.run, self._journal, self.asked.parts)

    @property
    def _recorded(self) -> held.Parts:
        return self._journal.parts or held.EVERYTHING

    def _settle(self, parts: held.Parts) -> None:
        self._tell(self.means.settle(parts, self.asked))

    def _tell(self, settled: partial.Settled) -> None:
        self.changes.extend(settled.changes)
        if settled.suspended or settled.resumed:
            self.run.say(f"{settled.suspended} Works were suspended, and {settled.resumed} have what they had before")
