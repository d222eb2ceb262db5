# SPDX-License-Identifier: Apache-2.0
"""Taking an instance away: what has our label and a UID on record, in an order that disturbs nothing else."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils import external_etcd, members
from ansible_collections.karmada.installer.plugins.plugin_utils.api_errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.apply import WORKERS, Change, delete_all
from ansible_collections.karmada.installer.plugins.plugin_utils.components import (
    BY_NAME,
    ETCD,
    KARMADA_APISERVER,
    KARMADA_CA,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane_objects import MEMBER_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.endpoint import PASSAGES
from ansible_collections.karmada.installer.plugins.plugin_utils.instance import (
    FIELD_MANAGER,
    INSTANCE_LABEL,
    NAME_LABEL,
    OWNER_LABEL,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.member_join import Entry, connected
from ansible_collections.karmada.installer.plugins.plugin_utils.objects import Ref, claimed_by, owned_by
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.run import HOST, Object, Run

_RBAC = "rbac.authorization.k8s.io/v1"
#: What may be in a namespace that nobody uses: what Kubernetes and OpenShift put into each.
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
#: Kinds that nobody writes for their own sake: news, and what follows from other objects.
_FOLLOWERS = {"Event", "Endpoints", "EndpointSlice", "PodMetrics", "PackageManifest"}
#: How long a deletion may take, unless the user says otherwise.
DELETE_SECONDS = 120.0
#: What the instance consists of in its namespace, apart from its claims and its state.
_KINDS = (
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
)
#: What outlives the other components: members are cleaned through it.
_LAST = (ETCD.name, KARMADA_APISERVER.name)
#: Kinds that a component may stop needing while it runs; its Secrets are the business of the certificates.
_PRUNED = (("policy/v1", "PodDisruptionBudget"), ("networking.k8s.io/v1", "NetworkPolicy"), ("v1", "ConfigMap"))
_WORKLOADS = ("Deployment", "StatefulSet")


def member_entries(run: Run) -> list[Entry]:
    """The members that were joined, as they were reached then; the document may no longer list them."""
    listed = {entry["name"]: entry for entry in run.spec["members"]}
    return [listed.get(name) or {"name": name, **record} for name, record in sorted(run.state.members.items())]


def unreachable_members(run: Run, abandoned: Sequence[str]) -> list[Problem]:
    """Members that would keep what is ours because they do not answer, apart from those given up by name."""
    problems = []
    for entry in member_entries(run):
        if entry["name"] in abandoned:
            continue
        try:
            with connected(run, entry) as member:
                member.version(retry_seconds=5)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is why this member cannot be cleaned
            left = ", ".join(sorted(run.state.owned.get(f"member/{entry['name']}", {})))
            problems.append(
                Problem(
                    what=f"it does not answer, so these would be left on it: {left}. ({error})",
                    where=f"member {entry['name']}",
                    remedy="make it reachable, or give it up: "
                    f'-e \'{{"uninstall_abandon_members": ["{entry["name"]}"]}}\'',
                )
            )
    return problems


def stop_components(run: Run, timeout: float = DELETE_SECONDS, keep: Sequence[str] = _LAST) -> list[Change]:
    """Take away everything that acts, so that members are left as they are while their credentials go."""
    deployments = [each for each in _ours(run, "apps/v1", "Deployment") if _component(each) not in keep]
    return _delete(run, run.host, deployments, timeout, propagation="Foreground")


def clean_member(run: Run, entry: Entry, timeout: float = DELETE_SECONDS) -> list[Change]:
    """Remove from a member what joining it created, and what Karmada itself put there to act for users.

    The namespace is only asked to go: a cluster does nothing about that for 5 s, in which there is other work to do.
    ``wait_for_member`` sees the end of it.
    """
    name = entry["name"]
    with connected(run, entry) as member:
        live = [
            found
            for each in members.objects_on_member(name, run.state.owner, run.instance.full_name)
            if (found := member.get(each["apiVersion"], each["kind"], *_name_and_namespace(each)))
        ]
        ours = [each for each in live if owned_by(each, run.state.owner, run.state.uids(f"member/{name}"))]
        impersonation = [
            found
            for kind in ("ClusterRoleBinding", "ClusterRole")
            if (found := member.get(_RBAC, kind, members.IMPERSONATOR)) and members.made_by_karmada_for(name, found)
        ]
        changes = _delete(run, member, [*ours, *impersonation], timeout)
        namespace = member.get("v1", "Namespace", MEMBER_NAMESPACE)
        if namespace and owned_by(namespace, run.state.owner, run.state.uids(f"member/{name}")):
            uids = run.state.uids(f"member/{name}")
            going = {Ref.of(each) for each in ours}
            changes += _delete_namespace(run, member, namespace, uids, going, timeout, wait=False)
    return changes


def wait_for_member(run: Run, entry: Entry, timeout: float = DELETE_SECONDS) -> None:
    """Return when the namespace that ``clean_member`` asked to go is gone. Raises ApplyFailed when it stays."""
    with connected(run, entry) as member:
        namespace = member.get("v1", "Namespace", MEMBER_NAMESPACE)
        if namespace and namespace["metadata"].get("deletionTimestamp"):
            _delete(run, member, [namespace], timeout)


def unwanted(run: Run, components: Sequence[str], applied: Sequence[Change]) -> list[Object]:
    """Objects of these components that the document does not call for: a component switched off, a budget too many."""
    kept = {change.ref for change in applied}
    # etcd is never taken away in passing: with it would go the data.
    off = {name for name in components if name != ETCD.name and not BY_NAME[name].is_wanted(run.spec)}
    found = []
    for version, kind in _KINDS if off else _PRUNED:
        for each in _ours(run, version, kind):
            prunable = _component(each) in off or ((version, kind) in _PRUNED and _component(each) in components)
            if prunable and Ref.of(each) not in kept:
                found.append(each)
    return found


def remove_control_plane(run: Run, timeout: float = DELETE_SECONDS) -> list[Change]:
    """API server, etcd, each gone before what it needs; then everything else, claims by policy, but not the state."""
    changes: list[Change] = []
    # An API server without its etcd takes half a minute to give up.
    for kind in _WORKLOADS:
        found = _ours(run, "apps/v1", kind)
        if run.check:
            # The others are told of where they are stopped, and are there still because this is a check.
            found = [each for each in found if _component(each) in _LAST]
        changes += _delete(run, run.host, found, timeout, propagation="Foreground")
    changes += external_etcd.release(run)
    state = Ref("v1", "Secret", f"{run.name}-installer-state", run.namespace)
    kinds = [
        *(each for each in _KINDS if each[1] not in _WORKLOADS),
        *(PASSAGES[each][:2] for each in run.state.passages),
    ]
    rest = [each for version, kind in kinds for each in _ours(run, version, kind) if Ref.of(each) != state]
    changes += _delete(run, run.host, rest, timeout)
    if run.spec["deletion"]["policy"] == "Delete":
        changes += _delete(run, run.host, _claims(run), timeout)
        changes += _remove_host_volumes(run, timeout)
    return changes


def _claims(run: Run) -> list[Object]:
    """Etcd's claims: made by the StatefulSet's controller and so not on record, but with our label under its names."""
    found = run.host.list("v1", "PersistentVolumeClaim", run.namespace, labels=f"{OWNER_LABEL}={run.state.owner}")
    stem = f"-{run.instance.object_name(ETCD.name)}-"
    return [each for each in found if stem in each["metadata"]["name"]]


def _remove_host_volumes(run: Run, timeout: float) -> list[Change]:
    """Our volumes in directories of nodes. The directories stay: nothing of ours may delete files of a node."""
    if run.state.etcd.storage != "hostPath":
        return []
    found = run.host.list("v1", "PersistentVolume", labels=f"{OWNER_LABEL}={run.state.owner}")
    ours = [each for each in found if owned_by(each, run.state.owner, run.state.uids(HOST))]
    places = sorted({each["spec"]["local"]["path"] for each in ours if "local" in each["spec"]})
    if places:
        run.say(f"these directories stay, with etcd's data: {', '.join(places)} on {', '.join(run.state.etcd.nodes)}")
    return _delete(run, run.host, ours, timeout)


def remove_state(run: Run, timeout: float = DELETE_SECONDS) -> list[Change]:
    """The last step: the state, the lock, and the namespace if we made it. They stay where the data stays."""
    if run.spec["deletion"]["policy"] == "Retain":
        return []
    changes: list[Change] = []
    run.retire_lock()
    namespace = run.host.get("v1", "Namespace", run.namespace)
    if namespace and (owned_by(namespace, run.state.owner, run.state.uids(HOST)) or _left_to_us(run, namespace)):
        going = _bookkeeping(run) | {Ref.of(each) for each in _claims(run)}
        changes += _delete_namespace(run, run.host, namespace, run.state.uids(HOST), going, timeout)
    if not any(change.action == "deleted" for change in changes):
        present = [
            (ref, None) for ref in _bookkeeping(run) if run.host.get(ref.api_version, ref.kind, ref.name, ref.namespace)
        ]
        # The names are ours alone; the Lease has no UID on record because it is older than the record.
        changes += delete_all(run.host, present, check=run.check, timeout=timeout)
    return changes


def _left_to_us(run: Run, namespace: Object) -> bool:
    """Whether another instance of ours made this namespace, which would stay for ever if the last one left it.

    That the maker is gone shows in there being nothing of it any more: see ``_delete_namespace``.
    """
    manager, owner = claimed_by(namespace)
    if run.stored_state is None or manager != FIELD_MANAGER or not owner or not owned_by(namespace, owner, ()):
        return False
    if run.host.can_i([("delete", "", "namespaces", run.namespace, "", run.namespace)]):
        run.say(f"namespace {run.namespace} in {run.host.name} stays, because the account may not delete it")
        return False
    return True


def remove_local_files(run: Run) -> bool:
    """Remove the administrator's kubeconfig from this machine if it is that of this control plane, and the report."""
    if run.connection.report_output and not run.check:
        Path(run.connection.report_output).unlink(missing_ok=True)
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
    return base64.b64encode(authority).decode() in path.read_text(errors="replace")


