# SPDX-License-Identifier: Apache-2.0
"""Members that leave: out of the control plane first, then the objects of joining on them, each on its own.

Every step reads the live state and does what is left, so that the next run carries on after one that was killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from ..api_object import Object
from ..components.spec import MemberEntry
from ..control_plane.bootstrap import MEMBER_NAMESPACE
from ..kube.apply import Change, delete_all, target
from ..kube.cluster import Cluster
from ..kube.errors import ApiError, Forbidden, NotFound
from ..kube.limits import AT_ONCE
from ..kube.objects import Ref, claimed_by, diff
from ..kube.progress import Progress
from ..kube.readiness import reason_not_ready
from ..kube.step import Mode, StepRunner
from ..kube.wait import wait_until
from ..labels import FIELD_MANAGER
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run
from . import agent, agent_join, epoch, one_member, registration
from . import cleanup as member_cleanup
from . import mode as member_mode
from . import works as member_works
from .join import Outcome, connected, registration_of

#: Time within which a member must answer; for one that is given up, a moment only.
REACH_SECONDS, LAST_CALL_SECONDS = 20.0, 3.0
#: Time for Karmada to finish one Work before we look ourselves whether anything is left to do for it, and time for the
#: member to answer such a look.
GRACE_SECONDS, LOOK_SECONDS = 3.0, 5.0
#: Seconds between two attempts to make Karmada check whether a Cluster may go, and between two lists of what holds it.
WAKE_SECONDS, LIST_SECONDS = 1.0, 10.0
#: Pause between two looks; longer if a look takes long, up to the second value.
_PAUSE, _LONGEST_PAUSE = 0.25, 2.0
#: End of a remedy for a member whose time is over.
_MORE_TIME = "or give it more time (-e member_leave_timeout=…, in seconds)"
#: Fraction of the time, at its end, in which the Cluster of a member that is given up loses its finalizers.
_LAST_PART = 1 / 3


def entries(run: Run, names: Iterable[str]) -> list[MemberEntry]:
    """Members that leave, with their recorded access: their entries are no longer in the document."""
    return [run.state.member(name) for name in names]


def install_policies(run: Run) -> list[Change]:
    """Apply the policies that let workloads stay on members that leave; see ``member_works.policies``."""
    return run.apply_to_control_plane("policies for members that leave", lambda: member_works.policies(run.state.owner))


def leave(run: Run, entry: MemberEntry, cluster: Object | None, timeout: float, outcome: Outcome) -> None:
    """Take a member out of the control plane, and delete what joining created on it. ``cluster`` is its Cluster object.

    Raises the errors that ``join.of_each`` turns into the problem of this member. Nothing has changed if it does not
    answer, or if the control plane does not find it ready, because then its workloads could not be handled.
    """
    name, deadline = entry.name, time.monotonic() + timeout
    _require_ours(run, name, cluster)
    if not registration.reached_by(entry):
        raise ProblemsError(
            Problem(
                what="it was joined by a run of this control plane that did not live to record how it is reached",
                where=f"Cluster {name} in the control plane",
                remedy="list it once more with its Secret, so that it can leave the time after",
                reason=Reason.MEMBER_UNREACHABLE,
            )
        )
    with connected(run, entry, timeout) as member:
        member.version(retry_seconds=min(timeout, REACH_SECONDS))
        epoch.refuse(run.state, name, member)
        if cluster is not None:
            _require_same(member, name, cluster)
            if _is_between_modes(entry, cluster, member):
                cluster = _pushed_again(run, cluster, deadline, outcome)
            _withdraw(run, entry, cluster, member, deadline, outcome)
    outcome.in_control_plane += _remove_remains(run, name, deadline)
    outcome.on_member += member_cleanup.clean_member(run, entry, _left(deadline))
    if registration.may_have_agent(entry):
        _forget_agent(run, name, deadline, outcome)
    if not run.check:
        member_cleanup.wait_for_member(run, entry, _left(deadline))


def give_up(run: Run, entry: MemberEntry, cluster: Object | None, timeout: float, outcome: Outcome) -> None:
    """Take a member out of the control plane without its cooperation, finalizers included.

    Its workloads stay as they are. What joining created there is deleted if it happens to answer; else ``outcome.left``
    names it, and so it does a Cluster that is not ours, which stays untouched.
    """
    name, deadline = entry.name, time.monotonic() + timeout
    ours = cluster is not None and claimed_by(cluster) == (FIELD_MANAGER, run.state.owner)
    works = _works(run.control_plane, name) if ours else []
    if cluster is not None and ours:
        outcome.in_control_plane.append(_deleted(cluster))
        if not run.check:
            _retain(run.control_plane, name, deadline)
            _delete(run.control_plane, cluster)
            _force(run.control_plane, cluster, deadline)
    if ours or cluster is None:
        outcome.in_control_plane += _remove_remains(run, name, deadline)
        if registration.may_have_agent(entry):
            _forget_agent(run, name, deadline, outcome)
    remains = [*sorted(run.state.owned.get(f"member/{name}", {})), member_works.told(works)]
    try:
        if not registration.reached_by(entry):
            raise ProblemsError(Problem("how it is reached is not on record", reason=Reason.MEMBER_UNREACHABLE))
        with one_member.apart(name, run.trace):
            with connected(run, entry) as member:
                member.version(retry_seconds=LAST_CALL_SECONDS)
            outcome.on_member += member_cleanup.clean_member(run, entry, _left(deadline))
        remains = [member_works.told(works)]
    except one_member.TOLD as error:
        run.say(f"member {name} is given up: {error}")
    outcome.left = ", ".join(each for each in remains if each)


def remains_on(run: Run, name: str) -> str:
    """Recorded objects that joining created on a member, for people."""
    return ", ".join(sorted(run.state.owned.get(f"member/{name}", {})))


# -- the control plane -------------------------------------------------------------------------------------------------


def _forget_agent(run: Run, name: str, deadline: float, outcome: Outcome) -> None:
    mode = Mode.PREDICT if run.check else Mode.WRITE
    inside = StepRunner(run.control_plane, mode, outcome.in_control_plane, run.say, timeout=_left(deadline))
    inside.take(agent_join.forget(run, name, run.control_plane))


def _require_ours(run: Run, name: str, cluster: Object | None) -> None:
    if cluster is None or claimed_by(cluster) == (FIELD_MANAGER, run.state.owner):
        return
    raise ProblemsError(
        Problem(
            what="the Cluster of this name is not the one that joining made: somebody has registered it anew",
            where=f"Cluster {name} in the control plane",
            remedy="list it, and it is adopted; or give it up, and it is forgotten and left as it is",
            reason=Reason.REGISTERED_OTHERWISE,
        )
    )


def _require_same(member: Cluster, name: str, cluster: Object) -> None:
    found, registered = registration_of(member).cluster_id, cluster["spec"].get("id")
    if registered and found != registered:
        raise ProblemsError(
            Problem(
                what=f"its kubeconfig leads to another cluster (id {found}) than the one that is registered "
                f"(id {registered})",
                where=f"member {name}",
                remedy="put the kubeconfig of the member that leaves into its Secret, or give it up if it is no more",
                reason=Reason.WRONG_CLUSTER,
            )
        )


def _pulls(cluster: Object) -> bool:
    """Return whether an agent applies the Works, by the Cluster; the recorded mode may not be reached yet."""
    return member_mode.of_cluster(cluster) == registration.PULL


def _is_between_modes(entry: MemberEntry, cluster: Object, member: Cluster) -> bool:
    """Return whether no component applies the Works: a change of mode was begun, and no agent is on the member."""
    if entry.former_mode is None or not _pulls(cluster) or member_works.is_going(cluster):
        return False
    return not any(member.get(*ref) for ref in agent.ACTS_BY)


def _pushed_again(run: Run, cluster: Object, deadline: float, outcome: Outcome) -> Object:
    """Cluster set back to mode Push, in which karmada-controller-manager applies the Works."""
    ref = Ref.of(cluster)
    pushed = {**cluster, "spec": {**cluster["spec"], "syncMode": registration.PUSH}}
    outcome.in_control_plane.append(Change(ref, "changed", cluster["metadata"]["uid"], diff(cluster, pushed)))
    if run.check:
        return pushed
    _patch(run.control_plane, cluster, {"spec": {"syncMode": registration.PUSH}})
    wait_until(run.control_plane, [ref], timeout=_left(deadline), progress=run.say)
    return run.control_plane.get(registration.CLUSTER_API, "Cluster", ref.name) or pushed


def _withdraw(
    run: Run, entry: MemberEntry, cluster: Object, member: Cluster, deadline: float, outcome: Outcome
) -> None:
    """Delete the Cluster while Karmada still handles the workloads, and wait until it is gone."""
    name, retained = entry.name, (entry.on_leave or registration.RETAIN) == registration.RETAIN
    reason = reason_not_ready(cluster)
    if reason and not member_works.is_going(cluster):
        doing = "leave its workloads in order" if retained else "remove its workloads"
        raise ProblemsError(
            Problem(
                what=f"the control plane does not find it ready, so it could not {doing} ({reason})",
                where=f"Cluster {name} in the control plane",
                remedy=f"see why its agent does not report ({agent.log_of(run.instance, entry)})"
                if _pulls(cluster)
                else "let the control plane reach the member",
                reason=Reason.MEMBER_NOT_READY,
            )
        )
    outcome.in_control_plane.append(_deleted(cluster))
    if run.check:
        return
    if retained:
        _retain(run.control_plane, name, deadline)
    settled = _Settled(member) if retained else None
    if _pulls(cluster) and not member_works.is_going(cluster):
        _see_works_go(run, entry, deadline, settled)
    _delete(run.control_plane, cluster)
    _see_it_go(run, cluster, deadline, settled)


def _retain(control_plane: Cluster, name: str, deadline: float) -> None:
    """Make every Work of this member preserve its resources when it is deleted, whatever controllers write now."""
    namespace = control_plane.get("v1", "Namespace", member_works.execution_namespace(name))
    if namespace is None:
        return
    _put_in_force(
        control_plane, namespace, {member_works.ON_LEAVE_LABEL: registration.RETAIN}, member_works.POLICY, deadline
    )
    patch = {"spec": {"preserveResourcesOnDeletion": True}}
    while works := member_works.to_retain(_works(control_plane, name)):
        if time.monotonic() > deadline:
            raise ProblemsError(
                Problem(
                    what=f"{len(works)} Works do not take it that their workloads are to stay",
                    where=f"namespace {namespace['metadata']['name']} in the control plane",
                    remedy=f"look who changes or refuses their spec.preserveResourcesOnDeletion, {_MORE_TIME}",
                    reason=Reason.REMOVAL_BLOCKED,
                )
            )
        _on_each(works, lambda work: _patch(control_plane, work, patch))


def _see_works_go(run: Run, entry: MemberEntry, deadline: float, settled: _Settled | None) -> None:
    """Delete every Work of a member with an agent that applies it, and wait until all are gone.

    Deleting the Cluster first would delete the namespace of the agent's rights on Works, maybe before the last Work.
    """
    control_plane, name = run.control_plane, entry.name
    space = control_plane.get("v1", "Namespace", member_works.execution_namespace(name))
    if space is None or member_works.is_going(space):
        return
    policy = member_works.NO_NEW_WORKS_POLICY
    _put_in_force(control_plane, space, {member_works.NO_NEW_WORKS_LABEL: "true"}, policy, deadline)
    while works := _works(control_plane, name):
        looked = time.monotonic()
        if looked > deadline:
            raise ProblemsError(
                Problem(
                    what=f"{len(works)} Works are left, which its agent does not finish "
                    f"(for {member_works.told(works) or 'Karmada itself'})",
                    where=f"namespace {space['metadata']['name']} in the control plane",
                    remedy=f"see what its agent says of them ({agent.log_of(run.instance, entry)}), {_MORE_TIME}",
                    reason=Reason.REMOVAL_BLOCKED,
                ),
                consequence="nothing was forced, and nothing new is propagated to the member",
            )
        _on_each(works, lambda work: _delete(control_plane, work))
        if settled:
            settled.release(control_plane, works)
        _pause(looked)


def _put_in_force(
    control_plane: Cluster, namespace: Object, labels: dict[str, str], policy: str, deadline: float
) -> None:
    """Label an execution namespace, and wait until the policy that this label selects is in force there."""
    name = namespace["metadata"]["name"]
    control_plane.patch_merge("v1", "Namespace", name, None, {"metadata": {"labels": labels}})
    # Nothing can be created in a terminating namespace, not even by dry run.
    while not member_works.is_going(namespace) and not _refused(control_plane, name, policy):
        if time.monotonic() > deadline:
            raise ProblemsError(
                Problem(
                    what="the API server does not apply the policy for the Works of members that leave",
                    where=f"ValidatingAdmissionPolicy {policy} in the control plane",
                    remedy="look at its status there, and whether admission plugins were switched off",
                    reason=Reason.NOT_READY_IN_TIME,
                )
            )
        time.sleep(_PAUSE)


def _refused(control_plane: Cluster, namespace: str, policy: str) -> bool:
    """Return whether the policy is in force in this execution namespace."""
    try:
        control_plane.create(member_works.probe(namespace, policy), dry_run=True)
    except Forbidden as error:
        # Of two policies that refuse it only one is named; that for new Works is put in force only after the other.
        if any(each in error.message for each in (policy, member_works.NO_NEW_WORKS_POLICY)):
            return True
        raise
    return False


def _see_it_go(run: Run, cluster: Object, deadline: float, settled: _Settled | None) -> None:
    """Wait until the execution namespace and then the Cluster are gone. Raises ProblemsError at the deadline."""
    control_plane, name = run.control_plane, cluster["metadata"]["name"]
    going, asked = _Going(control_plane, cluster), time.monotonic()
    told = Progress(run.say, asked, deadline - asked)
    while live := going.live():
        looked = time.monotonic()
        if looked > deadline:
            raise ProblemsError(
                Problem(
                    what=f"it is still there after its deletion was asked for ({_what_holds(control_plane, name)})",
                    where=f"Cluster {name} in the control plane",
                    remedy=f"mend what holds it, {_MORE_TIME}",
                    reason=Reason.REMOVAL_BLOCKED,
                ),
                consequence="nothing was forced",
            )
        if looked - asked > LIST_SECONDS:
            told.tell(f"member {name} is not gone: {_what_holds(control_plane, name)}", asked := looked)
        works = going.hasten(live)
        if settled:
            settled.release(control_plane, works)
        _pause(looked)


def _what_holds(control_plane: Cluster, name: str) -> str:
    works = _works(control_plane, name)
    if works:
        return f"{len(works)} Works are left, for {member_works.told(works) or 'Karmada itself'}"
    bindings = [
        str(Ref.of(each))
        for kind in ("ResourceBinding", "ClusterResourceBinding")
        for each in control_plane.list("work.karmada.io/v1alpha2", kind)
        if name in {chosen.get("name") for chosen in each["spec"].get("clusters") or []}
    ]
    return f"still chosen by {', '.join(bindings[:5])}" if bindings else "by its finalizers"


def _force(control_plane: Cluster, cluster: Object, deadline: float) -> None:
    """Make the Cluster go although no component finishes its Works, in the end by removing its own finalizers."""
    until = time.monotonic()
    last = until + (deadline - until) * (1 - _LAST_PART)
    going = _Going(control_plane, cluster)
    while live := going.live():
        looked = time.monotonic()
        _strip(control_plane, going.hasten(live))
        if looked > last:
            _patch(control_plane, live, {"metadata": {"finalizers": None}})
        _pause(looked)


def _remove_remains(run: Run, name: str, deadline: float) -> list[Change]:
    """Delete what the Cluster may have left in the control plane: the credentials, and a namespace that hangs.

    Karmada never finishes a Work without a Cluster, so if somebody forced the Cluster to go, its execution namespace
    would stay for ever.
    """
    control_plane = run.control_plane
    space = control_plane.get("v1", "Namespace", member_works.execution_namespace(name))
    changes = []
    registered = control_plane.get(registration.CLUSTER_API, "Cluster", name)
    if space and registered is None:
        if not run.check:
            _delete(control_plane, space)
            while control_plane.get("v1", "Namespace", space["metadata"]["name"]) and time.monotonic() < deadline:
                works = _works(control_plane, name)
                _on_each(works, lambda work: _delete(control_plane, work))
                _strip(control_plane, works)
                time.sleep(_PAUSE)
        changes += delete_all(control_plane, [target(space)], check=run.check, timeout=_left(deadline))
    found = (
        control_plane.get("v1", "Secret", each, MEMBER_NAMESPACE) for each in registration.credential_secrets(name)
    )
    ours = [target(each) for each in found if each and claimed_by(each) == (FIELD_MANAGER, run.state.owner)]
    return changes + delete_all(control_plane, ours, check=run.check, timeout=_left(deadline))


class _Going:
    """A Cluster that is being deleted, and the actions that spare it the pauses of others.

    By itself, its Works would begin to go 5 s after their namespace, and be checked in steps of 8 s; its controller
    checks every 10 s whether the namespace and the bindings are gone.
    """

    def __init__(self, control_plane: Cluster, cluster: Object) -> None:
        self._control_plane, self._uid = control_plane, cluster["metadata"]["uid"]
        self._name = cluster["metadata"]["name"]
        self._woken: float | None = None

    def live(self) -> Object | None:
        """Current state of the Cluster; None if it is gone."""
        found = self._control_plane.get(registration.CLUSTER_API, "Cluster", self._name)
        return found if found and found["metadata"]["uid"] == self._uid else None

    def hasten(self, live: Object) -> list[Object]:
        """Do what can be done now; returns the Works that are left."""
        space = self._control_plane.get("v1", "Namespace", member_works.execution_namespace(self._name))
        if space is None:
            self._wake(live)
            return []
        works = _works(self._control_plane, self._name)
        if member_works.is_going(space):
            # No controller can create them again.
            _on_each(works, lambda work: _delete(self._control_plane, work))
        return works

    def _wake(self, live: Object) -> None:
        """Change an annotation: any change of a Cluster makes its controller reconcile."""
        now = time.monotonic()
        if self._woken is None or now - self._woken > WAKE_SECONDS:
            self._woken = now
            note = {member_works.WAKE_ANNOTATION: datetime.now(UTC).isoformat(timespec="milliseconds")}
            _patch(self._control_plane, live, {"metadata": {"annotations": note}})


class _Settled:
    """Works that Karmada does not finish although nothing is left to do for them on the member.

    Karmada takes its labels off objects that stay there, and retries for ever if the object no longer exists or has no
    such label. A Work is released only after GRACE_SECONDS, and only if our own look at the member confirms it.
    """

    def __init__(self, member: Cluster) -> None:
        # A member that is lost by now must not use up the time.
        self._member = member.with_patience(retry_seconds=0, read_seconds=LOOK_SECONDS)
        self._since: dict[str, float] = {}

    def release(self, control_plane: Cluster, works: Sequence[Object]) -> None:
        """Remove the finalizers of Works that are held without a reason; at most AT_ONCE of them in one call."""
        now = time.monotonic()
        going = [work for work in works if member_works.is_going(work) and member_works.retains(work)]
        due = [work for work in going if now - self._since.setdefault(work["metadata"]["uid"], now) > GRACE_SECONDS]
        due = due[:AT_ONCE]
        self._since.update({work["metadata"]["uid"]: now for work in due})
        with ThreadPoolExecutor(AT_ONCE) as pool:
            settled = [work for work, done in zip(due, pool.map(self._nothing_left, due), strict=True) if done]
        _strip(control_plane, settled)

    def _nothing_left(self, work: Mapping[str, object]) -> bool:
        found = (self._member.get(*ref) for ref in member_works.references(work))
        try:
            return not any(live and member_works.is_managed(live) for live in found)
        except ApiError:
            # Not known, so the next call looks again.
            return False


# -- single objects ----------------------------------------------------------------------------------------------------


def _works(control_plane: Cluster, name: str) -> list[Object]:
    return list(control_plane.list(member_works.WORK_API, "Work", member_works.execution_namespace(name)))


def _strip(control_plane: Cluster, works: Sequence[Object]) -> None:
    """Remove the finalizers of Works that are being deleted."""
    held = [work for work in works if member_works.is_going(work) and work["metadata"].get("finalizers")]
    _on_each(held, lambda work: _patch(control_plane, work, {"metadata": {"finalizers": None}}))


def _on_each(found: Sequence[Object], work: Callable[[Object], None]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(work, found))


def _patch(cluster: Cluster, live: Object, patch: Object) -> None:
    """Patch the object if it still exists."""
    ref = Ref.of(live)
    try:
        cluster.patch_merge(*ref, patch)
    except NotFound:
        return


def _delete(cluster: Cluster, live: Object) -> None:
    ref = Ref.of(live)
    if not member_works.is_going(live):
        cluster.delete(*ref, uid=live["metadata"]["uid"])


def _deleted(live: Object) -> Change:
    return Change(Ref.of(live), "deleted", live["metadata"]["uid"], diff(live, None))


def _pause(looked: float) -> None:
    """Sleep until the next look, after one that began at ``looked``: lists of many Works load the API server."""
    time.sleep(min(max(_PAUSE, 3 * (time.monotonic() - looked)), _LONGEST_PAUSE))


def _left(deadline: float) -> float:
    return max(1.0, deadline - time.monotonic())
