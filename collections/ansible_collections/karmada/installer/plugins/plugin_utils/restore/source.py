# SPDX-License-Identifier: Apache-2.0
"""Source of a restore, judged before anything is on record: a backup, or the data of a member that has survived.

In either case it is a backup in the target in the end: of what a survivor has, one is made first (``survivor``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ..components.state import RestoreState
from ..run.run import Run
from . import check, survivor
from .check import Asked, Chosen, Live


@dataclass(frozen=True)
class Source:
    """Backup that is restored, and ``asked`` with what its document says.

    ``told`` are sentences on what is lost. ``since`` is a moment since which etcd can have come no further than the
    bump allows for: the start of the backup, or one before it. ``survivor`` is the member whose data it is, if one's.
    """

    chosen: Chosen
    asked: Asked
    live: Live
    told: Sequence[str]
    since: datetime
    survivor: str = ""


def judged(run: Run, asked: Asked, earlier: RestoreState | None, timeout: float) -> Callable[[], Source] | None:
    """Find a source good and its loss confirmed in ``timeout`` seconds; None if ``earlier`` was this one, carried out.

    Returns what gives it, by storing first what a survivor has. Either raises ProblemsError; nothing was stopped then.
    """
    asked = replace(asked, survivor=check.survivor(run, asked))
    return _survivor(run, asked, earlier, timeout) if asked.survivor else _backup(run, asked, earlier)


def _backup(run: Run, asked: Asked, earlier: RestoreState | None) -> Callable[[], Source] | None:
    chosen = check.choose(run, asked)
    asked = asked.completed(run, chosen.wanted)
    if earlier and check.is_done(earlier, chosen):
        run.say(f"{chosen.record.name} was restored and released; to restore it again, write another EtcdRestore")
        return None
    live = check.look(run)
    check.refuse(run, chosen, live, asked)
    told = check.loss(run, chosen, live)
    check.require_confirmed(chosen, told, asked.confirm)
    run.say(f"restoring {chosen.record.name}. What is lost: {'; '.join(told)}")
    return lambda: Source(chosen, asked, live, told, chosen.record.start)


def _survivor(run: Run, asked: Asked, earlier: RestoreState | None, timeout: float) -> Callable[[], Source] | None:
    place = check.opened(run, asked)
    if survivor.is_done(earlier, place, asked.survivor):
        run.say(f"what {asked.survivor} had was restored and released; to do that again, write another EtcdRestore")
        return None
    asked = asked.completed(run, place.wanted)
    live = check.look(run)
    found = survivor.judged(run, asked, place, timeout)
    run.say(f"restoring what {found.name} has. What is lost: {'; '.join(found.told)}")

    def stored() -> Source:
        record = survivor.backed_up(run, found, place)
        run.say(f"what {found.name} had is kept as {record.name}")
        chosen = Chosen(place.wanted, place.series, place.target, record)
        check.refuse(run, chosen, live, asked)
        return Source(chosen, asked, live, found.told, found.since, found.name)

    return stored
