# SPDX-License-Identifier: Apache-2.0
"""Problems for the user: what is wrong, where, the remedy, the stable reason, and the severity."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .redaction import shown

#: First word of a sentence, and names that look like one.
_WORD = re.compile(r"[a-z]+(?=[ ,;:])")
_NAMES = ("json", "etcd", "etcdutl", "karmadactl", "kubectl", "systemctl", "ssh")
#: Consequence of a check that fails before the first change.
NOTHING_CHANGED = "nothing was changed"


class Severity(StrEnum):
    """Weight of a problem. An error stops the run, or one member; warnings and hints stop nothing."""

    ERROR = "error"
    WARNING = "warning"
    HINT = "hint"


class Reason(StrEnum):
    """Kinds of problems that people and programs can act upon, one for each remedy.

    The values are stable: conditions and events use them as reasons, and programs compare them. A new kind gets a new
    value; none is renamed or reused. ``docs/reference/problems.md`` is generated from this class.
    """

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Reason:
        """Create a member from its value and the sentence that explains it in the reference."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    # -- the document and the start of a run
    INVALID_DOCUMENT = "InvalidDocument", "A field of the document is not as its schema or its other fields ask for."
    FIELD_WITHOUT_EFFECT = "FieldWithoutEffect", "A field has no meaning beside the other settings."
    IMMUTABLE_SETTING = "ImmutableSetting", "A control plane that runs cannot follow the change of this setting."
    INVALID_INVENTORY_SOURCE = "InvalidInventorySource", "The inventory source names no document, or not as it should."
    DOCUMENT_NOT_FOUND = "DocumentNotFound", "The document cannot be found or read where the inventory source says."
    DOCUMENT_CHANGED = "DocumentChanged", "The document is another one than was checked, or decided upon."
    DOCUMENT_NOT_LOADED = "DocumentNotLoaded", "The run was started without an inventory source that is read."
    INVALID_OVERLAY = "InvalidOverlay", "An overlay cannot be laid over an object, or changes what it may not."
    INVALID_AUDIT_POLICY = "InvalidAuditPolicy", "The audit policy would not be accepted by the API server."
    INVALID_FLAG = "InvalidFlag", "A flag or feature gate is not known, or has a value that is in the way."
    INVALID_ARGUMENT = "InvalidArgument", "A variable of the run, or its --limit, has a value that cannot be used."
    CONFIRMATION_REQUIRED = "ConfirmationRequired", "What was asked for has to be confirmed by name."
    SECRETS_EXPOSED = "SecretsExposed", "Others could read secrets of the run."
    # -- references of the document
    SECRET_NOT_FOUND = "SecretNotFound", "There is no Secret of this name."
    INVALID_SECRET = "InvalidSecret", "A Secret lacks a key, or holds something else than is asked for."
    CONFIG_MAP_NOT_FOUND = "ConfigMapNotFound", "There is no ConfigMap of this name, or it lacks a key."
    KUBECONFIG_NOT_FOUND = "KubeconfigNotFound", "There is no kubeconfig where it is looked for."
    INVALID_KUBECONFIG = "InvalidKubeconfig", "A kubeconfig cannot be read or used."
    INSECURE_CONNECTION = "InsecureConnection", "Others could listen, or answer in the place of the server."
    CREDENTIALS_UNAVAILABLE = "CredentialsUnavailable", "The program that a kubeconfig names for a login gives none."
    # -- API servers
    API_SERVER_UNREACHABLE = "APIServerUnreachable", "An API server does not answer, or TLS with it fails."
    CREDENTIALS_REFUSED = "CredentialsRefused", "An API server does not accept the certificate or token."
    MISSING_PERMISSION = "MissingPermission", "The account lacks rights."
    OBJECT_REFUSED = "ObjectRefused", "An API server does not accept the content of an object."
    OBJECT_NOT_FOUND = "ObjectNotFound", "An object, such as a StorageClass or a namespace, is not there."
    REQUEST_FAILED = "RequestFailed", "An API server failed to carry out a request."
    UNUSABLE_ANSWER = "UnusableAnswer", "What answers does not behave like Kubernetes."
    WRITE_CONFLICT = "WriteConflict", "Somebody else keeps writing the same object."
    # -- one installation and others
    NAME_TAKEN = "NameTaken", "Something of this name is there that is not of this control plane."
    OTHER_CONTROL_PLANE = "OtherControlPlane", "Another control plane is in the place, or on the member."
    OTHER_HOST_CLUSTER = "OtherHostCluster", "The control plane of the document is in another host cluster."
    MANAGED_BY_OBJECT = "ManagedByObject", "Another object than this run's document manages the control plane."
    NOT_INSTALLED = "NotInstalled", "There is no control plane yet."
    LOCKED = "Locked", "Another run is working on this control plane."
    LOCK_LOST = "LockLost", "The run lost its lock, and stopped writing."
    INVALID_STATE = "InvalidState", "The installer's state is not readable, or differs between hosts."
    INVALID_AUTHORITY = "InvalidAuthority", "A certificate authority of the control plane cannot be used."
    CERTIFICATE_EXPIRED = "CertificateExpired", "A certificate is over, or soon will be."
    CERTIFICATE_NOT_TRUSTED = "CertificateNotTrusted", "A server shows a certificate that is not to be trusted."
    INTERRUPTED_RUN = "InterruptedRun", "An earlier run did not come to its end; this one goes on from there."
    NOT_READY_IN_TIME = "NotReadyInTime", "Something did not become ready within the time that it was given."
    # -- the host cluster
    UNSUPPORTED_VERSION = "UnsupportedVersion", "A version is older than is supported."
    UNTESTED_VERSION = "UntestedVersion", "A version is newer or older than those that were tried together."
    UNKNOWN_RELEASE = "UnknownRelease", "This version of the collection does not know the release of Karmada."
    VERSION_SKEW = "VersionSkew", "Versions of components do not go together, or with those before."
    QUOTA_EXCEEDED = "QuotaExceeded", "A ResourceQuota or LimitRange does not let the pods in."
    POD_SECURITY_VIOLATION = "PodSecurityViolation", "Pods break the Pod Security level of their namespace."
    ENDPOINT_UNSUPPORTED = "EndpointUnsupported", "The cluster cannot serve an endpoint of this type or class."
    ENDPOINT_TAKEN = "EndpointTaken", "The endpoint's name or address leads to somebody else."
    ENDPOINT_MISDIRECTED = "EndpointMisdirected", "The endpoint's name or port leads past the control plane."
    DATA_NOT_DURABLE = "DataNotDurable", "The data of etcd is lost with its pod."
    # -- images, programs and files
    IMAGE_NOT_AVAILABLE = "ImageNotAvailable", "An image cannot be pulled."
    INVALID_IMAGE = "InvalidImage", "An image has no usable name, or does not hold what is needed."
    IMAGE_CHANGED = "ImageChanged", "A tag leads to another image than before."
    IMAGE_NOT_PINNED = "ImageNotPinned", "No digest is known beforehand for an image."
    ARTIFACT_NOT_FOUND = "ArtifactNotFound", "The directory of artifacts lacks a file."
    ARTIFACT_NOT_AVAILABLE = "ArtifactNotAvailable", "A file cannot be fetched, or a program cannot be built."
    INVALID_ARTIFACT = "InvalidArtifact", "A file is damaged, or for another kind of machine."
    INVALID_ARTIFACT_SOURCE = "InvalidArtifactSource", "The source of artifacts cannot give what is needed."
    CHECKSUM_MISSING = "ChecksumMissing", "No checksum is recorded for a file."
    CHECKSUM_MISMATCH = "ChecksumMismatch", "A file has another checksum than the one that is recorded."
    PROGRAMS_DIFFER = "ProgramsDiffer", "Hosts or nodes have different programs of one version."
    MISSING_PROGRAM = "MissingProgram", "A program or Python package is missing where Ansible runs."
    LOCAL_FILE_UNUSABLE = "LocalFileUnusable", "A file where Ansible runs cannot be read or written."
    # -- plain hosts
    HOST_UNREACHABLE = "HostUnreachable", "A host does not answer on SSH."
    HOST_KEY_NOT_TRUSTED = "HostKeyNotTrusted", "The SSH host key of a host is unknown, changed or revoked."
    SSH_LOGIN_REFUSED = "SSHLoginRefused", "A host accepts none of the keys, or a key cannot be used."
    PRIVILEGES_REFUSED = "PrivilegesRefused", "The user who logs in may not become root."
    UNSUITABLE_HOST = "UnsuitableHost", "A host lacks what components need: architecture, systemd, programs, Python."
    INSUFFICIENT_RESOURCES = "InsufficientResources", "There are too few nodes, or a host lacks disk or memory."
    CONFINED_HOST = "ConfinedHost", "SELinux or AppArmor may keep units from working."
    HOST_STEP_FAILED = "HostStepFailed", "A step failed on a host, or was lost there."
    DUPLICATE_HOST = "DuplicateHost", "Two hosts of the document are one machine."
    HOST_NOT_LISTED = "HostNotListed", "The document does not list a host that still has something."
    UNIT_NOT_HEALTHY = "UnitNotHealthy", "A systemd unit is not healthy."
    PORT_IN_USE = "PortInUse", "A port is used by something else."
    ADDRESS_IN_USE = "AddressInUse", "An address is used by something else."
    INVALID_ADDRESS = "InvalidAddress", "An address is of another network or IP family, or nobody reaches it."
    CLOCK_SKEW = "ClockSkew", "Clocks are too far apart."
    # -- etcd
    ETCD_UNREACHABLE = "EtcdUnreachable", "An endpoint of etcd does not answer."
    ETCD_REFUSES = "EtcdRefuses", "etcd answers and does not let us in, or TLS with it fails."
    ETCD_UNHEALTHY = "EtcdUnhealthy", "A member of etcd is not healthy, or has raised an alarm."
    ETCD_MEMBERS_DIFFER = (
        "EtcdMembersDiffer",
        "Somebody else has added a member of etcd, removed one, or had one go on alone.",
    )
    ETCD_MAJORITY_AT_RISK = "EtcdMajorityAtRisk", "A change of etcd's members could cost it its majority."
    ETCD_MAJORITY_LOST = "EtcdMajorityLost", "Fewer members of etcd answer than a majority."
    ETCD_NEARLY_FULL = "EtcdNearlyFull", "The database of etcd takes half of its quota or more."
    ETCD_PREFIX_TAKEN = "EtcdPrefixTaken", "Somebody else has keys at the key prefix."
    # -- backups
    BACKUP_TARGET_UNUSABLE = "BackupTargetUnusable", "Where backups lie cannot be read or written."
    BACKUP_NOT_DELETED = "BackupNotDeleted", "Where backups lie, one that is not kept any more cannot be deleted."
    BACKUP_AT_RISK = "BackupAtRisk", "The only backups lie where they would be lost together with data of etcd."
    BACKUP_MISSED = "BackupMissed", "Backups were due and have not been taken."
    QUARANTINED = "Quarantined", "A restore holds the control plane; it is released, or taken back, first."
    OLD_DATA_LEFT = "OldDataLeft", "Data of etcd that no member uses takes room."
    RESTORE_NOT_CONFIRMED = (
        "RestoreNotConfirmed",
        "A restore discards what is newer than its backup, and asks for its name.",
    )
    RESTORE_IMPOSSIBLE = "RestoreImpossible", "This control plane cannot be restored from this backup as it is."
    QUARANTINE_OPEN = "QuarantineOpen", "A restored control plane accepts agents of members before its release."
    MOVED = "Moved", "The control plane was moved to another place, which its members follow."
    RESTORE_DRIFT = "RestoreDrift", "Members differ from what a restored control plane would make of them."
    INVALID_BACKUP = "InvalidBackup", "A backup is damaged, incomplete, or not of this control plane."
    # -- members
    MEMBER_UNREACHABLE = "MemberUnreachable", "A member does not answer, or cannot be reached from where it has to be."
    CONTROL_PLANE_UNREACHABLE = (
        "ControlPlaneUnreachable",
        "The control plane cannot be reached from where it has to be.",
    )
    MEMBER_NOT_READY = "MemberNotReady", "The control plane does not find a member ready."
    DUPLICATE_MEMBER = "DuplicateMember", "A cluster is listed or registered under more than one name."
    WRONG_CLUSTER = "WrongCluster", "A kubeconfig or endpoint leads to another cluster than the one that is meant."
    REGISTERED_OTHERWISE = "RegisteredOtherwise", "A Cluster was registered by another tool, or in another mode."
    MEMBER_LEAVING = "MemberLeaving", "A member has to leave, or is leaving, and has not left."
    OBJECT_NOT_APPLIED = "ObjectNotApplied", "An object is not on a member on which a policy has placed it."
    RIGHTS_INCOMPLETE = "RightsIncomplete", "The scoped rights of a member lack what is propagated to it."
    CREDENTIALS_NOT_ISSUED = "CredentialsNotIssued", "A token or certificate was asked for and not given."
    # -- leftovers, and skipped checks
    REMOVAL_BLOCKED = "RemovalBlocked", "Something that is to go does not go."
    LEFT_BEHIND = "LeftBehind", "Something stays that this collection made or used."
    CHECK_SKIPPED = "CheckSkipped", "Something could not be tried, so that nothing is known of it."


