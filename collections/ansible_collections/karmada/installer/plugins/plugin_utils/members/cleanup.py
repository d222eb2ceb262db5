# SPDX-License-Identifier: Apache-2.0
"""Removal of the objects that joining created on a member, and of those by which Karmada impersonates users there."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ..components.spec import MemberEntry
from ..control_plane import removal
from ..control_plane.bootstrap import MEMBER_NAMESPACE
from ..kube.apply import Change
from ..kube.limits import AT_ONCE
from ..kube.objects import Ref, owned_by
from ..problems import Problem, Reason
from ..redaction import printable
from ..run.run import Run
from . import agent, epoch, one_member, registration, service_types
from .join import connected, impersonation
from .registration import NAMESPACE_ON_MEMBER

#: Left on a member if a run was killed while a pod there tested the way to the control plane.
_OF_KILLED_PROBE = Ref("v1", "Namespace", NAMESPACE_ON_MEMBER)


def member_entries(run: Run) -> list[MemberEntry]:
    """Members that were joined, with their recorded access if the document no longer lists them.

    None if they follow another place of the control plane: what is on them is used from there.
    """
    if not run.state.leads_members:
        return []
    listed, state = run.spec.member_by_name, run.state
    return [listed.get(name) or state.member(name) for name in sorted(state.members)]


def unreachable_members(run: Run, abandoned: Sequence[str]) -> list[Problem]:
    """Members that do not answer, so that our objects would be left on them, except those given up by name."""
    asked = [entry for entry in member_entries(run) if entry.name not in abandoned]
    # Each may take long to say nothing.
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [problem for problem in pool.map(partial(_unreachable, run), asked) if problem]


def _unreachable(run: Run, entry: MemberEntry) -> Problem | None:
    try:
        with one_member.apart(entry.name, run.trace), connected(run, entry) as member:
            member.version(retry_seconds=5)
    except one_member.TOLD as error:
        left = ", ".join(sorted(run.state.owned.get(f"member/{entry.name}", {})))
        return Problem(
            what=f"it does not answer, so these would be left on it: {left}. ({printable(error)})",
            where=f"member {entry.name}",
            remedy=f'make it reachable, or give it up: -e \'{{"uninstall_abandon_members": ["{entry.name}"]}}\'',
            reason=Reason.MEMBER_UNREACHABLE,
        )
    return None


def clean_member(run: Run, entry: MemberEntry, timeout: float = removal.DELETE_SECONDS) -> list[Change]:
    """Delete what joining created on a member, and the objects by which Karmada impersonates users there.

    The deletion of the namespace is requested here and awaited by ``wait_for_member``: a cluster does nothing about it
    for 5 s, in which there is other work to do. On return nothing in it can block its deletion.
    """
    name = entry.name
    with connected(run, entry, timeout) as member:
        epoch.refuse(run.state, name, member)
        of_accounts = registration.objects_on_member(name, run.state.owner, run.instance.full_name, estimator=True)
        # The member may not have reached the document's mode yet.
        has_agent = registration.may_have_agent(entry, run.state.member(name))
        refs = [*(agent.references() if has_agent else ()), *map(Ref.of, of_accounts), _OF_KILLED_PROBE]
        live = [found for ref in refs if (found := member.get(*ref))]
        ours = [each for each in live if owned_by(each, run.state.owner, run.state.uids(f"member/{name}"))]
        # An agent that still works would at once create again what it has from the control plane: its pods go first.
        acting = [each for each in ours if Ref.of(each) in agent.ACTS_BY]
        others = [each for each in ours if each not in acting]
        changes = removal.delete_ours(run, member, acting, timeout, "Foreground")
        changes += removal.delete_ours(run, member, [*others, *impersonation(name, member)], timeout)
        namespace = member.get("v1", "Namespace", MEMBER_NAMESPACE)
        if namespace and owned_by(namespace, run.state.owner, run.state.uids(f"member/{name}")):
            uids = run.state.uids(f"member/{name}")
            going = {Ref.of(each) for each in ours}
            changes += removal.delete_namespace(run, member, namespace, uids, going, timeout)
        changes += removal.delete_ours(run, member, service_types.unused(run, name, member), timeout)
    return changes


def wait_for_member(run: Run, entry: MemberEntry, timeout: float = removal.DELETE_SECONDS) -> None:
    """Wait until the namespace that ``clean_member`` deleted is gone. Raises ApplyFailed when it stays."""
    with connected(run, entry, timeout) as member:
        namespace = member.get("v1", "Namespace", MEMBER_NAMESPACE)
        if namespace and namespace["metadata"].get("deletionTimestamp"):
            removal.delete_ours(run, member, [namespace], timeout)
