# SPDX-License-Identifier: Apache-2.0
"""Removal of an instance: objects with our label and a recorded UID, in an order that disturbs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..api_object import Object
from ..components.endpoint import PASSAGES
from ..components.table import BY_NAME, ETCD, KARMADA_APISERVER, KARMADA_CA
from ..components.types import etcd_on_hosts
from ..encoding import base64_text
from ..etcd import external as external_etcd
from ..kube.apply import Change, delete_all, target
from ..kube.cluster import Cluster
from ..kube.errors import Forbidden
from ..kube.limits import AT_ONCE
from ..kube.objects import Ref, claimed_by, owned_by
from ..labels import FIELD_MANAGER, INSTANCE_LABEL, NAME_LABEL, OWNER_LABEL
from ..problems import Problem, Reason
from ..run.run import HOST_CLUSTER, Run

#: Objects that Kubernetes and OpenShift create in every namespace.
_ALWAYS_THERE = {
    ("ConfigMap", "kube-root-ca.crt"),
    ("ConfigMap", "openshift-service-ca.crt"),
    ("ServiceAccount", "default"),
    ("ServiceAccount", "builder"),
    ("ServiceAccount", "deployer"),
    ("RoleBinding", "system:image-builders"),
    ("RoleBinding", "system:deployers"),
    ("RoleBinding", "system:image-pullers"),
}
#: Kinds that are not created for their own sake: events, and objects derived from others.
_FOLLOWERS = {"Event", "Endpoints", "EndpointSlice", "PodMetrics", "PackageManifest"}
#: Default time for a deletion.
DELETE_SECONDS = 120.0
_DEPLOYMENT = ("apps/v1", "Deployment")
_STATEFUL_SET = ("apps/v1", "StatefulSet")
#: Kinds that a running component may no longer need; its Secrets belong to the certificates.
_PRUNED = (("policy/v1", "PodDisruptionBudget"), ("networking.k8s.io/v1", "NetworkPolicy"), ("v1", "ConfigMap"))
#: Kinds of the instance in its namespace, apart from workloads, claims and state.
_REST = (*_PRUNED, ("v1", "Service"), ("v1", "Secret"))


def stop_components(run: Run, timeout: float = DELETE_SECONDS) -> list[Change]:
    """Delete everything that acts, so that members stay as they are while their credentials are removed.

    The API server stops with the components that act through it, since no object inside has to be deleted. It changes
    no member by itself, so nobody waits here for the seconds in which it still answers: that is for
    ``remove_control_plane``, before etcd goes. Where etcd is on plain hosts it goes earlier, so all is awaited here.
    etcd stays until the members are clean: its data may go with its pods, and an install after a failed run restores
    everything.
    """
    found = _ours(run, _DEPLOYMENT)
    late = [] if etcd_on_hosts(run.spec) else [each for each in found if _component(each) == KARMADA_APISERVER.name]
    changes = delete_ours(run, run.host_cluster, late, timeout, propagation="Foreground", wait=False)
    acting = [each for each in found if each not in late]
    return changes + delete_ours(run, run.host_cluster, acting, timeout, propagation="Foreground")


def unwanted(run: Run, components: Sequence[str], applied: Sequence[Change]) -> list[Object]:
    """Objects of these components that the document does not ask for: a disabled component, a superfluous budget.

    Of a per-member component, every object that was not applied belongs to a member that has left.
    """
    kept = {change.ref for change in applied}
    rows = {name: BY_NAME[name] for name in components}
    # What keeps data is never removed in passing, because they would go with it.
    off = {name for name, row in rows.items() if not row.keeps_data and (row.per_member or not row.is_wanted(run.spec))}

    def prunable(each: Object) -> bool:
        pruned = (each["apiVersion"], each["kind"]) in _PRUNED and _component(each) in components
        return pruned or _component(each) in off

    found = _ours(run, *((_DEPLOYMENT, _STATEFUL_SET, *_REST) if off else _PRUNED))
    return [each for each in found if prunable(each) and Ref.of(each) not in kept]


def remove_control_plane(run: Run, timeout: float = DELETE_SECONDS) -> list[Change]:
    """Remove remaining components, etcd, then everything else, claims by policy, but not the state."""
    changes: list[Change] = []
    if not run.check:
        # An API server without its etcd takes half a minute to give up; with an external one it would go on to write.
        left = _ours(run, _DEPLOYMENT)
        told = {Ref.of(each) for each in left if each["metadata"].get("deletionTimestamp")}
        deleted = delete_ours(run, run.host_cluster, left, timeout, propagation="Foreground")
        changes = [each for each in deleted if each.ref not in told]
    changes += delete_ours(run, run.host_cluster, _ours(run, _STATEFUL_SET), timeout, propagation="Foreground")
    changes += external_etcd.release(run)
    state = Ref("v1", "Secret", f"{run.name}-installer-state", run.namespace)
    passages = (PASSAGES[each][:2] for each in run.state.passages)
    rest = [each for each in _ours(run, *_REST, *passages) if Ref.of(each) != state]
    changes += delete_ours(run, run.host_cluster, rest, timeout)
    if run.spec.deletion_policy == "Delete":
        changes += delete_ours(run, run.host_cluster, _claims(run), timeout)
        changes += _remove_host_volumes(run, timeout)
    return changes


def _claims(run: Run) -> list[Object]:
    """Claims of etcd: not recorded, as the StatefulSet's controller creates them, but labelled as ours."""
    found = run.host_cluster.list(
        "v1", "PersistentVolumeClaim", run.namespace, labels=f"{OWNER_LABEL}={run.state.owner}"
    )
    stem = f"-{run.instance.object_name(ETCD.name)}-"
    return [each for each in found if stem in each["metadata"]["name"]]


