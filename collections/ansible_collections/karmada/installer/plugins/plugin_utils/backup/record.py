# SPDX-License-Identifier: Apache-2.0
"""Record of one backup: the file ``manifest.json`` beside its data, without secrets, signed. Pure.

What is read back is input: the record of a target, to which others may write, is used only if it has this form and, for
everything but a list, only if one of the keys that the reader trusts has signed it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from ..components.moving import Claim
from ..document import crd
from ..encoding import base64_text
from ..problems import Problem, ProblemsError, Reason
from ..redaction import shown

#: Increased when a field is added that a restore needs, or one changes its meaning.
FORMAT = 1
#: Format of the record of a control plane that was moved: it has the claim of the place.
FORMAT_MOVED = 2
#: Names of the files of a backup.
SNAPSHOT, KEYS, RECORD = "snapshot.age", "keys.age", "manifest.json"
#: A record has some KiB; more is none of ours.
MAX_BYTES = 1 << 20

_NAME = re.compile(r"([a-z]([-a-z0-9]*[a-z0-9])?)-(\d{8}t\d{6}z)-([0-9a-f]{6})")
_MOMENT = "%Y%m%dt%H%M%Sz"


class Purpose(StrEnum):
    """Reason for which a backup was taken."""

    SCHEDULED = "scheduled"
    REQUESTED = "requested"
    SURVIVOR = "survivor"  # of a member of etcd that has lost its majority


class Level(StrEnum):
    """Proofs that a snapshot has passed, the weaker first; of the last two it has one, or neither."""

    TRAILER = "trailer"  # size and checksum at its end
    STATUS = "status"  # etcdutl reads it
    RESTORED = "restored"  # etcd serves it
    COUNTS = "counts"  # numbers of keys are those of a live member at its revision, where hashes cannot be compared
    HASH = "hash"  # its content is that of a live member at its revision


@dataclass(frozen=True)
class StoredFile:
    """A file of a backup: its size in bytes and SHA-256 in hex, as it lies in the target and before encryption."""

    size: int
    sha256: str
    plain_size: int
    plain_sha256: str


@dataclass(frozen=True)
class AuthorityRecord:
    """A certificate authority by its fingerprint (SHA-256, hex), and when it ends (ISO 8601)."""

    fingerprint: str
    ends: str


@dataclass(frozen=True)
class Versions:
    """Versions with which the backup was taken, and with which it can be restored."""

    karmada: str
    kubernetes: str
    etcd: str
    collection: str


@dataclass(frozen=True)
class Record:
    """Description of one backup.

    ``series`` is the name of its EtcdBackup, ``owner`` the UUID of the instance. ``started`` is the moment before which
    everything that etcd acknowledged is in it (ISO 8601, UTC). ``revision`` and ``hash`` are etcd's, the hash as of
    ``hashkv`` at that revision. ``counts``: kind of object → number of keys. ``members`` are those of etcd,
    ``clusters`` those of Karmada. ``pins``: image → digest to which its tag led. ``dirty`` says what was unfinished;
    empty if nothing was. ``claim`` is that of the place where it was taken (``components.moving``); empty if the
    control plane was never moved, or an earlier version did not note it.
    """

    name: str
    series: str
    deployment: str
    home: str
    owner: str
    purpose: str
    started: str
    duration_seconds: int
    files: Mapping[str, StoredFile]
    cluster_id: str
    revision: int
    hash: int
    total_keys: int
    versions: Versions
    levels: tuple[str, ...]
    recipients: tuple[str, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    authorities: Mapping[str, AuthorityRecord] = field(default_factory=dict)
    encryption_provider: str = ""
    mode: str = ""
    host_cluster: str = ""
    pins: Mapping[str, str] = field(default_factory=dict)
    dirty: str = ""
    claim: str = ""

    @property
    def start(self) -> datetime:
        """``started`` as a moment."""
        return datetime.fromisoformat(self.started)

    @property
    def of_place(self) -> Claim:
        """``claim`` as such."""
        return Claim.of(self.claim)

    @property
    def size(self) -> int:
        """Bytes of its files in the target, without the record."""
        return sum(each.size for each in self.files.values())


def new_name(deployment: str, start: datetime, random: str) -> str:
    """Name of a backup; ``random`` are six hexadecimal digits, so that two runs of one second do not meet."""
    return f"{deployment}-{start.astimezone(UTC).strftime(_MOMENT)}-{random}"


def start_in(name: str) -> datetime | None:
    """Moment in the name of a backup; None if there is none in it."""
    found = _NAME.fullmatch(name)
    try:
        return datetime.strptime(found[3], _MOMENT).replace(tzinfo=UTC) if found else None
    except ValueError:
        return None


def is_name(text: str, deployment: str) -> bool:
    """Return whether a backup of this deployment can have this name. Nothing else of a target is looked at."""
    found = _NAME.fullmatch(text)
    return found is not None and found[1] == deployment


# -- signature ---------------------------------------------------------------------------------------------------------


def new_signing_key() -> bytes:
    """New private key (PEM) that signs records."""
    return ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def signer_of(private_pem: bytes) -> str:
    """Public key of a signing key, in base64, as records and people name it."""
    return base64_text(_private(private_pem).public_key().public_bytes_raw())


def signed(record: Record, private_pem: bytes) -> bytes:
    """The file of a record."""
    content = _plain(record)
    signature = base64_text(_private(private_pem).sign(_canonical(content)))
    whole = {
        "backup": content,
        "signature": {"algorithm": "Ed25519", "key": signer_of(private_pem), "value": signature},
    }
    return json.dumps(whole, indent=1, sort_keys=True).encode() + b"\n"


def opened(text: bytes, where: str, signers: Collection[str] | None = None) -> Record:
    """Record in a file, in the form that we write and signed by one of ``signers``.

    ``signers`` is None for a list, which promises nothing: then the signature has to be valid and may be anybody's.
    Raises ProblemsError.
    """
    try:
        if len(text) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
        whole = json.loads(text)
        unfit = [f"{crd.spelt(each.path)} {each.what}" for each in crd.structure_findings(whole, _FILE)]
        if unfit:
            raise ValueError("; ".join(unfit[:3]))
        content, signature = whole["backup"], whole["signature"]
        _verify(content, signature)
        record = _record(content)
    except (ValueError, RecursionError, binascii.Error, InvalidSignature) as error:
        what = "its signature does not fit its content" if isinstance(error, InvalidSignature) else str(error)
        raise ProblemsError(_invalid(f"is no record of a backup: {what}", where)) from None
    if signers is not None and signature["key"] not in signers:
        raise ProblemsError(_invalid(f"was signed by a key that is not known here ({signature['key']})", where))
    return record


def signer_in(text: bytes) -> str:
    """Public key that has signed a record, by its own word: ``opened`` proves that the signature fits."""
    return str(json.loads(text)["signature"]["key"])


def digest(text: bytes) -> str:
    """SHA-256 of a file, in hex."""
    return hashlib.sha256(text).hexdigest()


def _verify(content: Any, signature: Mapping[str, str]) -> None:
    key = ed25519.Ed25519PublicKey.from_public_bytes(base64.b64decode(signature["key"], validate=True))
    key.verify(base64.b64decode(signature["value"], validate=True), _canonical(content))


def _private(pem: bytes) -> ed25519.Ed25519PrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ValueError("the key that signs backups is not of the kind Ed25519")
    return key


def _canonical(content: Any) -> bytes:
    """The bytes that are signed: independent of the order and the spaces in the file."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _plain(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(asdict(record)))
    if not record.claim:
        # As before there were moves, so that earlier versions read it.
        del found["claim"]
    return {"format": FORMAT_MOVED if record.claim else FORMAT, **found}


