# SPDX-License-Identifier: Apache-2.0
"""Members that a restore still holds after a part of it was released, and what keeps all from them. No I/O.

Karmada writes to a member what the Works in its execution namespace say, and leaves alone those that are suspended. A
Work whose template changes is written anew by controllers, which know nothing of a restore, so suspending it is not
enough: in namespaces with a label of ours the API server refuses Works that are not suspended, and their deletion. It
refuses that to everybody: to controllers, to agents and to administrators.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..api_object import Object
from ..components.state import MOST_CLUSTERS, MOST_NAMESPACES
from ..document.restores import Part
from ..members import works as member_works
from ..problems import Problem, Reason

#: cluster → namespaces that are released on it; none: all of it
Parts = Mapping[str, tuple[str, ...]]
#: In place of a cluster: all of them, also those that nobody has seen.
EVERY_CLUSTER = "*"
EVERYTHING: Parts = {EVERY_CLUSTER: ()}

#: On an execution namespace: Works there are held; or are not any more, and may still be suspended.
LABEL, HELD, RESUMING = "installer.karmada.io/since-restore", "held", "resuming"
#: On one that is held: namespaces of the member, with commas, whose objects are released.
NAMESPACES = "installer.karmada.io/released-namespaces"
#: On a Work that we have suspended: its ``spec.suspendDispatching`` as it was.
FORMER, ABSENT = "installer.karmada.io/suspended-before", "absent"
#: On a Work that was being deleted, and whose object is to go for all that.
LET_GO = "installer.karmada.io/let-go"
#: On a Work that Karmada has made: its binding, which has a namespace or is one of the whole control plane.
_BINDING, _BINDING_NAMESPACE = "resourcebinding.karmada.io/name", "resourcebinding.karmada.io/namespace"
_CLUSTER_BINDING = "clusterresourcebinding.karmada.io/name"
#: Namespace, empty text for none, and name of a binding, with a cluster to which it dispatches nothing, or all.
Suspensions = Collection[tuple[str, str, str]]
POLICY = "held-since-restore.installer.karmada.io"
_SUSPENDED = "suspendDispatching"
#: Where a user has named what is released.
_CLUSTERS_NAMED = "restore_release_clusters, or spec.release of an object"
_NAMESPACES_NAMED = "restore_release_namespaces, or spec.release of an object"
_WRITES = ("CREATE", "UPDATE", "DELETE")


def asked_for(parts: Iterable[Part], known: Collection[str]) -> Parts:
    """Parts that a user has asked for, of the clusters that there are; everything if he has named none."""
    found: Parts = {}
    for each in parts:
        # A name that there is not stays in it, to be told.
        found = _both(found, dict.fromkeys(each.clusters or known, each.namespaces))
    return found or EVERYTHING


def together(before: Parts, more: Parts, known: Iterable[str]) -> Parts:
    """Both parts; everything, if that leaves nothing of the clusters that there are."""
    if EVERY_CLUSTER in before or EVERY_CLUSTER in more:
        return EVERYTHING
    found = _both(before, more)
    return EVERYTHING if all(found.get(name) == () for name in known) else found


def _both(before: Parts, more: Parts) -> Parts:
    return {
        name: tuple(sorted({*before.get(name, ()), *more.get(name, ())}))
        if before.get(name) != () and more.get(name) != ()
        else ()
        for name in sorted({*before, *more})
    }


def holds(parts: Parts, cluster: str) -> bool:
    """Return whether something of this cluster is held."""
    return EVERY_CLUSTER not in parts and parts.get(cluster) != ()


def holds_work(parts: Parts, work: Mapping[str, Any]) -> bool:
    """Return whether this Work is held; as the policy has it."""
    cluster = cluster_of(work)
    if not holds(parts, cluster):
        return False
    places = namespaces_of(work)
    # What is in no namespace is released with all of its cluster only, whatever the names are.
    return not places or not places <= set(parts.get(cluster, ())) - {""}


def cluster_of(work: Mapping[str, Any]) -> str:
    """Cluster whose Work this is."""
    return str(work["metadata"].get("namespace", "")).removeprefix(member_works.execution_namespace(""))


def namespaces_of(work: Mapping[str, Any]) -> set[str]:
    """Namespaces of a Work's objects. A Namespace is in itself; empty text stands for what is in none."""
    manifests = ((work.get("spec") or {}).get("workload") or {}).get("manifests") or []
    return {_namespace(each) for each in manifests}


