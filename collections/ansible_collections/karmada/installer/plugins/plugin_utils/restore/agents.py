# SPDX-License-Identifier: Apache-2.0
"""Agents of members after their API servers refused them: in pods of members, they begin anew."""

from __future__ import annotations

import time

from ..components.spec import MemberEntry
from ..components.table import KARMADA_AGENT
from ..components.types import MEMBER_NAMESPACE
from ..kube.apply import Change
from ..kube.cluster import Cluster
from ..kube.objects import Ref
from ..labels import MEMBER_LABEL, NAME_LABEL, OWNER_LABEL
from ..members import follow, join
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run

#: Time in which the pods of one member's agent must be deleted; a member may list as many as it likes.
MEMBER_SECONDS = 60.0


def wake(run: Run, changes: list[Change]) -> None:
    """Have the agents of ours begin anew: they were locked out, and wait longer after each attempt.

    A member where that fails, whatever it answers, is told and keeps no other waiting.
    """

    def wake_one(entry: MemberEntry, outcome: join.Outcome) -> None:
        with join.connected(run, entry) as member:
            _delete(run, member, entry.name, outcome.on_member)

    # Also of a member that the document has forgotten: it is ours until it has left.
    entries = [each for each in follow.on_record(run) if each.pulls and not each.agent_hosts]
    for outcome in join.of_each(entries, wake_one, run.trace):
        changes += outcome.on_member
        if outcome.problem:
            what = f"its agent could not be restarted, and may take minutes to log in again: {outcome.problem}"
            run.tell(Problem.warning(what, Reason.MEMBER_UNREACHABLE, f"member {outcome.name}"))


def _delete(run: Run, member: Cluster, name: str, changes: list[Change]) -> None:
    deadline = time.monotonic() + MEMBER_SECONDS
    # Another control plane may have an agent there, too.
    labels = {NAME_LABEL: KARMADA_AGENT.name, OWNER_LABEL: run.state.owner, MEMBER_LABEL: name}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    for pod in member.list("v1", "Pod", MEMBER_NAMESPACE, labels=selector):
        pod_name = pod["metadata"]["name"]
        if time.monotonic() > deadline:
            what = f"its pods could not be deleted in {MEMBER_SECONDS:.0f} s"
            raise ProblemsError(Problem(what, member.name, reason=Reason.MEMBER_UNREACHABLE))
        run.require_lock()
        if member.delete("v1", "Pod", pod_name, MEMBER_NAMESPACE, uid=pod["metadata"]["uid"]):
            changes.append(Change(Ref("v1", "Pod", pod_name, MEMBER_NAMESPACE), "deleted", None))
