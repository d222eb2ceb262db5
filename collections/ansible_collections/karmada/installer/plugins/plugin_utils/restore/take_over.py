# SPDX-License-Identifier: Apache-2.0
"""A move to a place where nothing is yet: the keys of a backup become its state, and what follows is a restore.

What moves is the owner, the authorities, the keys that sign tokens and encrypt Secrets, the members and what they have
of ours. New are etcd with its authority, addresses, the names in certificates, and what is in the host cluster. So etcd
begins empty here, like that of an install, and the restore makes its new data beside that::

    judge        which backup, is it good, does it fit, was the other place left; nothing is written until that is clear
    adopt        the first state of this place, with the keys of the backup and the next claim to members
    (role etcd)  an empty etcd
    begin        the record of a restore that has nothing to back up and nothing to stop
    ...          from ``Prepare`` to the quarantine, as in any restore
    Fence        the first step of its release: every member has the claim on record, gets other tokens, and its agent
                 the address of this place (``members.epoch``, by a join); one that is out of reach has to be named

Anybody can encrypt to a public recipient, and this place knows no control plane yet, so a person names the key that has
signed the backup.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..backup import record as backup_record
from ..backup import take, verify, workplace
from ..backup.record import KEYS, SNAPSHOT
from ..components.moving import TakeOverState
from ..components.spec import Spec
from ..components.state import LastBackup, State
from ..components.table import ETCD_CA
from ..etcd import external
from ..members.broken import BrokenMember
from ..problems import Problem, ProblemsError, Reason
from ..render import load_balancer
from ..run.run import Run
from . import beginning, check, etcd_checks
from .check import Asked, Chosen, Live
from .means import Means
from .plan import is_released

_UNTOUCHED = "nothing was changed"
#: Generation of the etcd with which a place begins.
_FIRST_GENERATION = 1


def is_under_way(state: State | None) -> bool:
    """Return whether the keys of a backup are the state of this place, and its restore has not begun."""
    return state is not None and state.taken_over is not None and state.restore is None


def is_fenced(state: State) -> bool:
    """Return whether no member follows the place that the control plane came from, as far as it came from one."""
    return state.taken_over is None or state.taken_over.fenced


def adopted(first: State, then: State, taken: TakeOverState, claim_id: str, backup: LastBackup) -> State:
    """State of this place, of what a first install would begin with and the state in a backup.

    That state was written before the ``backup`` itself was on record.
    """
    # Nothing in etcd was issued by its own authority.
    own = {name: pair for name, pair in first.authorities.items() if name == ETCD_CA}
    claim = then.claim.raised(claim_id)
    return replace(
        first,
        owner=then.owner,
        version=then.version,
        authorities={**then.authorities, **own},
        service_account_key=then.service_account_key,
        encryption_key=then.encryption_key,
        service_subnet=then.service_subnet,
        owned={place: uids for place, uids in then.owned.items() if place.startswith("member/")},
        members=then.members,
        digests=then.digests,
        backup_key=then.backup_key,
        backups=take.with_last(then.backups, taken.series, backup, None),
        claim=claim,
        taken_over=replace(taken, epoch=claim.epoch),
    )


@dataclass
class TakingOver:
    """A move to here by one run, up to the record of its restore."""

    run: Run
    asked: Asked
    means: Means

    def goes_on(self) -> bool:
        """Return whether an earlier run has judged and adopted it. Raises ProblemsError if another backup is meant."""
        stored = self.run.stored_state
        if stored is None or stored.taken_over is None:
            return False
        taken = stored.taken_over
        if self.asked.confirm not in ("", taken.backup):
            what = f"it is being taken over by {taken.backup}, and {self.asked.confirm} is meant now"
            remedy = "go on with that, or give it up with karmada.installer.uninstall first"
            raise ProblemsError(Problem(what, self.run.place.where, remedy, reason=Reason.RESTORE_IMPOSSIBLE))
        return True

    def judge(self) -> Chosen:
        """Choose and judge the backup, and go on with the state that this place would get, without storing it.

        Raises ProblemsError with all reasons against it, and unless it is confirmed.
        """
        run = self.run
        check.refuse_move(run)
        if external.is_named(run):
            what, where = "etcd is not of this control plane", "spec.components.etcd.external"
            remedy = "move to a place with an etcd of its own"
            raise ProblemsError(Problem(what, where, remedy, reason=Reason.RESTORE_IMPOSSIBLE), _UNTOUCHED)
        if name := check.survivor(run, self.asked):
            what, remedy = f"there is no etcd here, so that {name} is none of its members", "move it by a backup"
            raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.RESTORE_IMPOSSIBLE), _UNTOUCHED)
        chosen = check.choose(run, self.asked)
        self.asked = self.asked.completed(run, chosen.wanted)
        if not self.asked.keys:
            raise ProblemsError(check.no_key("it is encrypted"), _UNTOUCHED)
        then = self._state_in(chosen)
        planned = then.handed_over is not None and then.handed_over.is_silent
        taken = TakeOverState(
            chosen.series.name,
            chosen.record.name,
            _place(then, chosen),
            planned=planned,
            revision=beginning.revision_there(then, chosen),
        )
        backup = take.last_of(chosen.series, chosen.record, then.claim.epoch)
        state = adopted(run.state, then, taken, secrets.token_hex(4), backup)
        run.store.state = state
        run.look_again(state)
        check.refuse_backup(run, chosen, Live(), self.asked, list(self._reasons_against(chosen, then)))
        told = ["nothing: it was taken when nothing wrote any more"] if planned else check.loss(run, chosen, Live())
        check.require_confirmed(chosen, told, self.asked.confirm)
        if strangers := sorted(set(then.members) - run.spec.member_by_name.keys()):
            what = f"the document does not list {', '.join(strangers)}: an install after the release lets them leave"
            run.tell(Problem.warning(what, Reason.MEMBER_LEAVING, "spec.members"))
        if not planned and (shared := _shared_address(then, run.spec)):
            run.tell(shared)
        run.say(f"taking {taken.source} over from {chosen.record.name}. What is lost: {'; '.join(told)}")
        return chosen

    def adopt(self) -> None:
        """Store the state that was judged: the first one of this place."""
        with self.means.writing("take a control plane over"):
            pass
        self.run.go_on_with(self.run.state)

    def begin(self) -> None:
        """Open the record of the restore, with an empty etcd that works. Raises ProblemsError if it does not."""
        run, taken = self.run, self.run.state.taken_over
        if taken is None:
            raise AssertionError("nothing is taken over")
        chosen = check.choose(run, self.asked, taken.backup)
        statuses = self.means.statuses()
        of_members = etcd_checks.of_members(run)
        size = max((each.db_size for each in statuses), default=0)
        problems = [
            Problem(f"{each.url}: {each.message}", "etcd", "mend that", reason=Reason.ETCD_UNHEALTHY)
            for each in statuses
            if not each.healthy
        ]
        if problems or (problems := list(of_members.problems(run, chosen.record.files[SNAPSHOT].plain_size, size))):
            raise ProblemsError(problems, "what was done before stays, and the next run goes on from there")
        with self.means.writing("begin the restore of a control plane that is taken over"):
            run.save(replace(run.state, restore=beginning.of_a_move(run, chosen, taken, statuses)))
        run.go_on_with(run.state)

    def _state_in(self, chosen: Chosen) -> State:
        """State in the keys of the backup. Raises ProblemsError if it is not that of the control plane that signed."""
        try:
            with workplace.opened() as folder:
                file = verify.decrypted(chosen.target, chosen.record, KEYS, self.asked.keys, folder, chosen.where)
                then = verify.state_of(file, f"{chosen.where}/{KEYS}")
        except OSError as error:
            raise workplace.unusable(error) from None
        signer = backup_record.signer_of(then.backup_key) if then.backup_key else ""
        if (signer, then.owner) != (self.asked.signer, chosen.record.owner):
            raise verify.refused("its keys are not those of the control plane that signed it", chosen.where)
        return then

    def _reasons_against(self, chosen: Chosen, then: State) -> Iterator[Problem]:
        run, name = self.run, self.run.name
        if (then.handed_over is None or not then.handed_over.is_silent) and self.asked.take_over != name:
            what = (
                f"{_place(then, chosen)} had not been handed over when it was taken: what it has done since is lost, "
                "and it may still be at work. From the release on each member follows this place alone, but one that "
                "is out of reach then goes on to follow the other until a run reaches it"
            )
            remedy = (
                "hand it over first, with karmada.installer.hand_over, and restore the backup that this takes; "
                f"if it is lost: -e restore_take_over={name}"
            )
            yield Problem(what, chosen.where, remedy, reason=Reason.CONFIRMATION_REQUIRED)
        if then.document is not None:
            before = Spec(then.document["spec"]).host_cluster.domain
            if before != run.spec.host_cluster.domain:
                what = f"tokens of its service accounts are issued in the domain {before}, so that none would be valid"
                yield Problem(what, "spec.hostCluster", f"use {before} there", reason=Reason.RESTORE_IMPOSSIBLE)
        yield from etcd_checks.of_members(run).data_there(run)


def fenced(run: Run, joined: Collection[str], broken: Sequence[Mapping[str, Any]], named: Sequence[str]) -> None:
    """Put on record that members follow this place, with those that could not be reached and were named.

    ``joined`` are those that do, ``broken`` those that could not be had to. What is on record and neither of them was
    not asked by anybody, so it counts as one that could not. Raises ProblemsError for those that were not named.
    Called with the right to write.
    """
    taken = run.state.taken_over
    if taken is None:
        raise AssertionError("nothing is taken over")
    found = [BrokenMember.of(each) for each in broken]
    found += [
        BrokenMember(name, "this run has not asked it", "run karmada.installer.release again, for all members")
        for name in sorted(run.state.members.keys() - set(joined) - {each.name for each in found})
    ]
    problems = []
    for each in found:
        what, where = f"it could not be made to follow this place: {each.problem}", f"member {each.name}"
        if any(problem.reason is Reason.MOVED for problem in each.problems):
            problems.append(Problem(what, where, each.next_step, reason=Reason.MOVED))
        elif each.name not in named:
            remedy = (
                f"{each.next_step}; or, if it may follow {taken.source} until a run reaches it, name it: "
                f"""-e '{{"restore_unfenced": ["{each.name}"]}}'"""
            )
            problems.append(Problem(what, where, remedy, reason=Reason.MEMBER_UNREACHABLE))
    if problems:
        raise ProblemsError(problems, "nothing was released")
    names = tuple(each.name for each in found)
    run.save(replace(run.state, taken_over=replace(taken, fenced=True, unfenced=names)))


def refuse_place_of_another(run: Run, asked: Asked) -> None:
    """Raise ProblemsError if a control plane is to be moved to a place that has one already."""
    state = run.stored_state
    if not asked.signer or state is None or state.taken_over is not None:
        return
    what = f"a control plane {run.name} is here already, and no other one can be moved to its place"
    remedy = "use another namespace, or leave restore_signer out to restore a backup of the one that is here"
    raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.OTHER_CONTROL_PLANE), _UNTOUCHED)


def refuse_undo(state: State | None, where: str) -> None:
    """Raise ProblemsError if the restore is that of a move, before which there was nothing here.

    One that is over or released is not judged here: that is refused like any other.
    """
    restore = state.restore if state else None
    if state is None or restore is None or state.taken_over is None or restore.backup != state.taken_over.backup:
        return
    # Later the same backup may be restored like any other. Only the move has an empty etcd to go back to.
    if restore.is_over or is_released(restore) or restore.former.generation > _FIRST_GENERATION:
        return
    what = "there was nothing here before it was taken over"
    remedy = "remove it with karmada.installer.uninstall, which leaves its members as they are"
    if is_fenced(state):
        # An uninstallation would take from members what they work by.
        what, remedy = f"{what}, and members follow this place", "go on with karmada.installer.release"
    raise ProblemsError(Problem(what, where, remedy, reason=Reason.RESTORE_IMPOSSIBLE))


def _shared_address(then: State, here: Spec) -> Problem | None:
    """Warning of a virtual IP that hosts of the lost place put on themselves again as soon as they start; else None."""
    before = Spec(then.document["spec"]) if then.document is not None else None
    if before is None or not load_balancer.is_wanted(before) or not load_balancer.is_wanted(here):
        return None
    address = load_balancer.virtual_ip(here)
    if load_balancer.virtual_ip(before) != address:
        return None
    what = (
        f"{address} is the virtual IP of the lost place, too: hosts of it that come back take that address as well, "
        "and whoever uses it, agents of members in mode Pull included, may reach either place"
    )
    remedy = "choose another address here, or see to it that none of those hosts ever starts with the disk that it had"
    told = Problem.warning(what, Reason.ADDRESS_IN_USE, "spec.endpoint.virtualIP.address")
    return replace(told, remedy=remedy)


def _place(then: State, chosen: Chosen) -> str:
    """Place of the control plane that the backup is of, as members have it on record."""
    home = chosen.record.home
    if then.document is not None:
        home = Spec(then.document["spec"]).host_cluster.namespace
    return f"{home}/{chosen.record.deployment}"
