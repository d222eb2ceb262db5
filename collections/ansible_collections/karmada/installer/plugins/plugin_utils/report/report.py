# SPDX-License-Identifier: Apache-2.0
"""Report of observations: the status of a KarmadaDeployment, also written as JSON; text: see ``block``. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from ..components.state import LastBackup
from ..etcd.client import EndpointStatus
from ..etcd.health import Health, Seen
from ..members.broken import BrokenMember
from ..problems import Problem, Reason, Severity, first_of, in_order
from ..run.changes import StepChange
from . import backups
from .hold import HELD, Hold

#: Certificates with less validity left than this cause a warning.
EXPIRY_WARNING = timedelta(days=30)
EMPTY_DIR_WARNING = (
    "etcd keeps its data in the pod (emptyDir): it is lost with the pod. Give the host cluster a default StorageClass, "
    "or set spec.components.etcd.local.volumeData.volumeClaim, before anything depends on it."
)

#: Reason of a listed member that is not registered.
NOT_JOINED = "NotJoined"
#: Longest message that the schema of the status allows.
MESSAGE_LENGTH = 4096
#: Problems that the schema of the status allows; errors come first.
MOST_PROBLEMS = 64
#: Changes that the schema of the status allows.
MOST_CHANGES = 1024
#: Members, components and certificates that the schema of the status allows.
MOST_MEMBERS, MOST_COMPONENTS, MOST_CERTIFICATES = 1000, 1024, 64
#: Members, or components, that the message of a condition names.
MOST_NAMED = 50

#: Members of etcd, and characters of the name of one, that the schema of the status allows.
MOST_ETCD_MEMBERS, _NAME = 16, 253

T = TypeVar("T")


@dataclass(frozen=True)
class ComponentStatus:
    """Readiness of the processes of one component."""

    name: str
    desired: int
    ready: int
    #: Why some are not ready; empty if all are.
    trouble: str = ""


@dataclass(frozen=True)
class MemberStatus:
    """Registered cluster, as the control plane sees it."""

    name: str
    mode: str
    version: str
    ready: bool
    reason: str
    #: Time of its registration, and of the last change of ``ready``.
    since: str
    ready_since: str = ""
    #: Plain hosts that run its agent; empty if it has none, or in pods.
    agent_hosts: Sequence[str] = ()
    #: Taints of the playbooks ``cordon`` and ``drain``, or of ``karmadactl cordon``: nothing new is placed on it.
    cordoned: bool = False
    draining: bool = False

    @property
    def scheduling(self) -> str:
        """Word for its taints; empty if workloads are placed on it."""
        return "draining" if self.draining else "cordoned" if self.cordoned else ""


@dataclass(frozen=True)
class HostStatus:
    """Plain host of the document. ``trouble`` says why it does not do its work; empty if it does."""

    name: str
    address: str
    roles: Sequence[str]
    trouble: str = ""


@dataclass(frozen=True)
class Observation:
    """Facts from which the report is made.

    ``kubernetes_version`` is the answer of the API server, ``karmada_version`` the oldest tag among the images of
    running pods. Both are empty while nothing that could tell is running.
    """

    now: datetime
    generation: int
    karmada_version: str
    kubernetes_version: str
    components: Sequence[ComponentStatus]
    members: Sequence[MemberStatus]
    api_ready: bool
    aggregated_ready: bool
    crds_installed: bool
    etcd_storage: str
    etcd_desired: int
    etcd_ready: int
    certificates: Mapping[str, str]
    kubeconfig_secret: str
    #: UID of the host cluster; empty on plain hosts, and where it could not be read.
    host_cluster_uid: str = ""
    #: Whether the first installation has come to its end.
    installed: bool = False
    wanted_members: Sequence[str] = ()
    notes: Sequence[Problem] = field(default=())
    #: Status of each member of etcd; empty if none could be asked.
    etcd_endpoints: Sequence[EndpointStatus] = ()
    #: Health of etcd as a whole; None before it could be looked at.
    etcd: Health | None = None
    #: Members that this run could not bring to their desired state.
    broken_members: Sequence[BrokenMember] = ()
    #: Changes that this run has made, or in check mode would make.
    changes: Sequence[StepChange] = ()
    check: bool = False
    #: Newest verified backup of each series; None where a series has none yet.
    backups: Mapping[str, LastBackup | None] = field(default_factory=dict)
    #: Names of those that another place could not take over any more, should this one be lost.
    only_here: frozenset[str] = frozenset()
    #: Final backup of a place that was handed over, where none is taken any more; empty elsewhere.
    final_backup: str = ""
    #: What holds the control plane, as a restore or a move does; None if nothing does.
    quarantined: Hold | None = None
    #: Place of the components, as ``spec.mode`` has it, and the plain hosts among them.
    mode: str = "Container"
    hosts: Sequence[HostStatus] = ()
    #: Address of the API server, and its Service as namespace/name; empty before an installation, and on plain hosts.
    address: str = ""
    service: str = ""
    #: Image that no node can pull, with the reason; empty if there is none.
    not_pulled: str = ""
    #: How much there is in the control plane, by kind; empty while it does not answer.
    totals: Mapping[str, int] = field(default_factory=dict)
    #: Sentence that names the images, of pods and of programs on hosts, whose digest nothing pins; empty if none is.
    unpinned: str = ""


def status(observed: Observation, former: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Status of a KarmadaDeployment.

    ``former`` is the previous status, from which unchanged conditions keep their lastTransitionTime.
    """
    conditions = _conditions(observed)
    # Unknown is what cannot be seen from here, such as an etcd that only pods reach.
    ready = all(condition["status"] != "False" for condition in conditions)
    conditions = [
        _condition(observed, "Ready", ready, "AllReady" if ready else _first_reason(conditions), _summary(conditions)),
        *conditions,
        # What runs may be ready all the same.
        *([_material(observed)] if observed.components else []),
        # Without a backup it can be used nevertheless.
        *([_backup_condition(observed)] if observed.backups else []),
        # Programs tell by it what a hold allows, and by whom it ends.
        *([_held(observed, observed.quarantined)] if observed.quarantined else []),
    ]
    return {
        "phase": _phase(observed, ready=ready),
        "observedGeneration": observed.generation,
        "installed": observed.installed,
        "mode": observed.mode,
        "karmadaVersion": observed.karmada_version,
        "kubernetesVersion": observed.kubernetes_version,
        "etcdVersion": etcd_version(observed),
        **({"hostClusterUID": observed.host_cluster_uid} if observed.host_cluster_uid else {}),
        # Of hosts, and of a document from a file, the kubeconfig is a file only.
        **({"secretRef": {"name": observed.kubeconfig_secret}} if observed.kubeconfig_secret else {}),
        "conditions": [
            {**each, "lastTransitionTime": _last_transition(each, former or {}, observed.now)} for each in conditions
        ],
        "endpoint": {key: text for key, text in (("url", observed.address), ("service", observed.service)) if text},
        **({"totals": dict(observed.totals)} if observed.totals else {}),
        "components": [
            {
                "name": each.name,
                "desired": each.desired,
                "ready": each.ready,
                **({"message": each.trouble[:MESSAGE_LENGTH]} if each.trouble else {}),
            }
            for each in _first(observed.components, MOST_COMPONENTS, lambda each: each.ready >= each.desired)
        ],
        **({"hosts": [_host(each) for each in observed.hosts]} if observed.hosts else {}),
        "etcd": {
            "storage": observed.etcd_storage,
            "members": observed.etcd_desired,
            "ready": observed.etcd_ready,
            "endpoints": _etcd_endpoints(observed)[:MOST_ETCD_MEMBERS],
        },
        **_of_members(observed),
        **_of_certificates(observed.certificates),
        **({"backups": backups.rows(observed.backups)} if observed.backups else {}),
        "changes": [each.plain for each in observed.changes[:MOST_CHANGES]],
        "changesTotal": len(observed.changes),
        "problems": [
            {key: text[:MESSAGE_LENGTH] for key, text in each.plain.items()}
            for each in problems(observed)[:MOST_PROBLEMS]
        ],
    }


