# SPDX-License-Identifier: Apache-2.0
"""Look at an instance as it is, for the report. Reads only; anything unreadable is reported as not ready."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..api_object import Object, condition, is_true
from ..components import image_pins
from ..components.table import BY_NAME, COMPONENTS, ETCD, KARMADA_APISERVER, pod_components
from ..components.types import etcd_client_urls, of_member
from ..etcd import access, health
from ..etcd import external as external_etcd
from ..etcd import look as etcd_look
from ..etcd.client import EndpointStatus
from ..kube.cluster import Cluster
from ..kube.errors import ApiError
from ..kube.readiness import not_pulled, reason_not_ready
from ..labels import INSTANCE_LABEL, MEMBER_LABEL, NAME_LABEL
from ..members import unapplied
from ..members.registration import CLUSTER_API
from ..members.scheduling import BINDING_API, BINDING_KINDS, CORDON, DRAIN
from ..members.taints import name_of
from ..members.works import WORK_API
from ..pki import certificates, x509
from ..problems import Problem, ProblemsError, Reason, Severity
from ..redaction import printable
from ..render.etcd_pods import host_directory
from ..restore import left_data
from ..run.run import Run
from . import hold
from .report import ComponentStatus, MemberStatus, Observation

#: Bindings of a kind that a report looks at; each may have a few kilobytes.
_MOST_BINDINGS = 200
POLICY_API, POLICIES = "policy.karmada.io/v1alpha1", ("PropagationPolicy", "ClusterPropagationPolicy")
#: More nodes than this has no cluster.
MOST_NODES = 1_000_000
# The first request to the control plane is retried for this long.
ANSWER_SECONDS = 5.0
#: Characters shown of a short text from a member.
_WORD = 100
_TAG = re.compile(r":(v\d+\.\d+\.\d+[\w.-]*)(?:@|$)")
#: Before an installation, and where no step has asked.
NO_ETCD = health.Health(None, "NotAsked", "no member of etcd was asked")


@dataclass(frozen=True)
class Seen:
    """Instance as seen where it runs, in a host cluster or on hosts, and as its API server answers.

    ``api`` is the result of ``control_plane_answers``, ``versions`` each of Karmada's running components → its version.
    ``notes`` are remarks on the place.
    """

    api: Mapping[str, Any]
    components: Sequence[ComponentStatus]
    versions: Mapping[str, str]
    etcd: health.Health
    etcd_desired: int
    etcd_ready: int
    certificates: Mapping[str, str]
    kubeconfig_secret: str = ""
    service: str = ""
    not_pulled: str = ""
    notes: Sequence[Problem] = ()


def observe(run: Run) -> Observation:
    """Observe the instance in the host cluster and its control plane now."""
    return observation(run, look(run))


def look(run: Run) -> Seen:
    """Observe an instance in pods."""
    pods = run.place.pods()
    components = _components(run, pods)
    # On plain hosts below the pods it is asked by a step on each host.
    etcd = etcd_health(run) if components and not ETCD.is_on_hosts(run.spec) else NO_ETCD
    api = control_plane_answers(run) if components else {}
    notes = [*_host_path_notes(run), *left_data.notes_on_volumes(run)]
    # Known only after the control plane was asked. This machine's network may differ from that of the users.
    if api.get("version") and run.endpoint_trouble:
        notes.append(warning(run.endpoint_trouble, Reason.ENDPOINT_MISDIRECTED))
    differing = image_pins.differences(image_pins.running(pods), run.state.digests)
    notes += [warning(each, Reason.PROGRAMS_DIFFER) for each in differing]
    return Seen(
        api=api,
        components=components,
        versions=running_versions(pods),
        etcd=etcd,
        etcd_desired=len(etcd_client_urls(run.spec, run.layout)),
        etcd_ready=sum(each.ready for each in components if each.name == ETCD.name)
        if ETCD in pod_components(run.spec)
        else sum(each.status.healthy for each in etcd.members),
        certificates=certificates.expiries(run.material) if run.stored_state else {},
        kubeconfig_secret=run.kubeconfig_secret,
        service=f"{run.namespace}/{run.instance.object_name(KARMADA_APISERVER.name)}" if components else "",
        not_pulled=not_pulled([{**pod, "kind": "Pod"} for pod in pods]) or "",
        notes=notes,
    )


def observation(run: Run, seen: Seen) -> Observation:
    """Facts of the report, for an instance in pods or on hosts."""
    return Observation(
        now=run.now,
        generation=run.deployment["metadata"].get("generation", 0),
        karmada_version=min(seen.versions.values(), key=version_numbers, default=""),
        kubernetes_version=seen.api.get("version", ""),
        components=seen.components,
        members=seen.api.get("members", ()),
        api_ready=bool(seen.api.get("version")),
        aggregated_ready=seen.api.get("aggregated", False),
        crds_installed=seen.api.get("crds", False) or not run.spec.installs_crd,
        etcd_storage=run.state.etcd.storage,
        backups=run.state.backups,
        only_here=frozenset(each.name for each in run.state.backups.values() if not run.state.may_be_taken_over(each)),
        final_backup=left.backup if (left := run.state.handed_over) and left.is_over else "",
        etcd_desired=seen.etcd_desired,
        etcd_ready=seen.etcd_ready,
        etcd_endpoints=[each.status for each in seen.etcd.members],
        etcd=seen.etcd,
        certificates=seen.certificates,
        kubeconfig_secret=seen.kubeconfig_secret,
        host_cluster_uid=run.place.host_cluster_uid,
        quarantined=hold.of(run.state),
        mode=run.spec.mode,
        address=run.public_url if seen.api else "",
        service=seen.service,
        not_pulled=seen.not_pulled,
        totals=seen.api.get("totals", {}),
        installed=bool(run.stored_state and run.stored_state.document),
        unpinned=image_pins.notice(run.instance) if run.stored_state else "",
        wanted_members=list(run.spec.member_by_name),
        notes=[
            *version_notes(seen.versions),
            *(
                warning(each, Reason.CERTIFICATE_EXPIRED)
                for authority in run.state.authorities.values()
                for each in x509.authority_warnings(authority.certificate, run.now)
            ),
            *external_etcd.notes(run, [each.status for each in seen.etcd.members]),
            *_leaving(run),
            *_unfenced(run),
            *seen.api.get("notes", ()),
            *seen.notes,
        ],
    )


def _unfenced(run: Run) -> list[Problem]:
    """Members that were out of reach when the control plane came here from another place."""
    taken = run.state.taken_over
    if taken is None:
        return []
    return [
        warning(
            f"member {name} may still follow {taken.source}: it was out of reach when the control plane came here; "
            "karmada.installer.members has it follow this place once it answers",
            Reason.MEMBER_UNREACHABLE,
        )
        for name in taken.unfenced
    ]


def _leaving(run: Run) -> list[Problem]:
    """Members that are to leave and have not, for whatever reason."""
    return [
        warning(
            f"member {name} is no longer listed and has not left; karmada.installer.members lets it leave, or says why "
            "not",
            Reason.MEMBER_LEAVING,
        )
        for name in sorted(set(run.state.members) - run.spec.member_by_name.keys())
    ]


def running_versions(pods: Iterable[Object]) -> dict[str, str]:
    """Running components of Karmada → version by the tag of their image; the oldest if pods differ.

    Pods that are not ready do not count, nor do images whose tag is no version.
    """
    found: dict[str, str] = {}
    for pod in pods:
        name = (pod["metadata"].get("labels") or {}).get(NAME_LABEL, "")
        component = BY_NAME.get(name)
        if component is None or component.image.release != "karmada" or reason_not_ready(pod):
            continue
        tagged = _TAG.search(pod["spec"]["containers"][0].get("image") or "")
        if tagged:
            found[name] = min(tagged[1], found.get(name, tagged[1]), key=version_numbers)
    return found


def warning(what: str, reason: Reason) -> Problem:
    """Warning of the report that is a complete sentence."""
    return Problem(what, reason=reason, severity=Severity.WARNING)


def version_notes(versions: Mapping[str, str]) -> list[Problem]:
    """Warning if components of different versions are running."""
    if len(set(versions.values())) < 2:
        return []
    told = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return [warning(f"components of different versions are at work: {told}", Reason.VERSION_SKEW)]


def version_numbers(version: str) -> list[int]:
    """Key for comparing versions."""
    return [int(number) for number in re.findall(r"\d+", version)]


def _host_path_notes(run: Run) -> list[Problem]:
    """Warning about hostPath storage, which no storage system looks after."""
    etcd = run.state.etcd
    if etcd.storage != "hostPath" or not run.stored_state:
        return []
    place = f"{host_directory(run.instance)} of the nodes {', '.join(filter(None, etcd.nodes))}"
    told = "an exception to the restricted Pod Security level in effect, though its pods keep to it by their form"
    what = f"etcd keeps its data in {place}: {told}. Each member runs on its own node only."
    return [warning(what, Reason.POD_SECURITY_VIOLATION)]


def _components(run: Run, pods: Sequence[Object]) -> list[ComponentStatus]:
    """Workloads in the order of the table, each that is not ready with what its pods say."""
    selector = f"{INSTANCE_LABEL}={run.name}"
    found: dict[tuple[str, str], Object] = {}
    for kind in ("StatefulSet", "Deployment"):
        for each in run.host_cluster.list("apps/v1", kind, run.namespace, labels=selector):
            labels = each["metadata"]["labels"]
            found[labels.get(NAME_LABEL, ""), labels.get(MEMBER_LABEL, "")] = {**each, "kind": kind}
    of_pods: dict[tuple[str, str], list[Object]] = {}
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        key = labels.get(NAME_LABEL, ""), labels.get(MEMBER_LABEL, "")
        of_pods.setdefault(key, []).append({**pod, "kind": "Pod"})
    return [
        ComponentStatus(
            name=of_member(component.name, member),
            desired=each["spec"].get("replicas", 1),
            ready=each.get("status", {}).get("readyReplicas", 0),
            trouble=reason_not_ready(each, of_pods.get((name, member), ())) or "",
        )
        for component in COMPONENTS
        for (name, member), each in sorted(found.items())
        if name == component.name
    ]


def etcd_members(run: Run) -> list[EndpointStatus]:
    """Status of etcd's members, each by its own answer; those in pods through the host cluster."""
    return access.connect(run).status()


