# SPDX-License-Identifier: Apache-2.0
"""Release of a part: what is not released is held by the API servers of the control plane, and let go later.

``held`` says what is held, and by which means. Here the control plane is brought to that, from wherever a run that was
killed has left it: first what is to be held, and nothing else starts before that stands; then
what is not held any more.

In pods all of that is one step (``settle``). Of plain hosts each API server is asked by a module beside it, so what is
to be held is written first (``begin``), then hosts are looked at, and what is left to do comes after that (``finish``).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..api_object import Object
from ..components.state import RestoreState
from ..components.table import KARMADA_APISERVER, KARMADA_CA, KARMADA_CONTROLLER_MANAGER
from ..document.restores import Part
from ..kube.apply import Change
from ..kube.cluster import Cluster
from ..kube.errors import ApiError, Forbidden, NotFound
from ..kube.kubeconfig import from_parts
from ..kube.limits import AT_ONCE
from ..kube.objects import Ref
from ..kube.port_forward import cluster_behind
from ..labels import NAME_LABEL
from ..members import registration
from ..members import works as member_works
from ..members.scheduling import BINDING_API, BINDING_KINDS
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run
from . import closed, held
from .held import Parts
from .plan import is_released

#: Asks every API server about these clusters; returns pairs of an API server and a cluster whose Works it would take
#: although they are not suspended. Raises ApiError if one cannot be asked.
Asking = Callable[[Sequence[str]], Sequence[tuple[str, str]]]
_LOOK_SECONDS = 0.5
_PREFIX = member_works.execution_namespace("")
_NOTHING_STARTED = "nothing more was released, and the next run goes on from there"


@dataclass
class Settled:
    """Result of a control plane that was brought to what is held: changes, and numbers of Works."""

    changes: list[Change] = field(default_factory=list)
    suspended: int = 0
    resumed: int = 0


def clusters(run: Run) -> list[str]:
    """Clusters that are registered, and those with an execution namespace that is left of one."""
    registered = {each["metadata"]["name"] for each in run.control_plane.list(registration.CLUSTER_API, "Cluster")}
    return sorted({*registered, *_spaces(run.control_plane)})


def wanted(run: Run, journal: RestoreState, named: Collection[Part]) -> Parts:
    """Parts that are released when the user has got what he has named, or everything. Raises ProblemsError for unknown
    names.

    What was released stays so; what was only chosen may be chosen anew.
    """
    followed = is_released(journal)
    before = (journal.parts or held.EVERYTHING) if followed else {}
    if held.EVERY_CLUSTER in before or not named:
        return held.EVERYTHING
    known = clusters(run)
    asked = held.asked_for(named, known)
    works = _works(run.control_plane, asked) if any(asked.values()) else ()
    if problems := held.unknown(asked, before, known, works):
        raise ProblemsError(problems, "nothing was released")
    found = held.together(before, asked, known)
    if problems := held.too_many(found):
        raise ProblemsError(problems, "nothing was released")
    return found


def settle(run: Run, parts: Parts, timeout: float, kept: Collection[str] = (), let_go: Collection[str] = ()) -> Settled:
    """Have a control plane in pods hold what these parts leave, and nothing else. Raises ProblemsError; see the
    module. ``timeout`` is in seconds.
    """
    deadline = time.monotonic() + timeout
    done = begin(run, parts, kept, let_go)
    while told := not_in_force(holding(run, parts), lambda names: admitting(run, names)):
        if time.monotonic() > deadline:
            raise refused_in_time(told)
        time.sleep(_LOOK_SECONDS)
    return finish(run, parts, deadline - time.monotonic(), done)


def begin(run: Run, parts: Parts, kept: Collection[str] = (), let_go: Collection[str] = ()) -> Settled:
    """Write what holds the rest, and what holds released ones no more. Raises ProblemsError if a Work is going of
    which nobody has said what becomes of its object.
    """
    done, there = Settled(), _spaces(run.control_plane)
    if names := holding(run, parts):
        _decide(run, parts, names, kept, let_go, done)
        done.changes += _changed(
            run.apply_to_control_plane("policy for what is held", lambda: held.policies(run.state.owner))
        )
        with run.writing("hold what is not released"):
            for name in names:
                _label(run.control_plane, name, there.get(name), held.HELD, parts.get(name, ()), done)
    if names := letting(run, parts):
        with run.writing("let go what is released"):
            for name in names:
                _label(run.control_plane, name, there[name], held.RESUMING, (), done)
    return done


def finish(run: Run, parts: Parts, timeout: float, done: Settled) -> Settled:
    """Suspend what is held, which the API servers are known to insist on, and give others what they had before.

    Raises ProblemsError if Works do not take that within ``timeout`` seconds.
    """
    deadline, names = time.monotonic() + timeout, holding(run, parts)
    if names:
        with run.writing("hold what is not released"):
            _suspend(run.control_plane, parts, names, deadline, done)
            _resume(run.control_plane, parts, names, deadline, done)
            if done.resumed:
                done.changes += begin_anew(run)
    if released := letting(run, parts):
        with run.writing("let go what is released"):
            _resume(run.control_plane, parts, released, deadline, done)
            done.changes += begin_anew(run)
            # Last, because by it a run that goes on knows where to look.
            for name in released:
                _label(run.control_plane, name, _spaces(run.control_plane).get(name), "", (), done)
    if not names:
        refs = [Ref.of(each) for each in reversed(held.policies(run.state.owner))]
        if run.ours_in_control_plane(refs):
            done.changes += run.remove_from_control_plane("policy for what is held", refs)
    return done


def holding(run: Run, parts: Parts) -> list[str]:
    """Clusters of which something is held."""
    return [name for name in clusters(run) if held.holds(parts, name)]


def letting(run: Run, parts: Parts) -> list[str]:
    """Clusters that are held no more, and are still labelled, so that not all of their Works have what they had."""
    return [
        name
        for name, space in sorted(_spaces(run.control_plane).items())
        if held.label_of(space) and not held.holds(parts, name)
    ]


def lets_go(run: Run, parts: Parts) -> bool:
    """Return whether Works are let go that have not got back what they had."""
    return bool(letting(run, parts)) or bool(_to_resume(run.control_plane, parts, holding(run, parts)))


def wrong(run: Run, parts: Parts, ask: Asking) -> list[str]:
    """Reasons why not all is held that these parts leave; none if it is, by each API server. Reads only."""
    there, found = _spaces(run.control_plane), list[str]()
    names = holding(run, parts)
    for name in names:
        space = there.get(name)
        if space is None or held.to_label(space, held.HELD, parts.get(name, ())):
            found.append(f"the namespace of {name} has not the label and the annotation by which it is held")
    found += [f"Work {held.name_of(each)} is not suspended" for each in _to_suspend(run.control_plane, parts, names)]
    if not found:
        found += [f"{server} does not refuse Works of {name}" for server, name in ask(names)]
    return found


def begin_anew(run: Run) -> list[Change]:
    """Have karmada-controller-manager begin anew: what was refused to it, it tries again after ever longer waits.

    That of plain hosts is restarted by tasks of the role.
    """
    changes = []
    for pod in run.place.pods():
        metadata = pod["metadata"]
        if (metadata.get("labels") or {}).get(NAME_LABEL) != KARMADA_CONTROLLER_MANAGER.name:
            continue
        run.require_lock()
        if run.host_cluster.delete("v1", "Pod", metadata["name"], run.namespace, uid=metadata["uid"]):
            changes.append(Change(Ref("v1", "Pod", metadata["name"], run.namespace), "deleted", None))
    return changes


# -- holding -----------------------------------------------------------------------------------------------------------


def _decide(
    run: Run, parts: Parts, holding: Sequence[str], kept: Collection[str], let_go: Collection[str], done: Settled
) -> None:
    """Do with Works that are going what the user says of each. Raises ProblemsError if he has not."""
    found = _works(run.control_plane, holding)
    going = [each for each in found if member_works.is_going(each) and held.holds_work(parts, each)]
    if problems := held.undecided(going, kept, let_go):
        raise ProblemsError(problems, _NOTHING_STARTED)
    due = [each for each in going if not held.is_decided(each)]
    if not due:
        return
    with run.writing("decide on Works that are going"):
        for work in due:
            stays = held.name_of(work) in kept
            patch: Object = {"metadata": {"finalizers": None} if stays else {"annotations": {held.LET_GO: "true"}}}
            _patch(run.control_plane, work, patch)
            done.changes.append(Change(Ref.of(work), "deleted" if stays else "changed", None))


def _label(
    control_plane: Cluster, name: str, space: Object | None, value: str, released: Iterable[str], done: Settled
) -> None:
    """Have the execution namespace of a cluster labelled like this; one that there is not yet is made for that."""
    if space is None and value != held.HELD:
        return
    namespace = f"{_PREFIX}{name}"
    if space is None:
        # Else Karmada would make it, without the label.
        space = control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}).object
    patch = held.to_label(space, value, released)
    if patch is not None:
        control_plane.patch_merge("v1", "Namespace", namespace, None, patch)
        done.changes.append(Change(Ref("v1", "Namespace", namespace, None), "changed", space["metadata"]["uid"]))


def not_in_force(names: Sequence[str], ask: Asking) -> str:
    """Reason why what holds these clusters is not in force at every API server, or not known to be; empty if it is."""
    try:
        return "; ".join(f"{server} does not refuse Works of {name}" for server, name in ask(names)[:3])
    except Forbidden:
        raise
    except ApiError as error:
        # It may be on its way up or down.
        return f"an API server cannot be asked whether it refuses Works of members that are held: {error}"


def refused_in_time(what: str) -> ProblemsError:
    """Error for what is not in force when time is over."""
    remedy = "look at the status of that policy, and whether admission plugins were switched off"
    where = f"ValidatingAdmissionPolicy {held.POLICY} in the control plane"
    return ProblemsError(Problem(what, where, remedy, reason=Reason.NOT_READY_IN_TIME), _NOTHING_STARTED)


def admitting(run: Run, names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of an API server in a pod and a held cluster whose Works it would take although they are not suspended."""
    with _api_servers(run) as servers, ThreadPoolExecutor(AT_ONCE) as pool:
        pairs = [(server, name) for server in servers for name in names]
        refused = list(pool.map(lambda pair: _refuses(*pair), pairs))
    return [(server.name, name) for (server, name), done in zip(pairs, refused, strict=True) if not done]


