# SPDX-License-Identifier: Apache-2.0
"""Rolling replacement of etcd members in pods, one at a time, until all have the template of the StatefulSet.

The StatefulSet never replaces a pod by itself (OnDelete): a healthy member is replaced only while all others are
healthy, by the words of their pods and by etcd's own, and the leader last. A pod whose probe fails may be a member that
works, so etcd is asked before any goes. The choice (``next_round``, and ``next_restart`` among those that work) does no
I/O.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..api_object import Object
from ..components.table import ETCD, pod_components
from ..kube.apply import Change
from ..kube.errors import Conflict
from ..kube.objects import Ref, with_applied_hash
from ..kube.progress import Progress
from ..kube.readiness import reason_not_ready, reason_stale
from ..kube.wait import wait_until
from ..problems import Problem, ProblemsError, Reason
from ..render import workloads
from ..run.run import Run
from . import members, members_seen, patience
from .client import EtcdError
from .plan_types import MoveLeader, Refusal, lists_differ
from .restart import Restart, may_be_needed, next_restart

REVISION_LABEL = "controller-revision-hash"
#: Seconds in which clients come back to a member that has a new address: gRPC tries an address for 20 s before it looks
#: for another one (``minConnectTimeout`` in dialoptions.go), and waits between two attempts for 0.6 of the time that
#: has passed (``backoff.DefaultConfig``).
CLIENTS_RETURN_SECONDS = 30.0
#: Placeholder for the revision that a change of the StatefulSet would create; no pod has it.
NOT_YET_MADE = "not-yet-made"


@dataclass(frozen=True)
class Round:
    """Pods to replace now, together; or why outdated ones must stay (``refused``). Neither: all are current."""

    replace: tuple[Object, ...] = ()
    refused: str = ""
    #: All pods of an older revision, by ordinal; these are still to be replaced.
    outdated: tuple[Object, ...] = ()


def reason_not_settled(stateful_set: Object) -> str | None:
    """Reason why outdated pods cannot be determined yet, or None: the controller computes the revision."""
    if reason := reason_stale(stateful_set):
        return reason
    return None if _revision(stateful_set) else "the controller has not given it a revision yet"


def with_next_revision(stateful_set: Object, template: Object) -> Object:
    """StatefulSet as it would be with this pod template: if it differs, every pod is of an older revision."""
    if stateful_set["spec"]["template"] == template:
        return stateful_set
    status = {**(stateful_set.get("status") or {}), "updateRevision": NOT_YET_MADE}
    return {**stateful_set, "status": status}


def next_round(stateful_set: Object, pods: Sequence[Object], storage: str, working: Collection[str] = ()) -> Round:
    """Pods that may be replaced now without risk for data or for the majority.

    A pod that holds its member's data (``storage`` emptyDir) is never replaced. One that works is replaced alone, and
    only while every other member is present and works. One that does not serves nothing, so it may be replaced while
    others do not work; otherwise settings that break every member could not be mended. If none works, all are replaced
    at once, because a member becomes ready only with a majority.

    A member works if its pod is ready, or if it is among ``working``: names of those that say so themselves. Of the
    current ones their pods must be ready nevertheless: the one before has come to its end only then.
    """
    outdated = tuple(sorted((pod for pod in pods if _is_outdated(pod, stateful_set)), key=ordinal))
    if not outdated:
        return Round()
    if storage == "emptyDir":
        return Round(refused="its data is in the pod (emptyDir) and would be lost with it", outdated=outdated)
    broken = tuple(pod for pod in outdated if _is_broken(pod, working))
    if broken:
        some_work = not all(_is_broken(pod, working) for pod in pods)
        return Round(replace=broken[:1] if some_work else broken, outdated=outdated)
    waiting = _not_ready_or_missing(stateful_set, pods)
    if waiting:
        return Round(refused=f"{', '.join(waiting)} must be ready first", outdated=outdated)
    return Round(replace=outdated[:1], outdated=outdated)


def ordinal(pod: Object) -> int:
    """Number at the end of a pod's name; as an integer, because 10 comes after 2."""
    return int(pod["metadata"]["name"].rpartition("-")[2])


def _revision(stateful_set: Object) -> str:
    return str((stateful_set.get("status") or {}).get("updateRevision") or "")


def _is_outdated(pod: Object, stateful_set: Object) -> bool:
    wanted = _revision(stateful_set)
    return bool(wanted) and (pod["metadata"].get("labels") or {}).get(REVISION_LABEL) != wanted


def _is_broken(pod: Object, working: Collection[str]) -> bool:
    return bool(reason_not_ready(pod)) and pod["metadata"]["name"] not in working