def etcd_health(run: Run) -> health.Health:
    """Health of etcd by the answers of its members; those in pods are asked through the host cluster."""
    in_pods = ETCD in pod_components(run.spec)
    seen = etcd_look.look(
        access.connect(run),
        access.names(run),
        lambda: access.disks(run) if in_pods else {},
        hashed_bytes=hashed_bytes(run),
    )
    return health.assess(
        seen,
        asked_in_place=in_pods,
        works=number_of_works(run, [each.status for each in seen]),
        cluster=run.state.etcd.cluster,
    )


def hashed_bytes(run: Run) -> int:
    """Largest database whose content this run compares."""
    return etcd_look.HASHED_BYTES_IN_REPORT if run.operation == "report" else etcd_look.HASHED_BYTES


def number_of_works(run: Run, statuses: Sequence[EndpointStatus]) -> int | None:
    """Number of Works in a control plane whose database is half full, if it answers: they are most of its content."""
    if health.fill(statuses) < health.HALF_FULL:
        return None
    try:
        return run.control_plane.count(WORK_API, "Work")
    except (ApiError, ProblemsError):
        return None


def control_plane_answers(run: Run) -> dict[str, Any]:
    """Answers of the API server, as far as there are any: version, crds, members, aggregated, notes."""
    found: dict[str, Any] = {}
    try:
        control_plane = run.control_plane
        # If a later answer fails, the control plane still counts as installed.
        found["version"] = control_plane.version(retry_seconds=ANSWER_SECONDS).get("gitVersion", "")
        crds = control_plane.list("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        found["crds"] = any(crd["spec"]["group"].endswith("karmada.io") for crd in crds)
        clusters = control_plane.list(CLUSTER_API, "Cluster")
        found["members"] = [_member(each) for each in clusters]
        service = control_plane.get("apiregistration.k8s.io/v1", "APIService", "v1alpha1.cluster.karmada.io")
        found["aggregated"] = is_true(service, "Available")
        bindings = [each for kind in BINDING_KINDS for each in control_plane.some(BINDING_API, kind, _MOST_BINDINGS)]
        found["notes"] = [each for each in (unapplied.warning(bindings),) if each]
        found["totals"] = _totals(control_plane, clusters)
    except ApiError:
        return found
    return found


def _totals(control_plane: Cluster, clusters: Sequence[Object]) -> dict[str, int]:
    """Counts of members and their nodes, of policies, and of workloads that are propagated or shall be."""
    nodes = [((each.get("status") or {}).get("nodeSummary") or {}).get("totalNum") for each in clusters]
    return {
        "members": len(clusters),
        # Members say it.
        "nodes": sum(each for each in nodes if isinstance(each, int) and 0 <= each < MOST_NODES),
        "policies": sum(control_plane.count(POLICY_API, kind) for kind in POLICIES),
        "workloads": sum(control_plane.count(BINDING_API, kind) for kind in BINDING_KINDS),
    }


def _moment(text: str) -> str:
    """Time that the agent of a member gave; empty if there is no such time.

    It chooses the offset, too, and in UTC a time near the first or the last year is in none that anybody reads: one
    such member would keep the status of all from being written.
    """
    try:
        found = datetime.fromisoformat(text)
        found.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return ""
    return text if found.tzinfo else ""


def _member(cluster: Object) -> MemberStatus:
    status, ready = cluster.get("status") or {}, condition(cluster, "Ready")
    taints = set(map(name_of, cluster["spec"].get("taints") or ()))
    return MemberStatus(
        name=cluster["metadata"]["name"],
        mode=cluster["spec"].get("syncMode", ""),
        # Text from the member.
        version=printable(status.get("kubernetesVersion", ""), _WORD),
        ready=ready.get("status") == "True",
        reason=printable(ready.get("reason", "NotSeenYet"), _WORD),
        since=cluster["metadata"].get("creationTimestamp", ""),
        ready_since=_moment(ready.get("lastTransitionTime", "")),
        cordoned=name_of(CORDON) in taints,
        draining=name_of(DRAIN) in taints,
    )
