# SPDX-License-Identifier: Apache-2.0
"""A hand-over: what a control plane does at the place that it leaves, and the way back.

Its writers stop, then its API servers; what etcd has then is the final backup; then etcd stops, too. All of that is
held by the state, as in a restore, and ``means`` do what differs by where components run. The data stays where it is,
so that it can be taken back as long as no member follows another place; but data in pods goes with them (emptyDir), so
that there is no way back once etcd stops.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ..backup import encryption, take
from ..backup import series as backup_series
from ..backup.targets import Target
from ..components.moving import SILENT, HandOverState
from ..components.spec import MemberEntry
from ..components.table import ETCD
from ..document.backups import KIND as BACKUP_KIND
from ..document.backups import Wanted
from ..kube.apply import Change
from ..kube.cluster import Cluster
from ..kube.step import Mode, StepRunner
from ..members import epoch, follow, join
from ..members.join import Outcome
from ..problems import Problem, ProblemsError, Reason
from ..run import restoring
from ..run.run import Run
from . import agents, check, hand_over_plan, means_of_place
from .plan import ENDS, EVERYTHING, STOPS, Step
from .turn import DONE, TOLD, Done

#: Lines of those that a person waits for. Other words than a restore has: one backup is the last, no data is put back.
_TOLD = {
    **TOLD,
    Step.BACK_UP: "taking the final backup, to which nothing is added any more",
    Step.CLAIM: "having members refuse a place that takes the final backup over",
    Step.START_FORMER: "starting the members of etcd with the data that they have",
}
#: Seconds for the first answer of a member.
_PATIENCE = 20.0
_UNTOUCHED = "nothing was stopped, and nothing was changed"
_NO_WAY_BACK = "the data of etcd goes with its pods (emptyDir), so that once it has stopped there is no way back"


@dataclass(frozen=True)
class Asked:
    """Wishes of the user.

    ``to`` is the EtcdBackup in whose target the final backup goes, ``confirm`` the name of the control plane. ``undo``:
    it is to be taken back. ``without`` are members that need not be asked then whether they follow another place.
    """

    backups: Sequence[Mapping[str, Any]] = ()
    to: str = ""
    confirm: str = ""
    undo: bool = False
    without: Sequence[str] = ()


@dataclass
class HandingOver:
    """A hand-over on its way to what the user has asked for."""

    run: Run
    asked: Asked
    timeout: float
    changes: list[Change] = field(default_factory=list)
    _rest: str = ""

    def __post_init__(self) -> None:
        self.means = means_of_place.means(self.run, self.timeout, self.changes)

    # -- what is next ------------------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Judge what is to be left, ask for its name, and open the record; returns False if one is under way.

        Raises ProblemsError if it cannot be left, or is not confirmed; nothing was changed then.
        """
        run, stored = self.run, self.run.stored_state
        take.refuse(run)
        check.refuse_move(run)
        if stored and stored.handed_over:
            return False
        if self.asked.undo:
            what = "it is not handed over, so that there is nothing to take back"
            raise ProblemsError(Problem(what, run.place.where, "", reason=Reason.INVALID_ARGUMENT))
        if held := restoring.problem(stored, run.operation, run.place.where):
            raise ProblemsError(held, _UNTOUCHED)
        series, target = self._series(self.asked.to)
        encryption.recipients(series.recipients, f"{series.place}: spec.recipients")
        asked = self._ask_members(lambda *_: None)
        if moved := [each for found in asked for each in found.problems if each.reason is Reason.MOVED]:
            raise ProblemsError(moved, _UNTOUCHED)
        self._require_confirmed(target)
        if self._data_in_pods:
            run.tell(Problem.warning(_NO_WAY_BACK, Reason.DATA_NOT_DURABLE, run.place.where))
        if run.check:
            return True
        target.check()
        take.ensure_signing_key(run)
        with self.means.writing("begin to hand it over"):
            started = run.now.isoformat(timespec="seconds")
            run.save(replace(run.state, handed_over=HandOverState(series.name, started)))
        run.go_on_with(run.state)
        return True

    def next(self) -> Step | None:
        """Next step; None if what was asked for is reached. Raises ProblemsError if it cannot be reached from here."""
        stored = self.run.stored_state
        if stored is None or stored.handed_over is None:
            # It was taken back.
            return None
        running, in_pods = self.means.running(EVERYTHING), self._data_in_pods
        step = hand_over_plan.next_step(stored.handed_over, running, undo=self.asked.undo, data_in_pods=in_pods)
        if isinstance(step, Problem):
            raise ProblemsError(step)
        return step

    def take(self, step: Step) -> str:
        """Take a step, as far as it is taken from here; returns the name of the tasks that do the rest, or nothing.

        Raises ProblemsError, with what was done before staying as it is.
        """
        self._rest = self.means.tasks.get(step, "")
        if step in _TOLD:
            self.run.say(_TOLD[step])
        if step in STOPS:
            components, running = STOPS[step], self.means.running(EVERYTHING)
            backup = hand_over_plan.final_backup(self.journal, step, running)
            if backup != self.journal.backup:
                self.run.say(f"what writes has run since {self.journal.backup}, so that is no final backup")
            # In one write: a run that is killed from here on has nothing that it could take for the final one.
            self._save(held=tuple(sorted({*self.journal.held, *components})), backup=backup)
            self.means.stop(components, step)
        elif step in (acts := self._acts()):
            acts[step]()
        if not self._rest:
            self.end(step)
        return self._rest

    def end(self, step: Step, done: Done = DONE) -> bool:
        """See to it that a step has come to its end, and put that on record; returns True. Raises ProblemsError."""
        if step in STOPS:
            self.means.wait_until_stopped(STOPS[step])
        elif step is Step.START_FORMER:
            self.means.etcd_started()
        elif step is Step.BACK_UP and done.troubles:
            what, remedy = "; ".join(done.troubles), "mend that, and run it again"
            raise ProblemsError(Problem(what, self.run.place.where, remedy, reason=Reason.BACKUP_TARGET_UNUSABLE))
        elif step is Step.BACK_UP and done.backup:
            self._save(backup=done.backup)
        with self.means.writing(f"hand over: {step}"):
            state = self.run.state
            journal, left = state.journal, hand_over_plan.ended(self.journal, step)
            if step in ENDS:
                journal = replace(journal, finished=datetime.now(UTC).isoformat(), step="")
            self.run.save(replace(state, journal=journal, handed_over=None if step is Step.UNDONE else left))
        self.run.go_on_with(self.run.state)
        return True

    @property
    def journal(self) -> HandOverState:
        """The hand-over that is under way."""
        if self.run.state.handed_over is None:
            raise AssertionError("there is no hand-over on record")
        return self.run.state.handed_over

    @property
    def _data_in_pods(self) -> bool:
        return self.run.state.etcd.storage == "emptyDir"

    @property
    def series(self) -> str:
        """Name of the EtcdBackup; empty once it was taken back."""
        left = self.run.state.handed_over
        return left.series if left else ""

    def told(self) -> dict[str, str]:
        """Backup, signer and series that the other place needs; empty before the final backup is there."""
        stored = self.run.stored_state
        left = stored.handed_over if stored else None
        if left is None or not left.is_over:
            return {}
        return {"backup": left.backup, "signer": backup_series.signer(self.run), "series": left.series}

    def _acts(self) -> dict[Step, Callable[[], None]]:
        return {
            Step.CLOSE: lambda: self._save(closed=True),
            Step.BACK_UP: self._back_up,
            Step.HANDED_OVER: self._handed_over,
            Step.TURN_BACK: self._turn_back,
            Step.CLAIM: self._claim,
            Step.START_FORMER: self._start_etcd,
            Step.OPEN_AGAIN: lambda: self._save(held=(), closed=False),
            Step.START_ALL: self.means.write_authorities,
            Step.WAKE_AGENTS: lambda: agents.wake(self.run, self.changes),
        }

    def _save(self, **fields: Any) -> None:
        with self.means.writing("note how far the hand-over is"):
            self.run.save(replace(self.run.state, handed_over=replace(self.journal, **fields)))
        self.run.go_on_with(self.run.state)

    # -- before anything stops ---------------------------------------------------------------------------------------

    def _series(self, name: str) -> tuple[Wanted, Target]:
        """EtcdBackup of this name, or the only one, and its target. Raises ProblemsError."""
        found = {each.name: each for each in backup_series.wanted(self.run, self.asked.backups)}
        if not name and len(found) == 1:
            (name,) = found
        if name not in found:
            what = f"there is no {BACKUP_KIND} {name}" if name else f"there are {len(found)} of kind {BACKUP_KIND}"
            remedy = "write one beside the document, into whose target the final backup goes"
            if found:
                remedy = f"name one of {', '.join(found)}: -e hand_over_to={next(iter(found))}"
            raise ProblemsError(Problem(what, "hand_over_to", remedy, reason=Reason.INVALID_ARGUMENT), _UNTOUCHED)
        return found[name], backup_series.opened(self.run, found[name])

    def _require_confirmed(self, target: Target) -> None:
        """Raise ProblemsError unless the name of the control plane was said."""
        run = self.run
        if run.check or self.asked.confirm == run.name:
            return
        members = ", ".join(sorted(run.state.members)) or "none"
        what = (
            f"this stops the control plane {run.name} for good, once its final backup is in {target.where}; until it "
            f"is restored elsewhere nobody serves its API, and its members stay as they are: {members}"
        )
        what += f"; {_NO_WAY_BACK}" if self._data_in_pods else ""
        remedy = f"if that is meant: -e hand_over_confirm={run.name}"
        raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.CONFIRMATION_REQUIRED), _UNTOUCHED)

    def _ask_members(self, more: Callable[[Cluster, Outcome], object]) -> list[Outcome]:
        """Ask each member whether it follows this place, and do ``more`` there if so; returns those with a problem.

        It follows another one, or does not answer, so that nobody knows.
        """
        run = self.run

        def ask(entry: MemberEntry, outcome: Outcome) -> None:
            with join.connected(run, entry, _PATIENCE) as member:
                epoch.refuse(run.state, entry.name, member)
                more(member, outcome)

        return [each for each in join.of_each(follow.on_record(run), ask, run.trace) if each.problem]

    # -- the steps ---------------------------------------------------------------------------------------------------

    def _back_up(self) -> None:
        """Take the final backup. Its keys hold the state, by which the other place knows that nothing has written."""
        self._save(step=SILENT)
        if name := self.means.back_up(*self._series(self.journal.series)):
            self._save(backup=name)

    def _handed_over(self) -> None:
        run, backup = self.run, self.journal.backup
        run.say(
            f"{run.name} is handed over: {backup} is its final backup. At the other place: karmada.installer.restore "
            f"-e restore_confirm={backup} -e restore_signer={backup_series.signer(run)}"
        )

    def _turn_back(self) -> None:
        """Begin the way back, if no member follows another place. Raises ProblemsError."""
        run, journal = self.run, self.journal
        self._require_members(self._ask_members(lambda *_: None), "it stays handed over")
        with self.means.writing("note that it is taken back"):
            state = run.state
            if journal.may_be_taken_over:
                state = replace(state, claim=state.claim.raised(secrets.token_hex(4)))
            left = replace(journal, undoing=True, step=Step.TURN_BACK.value)
            run.save(replace(state, handed_over=left))
        run.go_on_with(run.state)

    def _claim(self) -> None:
        """Have members refuse a place that takes the final backup over. Raises ProblemsError."""
        run, journal = self.run, self.journal
        if not run.state.claim.epoch:
            return

        def raise_mark(member: Cluster, outcome: Outcome) -> None:
            runner = StepRunner(member, Mode.WRITE, outcome.on_member, run.say)
            runner.take(epoch.claim(run.state, outcome.name, member))
            self.changes.extend(outcome.on_member)

        failed = self._ask_members(raise_mark)
        self._require_members(failed, "nothing of it was started")
        if journal.backup:
            but = f", but by {', '.join(each.name for each in failed)}" if failed else ""
            run.say(
                f"{journal.backup} is no final backup any more: a place that takes it over, or one from before, is "
                f"refused{but}. Take another one now: karmada.installer.backup -e backup_now={journal.series}"
            )

    def _require_members(self, failed: Sequence[Outcome], outcome: str) -> None:
        """Raise ProblemsError for members that follow another place, or that did not answer and were not named."""
        wrong = []
        for member in failed:
            for each in member.problems:
                if each.reason is Reason.MOVED:
                    wrong.append(each)
                elif member.name not in self.asked.without:
                    named = f"""if it is gone for good, name it: -e '{{"hand_over_without": ["{member.name}"]}}'"""
                    wrong.append(replace(each, remedy=f"{each.remedy}; {named}"))
        if wrong:
            raise ProblemsError(wrong, outcome)

    def _start_etcd(self) -> None:
        self._save(held=tuple(each for each in self.journal.held if each != ETCD.name))
        self.means.start_etcd()
