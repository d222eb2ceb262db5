# SPDX-License-Identifier: Apache-2.0
"""Members on record that the document does not list: they follow a place that has taken the control plane over, too.

A take-over fences every member that the control plane has something on, also one that is to leave there: the place that
was left knows it by tokens as well. Of such a member the document says nothing, so what was asked for it once (rights,
labels, taints) stays as it is registered; it gets the mark and other tokens, and its agent the address of this place.
So it can leave later like any other member. Its estimator, and an agent on a plain host, have lost their tokens and get
no new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..api_object import Object
from ..components.spec import MemberEntry
from ..components.state import State
from ..kube.objects import claimed_by
from ..kube.step import Mode, Step, StepRunner
from ..problems import first_of
from ..run.run import Run
from . import agent_join, epoch, join, registration
from .join import Outcome
from .plan import Clusters


def on_record(run: Run) -> list[MemberEntry]:
    """Every member on record, by its entry of the document or else by its record, whatever this run has selected."""
    listed = run.spec.member_by_name
    return [listed.get(name) or run.state.member(name) for name in sorted(run.state.members)]


def unlisted(run: Run, entries: Sequence[MemberEntry]) -> list[MemberEntry]:
    """Entries that the document does not list."""
    return [each for each in entries if each.name not in run.spec.member_by_name]


def follow(run: Run, entries: Sequence[MemberEntry], registered: Clusters) -> list[Outcome]:
    """Have members that are not listed follow this place, and note what was made on them.

    ``registered`` are the Clusters of the control plane. Each member is on its own: what kept it from following is the
    problem of its outcome.
    """
    if not entries:
        return []
    with run.writing(f"have {first_of([each.name for each in entries])} follow this place"):
        outcomes = join.of_each(entries, partial(_follow, run, registered), run.trace)
        state: State = run.state
        for entry, outcome in zip(entries, outcomes, strict=True):
            if outcome.on_member:
                state = join.recorded(state, entry, outcome.on_member)
        run.save(epoch.settled(state, [each.name for each in outcomes if not each.problem]))
        run.go_on_with(run.state)
    return outcomes


def _follow(run: Run, registered: Clusters, entry: MemberEntry, outcome: Outcome) -> None:
    name, live = entry.name, registered.get(entry.name)
    with join.connected(run, entry, join.FIRST_ANSWER_SECONDS) as cluster:
        identity = join.registration_of(cluster)
        outcome.cluster_id = identity.cluster_id
        join.check_identity(name, identity, registered)
        member = StepRunner(cluster, Mode.WRITE, outcome.on_member, run.say, join.WORKERS, join.AGENT_SECONDS)
        inside = StepRunner(
            run.control_plane, Mode.WRITE, outcome.in_control_plane, run.say, timeout=join.AGENT_SECONDS
        )
        there = epoch.refuse(run.state, name, cluster)
        if there is None or claimed_by(there)[1] != run.state.owner:
            # Nothing of the control plane is on it by which another place could know it.
            return
        member.take(epoch.fence(run.state, name, cluster))
        accounts = _accounts(run, name)
        for kind in ("ServiceAccount", "Secret"):
            # A member deletes a token whose account does not exist.
            member.take([Step([each for each in accounts if each["kind"] == kind])])
        if live is None:
            return
        found = join.wait_for_credentials(cluster, name, estimator=False)
        secrets = registration.secrets_in_control_plane(name, run.state.owner, found, live["metadata"]["uid"])
        inside.take([Step(secrets)])
        if entry.pulls and not entry.agent_hosts:
            inside.take(agent_join.grant(run, name, inside.cluster))
            agent_join.install(run, entry, member)


def _accounts(run: Run, name: str) -> list[Object]:
    """Accounts of the control plane on a member, with the mark and their tokens, without the rights that they have."""
    objects = registration.objects_on_member(
        name, run.state.owner, run.instance.full_name, claim=run.instance.claim, rules=()
    )
    return [each for each in objects if each["kind"] in ("ServiceAccount", "Secret")]
