# SPDX-License-Identifier: Apache-2.0
"""Apply and delete many objects of one API server concurrently, and tell what changed.

``wait_until`` (from ``wait``) then waits until they work. The order of waves of objects is up to the caller.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..api_object import Object, conditions
from ..labels import FIELD_MANAGER, MANAGED_BY_LABEL, OWNER_LABEL
from ..problems import Problem, ProblemsError, Reason
from .cluster import Cluster
from .errors import ApiError, Conflict, Invalid, NotFound
from .limits import AT_ONCE
from .objects import Ref, applied_hash, claimed_by, covers, diff, is_uid, recorded_hash, with_applied_hash
from .progress import Progress, named

# Above this many objects of one kind in one namespace, one list costs less than a get for each.
LIST_ABOVE = 3
# Longest pause between two looks at an object that is being deleted; whoever waits pays for a late look.
LONGEST_PAUSE = 0.2

#: Kinds whose controllers start pods.
POD_OWNERS = frozenset({"CronJob", "DaemonSet", "Deployment", "Job", "Pod", "ReplicaSet", "StatefulSet"})

Action = Literal["created", "changed", "deleted", "unchanged"]
#: Object to delete, and the UID that it must have; None: any object of that name.
Target = tuple[Ref, str | None]
#: Handling of a live object that differs from the desired one: apply if it is ours and refuse otherwise ("ours"),
#: apply whoever owns it ("adopt"), report it unchanged ("keep"), or neither touch nor report it ("leave").
Treatment = Literal["ours", "adopt", "keep", "leave"]
Treat = Callable[[Object], Treatment]


def target(live: Object) -> Target:
    """This object and no other, as a target of a deletion."""
    return Ref.of(live), live["metadata"]["uid"]


def must_be_ours(_live: Object) -> Treatment:
    """Treatment of live objects unless the caller chooses another one."""
    return "ours"


@dataclass(frozen=True)
class Change:
    """Change of one object, made or, in check mode, predicted.

    ``uid`` is known for objects that exist; ``diff`` is empty for unchanged ones. ``note`` is a remark for the user,
    such as why an object was left alone. UIDs are recorded, and an invalid one would keep every later run from reading
    the state, so a Change with an invalid UID raises ProblemsError.
    """

    ref: Ref
    action: Action
    uid: str | None = None
    diff: dict[str, str] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        if self.uid is not None and not is_uid(self.uid):
            remedy = "see what answers at the address of this API server: no Kubernetes gives such a UID"
            problem = Problem(
                "what answers gives it a UID that is none", str(self.ref), remedy, reason=Reason.UNUSABLE_ANSWER
            )
            raise ProblemsError(problem, consequence="what was done before stays")


class ApplyFailed(Exception):  # noqa: N818 - reads as what happened
    """Some objects could not be written. ``changes`` are those made to the others, which stay."""

    def __init__(self, doing: str, failures: Sequence[tuple[Ref, Exception]], changes: Sequence[Change]) -> None:
        self.failures, self.changes = list(failures), list(changes)
        lines = [f"could not {doing} {len(failures)} of {len(failures) + len(changes)} objects:"]
        super().__init__("\n".join(lines + [f"  - {ref}: {error}" for ref, error in failures]))

    @property
    def problems(self) -> list[Problem]:
        """Each object with what kept it from being written or deleted."""
        return [
            Problem(
                str(error),
                str(ref),
                reason=error.problem_reason if isinstance(error, ApiError) else Reason.REMOVAL_BLOCKED,
            )
            for ref, error in self.failures
        ]


@dataclass(frozen=True)
class Comparison:
    """A desired object, the live one, and the change between them."""

    change: Change
    desired: Object
    live: Object | None


def compare(
    cluster: Cluster, objects: Iterable[Object], *, treat: Treat = must_be_ours, workers: int = AT_ONCE
) -> list[Comparison]:
    """Compare each object with the live one, by reads only.

    Raises ProblemsError naming every object that is there and not ours, unless ``treat`` says otherwise of it.
    """
    wanted = list(objects)
    with _at_once(workers) as pool:
        live = _read(cluster, wanted, pool)
        found = list(pool.map(lambda one: _step(cluster, one, live.get(Ref.of(one)), treat), wanted))
    problems = [one for one in found if isinstance(one, Problem)]
    if problems:
        raise ProblemsError(problems)
    return [one for one in found if isinstance(one, Comparison)]


def survey(
    cluster: Cluster, objects: Iterable[Object], *, treat: Treat = must_be_ours, workers: int = AT_ONCE
) -> list[Change]:
    """Changes that objects need, by reads only and without diffs. Raises like ``compare``."""
    return [step.change for step in compare(cluster, objects, treat=treat, workers=workers)]


def apply_all(
    cluster: Cluster,
    objects: Iterable[Object],
    *,
    check: bool = False,
    workers: int = AT_ONCE,
    treat: Treat = must_be_ours,
) -> list[Change]:
    """Apply objects that differ from the live ones; returns a Change for each in order, except those that are left.

    An object is not written when its recorded hash is that of the desired object and no field that we set has drifted.
    ``treat`` decides on objects that exist. With ``check`` nothing is written, and the changes are predicted; the API
    server computes the diffs by dry run where it can.

    Raises ProblemsError before the first write when an object exists and is not ours. Raises ApplyFailed after all were
    tried.
    """
    wanted = list(objects)
    duplicates = {str(ref) for ref, times in Counter(map(Ref.of, wanted)).items() if times > 1}
    if duplicates:
        raise ValueError(f"given twice: {', '.join(sorted(duplicates))}")
    steps = compare(cluster, wanted, treat=treat, workers=workers)

    def carry_out(step: Comparison) -> Change | Exception:
        if step.change.action == "unchanged":
            return step.change
        try:
            return _predict(cluster, step) if check else _write(cluster, step)
        except ApiError as error:
            return error

    # Pods find what they mount or are called by; one that starts without it waits a minute before it looks again.
    first = [step for step in steps if not _starts_pods(step.desired)]
    then = [step for step in steps if _starts_pods(step.desired)]
    done: dict[Ref, Change | Exception] = {}
    with _at_once(workers) as pool:
        for wave in (first, then):
            refs = [step.change.ref for step in wave]
            done.update(zip(refs, pool.map(carry_out, wave), strict=True))
    results = [done[step.change.ref] for step in steps]
    return _all_or_error("check" if check else "apply", [step.change.ref for step in steps], results)


def delete_all(
    cluster: Cluster,
    targets: Iterable[Target],
    *,
    check: bool = False,
    workers: int = AT_ONCE,
    timeout: float = 120.0,
    progress: Callable[[str], None] | None = None,
    propagation: str = "Background",
    wait: bool = True,
) -> list[Change]:
    """Delete the objects and wait until they are gone; returns a Change for each, in order.

    Without ``wait``, return as soon as the API server has accepted the deletions.

    Each target comes with its expected UID: an object of that name with another UID is not ours and is left alone,
    with a note. UID None deletes any object of that name; the caller must have proved ownership in another way.

    Raises ApplyFailed for objects that could not be deleted or still exist after ``timeout`` seconds; the message names
    their finalizers.
    """
    wanted = list(targets)

    def start(one: Target) -> Change | Exception:
        ref, uid = one
        try:
            live = cluster.get(*ref)
            if live is None:
                return Change(ref, "unchanged", note="was not there")
            found: str = live["metadata"]["uid"]
            if uid and found != uid:
                return Change(ref, "unchanged", found, note="left alone: it is not the object that we made")
            if not check and not live["metadata"].get("deletionTimestamp"):
                cluster.delete(*ref, uid=found, propagation=propagation)
        except Conflict:
            return Change(ref, "unchanged", note="left alone: it is not the object that we made")
        except ApiError as error:
            return error
        return Change(ref, "deleted", found, diff(live, None))

    # A cluster deletes the token of an account that goes: were both deleted at once, who does it would be chance.
    accounts = {(ref.namespace, ref.name) for ref, _ in wanted if ref.kind == "ServiceAccount"}
    tokens = [one for one in wanted if one[0].kind == "Secret" and (one[0].namespace, one[0].name) in accounts]
    others = [one for one in wanted if one not in tokens]
    with _at_once(workers) as pool:
        done = dict(zip([*tokens, *others], [*pool.map(start, tokens), *pool.map(start, others)], strict=True))
        results = [done[one] for one in wanted]
        if wait and not check:
            began = time.monotonic()
            remaining = _Remaining(Progress(progress, began, timeout))
            left = {one.ref: index for index, one in enumerate(results) if isinstance(one, Change)}
            waiting = [one for one in results if isinstance(one, Change) and one.action == "deleted"]
            for change, remains in zip(
                waiting,
                pool.map(lambda one: _remains(cluster, one, remaining, began + timeout), waiting),
                strict=True,
            ):
                if remains:
                    results[left[change.ref]] = remains
    return _all_or_error("check" if check else "delete", [ref for ref, _ in wanted], results)


# -- inside ------------------------------------------------------------------------------------------------------------


class _OneByOne(Executor):
    """Executor that runs in the calling thread: for a single task, starting a thread costs more than the task."""

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:
        return map(fn, *iterables)


def _at_once(workers: int) -> Executor:
    return ThreadPoolExecutor(workers) if workers > 1 else _OneByOne()


def _starts_pods(obj: Object) -> bool:
    return obj["kind"] in POD_OWNERS


def _all_or_error(doing: str, refs: Sequence[Ref], results: Sequence[Change | Exception]) -> list[Change]:
    changes = [one for one in results if isinstance(one, Change)]
    failures = [(ref, one) for ref, one in zip(refs, results, strict=True) if isinstance(one, Exception)]
    if failures:
        raise ApplyFailed(doing, failures, changes)
    return changes


def _read(cluster: Cluster, wanted: Sequence[Object], pool: Executor) -> dict[Ref, Object]:
    """Live objects: lists of those with our label first, then a get for each that no list had."""
    groups: dict[tuple[str, str, str | None], list[Ref]] = defaultdict(list)
    for ref in map(Ref.of, wanted):
        groups[ref.api_version, ref.kind, ref.namespace].append(ref)
    many = [key for key, refs in groups.items() if len(refs) > LIST_ABOVE]
    selector = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"
    lists = pool.map(lambda key: cluster.list(key[0], key[1], key[2], labels=selector), many)
    live = {Ref.of(one): one for items in lists for one in items}
    missing = [ref for refs in groups.values() for ref in refs if ref not in live]
    gets = pool.map(lambda ref: cluster.get(*ref), missing)
    live.update({ref: one for ref, one in zip(missing, gets, strict=True) if one})
    return live


def _step(cluster: Cluster, desired: Object, live: Object | None, treat: Treat) -> Comparison | Problem | None:
    ref = Ref.of(desired)
    if live is None:
        return Comparison(Change(ref, "created"), desired, None)
    treatment, uid = treat(live), live["metadata"]["uid"]
    if treatment == "leave":
        return None
    if treatment == "keep":
        return Comparison(Change(ref, "unchanged", uid), desired, live)
    manager, owner = claimed_by(live)
    wanted_owner = claimed_by(desired)[1]
    if treatment != "adopt" and (manager != FIELD_MANAGER or (wanted_owner and owner != wanted_owner)):
        whose = f"belongs to another instance ({OWNER_LABEL}={owner})" if owner else "was not made by this installer"
        return Problem(
            f"it exists and {whose}",
            f"{ref} in {cluster.name}",
            "Remove or rename it, or choose another name.",
            reason=Reason.NAME_TAKEN,
        )
    if recorded_hash(live) == applied_hash(desired) and (
        covers(live, desired) or _changes_nothing(cluster, desired, live)
    ):
        return Comparison(Change(ref, "unchanged", uid), desired, live)
    return Comparison(Change(ref, "changed", uid), desired, live)


def _changes_nothing(cluster: Cluster, desired: Object, live: Object) -> bool:
    """Return whether a dry run changes nothing; the API server knows more defaults than our comparison."""
    try:
        return _content(cluster.apply(with_applied_hash(desired), dry_run=True).object) == _content(live)
    except ApiError:
        return False  # the apply that follows tells why


def _content(obj: Object) -> Object:
    meta = {
        key: value
        for key, value in obj["metadata"].items()
        if key not in ("managedFields", "resourceVersion", "generation")
    }
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": meta}


def _write(cluster: Cluster, step: Comparison) -> Change:
    try:
        applied = cluster.apply(with_applied_hash(step.desired))
    except Invalid:
        ports = _ports_moved_back(step.live, step.desired)
        if not ports:
            raise
        ref = step.change.ref
        cluster.patch_merge(*ref, {"spec": {"ports": ports}})
        applied = cluster.apply(with_applied_hash(step.desired))
    change = replace(step.change, uid=applied.object["metadata"]["uid"])
    if step.live is None:
        # If somebody created the object after our read, then we only changed it.
        return replace(change, action="created" if applied.created else "changed", diff=diff(None, applied.object))
    return replace(change, diff=diff(step.live, applied.object))


def _ports_moved_back(live: Object | None, desired: Object) -> list[Object]:
    """Desired ports of a Service if somebody changed the number of one of them, else empty.

    An apply cannot repair this: a port's merge key is its number, so ours would be added beside the moved one under the
    same name. Node ports are kept.
    """
    if live is None or desired["kind"] != "Service":
        return []
    wanted: list[Object] = desired["spec"].get("ports") or []
    there = {port.get("name"): port for port in live["spec"].get("ports") or []}
    if all(there.get(port.get("name"), port)["port"] == port["port"] for port in wanted):
        return []
    kept = {name: {"nodePort": port["nodePort"]} for name, port in there.items() if port.get("nodePort")}
    return [{**kept.get(port.get("name"), {}), **port} for port in wanted]


def _predict(cluster: Cluster, step: Comparison) -> Change:
    desired = with_applied_hash(step.desired)
    try:
        after = cluster.apply(desired, dry_run=True).object
    except NotFound:
        # Its namespace or its CRD is created earlier in a real run.
        return replace(step.change, diff=diff(step.live, desired))
    except Invalid:
        if not _ports_moved_back(step.live, step.desired):
            raise
        return replace(step.change, diff=diff(step.live, desired))
    return replace(step.change, diff=diff(step.live, after))


class _Remaining:
    """Deleted objects that are still there, for one line about all of them. Threads share it, one for each object."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._lock = progress, threading.Lock()
        self._held: dict[Ref, str] = {}

    def tell(self, ref: Ref, held: str, now: float) -> None:
        """Tell that an object is still there, and what holds it."""
        with self._lock:
            self._held[ref] = held
            first, reason = next(iter(self._held.items()))
            more = f" and {len(self._held) - 1} more are" if len(self._held) > 1 else " is"
            self._progress.tell(f"{named(first)}{more} not gone: {reason}", now)

    def forget(self, ref: Ref) -> None:
        """Tell no more of an object, which is gone."""
        with self._lock:
            self._held.pop(ref, None)


def _remains(cluster: Cluster, change: Change, remaining: _Remaining, deadline: float) -> Exception | None:
    """Wait until a deleted object is gone; returns the error if it remains, else None."""
    ref, pause = change.ref, 0.05
    while True:
        try:
            live = cluster.get(*ref)
        except ApiError as error:
            return error
        if live is None or live["metadata"]["uid"] != change.uid:
            remaining.forget(ref)
            return None
        held = _what_holds(live)
        now = time.monotonic()
        if now > deadline:
            return TimeoutError(
                f"still there after its deletion was asked for ({held}); nothing was forced: mend what holds it, then "
                "run again"
            )
        remaining.tell(ref, held, now)
        time.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 1.7)


def _what_holds(live: Object) -> str:
    """Reasons why a deletion does not finish: finalizers, and the conditions of a namespace."""
    finalizers = live["metadata"].get("finalizers") or []
    remains = [str(one["message"]) for one in conditions(live) if one.get("status") == "True" and one.get("message")]
    texts = [f"finalizers: {', '.join(finalizers)}"] if finalizers else []
    return "; ".join([*texts, *(remains if live["kind"] == "Namespace" else [])]) or "no finalizers"