def _record(content: Mapping[str, Any]) -> Record:
    fields: dict[str, Any] = {key: value for key, value in content.items() if key != "format"}
    if not is_name(fields["name"], fields["deployment"]):
        raise ValueError(f"{crd.shown(fields['name'])} is not the name of a backup of {fields['deployment']}")
    datetime.fromisoformat(fields["started"])
    Claim.of(fields.get("claim", ""))
    fields["files"] = {name: StoredFile(**each) for name, each in fields["files"].items()}
    fields["authorities"] = {name: AuthorityRecord(**each) for name, each in fields["authorities"].items()}
    fields["versions"] = Versions(**fields["versions"])
    fields |= {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
    return Record(**fields)


def _invalid(what: str, where: str) -> Problem:
    remedy = "restore from another backup, and find out who may write to the target"
    return Problem(shown(what), where, remedy, reason=Reason.INVALID_BACKUP)


# -- form --------------------------------------------------------------------------------------------------------------

_TEXT: dict[str, Any] = {"type": "string", "maxLength": 1024, "pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]*$"}
_NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 2**63}
_SHA256: dict[str, Any] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_MOMENT_FORM: dict[str, Any] = {
    "type": "string",
    "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}[+]00:00$",
}
_FIELDS: dict[str, dict[str, Any]] = {
    "format": {"type": "integer", "minimum": 1, "maximum": FORMAT_MOVED},
    **dict.fromkeys(("name", "series", "deployment", "home", "owner", "cluster_id", "dirty"), _TEXT),
    **dict.fromkeys(("encryption_provider", "mode", "host_cluster", "purpose"), _TEXT),
    **dict.fromkeys(("duration_seconds", "revision", "hash", "total_keys"), _NUMBER),
    **{key: {"type": "array", "maxItems": 64, "items": _TEXT} for key in ("levels", "recipients", "members")},
    "clusters": {"type": "array", "maxItems": 10_000, "items": _TEXT},
    "started": _MOMENT_FORM,
    "files": {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 8,
        "additionalProperties": {
            "type": "object",
            "required": ["size", "sha256", "plain_size", "plain_sha256"],
            "properties": {"size": _NUMBER, "sha256": _SHA256, "plain_size": _NUMBER, "plain_sha256": _SHA256},
        },
    },
    "versions": {
        "type": "object",
        "required": ["karmada", "kubernetes", "etcd", "collection"],
        "properties": dict.fromkeys(("karmada", "kubernetes", "etcd", "collection"), _TEXT),
    },
    "counts": {"type": "object", "maxProperties": 64, "additionalProperties": _NUMBER},
    "pins": {"type": "object", "maxProperties": 1024, "additionalProperties": _TEXT},
    "authorities": {
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {
            "type": "object",
            "required": ["fingerprint", "ends"],
            "properties": {"fingerprint": _TEXT, "ends": _TEXT},
        },
    },
}
_FILE: dict[str, Any] = {
    "type": "object",
    "required": ["backup", "signature"],
    "properties": {
        "backup": {"type": "object", "required": list(_FIELDS), "properties": {**_FIELDS, "claim": _TEXT}},
        "signature": {
            "type": "object",
            "required": ["algorithm", "key", "value"],
            "properties": {"algorithm": {"type": "string", "enum": ["Ed25519"]}, "key": _TEXT, "value": _TEXT},
        },
    },
}