@dataclass(frozen=True)
class Problem:
    """Problem, or information worth knowing.

    ``what`` is the finding, ``where`` the place a user can go to (a field path, an object, a file), ``remedy`` the
    sentence that tells them what to do. ``where`` and ``remedy`` may be empty when there is nothing useful to say.
    ``reason`` is its kind, for programs; ``severity`` tells whether it stops anything.
    """

    what: str
    where: str = ""
    remedy: str = ""
    reason: Reason = field(kw_only=True)
    severity: Severity = field(default=Severity.ERROR, kw_only=True)

    def __post_init__(self) -> None:
        # Keys and values of documents, and of states on hosts, are quoted: no terminal is to obey them.
        for name in ("what", "where", "remedy"):
            object.__setattr__(self, name, shown(getattr(self, name)))

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.remedy:
            text = f"{text.rstrip('.')}. {_sentence(self.remedy)}"
        return text

    @classmethod
    def warning(cls, what: str, reason: Reason, where: str = "") -> Problem:
        """Warning: it stops nothing, and somebody should see to it."""
        return cls(what, where, reason=reason, severity=Severity.WARNING)

    @classmethod
    def hint(cls, what: str, reason: Reason, where: str = "") -> Problem:
        """Hint: worth knowing."""
        return cls(what, where, reason=reason, severity=Severity.HINT)

    @property
    def plain(self) -> dict[str, str]:
        """Plain form, as in results of steps and in the report; all values are text."""
        return {
            "severity": self.severity.value,
            "reason": self.reason.value,
            "what": self.what,
            "where": self.where,
            "remedy": self.remedy,
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Problem:
        """Problem from its plain form. Raises ValueError for an unknown reason or severity."""
        # Not by ``Reason(value)``: members of this enumeration are created from two values.
        reason = next((each for each in Reason if each.value == plain["reason"]), None)
        if reason is None:
            raise ValueError(f"{plain['reason']!r} is no reason of a problem")
        texts = (str(plain.get(key) or "") for key in ("what", "where", "remedy"))
        return cls(*texts, reason=reason, severity=Severity(plain["severity"]))


class ProblemsError(Exception):
    """All problems found, reported at once instead of one per run.

    ``consequence`` tells what happened because of them. The default is right for checks before the first change; a
    caller that has already changed something must say so.
    """

    def __init__(self, problems: Iterable[Problem] | Problem, consequence: str = NOTHING_CHANGED) -> None:
        self.problems: list[Problem] = [problems] if isinstance(problems, Problem) else list(problems)
        if not self.problems:
            raise ValueError("ProblemsError needs at least one problem")
        self.consequence = consequence
        super().__init__(str(self))

    def __str__(self) -> str:
        head = f"{number_of(len(self.problems), 'problem')}; {self.consequence}:"
        return "\n".join([head, *(f"  - {_indented(str(problem))}" for problem in self.problems)])


def number_of(count: int, one: str, many: str = "") -> str:
    """Number with its noun; ``many`` is its plural where that is more than an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def first_of(names: Sequence[str], most: int = 4) -> str:
    """First of the names, and how many more there are: ``a, b, c, d and 96 more``. There may be thousands of them."""
    shown, more = ", ".join(names[:most]), len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once: errors in their order, then warnings and hints sorted by text, since threads find them."""
    found = list(dict.fromkeys(problems))
    others = [each for each in found if each.severity is not Severity.ERROR]
    weights = list(Severity)
    return [
        *(each for each in found if each.severity is Severity.ERROR),
        *sorted(others, key=lambda each: (weights.index(each.severity), str(each))),
    ]


def _sentence(text: str) -> str:
    """Text that begins with a capital letter, unless it begins with a name, such as that of a field or a program."""
    word = _WORD.match(text)
    return text[0].upper() + text[1:] if word and word[0] not in _NAMES else text


def _indented(text: str) -> str:
    """Text of one problem with its further lines indented under its bullet."""
    return text.replace("\n", "\n    ")