def _first(items: Sequence[T], most: int, order: Callable[[T], Any]) -> Sequence[T]:
    """As many items as a status may have; where that is not all, the first in this order."""
    return items if len(items) <= most else sorted(items, key=order)[:most]


def _of_members(observed: Observation) -> dict[str, Any]:
    """Members, and how many are ready of all."""
    found = _members(observed)
    names = {each["name"] for each in found} | set(observed.wanted_members)
    ready = sum(bool(each["ready"]) for each in found)
    return {
        "membersReady": f"{ready}/{len(names)}",
        "members": _first(found, MOST_MEMBERS, lambda each: each["ready"]),
    }


def _of_certificates(certificates: Mapping[str, str]) -> dict[str, Any]:
    """Certificates, and the end of the first."""
    entries = [{"name": name, "notAfter": end} for name, end in certificates.items()]
    ends = {each["notAfter"]: datetime.fromisoformat(each["notAfter"]) for each in entries}
    return {
        **({"nextExpiry": min(ends, key=lambda end: ends[end])} if ends else {}),
        "certificates": _first(entries, MOST_CERTIFICATES, lambda each: ends[each["notAfter"]]),
    }


def missing(observed: Observation) -> list[str]:
    """Members that are not registered: the listed ones, and others that this run was to change.

    While the API server does not answer, only those that this run could not register are known.
    """
    registered = {each.name for each in observed.members}
    names = [*(observed.wanted_members if observed.api_ready else ()), *(each.name for each in observed.broken_members)]
    return [name for name in dict.fromkeys(names) if name not in registered]


