# SPDX-License-Identifier: Apache-2.0
"""Members of etcd in pods that the document asks for: which begin, and why they cannot be had."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from ..components.etcd_state import EtcdMemberState
from ..components.table import ETCD
from ..kube.apply import Action, Change
from ..kube.objects import Ref
from ..problems import Problem, ProblemsError, Reason
from ..render import cluster_layout
from ..run.run import Run
from . import nodes, patience
from . import plan_types as steps
from .members_seen import Look, are_ours, look
from .plan import ids_of, next_step


def begin(run: Run) -> None:
    """Before the first members start: have the record say which they are. Raises ProblemsError if others have begun.

    Once a StatefulSet is there, members may have begun a cluster of that size, and another size is a change of it.
    """
    stored = run.stored_state
    if not are_ours(run) or stored is None or stored.etcd.bootstrapped or run.check:
        return
    begun, wanted = [each.name for each in stored.etcd.members], cluster_layout.etcd_pod_names(run.instance)
    if not begun or begun == wanted:
        return
    if run.host_cluster.get(*run.workload(ETCD.name)):
        raise ProblemsError(_begun_with(len(begun)))
    with run.writing("choose the members of etcd"):
        records = tuple(EtcdMemberState(name) for name in wanted)
        run.save(replace(run.state, etcd=replace(run.state.etcd, members=records)))
    run.go_on_with(run.state)


def _begun_with(count: int) -> Problem:
    return Problem(
        f"etcd was begun with {count} member{'' if count == 1 else 's'}, which have not been healthy together yet",
        f"{steps.MEMBERS_FIELD}",
        f"set it to {count} until the installation has come to its end, or uninstall",
        reason=Reason.ETCD_MAJORITY_AT_RISK,
    )


def look_before(run: Run) -> Look | None:
    """Members as they are before the first change of a run; None if there are none in pods yet.

    A run that has nothing to do asks none of them before its report.
    """
    stored = run.stored_state
    is_due = are_ours(run) and stored is not None and stored.etcd.bootstrapped and run.has_more_to_do
    return look(run) if is_due else None


def problems(
    run: Run,
    *,
    confirmed: int,
    replace_names: Collection[str],
    abandoned_nodes: Collection[str] = (),
    looked: Look | None = None,
) -> list[Problem]:
    """Reasons why the members cannot be brought to those of the document, as far as they can be known before.

    ``confirmed`` is the smaller number that the user has asked for by name; ``replace_names`` are the members to
    replace without a proof of loss, and ``abandoned_nodes`` the nodes that are given up with what is on them. What was
    just ``looked`` at is not looked at again.
    """
    stored = run.stored_state
    if not are_ours(run) or stored is None:
        return []
    known, wanted = [each.name for each in stored.etcd.members], cluster_layout.etcd_pod_names(run.instance)
    found = [*unknown_names(known, replace_names), *nodes.problems(run, wanted, abandoned_nodes)]
    replaced = {*replace_names, *nodes.members_without(run, abandoned_nodes)}
    if not stored.etcd.bootstrapped:
        return found
    if known == wanted and not replaced:
        if looked is None:
            return found
        # Members that somebody else has changed stop this run as well, whatever it is about; all else may pass.
        step = _settled_step(run, wanted, replaced, looked, settles=False)
        differ = isinstance(step, steps.Refusal) and step.reason is Reason.ETCD_MEMBERS_DIFFER
        return [*found, *([step.problem] if isinstance(step, steps.Refusal) and differ else [])]
    if len(wanted) < len(known) and confirmed != len(wanted):
        found.append(
            Problem(
                f"etcd has {len(known)} members and would have {len(wanted)}",
                steps.MEMBERS_FIELD,
                f"if that is what you want, say the number: -e etcd_confirm_members={len(wanted)}",
                reason=Reason.CONFIRMATION_REQUIRED,
            )
        )
    step = _settled_step(run, wanted, replaced, looked)
    return [*found, *([step.problem] if isinstance(step, steps.Refusal) else [])]


def unknown_names(known: Sequence[str], replace_names: Collection[str]) -> list[Problem]:
    """Problems of names of members to replace that none of the ``known`` ones has."""
    return [
        Problem(
            f"there is no member {name} of etcd; there are: {', '.join(known)}",
            "etcd_replace",
            "name one of these",
            reason=Reason.INVALID_ARGUMENT,
        )
        for name in sorted(set(replace_names) - set(known))
    ]


def _settled_step(
    run: Run,
    wanted: Sequence[str],
    replace_names: Collection[str],
    looked: Look | None,
    *,
    settles: bool = True,
) -> steps.Step | steps.Refusal | None:
    """First step. One late answer is no reason to refuse what is asked, nor is a change between two answers."""
    began = time.monotonic()
    step: steps.Step | steps.Refusal | None = None
    while True:
        before, seen, looked = step, (looked or look(run)).seen, None
        step = next_step(seen, wanted, ids_of(seen, replace_names))
        if isinstance(step, steps.Refusal) and step.twice and step != before:
            time.sleep(patience.LOOK_SECONDS)
            continue
        may_settle = settles and isinstance(step, steps.Refusal) and step.reason is Reason.ETCD_MAJORITY_AT_RISK
        if not may_settle or time.monotonic() - began >= min(patience.SETTLE_SECONDS, patience.SETTLE_SECONDS_BEFORE):
            return step
        time.sleep(patience.LOOK_SECONDS)


def predicted(
    seen: steps.Seen, records: Sequence[EtcdMemberState], wanted: Sequence[str], replace_names: Collection[str]
) -> list[Change]:
    """Changes of members that a run would make, by its first look; one that is replaced is changed.

    ``records`` are those of the members that were seen, as killed runs have left them; ``wanted`` are the names that
    the document asks for, and ``replace_names`` those that are replaced without a proof of loss.
    """
    known, listed = {each.name: each for each in seen.known}, seen.members or ()
    voters = {each.id for each in listed if not each.learner}
    # Only a majority can replace one.
    ill = {each.id for each in listed if not each.works}
    there = {each.name for each in records if each.has_vote or known[each.name].id in voters}
    replaced = {each.name for each in seen.known if each.leaving or (each.lost and each.id in ill)}
    return [
        *(change(name, "created") for name in wanted if name not in there),
        *(change(name, "changed") for name in wanted if name in there & {*replaced, *replace_names}),
        *(change(name, "deleted") for name in known if name not in wanted),
    ]


def change(name: str, action: Action) -> Change:
    """Change of a member, in pods or on a host, for the report."""
    return Change(Ref("etcd", "EtcdMember", name), action)
