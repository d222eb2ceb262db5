# SPDX-License-Identifier: Apache-2.0
"""Reachability of members' API servers from the hosts of a control plane, with their certificates verified.

Hosts with agents check the members that they serve, and the endpoint of the control plane. The targets are determined
here and handed to the hosts without any credentials; faults are reported for each member. Members that the control
plane finds Ready are reachable and are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from ansible_collections.karmada.installer.plugins.module_utils import host_reach as kinds

from ..components import endpoint
from ..components.hosts import CONTROL_PLANE_ROLE, hosts_of
from ..components.spec import MemberEntry, Spec
from ..components.table import KARMADA_CA
from ..kube.errors import ApiError
from ..kube.kubeconfig import Access
from ..kube.limits import CLUSTERS_AT_ONCE
from ..members import join as member_join
from ..members import one_member, registration
from ..members.plan import Clusters
from ..problems import Problem, ProblemsError, Reason
from ..run import selection as selected_members
from ..run.reach import Fault, Target, sentences
from ..run.run import Run
from . import member_checks

#: Suffix of a member's name, for the target of its agent; alone, for the endpoint that every host must find.
ENDPOINT = "/endpoint"
_OTHER_ADDRESS = "or put an address into that kubeconfig that they reach"
REMEDY_OF_PLACE = f"Let them reach it (name service, routes, firewalls), {_OTHER_ADDRESS}"
REMEDY_OF_CERTIFICATE = (
    "see who answers there at that address, and put one into that kubeconfig at which the member's own API server does"
)


def target(name: str, access: Access) -> Target:
    """Target for a member as its Cluster will name it: the address or the proxy in its kubeconfig."""
    if access.proxy:
        return Target.of_proxy(name, access.proxy)
    return Target.of_url(name, access.server, "" if access.insecure else access.ca_pem or "")


def targets(run: Run, registered: Clusters) -> list[Target]:
    """Targets for the push members that are not known to be Ready, as far as their kubeconfigs can be read.

    ``registered`` are the control plane's Clusters by name. Checks of members report problems of their kubeconfigs.
    """
    return _of_entries(run, [entry for entry in _unknown(run, registered) if not entry.pulls])


def for_agents(run: Run, registered: Clusters) -> dict[str, list[Target]]:
    """Host → targets of the agents on it: the members that they serve, and the endpoint.

    Until the endpoint answers us, they only look up its name. Members known to be Ready are left out, as in
    ``targets``.
    """
    due = [entry for entry in _unknown(run, registered) if entry.agent_hosts]
    members_by_name = {each.name: [each] for each in _of_entries(run, due)}
    found: dict[str, list[Target]] = {}
    for entry in due:
        wanted = [*members_by_name.get(entry.name, ()), *_endpoint(run, entry.name)]
        for host in entry.agent_hosts:
            if host in run.hosts and not run.observed[host].refusal:
                found.setdefault(host, []).extend(wanted)
    return found


def _endpoint(run: Run, member: str) -> list[Target]:
    try:
        answers = run.stored_state and run.control_plane_exists and run.control_plane
    except (ApiError, ProblemsError):
        # Repairing that may be the purpose of this run.
        answers = None
    if answers:
        authority = run.state.authorities[KARMADA_CA].certificate.decode()
        return [Target.of_url(f"{member}{ENDPOINT}", run.public_url, authority)]
    return _name(run, member)


def endpoint_name(run: Run) -> list[Target]:
    """Endpoint as a target, if its name is new and hosts are to look it up."""
    before = run.stored_state.document if run.stored_state else None
    same = before and endpoint.named(Spec(before["spec"]).endpoint) == run.endpoint_host
    return [] if same else _name(run)


def _name(run: Run, member: str = "") -> list[Target]:
    name = run.endpoint_host
    return [] if endpoint.is_address(name) else [Target.of_name(f"{member}{ENDPOINT}", run.public_url)]


def _unknown(run: Run, registered: Clusters) -> list[MemberEntry]:
    entries = selected_members.entries(run)
    return [entry for entry in entries if member_checks.is_unknown(entry, registered.get(entry.name))]


def _of_entries(run: Run, due: list[MemberEntry]) -> list[Target]:
    def of_entry(entry: MemberEntry) -> Target | None:
        try:
            with one_member.apart(entry.name, run.trace), member_join.connected(run, entry) as member:
                return target(entry.name, member.access)
        except one_member.TOLD:
            return None

    # A kubeconfig may have to be fetched, or need an exec plugin.
    with ThreadPoolExecutor(CLUSTERS_AT_ONCE) as pool:
        found = [each for each in pool.map(of_entry, due) if each]
    for each in found:
        if not each.tls:
            run.tell(
                Problem.hint(
                    f"{each.name}: only the port of its proxy {each.url} is tried, not what is behind it",
                    Reason.CHECK_SKIPPED,
                )
            )
    return found


def looking(run: Run) -> list[str]:
    """Hosts that check members: those with components, as far as they could be looked at."""
    there = (host.name for host in hosts_of(run.spec, CONTROL_PLANE_ROLE))
    return [name for name in there if not run.observed[name].refusal]


def from_hosts(run: Run) -> dict[str, list[Problem]]:
    """Member → problems that its hosts found. Empty if none has checked, or all is well."""
    found: dict[str, tuple[Target, dict[str, Fault]]] = {}
    untried: dict[str, set[str]] = {}
    for host, observed in run.observed.items():
        by_name = {each.name: each for each in observed.targets}
        for name, fault in observed.unreached.items():
            if fault.kind == kinds.NOT_TRIED and name != ENDPOINT:
                untried.setdefault(host, set()).add(name)
            else:
                found.setdefault(name, (by_name[name], {}))[1][host] = fault
    for host, names in untried.items():
        run.tell(
            Problem.hint(
                f"{host} had not the time to try {len(names)} of the members, so what it reaches is not known of them",
                Reason.CHECK_SKIPPED,
            )
        )
    entries = run.spec.member_by_name
    problems: dict[str, list[Problem]] = {}
    for name, each in found.items():
        member = name.removesuffix(ENDPOINT)
        if member in entries:
            told = of_endpoint(member, *each) if name != member else of_member(entries[member], *each)
            problems.setdefault(member, []).extend(told)
    return problems


def of_member(entry: MemberEntry, reached: Target, faults: Mapping[str, Fault]) -> Iterator[Problem]:
    """Problems on the way to a member; ``faults`` is by the name of who tried."""
    where = f"spec.members[{entry.name}].{registration.reached_by(entry)}"
    for what, fault in sentences(reached, faults):
        yield Problem(
            what,
            where,
            REMEDY_OF_CERTIFICATE if fault.is_of_certificate else REMEDY_OF_PLACE,
            reason=Reason.CERTIFICATE_NOT_TRUSTED if fault.is_of_certificate else Reason.MEMBER_UNREACHABLE,
        )


def of_endpoint(member: str, reached: Target, faults: Mapping[str, Fault]) -> Iterator[Problem]:
    """Problems on the way from a member's agent to the control plane; ``faults`` is by the name of who tried."""
    for what, fault in sentences(reached, faults):
        remedy = (
            "see who answers there at that address, or name another one as spec.endpoint.host"
            if fault.is_of_certificate
            else "let them reach the endpoint (name service, routes, firewalls), or choose another spec.endpoint"
        )
        yield Problem(what, f"spec.members[{member}]", remedy, reason=Reason.CONTROL_PLANE_UNREACHABLE)
