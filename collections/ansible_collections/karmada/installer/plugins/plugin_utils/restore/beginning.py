# SPDX-License-Identifier: Apache-2.0
"""Record of a restore as it begins: what it makes, what it goes back to, and what was put aside before. No I/O.

The revision of its data is above any that a client has seen, wherever the control plane was: one that watches from a
revision which etcd has not come to yet is told nothing, without an error. etcd itself counts less than a known number
in each second, but a restore adds far more at once. So this one begins above those from before it, too:

* Each is on record with the revision from which etcd went on; the record stays until another restore takes its place,
  and that one began above it.
* At another place there is no such record but the one in the keys of the backup. What came later is told by newer
  backups in the target, as each release ends with one. What nobody here can know is what a place that was lost has
  restored since the newest of these: some restores of that kind are allowed for.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ..backup.record import Record
from ..components.etcd_configuration import folder_of
from ..components.moving import TakeOverState
from ..components.state import PART_RELEASED, LastBackup, RestoreState, State
from ..etcd.client import EndpointStatus
from ..run.run import Run
from . import new_data
from .check import Chosen
from .plan import SERVERS, WRITERS, Step
from .source import Source

#: Restores that a place which was lost may have had since the newest of its backups in the target. Each one ends with a
#: backup, or tells that there is none.
UNKNOWN_RESTORES = 8


def record(run: Run, source: Source) -> RestoreState:
    """Record with which a restore begins, in the place of the one that is there."""
    chosen, restored = source.chosen, source.chosen.record
    former, earlier = run.state.etcd, run.state.restore
    aside = earlier.aside if earlier else ()
    # One of which a part is released holds the rest inside the data that is in use; nobody goes back beyond that.
    upon = replace(earlier, former_restore=None) if earlier and earlier.step == PART_RELEASED else None
    if upon:
        aside = tuple(sorted({*aside, *new_data.folders(upon.former)}))
    # Of one that is given up half way back, what it holds is held, and its data may have been made.
    given_up = earlier if earlier and not earlier.is_over and not upon else None
    if given_up:
        aside = tuple(sorted({*aside, folder_of(given_up.generation)}))
        upon = given_up.former_restore
    used = [former.generation, *(int(each.split("-")[1]) for each in aside)]
    seen = [(restored.revision, run.now - source.since)]
    if earlier:
        began = _began(earlier, [restored, *_backups(run, chosen)])
        seen.append((began, run.now - datetime.fromisoformat(earlier.started)))
    new = _new(run, chosen, max(used) + 1, source.live.statuses, _bump(run, chosen, seen, source.live.statuses))
    return replace(
        new,
        held=given_up.held if given_up else (),
        closed=given_up.closed if given_up else False,
        aside=aside,
        survivor=source.survivor,
        former_restore=upon,
    )


def of_a_move(run: Run, chosen: Chosen, taken: TakeOverState, there: Sequence[EndpointStatus]) -> RestoreState:
    """Record of the restore of a control plane that is taken over, with an empty etcd as these members have it.

    There is nothing to back up, and nothing to stop but that.
    """
    age = run.now - chosen.record.start
    bump = _bump(run, chosen, [(chosen.record.revision, age), (taken.revision, age)], there)
    if not taken.planned:
        # None of them can have added more than the age of the oldest backup comes to.
        oldest = min(each.start for each in (chosen.record, *chosen.known))
        bump += UNKNOWN_RESTORES * new_data.bump(run.now - oldest)
    new = _new(run, chosen, run.state.etcd.generation + 1, there, bump)
    return replace(new, held=tuple(sorted(WRITERS | SERVERS)), closed=True, step=Step.BACK_UP)


def revision_there(then: State, chosen: Chosen) -> int:
    """Revision to which clients of another place had come by a restore that its backup has nothing of; 0 if by none.

    ``then`` is the state in the keys of the backup. A restore that had begun may have used its data since.
    """
    if then.restore is None:
        return 0
    began = _began(then.restore, [chosen.record, *chosen.known, *then.backups.values()])
    if began <= chosen.record.revision:
        return 0
    since = chosen.record.start - datetime.fromisoformat(then.restore.started)
    return began + int(since.total_seconds()) * new_data.BUMP_PER_SECOND


def _new(run: Run, chosen: Chosen, generation: int, statuses: Iterable[EndpointStatus], bump: int) -> RestoreState:
    restored = chosen.record
    return RestoreState(
        name=chosen.wanted.name,
        series=chosen.series.name,
        backup=restored.name,
        started=run.now.isoformat(timespec="seconds"),
        token=secrets.token_hex(16),
        generation=generation,
        bump=bump,
        former=run.state.etcd,
        members=new_data.members(run.state),
        replaced=tuple(sorted({restored.cluster_id, *(each.cluster_id for each in statuses)})),
        counts=dict(restored.counts),
        revision=restored.revision + bump,
    )


# -- revisions ---------------------------------------------------------------------------------------------------------


def _bump(run: Run, chosen: Chosen, seen: Iterable[tuple[int, timedelta]], statuses: Iterable[EndpointStatus]) -> int:
    """Number that takes the revision of a backup above any that was ``seen``: each with the time since.

    What answers has all of it. A backup with a higher revision tells more than the one that is restored; one with a
    lower revision tells nothing, as everything that etcd had acknowledged is in each.
    """
    restored = chosen.record.revision
    found = [(number, age) for number, age in seen if number >= restored]
    found += [(each.revision, timedelta(0)) for each in statuses]
    found += [(each.revision, run.now - _start(each)) for each in _backups(run, chosen) if each.revision > restored]
    return new_data.bump_beyond(restored, found)


def _backups(run: Run, chosen: Chosen) -> list[Record | LastBackup]:
    """Backups of this control plane that are known: those in the target, and the newest of each series."""
    return [*chosen.known, *run.state.backups.values()]


def _began(restore: RestoreState, backups: Iterable[Record | LastBackup]) -> int:
    """Revision with which the data of a restore began; 0 if nobody knows, and none of these is from before it.

    Where it was not noted, that is no more than what the restore has added to the newest backup from before it.
    """
    before = [each.revision for each in backups if _is_from_before(each, restore)]
    return restore.revision or (max(before) + restore.bump if before else 0)


def _is_from_before(backup: Record | LastBackup, restore: RestoreState) -> bool:
    """Return whether a backup was taken before the data of a restore was used."""
    # The first thing that it does is to back up what is there.
    known = backup.name == restore.before or (isinstance(backup, Record) and backup.cluster_id in restore.replaced)
    return known or _start(backup) < datetime.fromisoformat(restore.started)


def _start(backup: Record | LastBackup) -> datetime:
    return datetime.fromisoformat(backup.started)
