# SPDX-License-Identifier: Apache-2.0
"""Members of etcd on plain hosts, brought to those of the document: the next safe step (``plan``) after each look.

Hosts are reached by Ansible's connections only, so a role loops: every member is asked on its host, the next step is
decided here, one host takes it, and all are asked again. What is decided is on record before anything is asked of etcd,
and what etcd has done is put on record at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..components.etcd_state import EtcdMemberState, EtcdState
from ..components.table import KARMADA_APISERVER
from ..problems import Problem, ProblemsError, Reason
from ..render import units
from ..run.run import Run
from . import patience
from . import plan_types as steps
from .plan import next_step
from .restart import Restart, may_be_needed, next_restart
from .seen_on_hosts import Look, are_ours, ids_to_replace, known, look, wanted


@dataclass(frozen=True)
class Turn:
    """One step for a role to take. ``step`` is a state of ``etcd_change``, or one of these:

    ``started``: start the member of ``host``; ``clients``: have clients connect to the members that stay;
    ``restarted``: restart what runs on ``host``, and wait for it unless ``wait`` is False; ``look``: only look again;
    empty: there is nothing to do any more. ``member`` is the name of the one that the step is about, and ``identity``
    an ID that etcd is told. ``done``: the members are those of the document, by what they have just answered.
    ``follows``: after the step, the API server of this host is to use the member there, and ``before``: first, the API
    server of this host has to answer, which did so earlier in this run; both empty if there is none. ``stops``: a
    member that was removed stops on its host, which is reached.
    """

    step: str = ""
    host: str = ""
    member: str = ""
    identity: str = ""
    wait: bool = True
    done: bool = False
    follows: str = ""
    before: str = ""
    stops: bool = False

    @property
    def plain(self) -> dict[str, Any]:
        """Result of an action."""
        return dict(vars(self))


LOOK_AGAIN = Turn("look")
#: Seconds between two lines about what is waited for.
TELL_SECONDS = 30.0


# -- the next step -----------------------------------------------------------------------------------------------------


def decide(run: Run, timeout: float, replace_names: Collection[str] = ()) -> Turn:
    """Next step towards the members of the document, after every member was asked.

    What is decided is put on record here, and the role brings the record to the hosts before it takes the step.
    ``timeout`` is in seconds, for each step. Raises ProblemsError if there is no safe step, or if one does not come to
    its end.
    """
    if not are_ours(run) or not run.state.etcd.bootstrapped:
        return Turn()
    note(run)
    marked = _asked_for(run, replace_names)
    while True:
        found = look(run)
        step = next_step(found.seen, wanted(run), marked)
        if turn := _turn(run, found, step):
            return _in_time(run, _with_clients(run, turn), found, step, timeout)


def _with_clients(run: Run, turn: Turn) -> Turn:
    """Turn with the API server that is to use a new member on its host, and the one that has done so before it.

    It restarts while other members come. All others follow in a later step: those that were not seen to answer, and
    those whose users would be without one meanwhile, who may be steps of this run.
    """
    before = run.handover.etcd_step.get("followed", "")
    if turn.done:
        return replace(turn, before=before)
    if turn.step != "promoted" or not _may_restart(run, turn.member):
        return turn
    run.handover.etcd_step = {**run.handover.etcd_step, "followed": turn.member}
    return replace(turn, follows=turn.member, before="" if before == turn.member else before)


def _may_restart(run: Run, host: str) -> bool:
    """Return whether an API server was seen to answer on this host, whose users another one serves meanwhile."""
    view = run.on_host(host)
    if not view.components([KARMADA_APISERVER.name]) or not view.answers([KARMADA_APISERVER.name]):
        return False
    return units.layout(run.instance, view.host, KARMADA_APISERVER, run.endpoint_host).shutdown_delay > 0


def _asked_for(run: Run, replace_names: Collection[str]) -> frozenset[str]:
    """IDs of members that are to be replaced: by the first look, as their successors have their names."""
    before = run.handover.etcd_step
    if "replace" in before:
        return frozenset(before["replace"])
    chosen = ids_to_replace(look(run).seen, replace_names)
    run.handover.etcd_step = {**before, "replace": sorted(chosen)}
    return chosen


def _turn(run: Run, found: Look, step: steps.Step | steps.Refusal | None) -> Turn | None:
    """Turn that carries out this step; None if it only changed the record, and the next step is to be decided."""
    match step:
        case steps.Stop(name):
            return _stop(run, name)
        case steps.Decide() | steps.Adopt() | steps.Leave() | steps.Stay():
            _record(run, found, step)
            return None
        case steps.Add(name):
            return Turn("added", _other_than(found, name), name)
        case steps.Promote(name, identity):
            return Turn("promoted", _other_than(found, name), name, identity)
        case steps.Remove(name, identity):
            return Turn("removed", _other_than(found, name), name, identity, stops=_is_reached(run, name))
    return _turn_elsewhere(step)


def _turn_elsewhere(step: steps.Step | steps.Refusal | None) -> Turn:
    """Turn of a step that no other member takes."""
    match step:
        case steps.Start(name, _identity):
            return Turn("started", name, name)
        case steps.MoveLeader(leader, _to, identity):
            return Turn("led", leader, leader, identity)
        case steps.ClientsFollow():
            return Turn("clients")
    return Turn(done=True) if step is None else LOOK_AGAIN


def _stop(run: Run, name: str) -> Turn | None:
    """Stop what ran for a member that is none any more. What cannot be reached is only forgotten."""
    if _is_reached(run, name):
        return Turn("stopped", name, name)
    forget(run, name)
    return None


def _is_reached(run: Run, name: str) -> bool:
    """Return whether the host of a member is known, and was looked at."""
    return (name in run.hosts or name in run.leaving) and not run.handover.observed(name).refusal


def _other_than(found: Look, name: str) -> str:
    """Name of a member with a vote other than this one that works, which asks etcd for the change."""
    votes = {each.id for each in found.seen.members or () if not each.learner}
    able = [each.name for each in found.seen.known if each.id in votes and found.works(each.name)]
    return next((each for each in able if each != name), able[0])


def _record(run: Run, found: Look, step: steps.Step | steps.Refusal | None) -> None:
    """Put on record what is decided, or what etcd has done without an answer that reached us."""
    match step:
        case steps.Decide(name):
            _save(run, f"decide to add a member {name} to etcd", _with(EtcdMemberState(name, coming=True)))
        case steps.Adopt(name, identity):
            added(run, name, identity, {each.id: each.peer_url for each in found.seen.members or ()})
        case steps.Leave(name, lost):
            left = replace(_on_record(run, name), leaving=True, lost=lost)
            _save(run, f"decide to remove the member {name} of etcd", _with(left))
        case steps.Stay(name):
            staying = _as_used(run, _on_record(run, name).staying)
            _save(run, f"keep the member {name} of etcd", _with(staying))
        case _:
            raise AssertionError(step)


def _in_time(run: Run, turn: Turn, found: Look, step: steps.Step | steps.Refusal | None, timeout: float) -> Turn:
    """Turn, if the time for it is not over. Raises ProblemsError with what was waited for."""
    before, now = run.handover.etcd_step, time.monotonic()
    # A step that has to be repeated is no progress, and nor is a look.
    doing = [turn.step, turn.member] if turn != LOOK_AGAIN else before.get("doing", ["look", ""])
    waits = doing == before.get("doing")
    # Hosts take their time for a step, so what is waited for after it begins with the first look; with no later one, or
    # a step that etcd refuses, and looks in between, would never end.
    looked = before.get("looked", False) if waits else False
    begins = not waits or (turn == LOOK_AGAIN and not looked)
    since, told_at = (now if begins else before.get(key, now) for key in ("since", "told"))
    refused, refused_since = "", now
    if isinstance(step, steps.Refusal):
        refused, refused_since = step.what, before["refused_since"] if before.get("refused") else now
        patience.require_patience(step, now - refused_since, again=refused == before.get("refused"))
    told = _waited_for(found, turn, step)
    if now - since > timeout:
        raise ProblemsError(
            Problem(
                f"{told} (after {now - since:.0f} s)",
                "etcd",
                "see why, and run the playbook again",
                reason=Reason.NOT_READY_IN_TIME,
            ),
            consequence="run it again to go on from here",
        )
    if now - told_at > TELL_SECONDS:
        run.say(f"etcd: {told}; {now - since:.0f} of {timeout:.0f} s")
        told_at = now
    run.handover.etcd_step = {
        **before,
        "doing": doing,
        "looked": looked or turn == LOOK_AGAIN,
        "since": since,
        "told": told_at,
        "refused": refused,
        "refused_since": refused_since,
    }
    if turn == LOOK_AGAIN or waits:
        time.sleep(patience.pause_on_hosts(now - since, timeout))
    return turn


def _waited_for(found: Look, turn: Turn, step: steps.Step | steps.Refusal | None) -> str:
    if isinstance(step, steps.Wait):
        return step.reason
    if isinstance(step, steps.Refusal):
        return step.what
    why = found.answers[turn.member].status.message if turn.member in found.answers else ""
    what = "has not started yet" if turn.step == "started" else f"is not {turn.step or 'done'} yet"
    return f"member {turn.member} {what}" + (f": {why}" if why else "")


# -- restarts ----------------------------------------------------------------------------------------------------------


def decide_restart(run: Run, timeout: float, outdated: Collection[str]) -> Turn:
    """Next member on hosts of these names to restart, after every member was asked; the leader is the last.

    One that does not answer is restarted first: otherwise settings that broke a member could not be mended. Where a
    majority may rest on its vote, it has to stay silent for a while. Raises ProblemsError if another one stays
    unhealthy, or if healthy ones list different members.
    """
    before = run.handover.etcd_step
    done = set(before.get("restarted", ()))
    left = [name for name in known(run) if name in outdated and name not in done]
    if not left:
        return Turn()
    found = look(run)
    silent = [name for name in left if name in found.answers and found.answers[name].status.cause is not None]
    step: Any = steps.lists_differ(found.seen)
    if step is None:
        step = _restart_of_silent(run, found, silent[0]) if silent else _next_restart(run, found, left)
    match step:
        case Restart(name):
            # What was waited for until now is no part of the next wait.
            kept = {key: before[key] for key in ("replace",) if key in before}
            run.handover.etcd_step = {**kept, "restarted": sorted({*done, name}), "doing": []}
            return Turn("restarted", name, name, wait=found.seen.members is not None)
        case steps.MoveLeader(leader, _to, identity):
            turn = Turn("led", leader, leader, identity)
        case steps.Refusal() | steps.Wait():
            turn = LOOK_AGAIN
        case _:
            return Turn()
    return _in_time(run, turn, found, step, timeout)


def _next_restart(run: Run, found: Look, left: Collection[str]) -> Restart | steps.MoveLeader | steps.Refusal | None:
    """Next one to restart where each of them has answered."""
    run.handover.etcd_step = {**run.handover.etcd_step, "silent": []}
    return next_restart(found.seen, left)


def _restart_of_silent(run: Run, found: Look, name: str) -> Restart | steps.Wait:
    """Restart of a member that does not answer, or a wait if it may serve the other members all the same."""
    if not may_be_needed(found.seen, name):
        return Restart(name)
    before, now = run.handover.etcd_step, time.monotonic()
    who, since = before.get("silent") or ("", now)
    since = since if who == name else now
    if now - since >= patience.SETTLE_SECONDS:
        return Restart(name)
    run.handover.etcd_step = {**before, "silent": [name, since]}
    return steps.Wait(f"member {name} does not answer, and without its vote there may be no majority")


# -- the record --------------------------------------------------------------------------------------------------------


def note(run: Run) -> None:
    """Put on record what is not there yet, by the members' answers: IDs of the first ones, votes of killed runs.

    Members that are to stay after all are in use again.
    """
    etcd = run.state.etcd
    if not are_ours(run) or not etcd.members:
        return
    seen = look(run).seen
    ids = {each.name: each.id for each in seen.known}
    voters = {each.id for each in seen.members or () if not each.learner}

    def completed(record: EtcdMemberState) -> EtcdMemberState:
        identity = record.id or (ids.get(record.name, "") if not record.coming else "")
        initial = "" if identity in voters else record.initial_cluster
        return _as_used(run, replace(record, id=identity, initial_cluster=initial))

    noted = tuple(map(completed, etcd.members))
    cluster = etcd.cluster_of(seen.cluster, {each.id for each in seen.members or ()})
    if noted != tuple(etcd.members) or cluster != etcd.cluster:
        _save(run, "note the members of etcd", lambda now: replace(now, members=noted, cluster=cluster))


def added(run: Run, name: str, identity: str, peer_urls: Mapping[str, str]) -> None:
    """Put a member that was added on record, with what it starts with; ``peer_urls`` are those of all, by ID."""
    names = {**{each.id: each.name for each in run.state.etcd.members if each.id}, identity: name}
    # The planner has refused members that are not on record.
    initial = ",".join(f"{names[each]}={url}" for each, url in peer_urls.items() if each in names)
    record = EtcdMemberState(name, identity, added=True, initial_cluster=initial)
    _save(run, f"note the new member {name} of etcd", _with(record))


def voted(run: Run, name: str) -> None:
    """Put on record that a member has its vote; from now on it starts with its data only."""
    record = replace(_on_record(run, name), initial_cluster="")
    _save(run, f"note the vote of the member {name} of etcd", _with(record))


def forget(run: Run, name: str) -> None:
    """Forget a member that is none any more."""
    _save(run, f"forget the member {name} of etcd", lambda etcd: etcd.without_member(name))


def clients_have_followed(run: Run) -> None:
    """Put on record that no client connects to the members that go."""
    wishes = set(wanted(run))

    def marked(etcd: EtcdState) -> EtcdState:
        going = tuple(replace(each, unused=each.leaving or each.name not in wishes) for each in etcd.members)
        return replace(etcd, members=going)

    _save(run, "note which members of etcd are in use", marked)


def _as_used(run: Run, record: EtcdMemberState) -> EtcdMemberState:
    """Copy of a record that says that clients use the member, if it is to stay: this run has them do so."""
    return replace(record, unused=record.unused and (record.leaving or record.name not in wanted(run)))


def _on_record(run: Run, name: str) -> EtcdMemberState:
    return run.state.etcd.member(name) or EtcdMemberState(name)


def _with(record: EtcdMemberState) -> Callable[[EtcdState], EtcdState]:
    return lambda etcd: etcd.with_member(record)


def _save(run: Run, step: str, changed: Callable[[EtcdState], EtcdState]) -> None:
    with run.writing(step):
        etcd = changed(run.state.etcd)
        run.save(replace(run.state, etcd=replace(etcd, nodes=tuple(each.name for each in etcd.members))))
    run.go_on_with(run.state)