def _remove_host_volumes(run: Run, timeout: float) -> list[Change]:
    """Delete our volumes in directories of nodes. The directories stay: we never delete files of a node."""
    if run.state.etcd.storage != "hostPath":
        return []
    found = run.host_cluster.list("v1", "PersistentVolume", labels=f"{OWNER_LABEL}={run.state.owner}")
    # One that has moved to another namespace has the same owner there.
    here = [each for each in found if (each["spec"].get("claimRef") or {}).get("namespace", "") in ("", run.namespace)]
    ours = [each for each in here if owned_by(each, run.state.owner, run.state.uids(HOST_CLUSTER))]
    places = sorted({each["spec"]["local"]["path"] for each in ours if "local" in each["spec"]})
    if places:
        nodes = ", ".join(filter(None, run.state.etcd.nodes))
        run.tell(
            Problem.hint(
                f"these directories stay, with etcd's data: {', '.join(places)} on {nodes}",
                Reason.LEFT_BEHIND,
            )
        )
    return delete_ours(run, run.host_cluster, ours, timeout)


def remove_state(
    run: Run, timeout: float = DELETE_SECONDS, meanwhile: Callable[[], None] = lambda: None
) -> list[Change]:
    """Remove the state, the lock, and the namespace if we created it, as the last step. All stay if the data stays.

    ``meanwhile`` runs after the deletion of the namespace was requested. If the namespace stays and ``meanwhile``
    raises, state and lock stay, too.
    """
    if run.spec.deletion_policy == "Retain":
        meanwhile()
        return []
    changes: list[Change] = []
    namespace = run.host_cluster.get("v1", "Namespace", run.namespace)
    if namespace and (
        owned_by(namespace, run.state.owner, run.state.uids(HOST_CLUSTER)) or _left_to_us(run, namespace)
    ):
        going = _bookkeeping(run) | {Ref.of(each) for each in _claims(run)}
        changes += delete_namespace(run, run.host_cluster, namespace, run.state.uids(HOST_CLUSTER), going, timeout)
    meanwhile()
    if namespace and any(change.action == "deleted" for change in changes):
        delete_ours(run, run.host_cluster, [namespace], timeout)
    else:
        run.store.retire_lock()
        present = [(ref, None) for ref in _bookkeeping(run) if run.host_cluster.get(*ref)]
        # These names are ours alone; the Lease has no recorded UID because it is older than the record.
        changes += delete_all(run.host_cluster, present, check=run.check, timeout=timeout)
    return changes


def namespace_is_going(run: Run) -> bool:
    """Return whether the instance's namespace is being deleted, by an earlier run or by somebody else."""
    namespace = run.host_cluster.get("v1", "Namespace", run.namespace)
    return bool(namespace and namespace["metadata"].get("deletionTimestamp"))


def _left_to_us(run: Run, namespace: Object) -> bool:
    """Return whether another instance of ours created this namespace; it would stay for ever if the last one left it.

    Its creator is gone if none of its objects are left: see ``delete_namespace``.
    """
    manager, owner = claimed_by(namespace)
    if run.stored_state is None or manager != FIELD_MANAGER or not owner or not owned_by(namespace, owner, ()):
        return False
    if run.host_cluster.can_i([("delete", "", "namespaces", run.namespace, "", run.namespace)]):
        run.tell(
            Problem.hint(
                f"namespace {run.namespace} in {run.host_cluster.name} stays, because the account may not delete it",
                Reason.LEFT_BEHIND,
            )
        )
        return False
    return True