def _members(observed: Observation) -> list[dict[str, Any]]:
    """Registered members, and those that are missing."""
    broken = {each.name: f"{each.problem}. Next: {each.next_step}" for each in observed.broken_members}
    return [
        *(
            {
                "name": each.name,
                "mode": each.mode,
                **({"agentHosts": list(each.agent_hosts)} if each.agent_hosts else {}),
                "kubernetesVersion": each.version,
                "ready": each.ready,
                "reason": each.reason,
                "cordoned": each.cordoned,
                "draining": each.draining,
                "lastTransitionTime": each.ready_since or each.since,
                **({"message": broken[each.name][:MESSAGE_LENGTH]} if each.name in broken else {}),
            }
            for each in observed.members
        ),
        *(
            {
                "name": name,
                "ready": False,
                "reason": NOT_JOINED,
                "message": broken.get(name, "It is not registered.")[:MESSAGE_LENGTH],
            }
            for name in missing(observed)
        ),
    ]


def _host(host: HostStatus) -> dict[str, Any]:
    told = {"message": host.trouble[:MESSAGE_LENGTH]} if host.trouble else {}
    return {"name": host.name, "address": host.address, "roles": list(host.roles), "ready": not host.trouble, **told}


def etcd_version(observed: Observation) -> str:
    """Oldest version that a member reports: features of newer members are not available to the whole."""
    known = [each.version for each in observed.etcd_endpoints if each.version]
    return _release(min(known, key=lambda text: [int(part) for part in re.findall("[0-9]+", text)], default=""))


def _release(version: str) -> str:
    """Version in the form of Karmada's and Kubernetes' own: etcd tells its without the v."""
    return f"v{version}" if version[:1].isdigit() else version


def _etcd_endpoints(observed: Observation) -> list[dict[str, Any]]:
    """Members of etcd, with what is known of them beside the others."""
    seen = {each.status.url: each for each in observed.etcd.members} if observed.etcd else {}
    behind = observed.etcd.behind if observed.etcd else {}
    return [
        {**_etcd_endpoint(each), **_compared(seen.get(each.url), behind.get(each.url))}
        for each in observed.etcd_endpoints
    ]


