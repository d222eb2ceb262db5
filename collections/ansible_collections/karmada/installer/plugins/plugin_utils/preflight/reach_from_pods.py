# SPDX-License-Identifier: Apache-2.0
"""Reachability of members from pods of the host cluster, and of the control plane from pods of members.

This creates pods, so it is done only on request. Pods in the host cluster are in the namespace of the instance. A
member has no namespace of ours before it is joined: its pod gets a namespace of its own, which is deleted with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from ..api_object import Object
from ..components.spec import MemberEntry
from ..components.table import KARMADA_CA, KARMADA_CONTROLLER_MANAGER
from ..control_plane.bootstrap import owner_labels
from ..kube.cluster import Cluster
from ..kube.errors import collected
from ..kube.limits import AT_ONCE
from ..kube.objects import owned_by
from ..members import agent, one_member
from ..members import join as member_join
from ..members.plan import Clusters
from ..members.registration import NAMESPACE_ON_MEMBER
from ..problems import Problem, ProblemsError, Reason
from ..run import selection as selected_members
from ..run.reach import Fault, Target
from ..run.run import Run
from . import member_checks, probe_pods, reach_from_hosts, reach_probe

#: Timeout for the deletion of a namespace that a killed run has left.
GONE_SECONDS = 60.0
_DO_NOT_ASK = "or do not ask for this (karmada_preflight_reach_members)"


def problems(run: Run, seconds: int) -> dict[str, list[Problem]]:
    """Member → problems on the way to it, or from it; ``seconds`` is the timeout of each pod.

    Members that the control plane finds Ready are not checked. Raises ProblemsError if the check is impossible in the
    host cluster; if it is impossible on a member, that is a problem of the member.
    """
    registered = member_checks.registered_clusters(run)
    pushed = {} if KARMADA_CONTROLLER_MANAGER.is_on_hosts(run.spec) else _of_pushed(run, registered, seconds)
    return pushed | _of_pulling(run, registered, seconds)


def _of_pushed(run: Run, registered: Clusters, seconds: int) -> dict[str, list[Problem]]:
    targets = reach_from_hosts.targets(run, registered)
    if not targets:
        return {}
    _require_a_place(run)
    faults: dict[str, Fault] = {}
    with probe_pods.removed(run.host_cluster, run.instance, reach_probe.PROBE, run.say):
        for batch in reach_probe.batches(targets):
            pod = reach_probe.pod(run.instance, KARMADA_CONTROLLER_MANAGER, run.namespace, batch, seconds)
            faults |= reach_probe.look(run.host_cluster, pod, batch, seconds)
    entries = run.spec.member_by_name
    who = f"a pod in namespace {run.namespace}"
    return {
        each.name: list(reach_from_hosts.of_member(entries[each.name], each, {who: faults[each.name]}))
        for each in targets
        if each.name in faults
    }


def _require_a_place(run: Run) -> None:
    where = f"namespace {run.namespace} of the host cluster"
    if run.host_cluster.get("v1", "Namespace", run.namespace) is None:
        what = "it does not exist, and what pods reach is tried in it"
        raise ProblemsError(Problem(what, where, f"create it, {_DO_NOT_ASK}", reason=Reason.OBJECT_NOT_FOUND))
    if denied := run.host_cluster.can_i([("create", "", "pods", run.namespace)]):
        raise ProblemsError(
            Problem(
                f"the account may not: {denied[0]}", where, f"grant it, {_DO_NOT_ASK}", reason=Reason.MISSING_PERMISSION
            )
        )


# -- from members ------------------------------------------------------------------------------------------------------


def _of_pulling(run: Run, registered: Clusters, seconds: int) -> dict[str, list[Problem]]:
    due = [
        entry
        for entry in selected_members.entries(run)
        if entry.pulls and not entry.agent_hosts and member_checks.is_unknown(entry, registered.get(entry.name))
    ]
    if not due:
        return {}
    if run.stored_state is None or not run.control_plane_exists:
        names = ", ".join(entry.name for entry in due)
        run.tell(
            Problem.hint(
                f"whether {names} reach the control plane cannot be tried before there is one", Reason.CHECK_SKIPPED
            )
        )
        return {}
    authority = run.state.authorities[KARMADA_CA].certificate.decode()
    target = Target.of_url("control plane", run.public_url, authority)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(collected, [partial(_of_one, run, entry, target, seconds) for entry in due])
        return {entry.name: told for entry, told in zip(due, found, strict=True) if told}


def _of_one(run: Run, entry: MemberEntry, target: Target, seconds: int) -> Iterator[Problem]:
    name = entry.name
    pod = reach_probe.pod(run.instance, agent.ROW, NAMESPACE_ON_MEMBER, [target], seconds)
    # Those of the document are in other namespaces.
    pod["spec"].pop("imagePullSecrets", None)
    with (
        one_member.apart(name, run.trace),
        member_join.connected(run, entry) as member,
        _namespace(member, run.instance.owner),
    ):
        faults = reach_probe.look(member, pod, [target], seconds)
    yield from reach_from_hosts.of_endpoint(name, target, {f"a pod on {name}": each for each in faults.values()})


@contextmanager
def _namespace(member: Cluster, owner: str) -> Iterator[None]:
    """Create a namespace for a pod, and delete it afterwards; first delete one that a killed run has left."""
    live = member.get("v1", "Namespace", NAMESPACE_ON_MEMBER)
    if live:
        _make_way(member, live, owner)
    metadata = {"name": NAMESPACE_ON_MEMBER, "labels": owner_labels(owner)}
    # Applied, so that the field manager shows its maker: after a kill, the next run or the leave deletes it.
    made = member.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}).object
    try:
        yield
    finally:
        member.delete("v1", "Namespace", NAMESPACE_ON_MEMBER, uid=made["metadata"]["uid"])


def _make_way(member: Cluster, live: Object, owner: str) -> None:
    where = f"{member.name}, namespace {NAMESPACE_ON_MEMBER}"
    if not owned_by(live, owner, ()):
        raise ProblemsError(
            Problem(
                "it is there and not of this control plane",
                where,
                f"remove it, {_DO_NOT_ASK}",
                reason=Reason.NAME_TAKEN,
            )
        )
    if not live["metadata"].get("deletionTimestamp"):
        member.delete("v1", "Namespace", NAMESPACE_ON_MEMBER, uid=live["metadata"]["uid"])
    deadline = time.monotonic() + GONE_SECONDS
    while member.get("v1", "Namespace", NAMESPACE_ON_MEMBER):
        if time.monotonic() > deadline:
            raise ProblemsError(
                Problem(
                    f"it does not go within {GONE_SECONDS:.0f} s",
                    where,
                    "see what holds it",
                    reason=Reason.REMOVAL_BLOCKED,
                )
            )
        probe_pods.pause(0.5)