def remove_local_files(run: Run) -> bool:
    """Remove this control plane's kubeconfig of the administrator from this machine, and the report."""
    for report in filter(None, (run.connection.report_output, run.connection.page_output)):
        if not run.check:
            Path(report).unlink(missing_ok=True)
    if not run.connection.kubeconfig_output:
        return False
    path = Path(run.connection.kubeconfig_output)
    authority = run.state.authorities[KARMADA_CA].certificate
    if not path.is_file() or not _holds(path, authority):
        return False
    if not run.check:
        path.unlink()
    return True


def _holds(path: Path, authority: bytes) -> bool:
    return base64_text(authority) in path.read_text(errors="replace")


def _bookkeeping(run: Run) -> set[Ref]:
    return {
        Ref("v1", "Secret", f"{run.name}-installer-state", run.namespace),
        Ref("coordination.k8s.io/v1", "Lease", f"{run.name}-installer", run.namespace),
    }


def _ours(run: Run, *kinds: tuple[str, str]) -> list[Object]:
    """Objects of these kinds in the instance's namespace that are ours by label and by record."""
    host, owner, uids = run.host_cluster, run.state.owner, run.state.uids(HOST_CLUSTER)
    selector = f"{INSTANCE_LABEL}={run.name},{OWNER_LABEL}={owner}"
    with ThreadPoolExecutor(AT_ONCE) as pool:
        lists = list(pool.map(lambda kind: host.list(kind[0], kind[1], run.namespace, labels=selector), kinds))
    return [each for found in lists for each in found if owned_by(each, owner, uids)]


def delete_ours(
    run: Run,
    cluster: Cluster,
    objects: Iterable[Object],
    timeout: float,
    propagation: str = "Background",
    *,
    wait: bool = True,
) -> list[Change]:
    targets = map(target, objects)
    return delete_all(
        cluster, targets, check=run.check, progress=run.say, propagation=propagation, wait=wait, timeout=timeout
    )


def delete_namespace(
    run: Run, cluster: Cluster, namespace: Object, uids: Collection[str], going: set[Ref], timeout: float
) -> list[Change]:
    """Delete a namespace that we created, unless it holds objects of others or that cannot be determined.

    Waits for it only if something in it is held: an empty terminating namespace disappears, and admits nothing new.
    """
    name = namespace["metadata"]["name"]
    found, unknown = _inhabitants(cluster, name)
    others = [
        Ref.of(each)
        for each in found
        if _is_here_to_stay(each) and Ref.of(each) not in going and not owned_by(each, run.state.owner, uids)
    ]
    if others:
        shown = ", ".join([*(str(ref) for ref in others[:5]), *([f"{len(others) - 5} more"] if others[5:] else [])])
        run.tell(
            Problem.hint(
                f"namespace {name} in {cluster.name} stays, because it holds what is not ours: {shown}",
                Reason.LEFT_BEHIND,
            )
        )
        return []
    if unknown:
        run.tell(
            Problem.hint(
                f"namespace {name} in {cluster.name} stays, because it cannot be known whether it is empty: "
                f"may not list {', '.join(unknown)}. If it is: kubectl delete namespace {name}",
                Reason.LEFT_BEHIND,
            )
        )
        return []
    if cluster is run.host_cluster:
        run.store.retire_lock()
    held = any(each["metadata"].get("finalizers") for each in (namespace, *found))
    return delete_ours(run, cluster, [namespace], timeout, wait=held)


def _is_here_to_stay(each: Object) -> bool:
    """Return whether somebody created this object and it stays: not derived, and not being deleted."""
    metadata = each["metadata"]
    return not (
        (each["kind"], metadata["name"]) in _ALWAYS_THERE
        or metadata.get("ownerReferences")
        or metadata.get("deletionTimestamp")
    )


def _inhabitants(cluster: Cluster, namespace: str) -> tuple[list[Object], list[str]]:
    """Objects in a namespace, except of derived kinds, and the kinds that we may not list."""
    kinds = [(version, kind) for version, kind in cluster.listable_kinds() if kind not in _FOLLOWERS]

    def listed(one: tuple[str, str]) -> list[Object] | None:
        try:
            return list(cluster.list(*one, namespace))
        except Forbidden:
            return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = dict(zip(kinds, pool.map(listed, kinds), strict=True))
    found = {each["metadata"]["uid"]: each for answer in answers.values() for each in answer or []}
    return list(found.values()), sorted({kind for (_version, kind), answer in answers.items() if answer is None})


def _component(each: Mapping[str, Any]) -> str:
    labels: Mapping[str, str] = each["metadata"].get("labels") or {}
    return labels.get(NAME_LABEL, "")
