# SPDX-License-Identifier: Apache-2.0
"""Nodes whose directories keep the data of members in pods (hostPath): who is free, who is given up, who comes instead.

A node is recorded for each member before its pod starts. One that is lost for good is given up by name: its place on
record becomes empty, which proves that the member's data is lost, and stays so until etcd has removed that member. Then
what binds the pod to the lost node is deleted, and another node is put on record.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from ..api_object import Object
from ..components.etcd_state import EtcdState
from ..components.table import ETCD
from ..components.types import settings_of
from ..kube.errors import Conflict
from ..kube.progress import Progress
from ..labels import OWNER_LABEL
from ..problems import Problem, ProblemsError, Reason, first_of
from ..render import etcd_nodes, etcd_pods
from ..run.run import Run
from . import patience
from . import plan_types as steps

#: Option by which a user gives nodes up.
OPTION = "etcd_abandon_nodes"


def ordinal(name: str) -> int:
    """Ordinal of the member in the pod of this name."""
    return int(name.rpartition("-")[2])


def lost(etcd: EtcdState, name: str) -> str:
    """Proof that the data of a member on record is lost with its node; empty if it is not."""
    given_up = etcd.storage == "hostPath" and not etcd.node(ordinal(name))
    return "its node was given up" if given_up else ""


def members_without(run: Run, abandoned: Collection[str] = ()) -> list[str]:
    """Names of the members on record whose nodes were given up, or are by these names now."""
    etcd = run.state.etcd
    if etcd.storage != "hostPath":
        return []
    return [each.name for each in etcd.members if etcd.node(ordinal(each.name)) in ("", *abandoned)]


def free(run: Run, etcd: EtcdState, abandoned: Collection[str] = ()) -> list[str]:
    """Names of the nodes that can have a member in a directory of theirs, and have none."""
    fit = etcd_nodes.fit(run.host_cluster.list("v1", "Node"), settings_of(ETCD, run.spec))
    return [each for each in fit if each not in etcd.nodes and each not in abandoned]


def problems(run: Run, wanted: Sequence[str], abandoned: Collection[str]) -> list[Problem]:
    """Nodes to give up that are none of ours or work, and too few nodes for the members ``wanted``."""
    etcd = run.state.etcd
    if abandoned and etcd.storage != "hostPath":
        return [
            Problem(
                f"etcd keeps its data in {etcd.storage}, and not in directories of nodes",
                OPTION,
                "leave it out",
                reason=Reason.INVALID_ARGUMENT,
            )
        ]
    return [*_unknown(etcd, abandoned), *_at_work(run, abandoned), *_too_few(run, wanted, abandoned)]


def _unknown(etcd: EtcdState, abandoned: Collection[str]) -> list[Problem]:
    """Names of nodes without a member. While members are on their way, they may be those of the run that was killed."""
    if not etcd.bootstrapped or "" in etcd.nodes or not all(each.is_settled for each in etcd.members):
        return []
    return [
        Problem(
            f"no member of etcd is on a node {name}; they are on {', '.join(etcd.nodes)}",
            OPTION,
            "name one of these",
            reason=Reason.INVALID_ARGUMENT,
        )
        for name in sorted(set(abandoned) - set(etcd.nodes))
    ]


def _at_work(run: Run, abandoned: Collection[str]) -> list[Problem]:
    """Nodes to give up that could have a member: a slip of a finger would take away one that works."""
    settings = settings_of(ETCD, run.spec)
    works = etcd_nodes.fit(run.host_cluster.list("v1", "Node"), settings) if abandoned else ()
    return [
        Problem(
            f"the node {name} is ready and takes pods",
            OPTION,
            f"if its member is to leave it all the same, take it out of service first: kubectl cordon {name}",
            reason=Reason.CONFIRMATION_REQUIRED,
        )
        for name in sorted(set(abandoned) & set(works) & set(run.state.etcd.nodes))
    ]


def _too_few(run: Run, wanted: Sequence[str], abandoned: Collection[str]) -> list[Problem]:
    """Problem if there are fewer nodes with room than members that need one."""
    etcd = run.state.etcd
    if etcd.storage != "hostPath":
        return []
    lacking = sum(etcd.node(ordinal(name)) in ("", *abandoned) for name in wanted)
    there = free(run, etcd, abandoned) if lacking else []
    if lacking <= len(there):
        return []
    return [
        Problem(
            f"{lacking} more members of etcd with hostPath need as many more nodes, and {len(there)} nodes without a "
            "member can have one",
            steps.MEMBERS_FIELD,
            "add nodes, tolerate their taints, or ask for fewer members",
            reason=Reason.INSUFFICIENT_RESOURCES,
        )
    ]


def give_up(run: Run, abandoned: Collection[str]) -> None:
    """Put on record that nodes are lost, before anything is asked of etcd."""
    etcd = run.state.etcd
    if etcd.storage != "hostPath" or not set(abandoned) & set(etcd.nodes):
        return
    with run.writing(f"give up {first_of(sorted(abandoned))}"):
        kept = tuple("" if each in abandoned else each for each in run.state.etcd.nodes)
        run.save(replace(run.state, etcd=replace(run.state.etcd, nodes=kept)))
    run.go_on_with(run.state)
    run.say(f"etcd: {', '.join(sorted(abandoned))} given up, with the data there")


def for_member(run: Run, name: str, wanted: Sequence[str], timeout: float) -> str:
    """Node for a member that has none. What binds its pod to a node that was given up is deleted before.

    The member that ran there is none of etcd's any more: should its process still work, nobody listens to it. Raises
    ProblemsError if there is no node, or if what was there does not go.
    """
    if problem := _too_few(run, wanted, ()):
        raise ProblemsError(problem)
    claims = [f"data-{name}", f"{etcd_pods.DIRECTORY}-{name}"]
    there = [each for each in claims if run.host_cluster.get("v1", "PersistentVolumeClaim", each, run.namespace)]
    if there:
        with run.writing(f"take {name} off its former node"):
            _delete_claims(run, name, there, timeout)
    labels = f"{OWNER_LABEL}={run.state.owner}"
    volumes = run.host_cluster.list("v1", "PersistentVolume", labels=labels)
    former = [each for each in volumes if (each["spec"].get("claimRef") or {}).get("name") in claims]
    if former:
        run.remove_from_host_cluster(f"take the volumes of {name} off its former node", former)
    return free(run, run.state.etcd)[0]


def _delete_claims(run: Run, name: str, claims: Sequence[str], timeout: float) -> None:
    """Delete the claims of a member, and its pod, which keeps them: nobody on a lost node confirms its end."""
    cluster, began = run.host_cluster, time.monotonic()
    progress = Progress(run.say, began, timeout)
    uids = {each["metadata"]["uid"] for each in _claims(run, claims)}
    for each in _claims(run, claims):
        cluster.delete(
            "v1", "PersistentVolumeClaim", each["metadata"]["name"], run.namespace, uid=each["metadata"]["uid"]
        )
    while left := [each for each in _claims(run, claims) if each["metadata"]["uid"] in uids]:
        pod = cluster.get("v1", "Pod", name, run.namespace)
        if pod and (pod.get("spec") or {}).get("nodeName"):
            # In conflict: its controller has made another one.
            with suppress(Conflict):
                cluster.delete("v1", "Pod", name, run.namespace, uid=pod["metadata"]["uid"], grace_seconds=0)
        waits = f"{', '.join(each['metadata']['name'] for each in left)} should be gone"
        if time.monotonic() - began > timeout:
            raise ProblemsError(
                Problem(
                    f"{waits}, and still there (after {timeout:.0f} s)",
                    f"etcd member {name}",
                    "see why, and run the playbook again",
                    reason=Reason.NOT_READY_IN_TIME,
                ),
                consequence="run it again to go on from here",
            )
        progress.tell(f"etcd: {waits}", time.monotonic())
        time.sleep(patience.LOOK_SECONDS)


def _claims(run: Run, names: Sequence[str]) -> list[Object]:
    found = (run.host_cluster.get("v1", "PersistentVolumeClaim", each, run.namespace) for each in names)
    return [each for each in found if each]
