# SPDX-License-Identifier: Apache-2.0
"""Joining members, many at once and each on its own, so that one that does not answer does not affect others.

A member in mode Pull is joined like one in mode Push, and gets an agent in addition (``agent_join``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from ..api_object import Object
from ..components.spec import MemberEntry
from ..components.state import State
from ..components.table import administrator
from ..components.types import has_estimators
from ..control_plane.bootstrap import MEMBER_NAMESPACE
from ..document.references import cluster_from_secret
from ..kube import rbac
from ..kube.answer import OF_A_MEMBER
from ..kube.apply import Change, Target, Treat, must_be_ours, target
from ..kube.cluster import Cluster
from ..kube.kubeconfig_fields import place_of_key
from ..kube.limits import AT_ONCE
from ..kube.objects import Ref, claimed_by, is_uid, owned_by
from ..kube.snapshot import ABSENT, listed
from ..kube.step import Mode, Step, StepRunner, one_per_object
from ..problems import Problem, ProblemsError, Reason
from ..render.agent_units import AgentAccess
from ..run.run import Run
from . import access as member_access
from . import (
    account_tokens,
    agent_join,
    epoch,
    former_connections,
    kubeconfig_by_ssh,
    one_member,
    registration,
    service_types,
)
from . import mode as member_mode
from . import rights as member_rights
from . import taints as member_taints
from .broken import BrokenMember, reason_and_next_step
from .plan import Clusters

#: Time within which a member must answer first; later requests are retried as for any API server.
FIRST_ANSWER_SECONDS = 8.0
#: Concurrent requests to one member while it is changed. Each needs a connection, the largest cost with many members.
WORKERS = 2
#: Time within which the pods of an agent must end.
AGENT_SECONDS = 120.0


@dataclass
class Outcome:
    """Result for one member: changes on it and changes in the control plane.

    ``problem`` says for a person why it is not joined, or not gone, and ``next_step`` what to do about it; ``problems``
    are both as data; ``cluster_id`` identifies the cluster, if it has answered; ``left`` names what stays on a member
    that was given up; ``unready`` is true if it is the control plane that does not find it Ready.
    """

    name: str
    on_member: list[Change] = field(default_factory=list)
    in_control_plane: list[Change] = field(default_factory=list)
    problem: str = ""
    next_step: str = ""
    problems: Sequence[Problem] = ()
    cluster_id: str = ""
    left: str = ""
    unready: bool = False
    #: Components with a connection to it that this change makes outdated.
    holders: frozenset[str] = frozenset()
    #: Access of its agent on hosts to the member.
    agent: AgentAccess | None = None

    def fail(self, error: one_member.Told) -> None:
        """Record this error as the reason why the work on the member ended."""
        self.problem, self.next_step = reason_and_next_step(self.name, error)
        self.problems = tuple(error.problems)

    def failed_as(self, other: Outcome | BrokenMember) -> None:
        """Take over the problem, if any, of another step of this member."""
        self.problem, self.next_step, self.problems = other.problem, other.next_step, other.problems

    @property
    def broken(self) -> BrokenMember | None:
        """Form for reports of a member with a problem; None without one."""
        return BrokenMember(self.name, self.problem, self.next_step, self.problems) if self.problem else None

    @property
    def changes(self) -> list[Change]:
        """Changes on the member and in the control plane, one for each object."""
        return [*one_per_object(self.on_member), *one_per_object(self.in_control_plane)]


def of_each(
    entries: Sequence[MemberEntry],
    work: Callable[[MemberEntry, Outcome], None],
    trace: Callable[[str], None] = lambda _text: None,
) -> list[Outcome]:
    """Run ``work`` for every member, at most AT_ONCE concurrently; it fills in the member's outcome as it goes.

    An error becomes the problem of its member; changes made before it stay in the outcome. ``trace`` gets the traceback
    of an unexpected error (``Run.trace``).
    """

    def guarded(entry: MemberEntry) -> Outcome:
        outcome = Outcome(entry.name)
        try:
            with one_member.apart(outcome.name, trace):
                work(entry, outcome)
        except one_member.TOLD as error:
            outcome.fail(error)
        return outcome

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(guarded, entries))


@contextmanager
def connected(run: Run, entry: MemberEntry, patience: float | None = None) -> Iterator[Cluster]:
    """Client of the member's API server, with the access that was given for joining.

    ``patience`` is the longest time in seconds for which one request is retried, if less than the default.
    """
    listed = entry.name in run.spec.member_by_name
    cluster = _over_ssh(run, entry, listed) if entry.kubeconfig_from else _out_of_secret(run, entry, listed)
    run.attend(cluster)
    cluster.limits = OF_A_MEMBER
    if patience is not None:
        cluster.retry_seconds = min(cluster.retry_seconds, patience)
    try:
        yield cluster
    finally:
        cluster.close()


def _out_of_secret(run: Run, entry: MemberEntry, listed: bool) -> Cluster:
    name = entry.name
    where = f"spec.members[{name}].secretRef" if listed else f"Secret of member {name}, on record"
    secret = entry.secret
    files, folder = run.secret(secret, where), run.connection.folder(secret)
    full = run.full_name(secret)
    cluster = cluster_from_secret(files, entry.context, f"member {name}", where, folder=folder, secret=full)
    member_access.refuse_unusable(entry, cluster.access, where, place_of_key(where, "kubeconfig", folder, full))
    return cluster


def _over_ssh(run: Run, entry: MemberEntry, listed: bool) -> Cluster:
    name = entry.name
    where = f"spec.members[{name}].kubeconfigFrom" if listed else f"kubeconfig of member {name}, on record"
    access = kubeconfig_by_ssh.access(run, entry, where)
    member_access.refuse_unusable(entry, access, where, f"{where}, {kubeconfig_by_ssh.file_of(entry)}")
    return Cluster(access, f"member {name}")


def registered_clusters(run: Run) -> Clusters:
    """Cluster objects of the control plane by name; empty in check mode if there is no control plane yet."""
    if run.check and not run.control_plane_exists:
        return Clusters()
    return Clusters.of(run.control_plane.list(registration.CLUSTER_API, "Cluster"))


def registration_of(member: Cluster) -> registration.Registration:
    """Identity and address of a cluster. As everywhere in Karmada, its identity is the UID of kube-system."""
    system = member.with_patience(retry_seconds=FIRST_ANSWER_SECONDS).get("v1", "Namespace", "kube-system")
    if system is None or not is_uid(system.get("metadata", {}).get("uid")):
        raise ProblemsError(
            Problem(
                what="it has no namespace kube-system with a UID, so it cannot be told from other clusters",
                where=member.name,
                remedy="check that the kubeconfig leads to a Kubernetes cluster",
                reason=Reason.WRONG_CLUSTER,
            )
        )
    access = member.access
    return registration.Registration(system["metadata"]["uid"], access.server, access.proxy, insecure=access.insecure)


def check_identity(name: str, identity: registration.Registration, registered: Clusters) -> None:
    """Raise ProblemsError for one cluster under two names, and for another cluster under a name that is taken."""
    for other in registered.names.get(identity.cluster_id, []):
        if other != name:
            raise ProblemsError(
                Problem(
                    what=f"this cluster is registered already, as {other}",
                    where=f"spec.members[{name}]",
                    remedy=f"list it as {other}, or remove {other} first",
                    reason=Reason.DUPLICATE_MEMBER,
                )
            )
    live = registered.get(name)
    if live is not None and live["spec"].get("id") != identity.cluster_id:
        raise ProblemsError(
            Problem(
                what=f"the name {name} belongs to another cluster (id {live['spec'].get('id')})",
                where=f"spec.members[{name}]",
                remedy="give this member another name, or point its Secret at the cluster that is registered",
                reason=Reason.WRONG_CLUSTER,
            )
        )


def check_state(entry: MemberEntry, live: Object | None) -> None:
    """Raise ProblemsError for a member (Cluster ``live``) that is being deleted or that others have in another mode."""
    if live is None:
        return
    name, where = entry.name, f"spec.members[{entry.name}]"
    if live["metadata"].get("deletionTimestamp"):
        remedy = "take it out of the document and run again, which brings that to its end; then list it once more: "
        remedy += "policies take over what stays on it by conflictResolution: Overwrite"
        raise ProblemsError(
            Problem(f"the Cluster {name} is being deleted", where, remedy, reason=Reason.MEMBER_LEAVING)
        )
    mode, ours = live["spec"].get("syncMode"), claimed_by(live) != (None, None)
    if member_mode.changes(entry, live) and not ours:
        remedy = "remove it from the control plane with the tool that registered it"
        raise ProblemsError(
            Problem(
                f"it is registered in mode {mode}, and listed in mode {entry.mode}",
                where,
                remedy,
                reason=Reason.REGISTERED_OTHERWISE,
            )
        )
    if entry.pulls and not ours:
        what = "it was registered in mode Pull by another tool, whose agent would work against ours"
        raise ProblemsError(
            Problem(
                what,
                where,
                "unregister it with that tool (karmadactl unregister), then run again",
                reason=Reason.REGISTERED_OTHERWISE,
            )
        )


def in_control_plane(run: Run, registered: Mapping[str, Object]) -> Cluster:
    """Control plane for a survey: each kind listed once and read from memory, or empty if nothing is registered yet."""
    if not registered and not (run.check and run.control_plane_exists):
        return ABSENT
    return listed(run.control_plane, [("v1", "Secret", MEMBER_NAMESPACE)], known=registered.values())


def survey_member(
    run: Run, entry: MemberEntry, registered: Clusters, outcome: Outcome, inside: Cluster | None = None
) -> None:
    """Fill ``outcome`` with the changes that joining this member would make; a check run gets diffs by dry run.

    ``inside`` is the result of ``in_control_plane``.
    """
    if entry.name not in registered and not run.check:
        # All of its objects are to be created there, so no read is needed.
        inside = ABSENT
    mode = Mode.PREDICT if run.check else Mode.LOOK
    _join(run, entry, registered, outcome, mode, inside or in_control_plane(run, registered))


def register_member(run: Run, entry: MemberEntry, registered: Clusters, outcome: Outcome) -> None:
    """Create accounts on the member, and its credentials and Cluster in the control plane."""
    _join(run, entry, registered, outcome, Mode.WRITE, run.control_plane)


def _join(
    run: Run, entry: MemberEntry, registered: Clusters, outcome: Outcome, mode: Mode, control_plane: Cluster
) -> None:
    """Take the steps of a join in their order, in any mode."""
    name, live = entry.name, registered.get(entry.name)
    check_state(entry, live)
    with connected(run, entry) as cluster:
        identity = registration_of(cluster)
        outcome.cluster_id = identity.cluster_id
        check_identity(name, identity, registered)
        member, inside = _runners(run, mode, outcome, cluster, control_plane)
        member.take(epoch.fence(run.state, name, member.cluster))
        member.take(_accounts(run, entry, live, member.cluster))
        # Before the mode changes: two components must not work on the member at once.
        if member_mode.had_agent(entry, run.state, live):
            member.take(agent_join.end(run, name, member.cluster))
            inside.take(agent_join.forget(run, name, inside.cluster))
        estimator = _has_estimator(run, entry)
        credentials = member.late(
            lambda: _credentials(member.cluster, name, estimator),
            lambda: wait_for_credentials(cluster, name, estimator),
        )
        wanted = registration.cluster(entry, run.instance.owner, identity)
        if live and not inside.writes:
            # That its estimator is to get an account leaves the control plane's own token as it is.
            own = credentials or _credentials(member.cluster, name, False)
            new_token = own is None or former_connections.is_new_token(
                inside.cluster, _secrets(run, entry, own, None)[0]
            )
            outcome.holders = former_connections.of_change(entry, live, wanted, new_token=new_token)
        _register(run, entry, live, wanted, credentials, inside)
        if entry.pulls and not (inside.writes and member_mode.was_pushed(entry, run.state, live)):
            _start_agent(run, entry, member, inside, outcome)


def _runners(
    run: Run, mode: Mode, outcome: Outcome, member: Cluster, control_plane: Cluster
) -> tuple[StepRunner, StepRunner]:
    """Step runners for the member and for the control plane."""
    if mode is not Mode.WRITE:
        member = listed(member, [("v1", kind, MEMBER_NAMESPACE) for kind in ("ServiceAccount", "Secret")])
    return (
        StepRunner(member, mode, outcome.on_member, run.say, WORKERS, AGENT_SECONDS),
        StepRunner(control_plane, mode, outcome.in_control_plane, run.say, timeout=AGENT_SECONDS),
    )


def _accounts(run: Run, entry: MemberEntry, live: Object | None, member: Cluster) -> Iterator[Step]:
    """Steps for accounts on the member with their rights, without those that the document no longer asks for."""
    owner, uids = run.instance.owner, run.state.uids(f"member/{entry.name}")
    # A killed run may have created it without recording that; somebody else's is used as it is.
    yield Step(
        [registration.namespace_on_member(owner)], lambda found: "keep" if owned_by(found, owner, uids) else "leave"
    )
    # Karmada needs these types when the Cluster appears.
    yield service_types.step(run)
    # A member deletes a token whose account does not exist, so the accounts come first.
    wanted = _objects_on_member(run, entry)
    for first in (True, False):
        yield Step([each for each in wanted if (each["kind"] == "ServiceAccount") is first], _treatment(live))
    yield Step(delete=_surplus(run, entry, member))


def _treatment(live: Object | None) -> Treat:
    """Treatment of existing objects: adopt those of a member that other tools joined before it was listed.

    ``live`` is the member's Cluster. Objects that another installer claims are never adopted.
    """
    nobody = (None, None)
    if live is None or claimed_by(live) != nobody:
        return must_be_ours
    return lambda found: "adopt" if claimed_by(found) == nobody else "ours"


def _register(
    run: Run,
    entry: MemberEntry,
    live: Object | None,
    wanted: Object,
    credentials: registration.Credentials | None,
    inside: StepRunner,
) -> None:
    """Apply the Cluster ``wanted`` and its credentials to the control plane; ``live`` is the existing one, if any."""
    cluster, treat = Ref.of(wanted), _treatment(live)
    taints = partial(member_taints.patch_for, entry=entry)
    # Before its status is known, without which the scheduler does not choose it.
    edits = {cluster: taints} if taints(live or wanted) else {}
    # The Cluster must find its credentials when it appears, and can own them only once it exists. One that is adopted
    # becomes ours last: until then the next run sees that it is still to be adopted.
    uid = live["metadata"]["uid"] if live else None
    first = Step(_secrets(run, entry, credentials, uid), treat)
    made = inside.take([first, Step([wanted], treat, edits)])
    uids = [change.uid for change in made if change.ref == cluster and change.uid]
    if live is None and uids:
        inside.take([Step(_secrets(run, entry, credentials, uids[0]), treat)])


def _secrets(run: Run, entry: MemberEntry, found: registration.Credentials | None, uid: str | None) -> list[Object]:
    known = found or registration.unfilled(estimator=_has_estimator(run, entry))
    return registration.secrets_in_control_plane(entry.name, run.instance.owner, known, uid)


def needs_work(entry: MemberEntry, outcome: Outcome, state: State) -> bool:
    """Return whether this member must be changed: something differs, or its record is missing or outdated."""
    if state.taken_over and outcome.name in state.taken_over.unfenced:
        # Also if it has taken all of it, and the last answer was lost: else it would be named for ever.
        return True
    known, record = state.uids(f"member/{outcome.name}"), state.member(outcome.name)
    unrecorded = any(change.uid not in known for change in outcome.on_member)
    if outcome.name not in state.members or record.former_mode:
        return True
    return registration.record(record) != registration.record(entry) or unrecorded or bool(outcome.changes)


def install_agent(run: Run, entry: MemberEntry, outcome: Outcome) -> None:
    """Install the agent of a member in mode Pull. karmada-controller-manager must have stopped its work there."""
    with connected(run, entry) as cluster:
        _start_agent(run, entry, *_runners(run, Mode.WRITE, outcome, cluster, run.control_plane), outcome)


def _start_agent(run: Run, entry: MemberEntry, member: StepRunner, inside: StepRunner, outcome: Outcome) -> None:
    inside.take(agent_join.grant(run, entry.name, inside.cluster))
    agent_join.install(run, entry, member)
    if entry.agent_hosts:
        outcome.agent = member.late(
            lambda: agent_join.access(run, entry, member.cluster),
            lambda: agent_join.wait_for_access(run, entry, member.cluster),
        )


def recorded(state: State, entry: MemberEntry, on_member: Sequence[Change]) -> State:
    """State with the objects created on the member, and how it was joined."""
    name = entry.name
    # What was deleted may have been made anew.
    last = {str(change.ref): change for change in on_member}
    # A change with a note is a deletion of what was missing already, or belongs to somebody else by now.
    gone = {ref for ref, change in last.items() if change.action == "deleted" or change.note}
    uids = {ref: change.uid for ref, change in last.items() if change.uid and ref not in gone}
    record = registration.changed_record(state.member(name) if name in state.members else None, entry)
    found = replace(state, members={**state.members, name: record})
    if gone:
        found = found.without_owned(f"member/{name}", gone)
    return found.with_owned(f"member/{name}", uids) if uids else found


def settled(state: State, entry: MemberEntry) -> State:
    """State in which the change of this member's mode is finished."""
    name = entry.name
    return replace(state, members={**state.members, name: registration.settled(state.members[name])})