def _not_ready_or_missing(stateful_set: Object, pods: Sequence[Object]) -> list[str]:
    """Names of current members without a ready pod, and of those without any: they lack in the majority, too."""
    name = stateful_set["metadata"]["name"]
    missing = set(range(stateful_set["spec"]["replicas"])) - {ordinal(pod) for pod in pods}
    waiting = {ordinal(pod) for pod in pods if reason_not_ready(pod) and not _is_outdated(pod, stateful_set)}
    return [f"{name}-{each}" for each in sorted(missing | waiting)]


def replace_outdated(run: Run, timeout: float) -> list[Change]:
    """Replace the members that run with older settings; returns the replacements, made or predicted (check mode).

    Each round observes anew, as a replacement may change the conditions for the next. ``timeout`` is in seconds, for
    each wait. Raises ProblemsError if a member may not be replaced, NotReady if one does not become ready.
    """
    changes: list[Change] = []
    if ETCD not in pod_components(run.spec):
        return changes
    while True:
        stateful_set, pods = observe(run, timeout)
        this = next_round(stateful_set, pods, run.state.etcd.storage) if stateful_set else Round()
        if not stateful_set or not this.outdated:
            return changes
        if this.refused:
            raise _refusal(run, this)
        if run.check:
            return [_replacement(pod) for pod in this.outdated]
        chosen, work = _chosen(run, stateful_set) if run.state.etcd.bootstrapped else (this.replace, False)
        began = time.monotonic()
        changes += _replace(run, chosen, timeout)
        if work and len(this.outdated) > 1:
            _let_clients_return(run, chosen, time.monotonic() - began)


def _let_clients_return(run: Run, replaced: Sequence[Object], away: float) -> None:
    """Wait until clients use a member again that was away for so many seconds, so that they lose one at a time.

    Nobody can be asked for it: etcd does not tell who is connected.
    """
    seconds, began = max(CLIENTS_RETURN_SECONDS, away), time.monotonic()
    progress = Progress(run.say, began, seconds)
    while (now := time.monotonic()) - began < seconds:
        progress.tell(f"etcd: its clients connect to {replaced[0]['metadata']['name']} again", now)
        time.sleep(patience.LOOK_SECONDS)


def _chosen(run: Run, stateful_set: Object) -> tuple[tuple[Object, ...], bool]:
    """Pods to replace now, and whether their members work; none if somebody else has replaced them all.

    If only the leader is left of those that work, another one leads from now on. Raises ProblemsError if one that is to
    work stays unhealthy by its own words.
    """
    since = time.monotonic()
    refused: Refusal | None = None
    while True:
        before = refused
        look, this, broken = _looked(run, stateful_set)
        if this.refused:
            raise _refusal(run, this)
        pods = {pod["metadata"]["name"]: pod for pod in this.outdated}
        step: Restart | MoveLeader | Refusal | None = lists_differ(look.seen)
        if broken and not step:
            return broken, False
        step = step or next_restart(look.seen, pods)
        match step:
            case Restart(name):
                return (pods[name],), True
            case MoveLeader():
                refused = _have_another_lead(run, look, step)
            case Refusal():
                refused = step
            case None:
                return tuple(this.outdated[:1]), True
        if refused:
            # What was waited for before is no time to settle.
            since = since if before else time.monotonic()
            patience.require_patience(refused, time.monotonic() - since, again=refused == before)
            time.sleep(patience.LOOK_SECONDS)


def _looked(run: Run, stateful_set: Object) -> tuple[members_seen.Look, Round, tuple[Object, ...]]:
    """Members as they are, the round by that, and those of its pods that do not work.

    Where a majority may rest on the vote of one of these, it has some time to say that it works, or to be ready.
    """
    began = time.monotonic()
    progress = Progress(run.say, began, patience.SETTLE_SECONDS)
    while True:
        look = members_seen.look(run)
        this = next_round(stateful_set, list(look.pods.values()), run.state.etcd.storage, look.working)
        broken = tuple(pod for pod in this.replace if _is_broken(pod, look.working))
        waits, now = _reason_to_wait(look, broken), time.monotonic()
        if not waits or now - began >= patience.SETTLE_SECONDS:
            return look, this, broken
        progress.tell(f"etcd: {waits}", now)
        time.sleep(patience.LOOK_SECONDS)


def _reason_to_wait(look: members_seen.Look, broken: Sequence[Object]) -> str:
    """Reason not to replace pods yet that do not work; empty if nobody depends on them."""
    for name in (pod["metadata"]["name"] for pod in broken):
        if may_be_needed(look.seen, name):
            return f"member {name} may be needed, and does not say that it works"
        # Nobody lists the members while a leader is chosen, and who answers then has a vote in it.
        if look.seen.members is None and name in look.seen.answering:
            return f"member {name} answers and knows no leader"
    return "the members are not listed by any" if broken and look.working and look.seen.members is None else ""


