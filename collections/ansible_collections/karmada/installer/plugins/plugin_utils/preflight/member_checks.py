# SPDX-License-Identifier: Apache-2.0
"""Checks of the members that the document lists, before the first change.

Each member is checked independently, and its problems do not keep others from joining.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ansible_collections.karmada.installer.plugins.module_utils import host_reach as module_reach

from ..api_object import Object
from ..components import releases
from ..components.spec import MemberEntry
from ..control_plane.bootstrap import MEMBER_NAMESPACE
from ..kube.cluster import Cluster
from ..kube.errors import ApiError, Forbidden, Unreachable
from ..kube.objects import Ref, claimed_by
from ..kube.readiness import reason_not_ready
from ..members import access as member_access
from ..members import agent, epoch, one_member, registration
from ..members import join as member_join
from ..members import mode as member_mode
from ..members import rights as member_rights
from ..members.plan import Clusters, same_cluster
from ..members.registration import CLUSTER_API, CONTROL_PLANE_ANNOTATION, IMPERSONATOR, role
from ..problems import Problem, ProblemsError, Reason
from ..run.reach import Target
from ..run.run import Run
from . import cluster_checks, member_rights_checks

#: ConfigMap in which every cluster publishes the CA of its API server.
ROOT_CA = "kube-root-ca.crt"
#: Timeout of preflight for the first answer, in seconds.
PATIENCE_SECONDS = 5.0
#: Timeout for each later answer. One may take longer; a member that hangs delays the others by one timeout only.
LATER_SECONDS = 30.0
#: (verb, API group, resource, namespace) that joining needs on a member.
RIGHTS: tuple[tuple[str, str, str, str | None], ...] = (
    ("create", "", "namespaces", None),
    ("patch", "", "serviceaccounts", MEMBER_NAMESPACE),
    ("patch", "", "secrets", MEMBER_NAMESPACE),
    ("get", "", "secrets", MEMBER_NAMESPACE),
    ("patch", "rbac.authorization.k8s.io", "clusterroles", None),
    ("patch", "rbac.authorization.k8s.io", "clusterrolebindings", None),
    ("get", "apiextensions.k8s.io", "customresourcedefinitions", None),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions", None),
)
#: What beside those a place needs on members that are to follow it: tokens of the other place go.
TAKE_OVER_RIGHTS = (("delete", "", "secrets", MEMBER_NAMESPACE),)


@dataclass
class MemberChecks:
    """Checks of all members of a run.

    ``place_works`` tells whether the place of the control plane is usable, ``registered`` returns the Cluster objects
    of an existing control plane; both may block.
    """

    run: Run
    place_works: Callable[[], bool]
    registered: Callable[[], Clusters]
    #: Member → identity of its cluster, of members whose identity could be read.
    identities: dict[str, str] = field(default_factory=dict)

    def problems(self, entry: MemberEntry) -> Iterable[Problem]:
        """Problems of one member, until one of them makes further checks impossible."""
        with one_member.apart(entry.name, self.run.trace):
            yield from self._problems(entry)

    def _problems(self, entry: MemberEntry) -> Iterable[Problem]:
        with member_join.connected(self.run, entry, LATER_SECONDS) as member:
            if ending := member_access.expiring(member.access, self.run.now):
                self.run.tell(Problem.warning(f"{member.name}: {ending}", Reason.CERTIFICATE_EXPIRED))
            try:
                version = member.version(retry_seconds=PATIENCE_SECONDS)
            except ApiError as error:
                yield Problem(
                    what=error.problems[0].what,
                    where=f"spec.members[{entry.name}].{registration.reached_by(entry)}",
                    remedy="check that this kubeconfig works from here: kubectl --kubeconfig … get nodes",
                    reason=Reason.MEMBER_UNREACHABLE if isinstance(error, Unreachable) else error.problem_reason,
                )
                return
            yield from cluster_checks.clock(member, member.name)
            if not entry.pulls or entry.agent_hosts:
                yield from _loopback_endpoint(entry, member)
                if is_unknown(entry, self.registered().get(entry.name) if self.place_works() else None):
                    yield from _own_authority(entry, member)
            # RBAC does not let an account grant rights that it does not have.
            wanted = [
                *RIGHTS,
                *(TAKE_OVER_RIGHTS if self._takes_over() else ()),
                *member_rights.permissions(member_rights.rules(entry)),
            ]
            denied = member.can_i(wanted, workers=member_join.WORKERS)
            if denied:
                yield Problem(
                    what=f"the account may not: {'; '.join(str(each) for each in denied)}",
                    where=member.name,
                    remedy="use an account that may create accounts and rights there, such as its administrator",
                    reason=Reason.MISSING_PERMISSION,
                )
                return
            yield from member_rights_checks.of_member(entry, member, self.run.say)
            identity = member_join.registration_of(member)
            self.identities[entry.name] = identity.cluster_id
            if self.place_works():
                registered = self.registered()
                member_join.check_state(entry, registered.get(entry.name))
                member_join.check_identity(entry.name, identity, registered)
                yield from _other_owner(self.run, entry, member, registered)
                yield from _other_place(self.run, entry, member)
                if entry.name in registered:
                    yield from member_rights_checks.of_what_is_propagated(entry, member, self.run.control_plane)
                _tell_of_version(self.run, member, version)

    def _takes_over(self) -> bool:
        """Return whether this place has taken members over; one that does not work is told of once, and not asked."""
        state = self.run.stored_state if self.place_works() else None
        return state is not None and state.taken_over is not None

    def of_same_cluster(self) -> dict[str, Problem]:
        """Members that are one cluster under several names; call it after all were checked."""
        return same_cluster(self.identities, self.registered() if self.place_works() else Clusters())


def registered_clusters(run: Run) -> Clusters:
    """Cluster objects of the control plane by name; none if there is no control plane that answers."""
    if not run.spec.members and not run.selected:
        return Clusters()
    try:
        if run.stored_state is None or not run.control_plane_exists:
            return Clusters()
        control_plane = run.control_plane.with_patience(retry_seconds=PATIENCE_SECONDS)
        return Clusters.of(control_plane.list(CLUSTER_API, "Cluster"))
    except (ApiError, ProblemsError):
        # Repairing that may be the purpose of this run. Joining looks again.
        return Clusters()


def _tell_of_version(run: Run, member: Cluster, version: Object) -> None:
    """Show a hint on a member of an untested version, which may well work."""
    oldest, newest = releases.validated_members(run.instance.release)
    if not oldest <= cluster_checks.minor(version) <= newest:
        run.tell(
            Problem.hint(
                f"{member.name} runs Kubernetes {version['gitVersion']}; Karmada {run.instance.release.karmada} was "
                f"validated with members from {oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}",
                Reason.UNTESTED_VERSION,
            )
        )


def _loopback_endpoint(entry: MemberEntry, member: Cluster) -> Iterable[Problem]:
    server = member.access.server
    if any(f"//{name}" in server for name in ("127.", "localhost", "[::1]")):
        yield Problem(
            what=f"its kubeconfig leads to {server}, which means another machine to "
            + ("the hosts of its agent" if entry.agent_hosts else "the control plane"),
            where=f"spec.members[{entry.name}].{registration.reached_by(entry)}",
            remedy="put an address into that kubeconfig that these can reach"
            if entry.agent_hosts
            else "put an address into that kubeconfig that the pods of the host cluster can reach",
            reason=Reason.INVALID_ADDRESS,
        )


def _own_authority(entry: MemberEntry, member: Cluster) -> Iterable[Problem]:
    """Certificate of a member's API server that the CA published by the member did not sign: no other CA is trusted.

    The two differ if a proxy in front of the API server has a certificate of its own.
    """
    access = member.access
    if access.insecure or access.proxy:
        return
    try:
        found = member.get("v1", "ConfigMap", ROOT_CA, "kube-system") or {}
    except Forbidden:
        return
    authority: str = (found.get("data") or {}).get("ca.crt", "")
    if not authority or authority.strip() == (access.ca_pem or "").strip():
        return
    target = Target.of_url(entry.name, access.server, authority)
    seen = module_reach.look([target.plain], PATIENCE_SECONDS).get(entry.name, {})
    if seen.get("fault") == module_reach.OTHER_AUTHORITY:
        yield Problem(
            what=f"the certificate at {access.server} is of another CA than the one that it hands to its accounts "
            f"(ConfigMap {ROOT_CA}), with which the control plane verifies it",
            where=f"spec.members[{entry.name}].{registration.reached_by(entry)}",
            remedy="put an address into that kubeconfig at which the API server shows a certificate of its own CA",
            reason=Reason.CERTIFICATE_NOT_TRUSTED,
        )


def is_unknown(entry: MemberEntry, live: Object | None) -> bool:
    """Return whether it is unproven that a member is reachable; ``live`` is its Cluster, if there is one.

    After a change of mode the connection is made by others, or in the other direction.
    """
    return live is None or reason_not_ready(live) is not None or member_mode.changes(entry, live)


def _other_place(run: Run, entry: MemberEntry, member: Cluster) -> Iterable[Problem]:
    """Problem of a place that the control plane was moved away from, by the mark on the member."""
    if run.stored_state:
        found = epoch.problem(run.stored_state, entry.name, member.get(*epoch.account(entry.name)))
        yield from [found] if found else []


def _other_owner(run: Run, entry: MemberEntry, member: Cluster, registered: Clusters) -> Iterable[Problem]:
    """Objects of another control plane on the member, which can have only one: its impersonator has a fixed name."""
    for ref in (
        Ref("rbac.authorization.k8s.io/v1", "ClusterRole", role(entry.name), None),
        Ref("v1", "ServiceAccount", IMPERSONATOR, MEMBER_NAMESPACE),
        *(agent.references() if entry.pulls else ()),
    ):
        live = member.get(*ref)
        if live is None or (run.stored_state and claimed_by(live)[1] == run.stored_state.owner):
            continue
        holder = (live["metadata"].get("annotations") or {}).get(CONTROL_PLANE_ANNOTATION)
        # Another tool has registered this cluster here under this name: listing it in the document adopts it.
        by_hand = registered.get(entry.name)
        if not holder and by_hand is not None and claimed_by(by_hand) == (None, None):
            continue
        yield Problem(
            what=f"it holds {ref}, which {f'control plane {holder}' if holder else 'another control plane or tool'} "
            "has put there",
            where=member.name,
            remedy="take it out of the members of that control plane first, or uninstall that one"
            if holder
            else "remove this member there first (karmadactl unjoin)",
            reason=Reason.OTHER_CONTROL_PLANE,
        )
        return