def probe_path(name: str) -> str:
    """Path of an API server at which a Work of this cluster is tried, and not made."""
    return f"/apis/{member_works.WORK_API}/namespaces/{_PREFIX}{name}/works?dryRun=All"


def probe(name: str) -> Object:
    """Work of this cluster that an API server refuses if it holds the cluster."""
    return held.probe(f"{_PREFIX}{name}")


def _refuses(server: Cluster, name: str) -> bool:
    try:
        server.create(probe(name), dry_run=True)
    except Forbidden as error:
        if held.is_refusal(error.message):
            return True
        raise
    return False


@contextmanager
def _api_servers(run: Run) -> Iterator[list[Cluster]]:
    """Every API server, each to be asked by itself."""
    own, authority = run.snapshot.own_identity, run.state.authorities[KARMADA_CA]
    port = KARMADA_APISERVER.listens(run.spec)["https"]
    parts = (authority.certificate, own.certificate, own.key)
    ca_pem, cert_pem, key_pem = (part.decode() for part in parts)
    url = f"https://{run.instance.service_host(KARMADA_APISERVER.name)}:{port}"
    access = from_parts(url, ca_pem=ca_pem, cert_pem=cert_pem, key_pem=key_pem)
    names = closed.api_servers(run)
    found = [cluster_behind(run.host_cluster, run.namespace, name, port, access, name) for name in names]
    try:
        yield found
    finally:
        for each in found:
            each.close()