def _compared(seen: Seen | None, behind: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": seen.name[:_NAME]} if seen else {}
    if behind is not None:
        found["behind"] = behind
    if seen and seen.hash:
        found["hash"] = {"revision": seen.hash.revision, "value": f"{seen.hash.value:08x}"}
    return found


def _etcd_endpoint(member: EndpointStatus) -> dict[str, Any]:
    found: dict[str, Any] = {
        "url": member.url,
        "leader": member.leader,
        "healthy": member.healthy,
        "alarms": list(member.alarms),
    }
    if member.cause is None:
        found.update(
            version=_release(member.version),
            learner=member.learner,
            dbSizeBytes=member.db_size,
            dbSizeInUseBytes=member.db_size_in_use,
        )
    if member.member_id:
        found["memberID"] = member.member_id
    if member.db_quota:
        found["dbQuotaBytes"] = member.db_quota
    if member.message:
        found["message"] = member.message[:MESSAGE_LENGTH]
    return found


def warnings(observed: Observation) -> list[Problem]:
    """Conditions that work today and may cause trouble later."""
    found = list(observed.etcd.findings) if observed.etcd else []
    if observed.etcd_storage == "emptyDir":
        found.append(Problem(EMPTY_DIR_WARNING, reason=Reason.DATA_NOT_DURABLE, severity=Severity.WARNING))
    soon = [
        f"{name} ({end})"
        for name, end in observed.certificates.items()
        if datetime.fromisoformat(end) - observed.now < EXPIRY_WARNING
    ]
    if soon:
        what = f"certificates that end within {EXPIRY_WARNING.days} days: {', '.join(soon)}"
        found.append(Problem(what, reason=Reason.CERTIFICATE_EXPIRED, severity=Severity.WARNING))
    found += [
        replace(Problem.warning(each.what, Reason.BACKUP_MISSED), remedy=each.remedy)
        for each in _faults_of_backups(observed)
    ]
    if observed.quarantined:
        found.append(Problem.warning(observed.quarantined.told, Reason.QUARANTINED))
    return [*found, *observed.notes]


def problems(observed: Observation) -> list[Problem]:
    """Problems of the report, for programs: those of members, then warnings and hints."""
    found = [*(each for broken in observed.broken_members for each in broken.problems), *warnings(observed)]
    if observed.unpinned:
        found.append(Problem.hint(observed.unpinned, Reason.IMAGE_NOT_PINNED))
    return in_order(found)


def _phase(observed: Observation, *, ready: bool) -> str:
    if observed.quarantined:
        return "Quarantined"
    if ready:
        return "Completed"
    if not observed.components:
        return "Preflight"
    if not observed.api_ready:
        return "Installing"
    return "Waiting" if observed.crds_installed else "InstallCRD"


def _conditions(observed: Observation) -> list[dict[str, Any]]:
    lacking = [each for each in observed.components if each.ready < each.desired]
    ready = bool(observed.components) and not lacking
    api = observed.api_ready and observed.aggregated_ready and observed.crds_installed
    states = {each.name: each for each in observed.members}
    broken = [each.name for each in observed.broken_members]
    out = [name for name in observed.wanted_members if name not in states or not states[name].ready]
    out += [name for name in broken if name not in out]
    etcd = observed.etcd
    told = first_of([f"{each.name} has {each.ready} of {each.desired} ready" for each in lacking], MOST_NAMED)
    return [
        _condition(
            observed,
            "ComponentsReady",
            ready,
            "AllReady" if ready else "NotReady",
            "every component is ready" if ready else told or "no component is installed",
        ),
        _condition(
            observed,
            "ControlPlaneReady",
            api,
            "Answering" if api else _api_reason(observed),
            "the API server, the aggregated API and the CRDs answer"
            if api
            else "the control plane does not answer fully",
        ),
        *([_etcd_condition(observed, etcd)] if etcd else []),
        _condition(
            observed,
            "MembersReady",
            not out,
            "AllReady" if not out else "NotReady",
            "all listed members are ready" if not out else f"not ready, or not as listed: {first_of(out, MOST_NAMED)}",
        ),
    ]


def _material(observed: Observation) -> dict[str, Any]:
    lacking = observed.not_pulled
    reason = "Fetched" if not lacking else Reason.IMAGE_NOT_AVAILABLE.value
    told = lacking[:MESSAGE_LENGTH] or "programs and images are where they are needed"
    return _condition(observed, "MaterialFetched", not lacking, reason, told)


def _held(observed: Observation, hold: Hold) -> dict[str, Any]:
    return _condition(observed, HELD, True, hold.why.value, hold.told[:MESSAGE_LENGTH])


def _faults_of_backups(observed: Observation) -> list[backups.Fault]:
    """Faults of the series; none where no backup is taken any more."""
    return [] if observed.final_backup else backups.faults(observed.backups, observed.only_here, observed.now)


def _backup_condition(observed: Observation) -> dict[str, Any]:
    faults = _faults_of_backups(observed)
    if observed.final_backup:
        told = f"it was handed over; its final backup is {observed.final_backup}, and no other is taken here"
        return _condition(observed, "BackupHealthy", True, "HandedOver", told)
    if not faults:
        return _condition(observed, "BackupHealthy", True, "Recent", "every EtcdBackup has a recent verified backup")
    reasons = [each.reason for each in faults]
    reason = next(each for each in ("NoBackup", "TooOld", "OnlyHere") if each in reasons)
    told = "; ".join(each.what for each in faults)
    return _condition(observed, "BackupHealthy", False, reason, told[:MESSAGE_LENGTH])


def _etcd_condition(observed: Observation, etcd: Health) -> dict[str, Any]:
    found = _condition(observed, "EtcdHealthy", bool(etcd.good), etcd.reason, etcd.message[:MESSAGE_LENGTH])
    return found if etcd.good is not None else {**found, "status": "Unknown"}


def _api_reason(observed: Observation) -> str:
    if not observed.api_ready:
        return "APIServerNotReady"
    return "AggregatedAPINotReady" if not observed.aggregated_ready else "CRDsMissing"


def _condition(observed: Observation, kind: str, good: bool, reason: str, message: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True" if good else "False",
        "reason": reason,
        "message": message,
        "observedGeneration": observed.generation,
    }


def _last_transition(condition: Mapping[str, Any], former: Mapping[str, Any], now: datetime) -> str:
    """Time at which the status of this condition last changed: now, unless ``former`` has the condition unchanged."""
    for each in former.get("conditions") or []:
        same = each.get("type") == condition["type"] and each.get("status") == condition["status"]
        if same and each.get("lastTransitionTime"):
            return str(each["lastTransitionTime"])
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _first_reason(conditions: Sequence[Mapping[str, Any]]) -> str:
    return next(str(each["reason"]) for each in conditions if each["status"] == "False")


def _summary(conditions: Sequence[Mapping[str, Any]]) -> str:
    bad = [str(each["message"]) for each in conditions if each["status"] == "False"]
    return "; ".join(bad) or "everything that was asked for is ready"
