# SPDX-License-Identifier: Apache-2.0
"""Steps of a restore: each looks, changes what is left to change, and is put on record.

``plan`` says which is the next, and ``means`` do what differs by where components run. The work of some steps is done
by tasks of the role, between their begin and their end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ..backup import series as backup_series
from ..backup import take, workplace
from ..components.etcd_state import EtcdMemberState, EtcdState
from ..components.state import PART_RELEASED, RestoreState
from ..components.table import ETCD
from ..document.backups import KIND as BACKUP_KIND
from ..kube.apply import Change
from ..kube.errors import ApiError
from ..problems import Problem, ProblemsError, Reason
from ..run import restoring
from ..run.run import Run
from . import agents, beginning, check, delivery, drift, held, means_of_place, new_data, proof, take_over
from .check import Asked, Chosen
from .means import GOES_ON, LOOK_SECONDS
from .plan import (
    ENDS,
    EVERYTHING,
    WRITERS,
    Goal,
    Seen,
    Step,
    is_quarantined,
    may_begin_anew,
    next_step,
    recorded,
)
from .release import Releasing
from .source import judged
from .turn import DONE, TOLD, Delivered, Done
from .under_way import restore_of

#: How a user goes without a backup of what is there.
_WITHOUT = "-e restore_without_backup"


@dataclass
class Restoring:
    """A restore on its way to what the user has asked for."""

    run: Run
    goal: Goal
    asked: Asked
    timeout: float
    changes: list[Change] = field(default_factory=list)
    report: drift.Report | None = None
    _rest: str = ""

    def __post_init__(self) -> None:
        self.means = means_of_place.means(self.run, self.timeout, self.changes)
        self.release = Releasing(self.run, self.goal, self.asked, self.means, self.changes, self._save)

    # -- what is next ------------------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Judge the backup, ask for its confirmation, and open the record; returns False if one is under way.

        Raises ProblemsError if it cannot be restored, or is not confirmed; nothing was changed then.
        """
        run, stored = self.run, self.run.stored_state
        take.refuse(run)
        if refused := restoring.problem(stored, run.operation, run.place.where):
            raise ProblemsError(refused, "nothing was changed")
        under_way = stored.restore if stored else None
        if stored and under_way and check.goes_on(run, self.asked, under_way, stored.etcd.generation):
            if under_way.step == PART_RELEASED:
                way = "to restore another backup, name it: spec.backup, and -e restore_confirm=BACKUP"
                run.say(f"{under_way.backup} was restored, and a part of it is released; {way}")
            return False
        before = take.generation(run.state), run.state.restore
        found = judged(run, self.asked, stored.restore if stored else None, self.timeout)
        if found is None or run.check:
            return found is not None
        source = found()
        self.asked = source.asked
        with self.means.writing("begin a restore"):
            if (take.generation(run.state), run.state.restore) != before:
                what, remedy = "another run has changed etcd, or restores it, since this one looked", "run it again"
                problem = Problem(what, run.place.where, remedy, reason=Reason.LOCKED)
                raise ProblemsError(problem, "nothing was stopped")
            run.save(replace(run.state, restore=beginning.record(run, source)))
        run.go_on_with(run.state)
        if upon := self._restore.former_restore:
            run.say(f"of {upon.backup} was released: {held.in_words(upon.parts)}; in the quarantine that is held, too")
        return True

    def look_again(self) -> None:
        """Ask and compare once more, where a restore waits in quarantine since an earlier run. Reads only."""
        by_this_run = self.run.state.journal.run == self.run.holder
        if self.goal is Goal.QUARANTINE and is_quarantined(self._restore) and not by_this_run:
            self._prove_closed()
            self._compare()

    def next(self) -> Step | None:
        """Next step; None if the goal is reached. Raises ProblemsError if it cannot be reached from here."""
        stored = self.run.stored_state
        if stored is None or stored.restore is None:
            what, remedy = "no restore is under way", "begin one with karmada.installer.restore"
            raise ProblemsError(Problem(what, self.run.place.where, remedy, reason=Reason.INVALID_ARGUMENT))
        if self.goal is Goal.UNDO:
            take_over.refuse_undo(stored, self.run.place.where)
        if self.goal is not Goal.QUARANTINE or not stored.restore.is_over:
            check.require_named(stored.restore, self.asked.name, self.run.place.where)
        found = next_step(self._seen(), self.goal)
        if isinstance(found, Problem):
            raise ProblemsError(replace(found, where=self.run.place.where))
        return found

    def predicted(self) -> Step | None:
        """Next step in check mode, in which what ``begin`` would begin has no record. Raises ProblemsError."""
        stored = self.run.stored_state
        if stored is None or stored.restore is None:
            return None
        if self.goal is Goal.QUARANTINE and may_begin_anew(stored.restore, stored.etcd.generation):
            # On record is an earlier one, of which there is no way to a quarantine.
            return None
        return self.next()

    def take(self, step: Step) -> str:
        """Take a step, and put it on record. Raises ProblemsError, NotReady.

        Returns the tasks that do the rest of it, if there are any: then ``end`` is to follow.
        """
        self._rest = self.means.tasks.get(step, "")
        if step in TOLD:
            self.run.say(TOLD[step])
        if step in self.means.stops:
            self._stop(self.means.stops[step], step)
        elif step in (acts := self._acts()):
            acts[step]()
        if not self._rest:
            self.end(step)
        return self._rest

    def end(self, step: Step, done: Done = DONE) -> bool:
        """See to it that a step has come to its end, and put that on record; returns False if it is to be done again.

        Raises ProblemsError.
        """
        if step in self.means.stops:
            self.means.wait_until_stopped(self.means.stops[step])
        elif step is Step.PROVE:
            if not self._prove(last=done.last):
                return False
        elif step in (Step.HOLD, Step.LET):
            if not self.release.end(last=done.last):
                return False
        elif step in (ends := self._ends(done)):
            ends[step]()
        self.note(step, recorded(self._seen(), step))
        return True

    def deliver(self) -> Delivered:
        """The snapshot in plain, in a folder of this run, for those that make the new data of it. Raises ProblemsError.

        Whoever has used it removes the folder.
        """
        chosen = self._chosen()
        keys = self._keys(chosen)
        with workplace.handed_on() as folder:
            found = delivery.decrypted(chosen, keys, folder)
            return Delivered(found.path, found.path.stat().st_size, found.digest)

    def note(self, step: Step, done: str = "") -> None:
        """Put on record that a step has come to its end."""
        last = step in ENDS
        with self.means.writing(f"restore: {step}"):
            journal = self.run.state.journal
            if last:
                # Until a person decides, nothing of it is unfinished.
                journal = replace(journal, finished=datetime.now(UTC).isoformat(), step="")
            restore = self._recorded_after(step, done)
            self.run.save(replace(self.run.state, journal=journal, restore=restore))
        self.run.go_on_with(self.run.state)

    def _recorded_after(self, step: Step, done: str) -> RestoreState:
        restore = self._restore
        if step is Step.UNDONE and restore.former_restore:
            # What that one holds is held by the data that is in use again. Revisions of this one have been seen.
            upon = restore.former_restore
            seen = max(upon.revision, restore.revision)
            return replace(upon, aside=restore.aside, came_back=True, revision=seen)
        # After a release nobody goes back there.
        kept = None if step is Step.RELEASED else restore.former_restore
        return replace(restore, step=done or step, former_restore=kept)

    def _acts(self) -> dict[Step, Callable[[], None]]:
        return {
            Step.BACK_UP: self._back_up,
            Step.PREPARE: self._prepare,
            Step.CLOSE: lambda: self._save(closed=True),
            Step.SWITCH: self._switch,
            Step.SWITCH_BACK: self._switch_back,
            Step.START_ETCD: self._start_etcd,
            Step.START_FORMER: self._start_etcd,
            Step.PROVE: self._see_whether_all_is_told,
            Step.START_SERVERS: self._start_servers,
            Step.PROVE_CLOSED: self._prove_closed,
            Step.COMPARE: self._compare,
            Step.HOLD: self.release.hold,
            Step.OPEN: self._open,
            Step.LET: self._let,
            Step.OPEN_AGAIN: lambda: self._save(held=(), closed=False),
            Step.START_ALL: self.means.write_authorities,
            Step.WAKE_AGENTS: lambda: agents.wake(self.run, self.changes),
            Step.BACK_UP_AGAIN: self._back_up_again,
            Step.TURN_BACK: self._turn_back,
            Step.PART_RELEASED: self.release.part_released,
            Step.RELEASED: lambda: self._put_aside(self._restore.former),
            Step.UNDONE: self._undone,
        }

    def _ends(self, done: Done) -> dict[Step, Callable[[], None]]:
        return {
            Step.BACK_UP: lambda: self._backed_up(done),
            Step.PREPARE: self.means.prepared,
            Step.START_ETCD: self.means.etcd_started,
            Step.START_FORMER: self.means.etcd_started,
            Step.BACK_UP_AGAIN: lambda: self._backed_up_again(done),
            Step.FENCE: lambda: self._fenced(done),
        }

    # -- what is there -----------------------------------------------------------------------------------------------

    @property
    def _restore(self) -> RestoreState:
        return restore_of(self.run)

    @property
    def series(self) -> str:
        """Name of the EtcdBackup of the restore under way."""
        return self._restore.series

    def _seen(self) -> Seen:
        journal, running = self._restore, self.means.running(EVERYTHING)
        parts, loose = self.release.parts(), bool(self.release.loose())
        fenced = take_over.is_fenced(self.run.state)
        return Seen(journal, self.run.state.etcd.generation, running, parts, loose=loose, fenced=fenced)

    def _save(self, **fields: Any) -> None:
        with self.means.writing("note how far the restore is"):
            self.run.save(replace(self.run.state, restore=replace(self._restore, **fields)))
        self.run.go_on_with(self.run.state)

    def _chosen(self) -> Chosen:
        """The backup of the restore under way, also if a newer one has come meanwhile."""
        restore = self._restore
        return check.choose(self.run, replace(self.asked, name=restore.name), restore.backup)

    # -- before anything stops ---------------------------------------------------------------------------------------

    def _back_up(self) -> None:
        """Back up what is there; where etcd cannot be asked, its data stays beside the new, and that is all."""
        chosen = self._chosen()
        if self._goes_without_backup:
            self._told_without("what is there is not backed up, as was asked for")
            return
        try:
            name = self.means.back_up(chosen.series, chosen.target)
        except ProblemsError as error:
            # One member that is corrupt is a reason to restore, and none to restore nothing.
            if any(each.reason not in (Reason.ETCD_UNHEALTHY, Reason.INVALID_BACKUP) for each in error.problems):
                raise ProblemsError([self._with_way(each) for each in error.problems], "nothing was stopped") from None
            self._told_without(
                f"what is there could not be backed up: {'; '.join(each.what for each in error.problems)}"
            )
            return
        if name:
            self._save(before=name)

    @property
    def _goes_without_backup(self) -> bool:
        """True if the user has named the backup that is restored once more, to restore it without one of what is there.

        Raises ProblemsError if he has named another one.
        """
        named, meant = self.asked.without_backup, self._restore.backup
        if named not in ("", meant):
            what, remedy = f"{named} was named, and what is restored is {meant}", f"-e restore_without_backup={meant}"
            problem = Problem(what, "restore_without_backup", remedy, reason=Reason.RESTORE_NOT_CONFIRMED)
            raise ProblemsError(problem, "nothing was stopped")
        return bool(named)

    def _told_without(self, what: str) -> None:
        """Tell that there is no backup of what is there, and have the role take none."""
        what = f"{what}; its data stays where it is, beside the new"
        self.run.tell(Problem.warning(what, Reason.CHECK_SKIPPED, self.run.place.where))
        self._rest = ""

    def _with_way(self, problem: Problem) -> Problem:
        """The problem, and how to restore although it stays."""
        way = f"to go without a backup of what is there, whose data stays: {_WITHOUT}={self._restore.backup}"
        return replace(problem, remedy=f"{problem.remedy}; {way}" if problem.remedy else way)

    def _backed_up(self, done: Done) -> None:
        if done.troubles:
            what = "; ".join(done.troubles)
            remedy = (
                "mend that, and run it again; or go without a backup of what is there, whose data stays: "
                f"{_WITHOUT}={self._restore.backup}"
            )
            problem = Problem(what, self.run.place.where, remedy, reason=Reason.BACKUP_TARGET_UNUSABLE)
            raise ProblemsError(problem, "nothing was stopped")
        if done.backup:
            self._save(before=done.backup)

    def _prepare(self) -> None:
        chosen = self._chosen()
        self.means.prepare(chosen, self._keys(chosen))

    def _keys(self, chosen: Chosen) -> Sequence[Any]:
        """Private keys with which the backup is decrypted, at least one. Raises ProblemsError."""
        keys = self.asked.completed(self.run, chosen.wanted).keys
        if not keys:
            raise ProblemsError(check.no_key("the backup is encrypted"))
        return keys

    # -- stopping ----------------------------------------------------------------------------------------------------

    def _stop(self, components: frozenset[str], step: Step) -> None:
        """Hold these, and have them stop."""
        # What makes new data, of a run that was killed when it had prepared all.
        self.means.forget()
        self._save(held=tuple(sorted({*self._restore.held, *components})))
        self.means.stop(components, step)

    # -- the data ----------------------------------------------------------------------------------------------------

    def _switch(self) -> None:
        restore = self._restore
        new = EtcdState(
            restore.token,
            restore.generation,
            bootstrapped=True,
            storage=restore.former.storage,
            nodes=restore.former.nodes,
            members=tuple(EtcdMemberState(name) for name in restore.members),
            left=restore.former.left,
        )
        self._switch_to(new, Step.SWITCH)

    def _switch_back(self) -> None:
        self._switch_to(self._restore.former, Step.SWITCH_BACK)

    def _switch_to(self, etcd: EtcdState, step: Step) -> None:
        with self.means.writing("have the members of etcd start with other data"):
            restore = replace(self._restore, step=step)
            self.run.save(replace(self.run.state, etcd=etcd, restore=restore))
        self.run.go_on_with(self.run.state)
        # Their configuration is there before they are.
        self.means.configure_etcd()

    def _start_etcd(self) -> None:
        self._save(held=tuple(each for each in self._restore.held if each != ETCD.name))
        self.means.start_etcd()

    def _see_whether_all_is_told(self) -> None:
        """Have no member asked again where tasks of the role would ask, and all have told already what proves it."""
        if self._rest and not proof.wrong_with_etcd(self.means, self._restore):
            self._rest = ""

    def _prove(self, *, last: bool) -> bool:
        """Prove that members are one new cluster with the content of the backup.

        Raises ProblemsError if anything differs, or returns False if they are to be asked again before.
        """
        restore = self._restore
        began = time.monotonic()
        while wrong := proof.wrong_with_etcd(self.means, restore):
            if not self.means.asks_again and not last:
                return False
            if not self.means.asks_again or time.monotonic() - began > self.timeout:
                remedy = "see the logs of its members; karmada.installer.restore_undo takes it back"
                ill = [Problem(each, "etcd", remedy, reason=Reason.ETCD_UNHEALTHY) for each in wrong]
                raise ProblemsError(ill, GOES_ON)
            time.sleep(LOOK_SECONDS)
        self.run.say(f"etcd: {len(restore.members)} members have the content of {restore.backup}")
        return True

    def _start_servers(self) -> None:
        self._save(held=tuple(sorted(WRITERS)))
        self.means.write_authorities()

    # -- quarantine, and its end ---------------------------------------------------------------------------------------

    def _prove_closed(self) -> None:
        """Every API server refuses agents. Raises ProblemsError if one does not, or cannot be asked in time."""
        run, began = self.run, time.monotonic()
        remedy = "take it back with karmada.installer.restore_undo, and report it: agents could work by the backup"
        while True:
            try:
                accepting = self.means.accepting_agents()
                break
            except ApiError as error:
                if not self.means.asks_servers_again or time.monotonic() - began > self.timeout:
                    what = f"it could not be asked whether it refuses agents: {error}"
                    remedy = "mend that, and run it again"
                    problem = Problem(what, run.place.where, remedy, reason=Reason.NOT_READY_IN_TIME)
                    raise ProblemsError(problem, GOES_ON) from None
                time.sleep(LOOK_SECONDS)
        if accepting:
            what = f"certificates of agents are accepted by {', '.join(accepting)}"
            raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.QUARANTINE_OPEN), GOES_ON)

    def _compare(self) -> None:
        run = self.run
        self.report = drift.look(run)
        for each in self.report.problems():
            run.tell(each)
        told = drift.in_words(self.report) or ["  no member is registered"]
        run.say("\n".join(["in quarantine; what the release would find on members:", *told]))

    def _fenced(self, done: Done) -> None:
        with self.means.writing("note that members follow this place"):
            take_over.fenced(self.run, done.joined, done.broken, self.asked.unfenced)
        self.run.go_on_with(self.run.state)

    def _open(self) -> None:
        """Hold nothing any more, which cannot be taken back. Raises ProblemsError if etcd is not what was compared."""
        statuses = self.means.statuses()
        well = [each for each in statuses if each.healthy]
        wrong = proof.wrong_cluster(self._restore, well) if well else []
        if len(well) * 2 <= len(self._restore.members):
            wrong = [f"{each.url}: {each.message}" for each in statuses if not each.healthy]
        if wrong:
            remedy = "mend etcd and release it then, or take it back with karmada.installer.restore_undo"
            ill = [Problem(each, "etcd", remedy, reason=Reason.ETCD_UNHEALTHY) for each in wrong]
            raise ProblemsError(ill, "nothing was released")
        self._save(held=(), closed=False)

    def _let(self) -> None:
        if not self.release.let():
            # Nothing is held, and nothing was.
            self._rest = ""

    def _back_up_again(self) -> None:
        """Back up what was released: backups from before are of another etcd. Members follow without it, too."""
        run, name = self.run, self._restore.series
        try:
            series = {each.name: each for each in backup_series.wanted(run, self.asked.backups)}
            if name not in series:
                what = f"there is no {BACKUP_KIND} {name} any more"
                raise ProblemsError(Problem(what, run.place.where, "", reason=Reason.DOCUMENT_NOT_FOUND))
            taken = self.means.back_up(series[name], backup_series.opened(run, series[name]))
        except ProblemsError as error:
            self._tell_no_backup(error.problems[0].what)
            self._rest = ""
            return
        if taken:
            run.say(f"{taken} is the first backup since the restore")

    def _backed_up_again(self, done: Done) -> None:
        if done.troubles:
            self._tell_no_backup("; ".join(done.troubles))
        elif done.backup:
            self.run.say(f"{done.backup} is the first backup since the restore")

    def _tell_no_backup(self, why: str) -> None:
        remedy = f"back it up: karmada.installer.backup -e backup_now={self._restore.series}"
        what = f"there is no backup of it since it was restored: {why}"
        self.run.tell(replace(Problem.warning(what, Reason.CHECK_SKIPPED, self.run.place.where), remedy=remedy))

    def _turn_back(self) -> None:
        self._save(undoing=True)
        self.means.forget()

    def _undone(self) -> None:
        self._put_aside(EtcdState("", self._restore.generation))
        if upon := self._restore.former_restore:
            parts = held.in_words(upon.parts)
            self.run.say(f"it is what was restored from {upon.backup} again; released is {parts}, and the rest is held")

    def _put_aside(self, etcd: EtcdState) -> None:
        """Note the folders of data that nobody uses any more."""
        self.means.forget()
        aside = tuple(sorted({*self._restore.aside, *new_data.folders(etcd)}))
        self._save(aside=aside)
        self.run.say(f"data that nobody uses stays beside that of etcd: {', '.join(aside)}")