def _to_suspend(control_plane: Cluster, parts: Parts, names: Iterable[str]) -> list[Object]:
    return [
        each
        for each in _works(control_plane, names)
        if held.holds_work(parts, each) and not member_works.is_going(each) and not held.is_suspended(each)
    ]


def _suspend(control_plane: Cluster, parts: Parts, names: Sequence[str], deadline: float, done: Settled) -> None:
    """Suspend every Work that is held; the API server lets none be as it was any more."""
    for attempt in itertools.count():
        left = _to_suspend(control_plane, parts, names)
        if not left:
            return
        if attempt:
            _require_time(deadline, f"{len(left)} Works do not take it that they are suspended", left)
        _on_each(left, lambda work: _patch(control_plane, work, held.to_suspend(work)))
        done.suspended += len(left)


# -- letting go --------------------------------------------------------------------------------------------------------


def _resume(control_plane: Cluster, parts: Parts, names: Sequence[str], deadline: float, done: Settled) -> None:
    """Give Works that are not held any more what they had before."""

    def resume(work: Object) -> bool:
        try:
            _patch(control_plane, work, held.to_resume(work, suspended) or {})
        except Forbidden as error:
            # An API server learns of a namespace a moment later.
            if held.POLICY not in error.message:
                raise
            return False
        return True

    for attempt in itertools.count():
        works = _to_resume(control_plane, parts, names)
        if not works:
            return
        if attempt:
            _require_time(deadline, f"{len(works)} Works do not take it that they are let go", works)
            time.sleep(_LOOK_SECONDS)
        # Of a Work that we have suspended only its binding tells whether a policy does so by now.
        suspended = held.suspensions(each for kind in BINDING_KINDS for each in control_plane.list(BINDING_API, kind))
        done.resumed += sum(_on_each(works, resume))


