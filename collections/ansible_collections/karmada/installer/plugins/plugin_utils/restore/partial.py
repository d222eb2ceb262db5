# SPDX-License-Identifier: Apache-2.0
"""Release of a part: what is not released is held by the API servers of the control plane, and let go later.

``held`` says what is held, and by which means. Here the control plane is brought to that, from wherever a run that was
killed has left it: first what is to be held, and nothing else starts before that stands; then
what is not held any more.
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
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run
from . import held
from .held import Parts
from .plan import is_released

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


def wanted(run: Run, journal: RestoreState, names: Collection[str], namespaces: Collection[str]) -> Parts:
    """Parts that are released when the user has got what he asks for. Raises ProblemsError for unknown names.

    What was released stays so; what was only chosen may be chosen anew.
    """
    if (names or namespaces) and not run.place.in_pods:
        what = "its API servers are not asked one by one whether they hold the rest, because they run on plain hosts"
        remedy = "release all of it"
        raise ProblemsError(
            Problem(what, run.place.where, remedy, reason=Reason.RESTORE_IMPOSSIBLE), "nothing was released"
        )
    followed = is_released(journal)
    before = (journal.parts or held.EVERYTHING) if followed else {}
    if held.EVERY_CLUSTER in before or not (names or namespaces):
        return held.EVERYTHING
    known = clusters(run)
    asked = held.asked_for(names, namespaces, known)
    if problems := held.unknown(asked, before, known, _works(run.control_plane, asked) if namespaces else ()):
        raise ProblemsError(problems, "nothing was released")
    return held.together(before, asked, known)


def settle(run: Run, parts: Parts, timeout: float, kept: Collection[str] = (), let_go: Collection[str] = ()) -> Settled:
    """Have the control plane hold what these parts leave, and nothing else. Raises ProblemsError; see the module."""
    done, deadline = Settled(), time.monotonic() + timeout
    there = _spaces(run.control_plane)
    known = clusters(run)
    holding = [name for name in known if held.holds(parts, name)]
    letting = [name for name in known if name not in holding and name in there and held.label_of(there[name])]
    if holding:
        _decide(run, parts, holding, kept, let_go, done)
        done.changes += _changed(
            run.apply_to_control_plane("policy for what is held", lambda: held.policies(run.state.owner))
        )
        with run.writing("hold what is not released"):
            for name in holding:
                _label(run.control_plane, name, there.get(name), held.HELD, parts.get(name, ()), done)
            _wait_until_in_force(run, holding, deadline)
            _suspend(run.control_plane, parts, holding, deadline, done)
            _resume(run.control_plane, parts, holding, deadline, done)
            if done.resumed:
                done.changes += begin_anew(run)
    if letting:
        with run.writing("let go what is released"):
            for name in letting:
                _label(run.control_plane, name, there[name], held.RESUMING, (), done)
            _resume(run.control_plane, parts, letting, deadline, done)
            done.changes += begin_anew(run)
            # Last, because by it a run that goes on knows where to look.
            for name in letting:
                _label(run.control_plane, name, _spaces(run.control_plane).get(name), "", (), done)
    if not holding:
        refs = [Ref.of(each) for each in reversed(held.policies(run.state.owner))]
        if run.ours_in_control_plane(refs):
            done.changes += run.remove_from_control_plane("policy for what is held", refs)
    return done


def wrong(run: Run, parts: Parts) -> list[str]:
    """Reasons why not all is held that these parts leave; none if it is, by each API server. Reads only."""
    there, found = _spaces(run.control_plane), list[str]()
    holding = [name for name in clusters(run) if held.holds(parts, name)]
    for name in holding:
        space = there.get(name)
        if space is None or held.to_label(space, held.HELD, parts.get(name, ())):
            found.append(f"the namespace of {name} has not the label and the annotation by which it is held")
    found += [f"Work {held.name_of(each)} is not suspended" for each in _to_suspend(run.control_plane, parts, holding)]
    if not found:
        found += [f"{server} does not refuse Works of {name}" for server, name in _admitting(run, holding)]
    return found


def begin_anew(run: Run) -> list[Change]:
    """Have karmada-controller-manager begin anew: what was refused to it, it tries again after ever longer waits.

    That of plain hosts does so by and by.
    """
    changes = []
    for pod in run.place.pods() if run.place.in_pods else ():
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


def _wait_until_in_force(run: Run, holding: Sequence[str], deadline: float) -> None:
    """Return when every API server refuses Works of these clusters. Raises ProblemsError at the deadline."""
    while True:
        try:
            admitting = _admitting(run, holding)
            what = "; ".join(f"{server} does not refuse Works of {name}" for server, name in admitting[:3])
        except Forbidden:
            raise
        except ApiError as error:
            # It may be on its way up or down.
            what = f"an API server cannot be asked whether it refuses Works of members that are held: {error}"
        if not what:
            return
        if time.monotonic() > deadline:
            remedy = "look at the status of that policy, and whether admission plugins were switched off"
            where = f"ValidatingAdmissionPolicy {held.POLICY} in the control plane"
            raise ProblemsError(Problem(what, where, remedy, reason=Reason.NOT_READY_IN_TIME), _NOTHING_STARTED)
        time.sleep(_LOOK_SECONDS)


def _admitting(run: Run, holding: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of an API server and a held cluster whose Works it would take although they are not suspended."""
    with _api_servers(run) as servers, ThreadPoolExecutor(AT_ONCE) as pool:
        pairs = [(server, name) for server in servers for name in holding]
        refused = list(pool.map(lambda pair: _refuses(*pair), pairs))
    return [(server.name, name) for (server, name), done in zip(pairs, refused, strict=True) if not done]


def _refuses(server: Cluster, name: str) -> bool:
    try:
        server.create(held.probe(f"{_PREFIX}{name}"), dry_run=True)
    except Forbidden as error:
        if held.POLICY in error.message or "being terminated" in error.message:
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
    selector = run.instance.pod_selector(KARMADA_APISERVER.name)
    names = [each["metadata"]["name"] for each in run.host_cluster.list("v1", "Pod", run.namespace, labels=selector)]
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
            _patch(control_plane, work, held.to_resume(work) or {})
        except Forbidden as error:
            # An API server learns of a namespace a moment later.
            if held.POLICY not in error.message:
                raise
            return False
        return True

    def left() -> list[Object]:
        found = _works(control_plane, names)
        return [each for each in found if held.to_resume(each) is not None and not held.holds_work(parts, each)]

    for attempt in itertools.count():
        works = left()
        if not works:
            return
        if attempt:
            _require_time(deadline, f"{len(works)} Works do not take it that they are let go", works)
            time.sleep(_LOOK_SECONDS)
        done.resumed += sum(_on_each(works, resume))


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