def _have_another_lead(run: Run, look: members_seen.Look, step: MoveLeader) -> Refusal | None:
    """Have another member lead. Returns why it does not, if that may pass."""
    try:
        members.move_leader(run, look, step)
    except EtcdError as error:
        return Refusal(
            Reason.ETCD_MAJORITY_AT_RISK,
            f"it leads, and {step.to} does not take over: {error}",
            f"etcd member {step.leader}",
            "see the log of both, and run the playbook again",
        )
    return None


def observe(run: Run, timeout: float) -> tuple[Object | None, list[Object]]:
    """StatefulSet, once its controller has observed it, and the pods of the members.

    In check mode, where the settings of this run are not applied, it is the StatefulSet as it would be with them.
    """
    ref = Ref("apps/v1", "StatefulSet", run.instance.object_name(ETCD.name), run.namespace)
    if not run.check:
        wait_until(
            run.host_cluster,
            [ref],
            timeout=timeout,
            progress=run.say,
            not_ready=lambda live, _related: reason_not_settled(live),
        )
    stateful_set = run.host_cluster.get(*ref)
    if run.check and stateful_set:
        stateful_set = with_next_revision(stateful_set, _template_to_be(run))
    labels = run.instance.pod_selector(ETCD.name)
    return stateful_set, list(run.host_cluster.list("v1", "Pod", run.namespace, labels=labels))


def _template_to_be(run: Run) -> Object:
    """Pod template that the document asks for, with the defaults of the API server."""
    objects = workloads.component_objects(run.instance, ETCD, run.layout, run.material, run.state.etcd)
    wanted = next(each for each in objects if each["kind"] == "StatefulSet")
    template: Object = run.host_cluster.apply(with_applied_hash(wanted), dry_run=True).object["spec"]["template"]
    return template


def _replacement(pod: Object) -> Change:
    return Change(Ref.of(pod), "changed", pod["metadata"]["uid"])


def _refusal(run: Run, refused: Round) -> ProblemsError:
    return ProblemsError(
        Problem(
            what=f"it runs with older settings and cannot be replaced: {refused.refused}",
            where=f"Pod {run.namespace}/{refused.outdated[0]['metadata']['name']}",
            remedy="mend what is not ready and run the playbook again; where the data is in the pods, settings cannot "
            "be changed, so set them back",
            reason=Reason.ETCD_UNHEALTHY,
        ),
        consequence="etcd goes on as it is",
    )


def renew_broken(run: Run, timeout: float) -> list[Change]:
    """Have pods that do not work, and have older settings, start with those of now; returns their replacements.

    Nothing waits for them: whether they have a majority then is for the caller to see. Those that work by their own
    words stay, whatever their probes say. ``timeout`` is in seconds, for the controller of the StatefulSet. Raises
    NotReady.
    """
    stateful_set, pods = observe(run, timeout)
    # Without one that is outdated, by their pods, nobody is asked, and nothing waits.
    due = stateful_set and any(map(reason_not_ready, next_round(stateful_set, pods, run.state.etcd.storage).replace))
    broken = _looked(run, stateful_set)[2] if stateful_set and due else ()
    if not broken:
        return []
    with run.writing(f"replace etcd {_names(broken)}"):
        _delete(run, broken)
    return [_replacement(pod) for pod in broken]


def _names(pods: Sequence[Object]) -> str:
    return ", ".join(pod["metadata"]["name"] for pod in pods)


def _delete(run: Run, pods: Sequence[Object]) -> None:
    run.say(f"replacing etcd {'member' if len(pods) == 1 else 'members'} {_names(pods)}")
    for pod in pods:
        metadata = pod["metadata"]
        # In conflict: somebody was faster, and its controller has made another one.
        with suppress(Conflict):
            run.host_cluster.delete("v1", "Pod", metadata["name"], run.namespace, uid=metadata["uid"])


def _replace(run: Run, pods: Sequence[Object], timeout: float) -> list[Change]:
    old = {pod["metadata"]["uid"] for pod in pods}
    with run.writing(f"replace etcd {_names(pods)}"):
        _delete(run, pods)
        wait_until(
            run.host_cluster,
            [Ref.of(pod) for pod in pods],
            timeout=timeout,
            progress=run.say,
            not_ready=lambda live, related: (
                "the old pod is still there" if live["metadata"]["uid"] in old else reason_not_ready(live, related)
            ),
        )
    return [_replacement(pod) for pod in pods]
