# SPDX-License-Identifier: Apache-2.0
"""Kubernetes objects as plain dicts: names, hashes, drift, diffs and ownership. No I/O."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import yaml

from ..api_object import Object
from ..encoding import base64_text
from ..labels import FIELD_MANAGER, MANAGED_BY_LABEL, OWNER_LABEL
from .merge_keys import DEFAULTS, merge_keys

HASH_ANNOTATION = "installer.karmada.io/applied-hash"

# Empty maps that select one of several alternatives, and so differ from an absent field.
_CHOICES = frozenset({"emptyDir"})

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?")
_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
# Maps whose values are quantities. Elsewhere "1Ki" and "1024" are different texts.
_QUANTITY_MAPS = frozenset({"requests", "limits", "capacity", "hard", "default", "defaultRequest", "min", "max"})
_QUANTITY_FIELDS = frozenset({"sizeLimit", "storage", "divisor"})
# Maps of opaque text: their values are no quantities, no defaults, and no lists to merge.
_TEXT_MAPS = frozenset({"labels", "annotations", "data", "stringData", "binaryData", "matchLabels", "nodeSelector"})

#: LibYAML's emitter, several times as fast, where PyYAML was built with it.
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_NOT_OURS_TO_SHOW = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")


class Ref(NamedTuple):
    """Reference to an object, enough to get it: ``cluster.get(*ref)``. A cluster-scoped object has no namespace."""

    api_version: str
    kind: str
    name: str
    namespace: str | None = None

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> Ref:
        """Reference to an object."""
        meta = obj["metadata"]
        return cls(obj["apiVersion"], obj["kind"], meta["name"], meta.get("namespace") or None)

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


# -- what we applied ---------------------------------------------------------------------------------------------------


def applied_hash(obj: Object) -> str:
    """SHA-256 of the object as canonical JSON, without the annotation that holds this hash."""
    canonical = json.dumps(_without_hash(obj), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def with_applied_hash(obj: Object) -> Object:
    """Copy of the object with its hash as an annotation."""
    plain = _without_hash(obj)
    meta = plain["metadata"]
    annotations = {**(meta.get("annotations") or {}), HASH_ANNOTATION: applied_hash(obj)}
    return {**plain, "metadata": {**meta, "annotations": annotations}}


def recorded_hash(live: Object) -> str | None:
    """Hash that the last apply left on a live object, or None."""
    found: str | None = (live["metadata"].get("annotations") or {}).get(HASH_ANNOTATION)
    return found


def _without_hash(obj: Object) -> Object:
    annotations = obj["metadata"].get("annotations") or {}
    if HASH_ANNOTATION not in annotations:
        return obj
    rest = {key: value for key, value in annotations.items() if key != HASH_ANNOTATION}
    meta = {key: value for key, value in obj["metadata"].items() if key != "annotations"}
    return {**obj, "metadata": {**meta, "annotations": rest} if rest else meta}


# -- desired against live ----------------------------------------------------------------------------------------------


def covers(live: Object, desired: Object) -> bool:
    """Return whether ``live`` has every field that we set, with that value. See ``drift``; False may be too strict."""
    return not drift(live, desired)


def drift(live: Object, desired: Object) -> list[str]:
    """Paths of the fields of ``desired`` that ``live`` lacks or has with another value.

    Changes that the API server itself makes are no drift: it drops empty values, normalizes quantities, stores
    stringData as data, fills in defaults and sorts some lists. Fields that only ``live`` has are ignored.
    """
    return _drift(_stored_form(live), _stored_form(desired), "", "")


def _stored_form(obj: Object) -> Object:
    """The object as the API server stores it: stringData as data. The hash annotation is left out."""
    plain = _without_hash(obj)
    if plain.get("kind") != "Secret" or not plain.get("stringData"):
        return plain
    text = {key: base64_text(value.encode()) for key, value in plain["stringData"].items()}
    rest = {key: value for key, value in plain.items() if key != "stringData"}
    return {**rest, "data": {**(plain.get("data") or {}), **text}}


def _drift(live: Any, desired: Any, path: str, field: str, *, exact: bool = False) -> list[str]:
    """Drift below ``path``. ``field`` is its last key; "=" inside a map of texts, "#" inside a map of quantities.

    ``exact``: inside an atomic list, where all lists are atomic.
    """
    if _empty(desired):
        # The API server drops empty values, and an empty map asks for nothing where live has content.
        if field in _CHOICES:
            return [] if live is not None else [path]
        return [] if _empty(live) or desired is None or isinstance(desired, dict) else [path]
    if isinstance(desired, dict):
        if not isinstance(live, dict):
            return [path]
        found: list[str] = []
        for key, value in desired.items():
            inner = "=" if field in _TEXT_MAPS else "#" if field in _QUANTITY_MAPS else key
            place = f"{path}.{key}" if path else key
            found += _drift(live.get(key), value, place, inner, exact=exact)
        return found
    if isinstance(desired, list):
        return _drift_of_list(live, desired, path, field, exact=exact)
    return [] if _same(live, desired, field) else [path]


def _drift_of_list(live: Any, desired: list[Any], path: str, field: str, *, exact: bool) -> list[str]:
    if not isinstance(live, list):
        return [path]
    keys = None if exact else _keys_of(field, live, desired)
    if keys is None:
        # This list is atomic: an additional entry in live is a difference.
        if len(live) != len(desired):
            return [path]
        pairs = enumerate(zip(live, desired, strict=True))
        return [one for index, (a, b) in pairs for one in _drift(a, b, f"{path}[{index}]", field, exact=True)]
    known = {_identity(one, keys): one for one in live}
    found: list[str] = []
    for entry in desired:
        identity = _identity(entry, keys)
        place = f"{path}[{keys[0]}={identity[0]}]"
        found += _drift(known[identity], entry, place, field) if identity in known else [place]
    return found


def _keys_of(field: str, live: list[Any], desired: list[Any]) -> tuple[str, ...] | None:
    """Fields that identify the entries of both lists, or None where position does."""
    keys = merge_keys(field, [*live, *desired])
    if keys is None or not all(isinstance(one, dict) for one in (*live, *desired)):
        return None
    for entries in (live, desired):
        identities = [_identity(one, keys) for one in entries]
        if any(None in identity for identity in identities) or len(set(identities)) != len(identities):
            return None
    return keys


def _identity(entry: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    values = [entry.get(key, DEFAULTS.get(key)) for key in keys]
    return tuple(value if isinstance(value, (str, int, type(None))) else str(value) for value in values)


def _same(live: Any, desired: Any, field: str) -> bool:
    if type(live) is type(desired) and live == desired:
        return True
    if isinstance(live, bool) or isinstance(desired, bool):
        return False
    if isinstance(live, (int, float)) and isinstance(desired, (int, float)):
        return live == desired
    if field == "#" or field in _QUANTITY_FIELDS:
        left, right = quantity(live), quantity(desired)
        return left is not None and left == right
    return False


def quantity(value: Any) -> Decimal | None:
    """Number of a quantity such as ``500m`` or ``1Gi``; None for anything else."""
    matched = _QUANTITY.fullmatch(str(value))
    if matched is None:
        return None
    number, suffix = matched.group(1), matched.group(2) or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix != "Ei":
        return Decimal(number + suffix)
    return Decimal(number) * _SUFFIXES[suffix]


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, (str, dict, list)) and not value)


# -- for people --------------------------------------------------------------------------------------------------------


def diff(before: Object | None, after: Object | None) -> dict[str, str]:
    """Both objects as YAML for Ansible's diff mode, keys ``before`` and ``after``; None is the empty text.

    Fields that the server maintains are left out; data of Secrets is redacted, with a mark where it differs. A CRD is
    one line: its schema is thousands, and nobody's own words.
    """
    old, new = _shown(before), _shown(after)
    if "CustomResourceDefinition" in (old.get("kind"), new.get("kind")):
        return {"before": _crd_line(old), "after": _crd_line(new)}
    if "Secret" in (old.get("kind"), new.get("kind")):
        data, others = old.get("data") or {}, new.get("data") or {}
        if data:
            old = {**old, "data": dict.fromkeys(data, "<redacted>")}
        if others:
            # Both sides must differ where the data does, or the diff would not show the line.
            told = {key: "<redacted>" if data.get(key) == others[key] else "<redacted, changed>" for key in others}
            new = {**new, "data": told}
    return {"before": _yaml(old), "after": _yaml(new)}


def _crd_line(crd: Object) -> str:
    """Line on a CRD: its versions, and a digest by which two contents with the same versions differ."""
    if not crd:
        return ""
    meta = crd["metadata"]
    about = {
        "labels": meta.get("labels") or {},
        "annotations": {key: value for key, value in (meta.get("annotations") or {}).items() if key != HASH_ANNOTATION},
        "spec": crd.get("spec"),
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    versions = ", ".join(each["name"] for each in (crd.get("spec") or {}).get("versions") or ())
    return f"{crd['kind']} {meta['name']}: {versions or 'no version'} (sha256 {digest[:12]})\n"


def _shown(obj: Object | None) -> Object:
    if not obj:
        return {}
    obj = _stored_form(obj)
    meta = {key: value for key, value in obj["metadata"].items() if key not in _NOT_OURS_TO_SHOW}
    annotations = {
        key: value
        for key, value in (meta.pop("annotations", None) or {}).items()
        # kubectl keeps a whole copy of the object in this one, data of Secrets included.
        if key != "kubectl.kubernetes.io/last-applied-configuration"
    }
    if annotations:
        meta["annotations"] = annotations
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": meta}


def _yaml(obj: Object) -> str:
    if not obj:
        return ""
    layout: dict[str, Any] = {"sort_keys": True, "default_flow_style": False, "width": 120}
    try:
        return str(yaml.dump(obj, Dumper=_DUMPER, **layout))
    except UnicodeEncodeError:
        # JSON may hold half of a surrogate pair, which UTF-8 cannot encode. The slower emitter escapes it.
        return str(yaml.safe_dump(obj, **layout))


# -- which one it is ---------------------------------------------------------------------------------------------------

#: Most UIDs are UUIDs; all are single words.
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_uid(value: object) -> bool:
    """Return whether this can be the UID of an object. An API server may send anything in its place."""
    return isinstance(value, str) and _UID.fullmatch(value) is not None


# -- whose it is -------------------------------------------------------------------------------------------------------


def claimed_by(live: Object) -> tuple[str | None, str | None]:
    """Labels (managed-by, owner) of a live object. Anybody can set a label: see ``owned_by``."""
    labels = live["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY_LABEL), labels.get(OWNER_LABEL)


def owned_by(live: Object, owner: str, recorded_uids: Collection[str]) -> bool:
    """Return whether this object may be deleted in the name of ``owner``.

    Two conditions must hold. Its owner label names the instance; and there is proof that we created it, since anybody
    can set a label (a user who copies our manifest, for one). Proof is either a UID that the state recorded at
    creation, or, for an object created just before a run died, managedFields with our apply as the oldest writer.
    Writers of subresources (status) do not count, because nobody creates an object through one. When another writer is
    older than our apply, the object is not claimed: a leftover that the report names is better than deleting too much.
    """
    meta = live["metadata"]
    if claimed_by(live)[1] != owner:
        return False
    if meta.get("uid") in recorded_uids:
        return True
    entries = [one for one in meta.get("managedFields") or [] if not one.get("subresource")]
    ours = [one for one in entries if one.get("manager") == FIELD_MANAGER and one.get("operation") == "Apply"]
    if not ours:
        return False
    # RFC 3339 in UTC sorts as text.
    first = min(str(one.get("time", "")) for one in ours)
    return all(str(one.get("time", "")) >= first for one in entries if one not in ours)