def _has_estimator(run: Run, entry: MemberEntry) -> bool:
    return has_estimators(run.spec) and not entry.pulls


def _objects_on_member(run: Run, entry: MemberEntry) -> list[Object]:
    instance, estimator = run.instance, _has_estimator(run, entry)
    return registration.objects_on_member(
        entry.name,
        instance.owner,
        instance.full_name,
        estimator=estimator,
        rules=member_rights.rules(entry),
        administrators=administrator(run.spec).organizations,
        claim=instance.claim,
    )


def impersonation(name: str, member: Cluster) -> list[Object]:
    """RBAC objects that Karmada itself has created on this member to impersonate users."""
    return [
        found
        for kind in ("ClusterRoleBinding", "ClusterRole")
        if (found := member.get(rbac.API_VERSION, kind, registration.IMPERSONATOR))
        and registration.made_by_karmada_for(name, found)
    ]


def _surplus(run: Run, entry: MemberEntry, member: Cluster) -> list[Target]:
    """Objects on the member to delete because the document asks for less than before.

    Impersonation of an administrator gives all rights, so with scoped rights it is removed entirely.
    """
    acting = impersonation(entry.name, member) if member_rights.are_scoped(entry) else []
    return [
        *map(target, acting),
        *_of_estimator(run, entry),
        *agent_join.surplus(run, entry),
    ]


def _of_estimator(run: Run, entry: MemberEntry) -> list[Target]:
    """Recorded objects on the member of an estimator that the document no longer asks for."""
    if _has_estimator(run, entry):
        return []
    name = entry.name
    recorded = run.state.owned.get(f"member/{name}", {})
    refs = [Ref.of(each) for each in registration.estimator_objects(name, run.instance.owner, run.instance.full_name)]
    return [(ref, recorded[str(ref)]) for ref in refs if str(ref) in recorded]


def _credentials(member: Cluster, name: str, estimator: bool) -> registration.Credentials | None:
    secrets = {
        each: secret
        for each in registration.token_secrets(name, estimator=estimator)
        if (secret := member.get("v1", "Secret", each, MEMBER_NAMESPACE))
    }
    return registration.credentials_from(secrets, name, estimator=estimator)


def wait_for_credentials(member: Cluster, name: str, estimator: bool) -> registration.Credentials:
    """Credentials of the accounts on a member, once it has filled their tokens. Raises ProblemsError if it does not."""
    place = f"namespace {MEMBER_NAMESPACE}"
    look = partial(_credentials, member, name, estimator)
    return account_tokens.wait_for(look, member, "the tokens of its service accounts", place)