def _to_resume(control_plane: Cluster, parts: Parts, names: Iterable[str]) -> list[Object]:
    found = _works(control_plane, names)
    return [each for each in found if held.to_resume(each) is not None and not held.holds_work(parts, each)]


# -- single objects ----------------------------------------------------------------------------------------------------


def _spaces(control_plane: Cluster) -> dict[str, Object]:
    """Execution namespaces, by cluster."""
    found = {each["metadata"]["name"]: each for each in control_plane.list("v1", "Namespace")}
    return {name.removeprefix(_PREFIX): each for name, each in found.items() if name.startswith(_PREFIX)}


def _works(control_plane: Cluster, names: Iterable[str]) -> list[Object]:
    return [each for name in names for each in control_plane.list(member_works.WORK_API, "Work", f"{_PREFIX}{name}")]


def _on_each(found: Sequence[Object], act: Callable[[Object], Any]) -> list[Any]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(act, found))


def _patch(control_plane: Cluster, live: Object, patch: Object) -> None:
    try:
        control_plane.patch_merge(*Ref.of(live), patch)
    except NotFound:
        return


def _require_time(deadline: float, what: str, works: Sequence[Object]) -> None:
    if time.monotonic() > deadline:
        remedy = (
            "look who changes them or refuses it; then run it again, with more time (-e restore_timeout=…, in seconds)"
        )
        where = ", ".join(map(held.name_of, works[:3]))
        raise ProblemsError(Problem(what, where, remedy, reason=Reason.NOT_READY_IN_TIME), _NOTHING_STARTED)


def _changed(changes: Iterable[Change]) -> list[Change]:
    return [each for each in changes if each.action != "unchanged"]
