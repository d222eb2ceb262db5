# SPDX-License-Identifier: Apache-2.0
"""Mark on each member of the place that it follows, and the fence against a place that was left.

A control plane that moves keeps its owner, so that both places find what they have put on members. The claim tells them
apart (``components.moving``): each move raises it, and the service account of the control plane on a member has it on
record. A place that finds a higher one there writes nothing: the control plane was moved away from it.

A mark keeps our runs away. What keeps away processes of a place that was left, should they come back by themselves, is
that the tokens by which it knew the member are gone. They are deleted before the mark is raised, so that a run which
was killed in between deletes them once more, and made anew for the place with the higher claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..api_object import Object
from ..components.moving import Claim
from ..components.state import State
from ..control_plane.bootstrap import MEMBER_NAMESPACE
from ..kube.apply import target
from ..kube.cluster import Cluster
from ..kube.objects import Ref, claimed_by
from ..kube.step import Step
from ..problems import Problem, ProblemsError, Reason
from ..redaction import shown
from . import agent, registration
from .registration import CLAIM_ANNOTATION, CONTROL_PLANE_ANNOTATION


def account(member: str) -> Ref:
    """Service account of the control plane on a member, which has the mark."""
    return Ref("v1", "ServiceAccount", registration.account(member), MEMBER_NAMESPACE)


def problem(state: State, name: str, live: Mapping[str, Any] | None) -> Problem | None:
    """Problem of a place that a member does not follow any more, by its account there; None if it may write."""
    if live is None or claimed_by(dict(live))[1] != state.owner:
        # Of another control plane, if of any; who joins finds that.
        return None
    annotations = live["metadata"].get("annotations") or {}
    where = f"member {name}"
    try:
        there = Claim.of(annotations.get(CLAIM_ANNOTATION, ""))
    except ValueError:
        what = f"annotation {CLAIM_ANNOTATION} of its {account(name)} is not what this collection writes there"
        remedy = "see who else writes it; if the control plane was never moved, take the annotation away"
        return Problem(what, where, remedy, reason=Reason.MOVED)
    if there == state.claim or there.epoch < state.claim.epoch:
        return None
    holder = shown(str(annotations.get(CONTROL_PLANE_ANNOTATION, "unknown")))
    ours = state.claim.epoch
    what = f"it follows the control plane at another place, {holder}, since its move number {there.epoch}"
    what += f"; this place knows of {ours}" if there.epoch != ours else ", and this place took it over as well"
    remedy = "work on it there, and uninstall it here, which leaves members as they are"
    return Problem(what, where, remedy, reason=Reason.MOVED)


def refuse(state: State, name: str, member: Cluster) -> dict[str, Any] | None:
    """Raise ProblemsError if the member follows another place; returns its account of the control plane, if any."""
    live = member.get(*account(name))
    if found := problem(state, name, live):
        raise ProblemsError(found)
    return live


def fence(state: State, name: str, member: Cluster) -> Iterator[Step]:
    """Steps before the accounts of a join: no token works any more by which a place before this one knew the member.

    Raises ProblemsError if the member follows another place.
    """
    live = refuse(state, name, member)
    annotations = (live or {}).get("metadata", {}).get("annotations") or {}
    if live is None or claimed_by(live)[1] != state.owner or annotations.get(CLAIM_ANNOTATION, "") == str(state.claim):
        return
    secrets = [Ref("v1", "Secret", each, MEMBER_NAMESPACE) for each in registration.token_secrets(name, estimator=True)]
    found = (member.get(*each) for each in (*secrets, agent.TOKEN))
    yield Step(delete=[target(each) for each in found if each and claimed_by(each)[1] == state.owner])


def claim(state: State, name: str, member: Cluster) -> Iterator[Step]:
    """Steps of a place that goes on although it had been left: the mark is raised, and its own tokens stay.

    Raises ProblemsError if the member follows another place.
    """
    live = refuse(state, name, member)
    if live is None or claimed_by(live)[1] != state.owner:
        # Nothing is known of it there; the next join makes the account, with the mark.
        return
    mark = {"metadata": {"annotations": {CLAIM_ANNOTATION: str(state.claim)}}}

    def raised(found: Object) -> Object | None:
        if wrong := problem(state, name, found):
            raise ProblemsError(wrong)
        there = (found["metadata"].get("annotations") or {}).get(CLAIM_ANNOTATION, "")
        return None if there == str(state.claim) else mark

    yield Step(edits={account(name): raised})


def settled(state: State, joined: Iterable[str]) -> State:
    """State in which these members, which were joined now, have the mark."""
    taken = state.taken_over
    if taken is None or not set(taken.unfenced) & set(joined):
        return state
    left = tuple(name for name in taken.unfenced if name not in set(joined))
    return replace(state, taken_over=replace(taken, unfenced=left))