def _bookkeeping(run: Run) -> set[Ref]:
    return {
        Ref("v1", "Secret", f"{run.name}-installer-state", run.namespace),
        Ref("coordination.k8s.io/v1", "Lease", f"{run.name}-installer", run.namespace),
    }


def _ours(run: Run, api_version: str, kind: str) -> list[Object]:
    """Objects of the instance's namespace that are ours by label and by record."""
    selector = f"{INSTANCE_LABEL}={run.name},{OWNER_LABEL}={run.state.owner}"
    found = run.host.list(api_version, kind, run.namespace, labels=selector)
    return [each for each in found if owned_by(each, run.state.owner, run.state.uids(HOST))]


def _delete(
    run: Run,
    cluster: Cluster,
    objects: Iterable[Object],
    timeout: float,
    propagation: str = "Background",
    *,
    wait: bool = True,
) -> list[Change]:
    targets = [(Ref.of(each), each["metadata"]["uid"]) for each in objects]
    return delete_all(
        cluster, targets, check=run.check, progress=run.say, propagation=propagation, wait=wait, timeout=timeout
    )


def _delete_namespace(
    run: Run,
    cluster: Cluster,
    namespace: Object,
    uids: Collection[str],
    going: set[Ref],
    timeout: float,
    *,
    wait: bool = True,
) -> list[Change]:
    """Delete a namespace that we made, unless somebody else has moved in, or that cannot be known."""
    name = namespace["metadata"]["name"]
    found, unknown = _inhabitants(cluster, name)
    others = [Ref.of(each) for each in found if Ref.of(each) not in going and not owned_by(each, run.state.owner, uids)]
    if others:
        shown = ", ".join([*(str(ref) for ref in others[:5]), *([f"{len(others) - 5} more"] if others[5:] else [])])
        run.say(f"namespace {name} in {cluster.name} stays, because it holds what is not ours: {shown}")
        return []
    if unknown:
        run.say(
            f"namespace {name} in {cluster.name} stays, because it cannot be known whether it is empty: "
            f"may not list {', '.join(unknown)}. If it is: kubectl delete namespace {name}"
        )
        return []
    return _delete(run, cluster, [namespace], timeout, wait=wait)