def _namespace(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata") or {}
    own = metadata.get("name", "") if manifest.get("kind") == "Namespace" else ""
    return str(metadata.get("namespace") or own)


def policies(owner: str) -> list[Object]:
    """Policy and binding that hold Works in namespaces with our label.

    A Work that is going may be finished: what becomes of its object was decided before.
    """
    released = (
        f"(has(namespaceObject.metadata.annotations) && '{NAMESPACES}' in namespaceObject.metadata.annotations"
        f" ? namespaceObject.metadata.annotations['{NAMESPACES}'].split(',') : [])"
    )
    # What is in no namespace is in no list: no namespace has that name.
    of_manifest = (
        "(has(each.metadata.namespace) ? each.metadata.namespace : each.kind == 'Namespace' ? each.metadata.name : '*')"
    )
    variables = {
        "work": "request.operation == 'DELETE' ? oldObject : object",
        "released": released,
        "isReleased": (
            "has(variables.work.spec.workload) && has(variables.work.spec.workload.manifests)"
            " && size(variables.work.spec.workload.manifests) > 0"
            f" && variables.work.spec.workload.manifests.all(each, {of_manifest} in variables.released)"
        ),
    }
    admitted = (
        "has(variables.work.metadata.deletionTimestamp) || variables.isReleased"
        f" || (request.operation != 'DELETE' && has(object.spec.{_SUSPENDED}) && object.spec.{_SUSPENDED})"
    )
    message = "this member is held since a restore: karmada.installer.release lets it follow"
    policy, binding = member_works.policy(owner, POLICY, {LABEL: HELD}, list(_WRITES), admitted, message)
    policy["spec"]["variables"] = [{"name": name, "expression": text} for name, text in variables.items()]
    return [policy, binding]


def probe(namespace: str) -> Object:
    """Work that the policy refuses in a held namespace; its dry run shows whether it is in force."""
    found = member_works.probe(namespace, member_works.POLICY)
    # Of a member that was leaving when the backup was taken, no other policy is to refuse it.
    found["spec"]["preserveResourcesOnDeletion"] = True
    return found


def is_refusal(message: str) -> bool:
    """Return whether an API server that answers a probe with 403 and these words takes no Works there."""
    return POLICY in message or "being terminated" in message


def is_suspended(work: Mapping[str, Any]) -> bool:
    """Return whether Karmada leaves this Work alone."""
    return (work.get("spec") or {}).get(_SUSPENDED) is True


def is_suspended_by_others(work: Mapping[str, Any]) -> bool:
    """Return whether Karmada leaves this Work alone also when we do not hold it any more."""
    return is_suspended(work) and _annotations(work).get(FORMER, "true") == "true"


def to_suspend(work: Mapping[str, Any]) -> Object:
    """Patch that suspends a Work and notes what it was before, in one."""
    before = (work.get("spec") or {}).get(_SUSPENDED)
    former = ABSENT if before is None else str(before).lower()
    return {"metadata": {"annotations": {FORMER: former}}, "spec": {_SUSPENDED: True}}


def suspensions(bindings: Iterable[Mapping[str, Any]]) -> Suspensions:
    """Suspensions that policies have brought into these bindings, as karmada-controller-manager reads them."""
    found = set()
    for each in bindings:
        said = (each.get("spec") or {}).get("suspension") or {}
        some = (said.get("dispatchingOnClusters") or {}).get("clusterNames") or ()
        metadata = each["metadata"]
        for cluster in (EVERY_CLUSTER,) if said.get("dispatching") else some:
            found.add((str(metadata.get("namespace") or ""), str(metadata["name"]), str(cluster)))
    return found


def to_resume(work: Mapping[str, Any], suspended: Suspensions = ()) -> Object | None:
    """Patch that gives a Work back its former value; None if it has it, or we have not suspended it.

    What somebody has decided since is left as it is: another value, or that its policy suspends it.
    """
    former = _annotations(work).get(FORMER)
    if former is None:
        return None
    patch: Object = {"metadata": {"annotations": {FORMER: None}}}
    if is_suspended(work) and not _is_suspended_by_policy(work, suspended):
        patch["spec"] = {_SUSPENDED: {ABSENT: None, "false": False}.get(former, True)}
    return patch


def _is_suspended_by_policy(work: Mapping[str, Any], suspended: Suspensions) -> bool:
    notes = _annotations(work)
    binding = notes.get(_BINDING_NAMESPACE, ""), notes.get(_BINDING) or notes.get(_CLUSTER_BINDING, "")
    return any((*binding, cluster) in suspended for cluster in (EVERY_CLUSTER, cluster_of(work)))


def label_of(namespace: Mapping[str, Any]) -> str:
    """Value of our label on an execution namespace; empty if it has none."""
    return str((namespace["metadata"].get("labels") or {}).get(LABEL, ""))


def to_label(namespace: Mapping[str, Any], value: str, released: Iterable[str] = ()) -> Object | None:
    """Patch by which a namespace has this label (none, if it is empty) and these namespaces; None if it has both."""
    names = ",".join(sorted(released)) or None
    if label_of(namespace) == value and _annotations(namespace).get(NAMESPACES) == names:
        return None
    return {"metadata": {"labels": {LABEL: value or None}, "annotations": {NAMESPACES: names}}}


def is_decided(work: Mapping[str, Any]) -> bool:
    """Return whether the object of a Work that is going is to go, by a word of the user."""
    return LET_GO in _annotations(work)


def name_of(work: Mapping[str, Any]) -> str:
    """Name by which a user decides on a Work."""
    return f"{cluster_of(work)}/{work['metadata']['name']}"


def undecided(going: Iterable[Mapping[str, Any]], kept: Collection[str], let_go: Collection[str]) -> list[Problem]:
    """Problems of Works that are going and of which nobody has said what becomes of their objects."""
    found = []
    for work in going:
        name = name_of(work)
        if is_decided(work) or (name in kept) != (name in let_go):
            continue
        objects = ", ".join(map(str, member_works.references(work))) or "nothing"
        what = (
            f"its Work {work['metadata']['name']} was being deleted, and goes on to be, although it is held ({objects})"
        )
        if name in kept:
            what = f"its Work {work['metadata']['name']} is to be kept, and to be let go ({objects})"
        remedy = (
            f"""say whether its object stays there (-e '{{"restore_keep": ["{name}"]}}') """
            f"""or goes (-e '{{"restore_let_go": ["{name}"]}}'); of an object, in spec.keep or spec.letGo"""
        )
        found.append(Problem(what, f"member {cluster_of(work)}", remedy, reason=Reason.CONFIRMATION_REQUIRED))
    return found


def unknown(asked: Parts, before: Parts, known: Collection[str], works: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """Problems of names that a user has asked for, and that there are not; a typo would release nothing.

    What was released ``before`` may be named still, whatever became of it.
    """
    remedy = f"name some of {', '.join(sorted(known)) or 'none: no cluster is registered'}"
    found = [
        Problem(f"{name} is not registered", _CLUSTERS_NAMED, remedy, reason=Reason.INVALID_ARGUMENT)
        for name in sorted(set(asked) - set(known) - set(before) - {EVERY_CLUSTER})
    ]
    new = {
        space
        for name, spaces in asked.items()
        for space in spaces
        if before.get(name) != () and space not in before.get(name, ())
    }
    there = {space for work in works if cluster_of(work) in asked for space in namespaces_of(work)}
    for name in sorted(new - there) if new else ():
        what, remedy = (
            f"nothing is propagated to a namespace {name} of these clusters",
            "see what the Works there are for",
        )
        found.append(Problem(what, _NAMESPACES_NAMED, remedy, reason=Reason.INVALID_ARGUMENT))
    return found


def too_many(parts: Parts) -> list[Problem]:
    """Problems of parts that are more than can be on record, by which each run knows what is held."""
    found, remedy = list[Problem](), "release whole clusters, or all of it, which needs no list"
    if len(parts) > MOST_CLUSTERS:
        what = f"{len(parts)} clusters are to be noted, of which at most {MOST_CLUSTERS} can be"
        found.append(Problem(what, _CLUSTERS_NAMED, remedy, reason=Reason.INVALID_ARGUMENT))
    if (most := max(map(len, parts.values()), default=0)) > MOST_NAMESPACES:
        what = f"{most} namespaces of one cluster are to be noted, of which at most {MOST_NAMESPACES} can be"
        found.append(Problem(what, _NAMESPACES_NAMED, remedy, reason=Reason.INVALID_ARGUMENT))
    return found


def in_words(parts: Parts) -> str:
    """Parts for people."""
    if EVERY_CLUSTER in parts:
        return "everything"
    return ", ".join(
        f"{name} ({', '.join(f'namespace {each}' for each in spaces)})" if spaces else name
        for name, spaces in parts.items()
    )


def _annotations(live: Mapping[str, Any]) -> Mapping[str, str]:
    return live["metadata"].get("annotations") or {}