def _inhabitants(cluster: Cluster, namespace: str) -> tuple[list[Object], list[str]]:
    """What somebody has put into a namespace, whatever its kind, and the kinds that we may not look at.

    What follows from other objects is left out: it has an owner, or is of a kind that nobody writes. So is what is
    going already.
    """
    kinds = [(version, kind) for version, kind in cluster.listable_kinds() if kind not in _FOLLOWERS]

    def listed(one: tuple[str, str]) -> list[Object] | None:
        try:
            return list(cluster.list(*one, namespace))
        except Forbidden:
            return None

    with ThreadPoolExecutor(WORKERS) as pool:
        answers = dict(zip(kinds, pool.map(listed, kinds), strict=True))
    found = {
        each["metadata"]["uid"]: each
        for answer in answers.values()
        for each in answer or []
        if (each["kind"], each["metadata"]["name"]) not in _ALWAYS_THERE
        and not each["metadata"].get("ownerReferences")
        and not each["metadata"].get("deletionTimestamp")
    }
    return list(found.values()), sorted({kind for (_version, kind), answer in answers.items() if answer is None})


def _component(each: Mapping[str, Any]) -> str:
    labels: Mapping[str, str] = each["metadata"].get("labels") or {}
    return labels.get(NAME_LABEL, "")


def _name_and_namespace(each: Object) -> tuple[str, str | None]:
    return each["metadata"]["name"], each["metadata"].get("namespace")
