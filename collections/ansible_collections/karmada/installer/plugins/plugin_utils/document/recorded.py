# SPDX-License-Identifier: Apache-2.0
"""Validation of an instance's state when it is read, because whoever can write it could have written anything.

Root on a plain host, or anybody who may write Secrets in the namespace of a control plane, can change a state. Values
that direct a connection or a path (access to a host or a member, names, versions) are used only after the state has
passed the schemas; nothing is used of a state that has not. No I/O.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from ..components.etcd_state import MOST_LEFT, EtcdState
from ..components.state import (
    FORMER_MODE,
    MOST_CLUSTERS,
    MOST_NAMESPACES,
    MOST_SERIES,
    RestoreState,
    State,
    from_files,
)
from ..problems import Problem, ProblemsError, Reason
from . import cel_rules, crd, manifest

#: More problems of one state help nobody.
_SHOWN = 5
_UUID = {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
#: Short text that is shown, compared, or written into objects, and leads nowhere.
_TEXT = {"type": "string", "maxLength": 1024, "pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]*$"}
_NAME = {"type": "string", "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"}
_NAMES = {"type": "array", "maxItems": 64, "items": _NAME}
_UID = {"type": "string", "maxLength": 64, "pattern": "^[0-9a-fA-F-]*$"}
#: ID of a member of etcd, or of its cluster, in hexadecimal digits.
_ETCD_ID = {"type": "string", "pattern": "^[0-9a-f]{0,16}$"}
#: Member of etcd. Its ID becomes part of a path, and the members that it starts with are text of its configuration.
_ETCD_MEMBER = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": _NAME,
        "id": _ETCD_ID,
        "volume": _UID,
        "former": _UID,
        "initial_cluster": {"type": "string", "maxLength": 8192, "pattern": "^[-a-zA-Z0-9.:/=,_\\[\\]]*$"},
        "added": {"type": "boolean"},
        "coming": {"type": "boolean"},
        "leaving": {"type": "boolean"},
        "unused": {"type": "boolean"},
        "lost": _TEXT,
    },
}
#: Folder with data of etcd. It becomes part of a path.
_FOLDER = {"type": "string", "pattern": "^gen-[0-9]{1,10}(-[0-9a-f]{1,16})?$"}
_ETCD = {
    "type": "object",
    "properties": {
        "token": _TEXT,
        "generation": {"type": "integer", "minimum": 1, "maximum": 2**31},
        "bootstrapped": {"type": "boolean"},
        "storage": {"type": "string", "pattern": "^[A-Za-z]{0,32}$"},
        "prefix": {"type": "string", "maxLength": 256, "pattern": "^(/[A-Za-z0-9_./-]*)?$"},
        "nodes": {**_NAMES, "items": {**_NAME, "pattern": f"{_NAME['pattern']}|^$"}},
        "members": {"type": "array", "maxItems": 16, "items": _ETCD_MEMBER},
        "cluster": _ETCD_ID,
        "left": {
            "type": "array",
            "maxItems": MOST_LEFT,
            "items": {"type": "object", "properties": {"member": _NAME, "folder": _FOLDER, "volume": _UID}},
        },
    },
}
#: Of etcd, which counts with 64 bits.
_REVISION = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_BACKUP_NAME = {**_NAME, "maxLength": 128}
_BACKUP_NAME_OR_NONE = {**_BACKUP_NAME, "pattern": f"{_NAME['pattern']}|^$"}
#: A restore. Its token and generation become words of a command line, and parts of a path.
_RESTORE_ALONE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": _NAME,
        "series": _NAME,
        "backup": _BACKUP_NAME,
        "survivor": {**_NAME, "pattern": f"{_NAME['pattern']}|^$"},
        "before": _BACKUP_NAME_OR_NONE,
        "started": _TEXT,
        "token": {"type": "string", "pattern": "^[0-9a-f-]{1,64}$"},
        "generation": {"type": "integer", "minimum": 1, "maximum": 2**31},
        "bump": {"type": "integer", "minimum": 1, "maximum": 2**62},
        "revision": _REVISION,
        "former": _ETCD,
        "members": _NAMES,
        "prepared": _NAMES,
        "held": _NAMES,
        # Of the backup, and of each member that answered.
        "replaced": {"type": "array", "maxItems": 17, "items": {"type": "string", "pattern": "^[0-9a-f]{0,16}$"}},
        "counts": {"type": "object", "maxProperties": 64, "additionalProperties": {"type": "integer", "minimum": 0}},
        "closed": {"type": "boolean"},
        "undoing": {"type": "boolean"},
        "came_back": {"type": "boolean"},
        "step": {"type": "string", "pattern": "^[A-Za-z]{0,32}$"},
        "aside": {"type": "array", "maxItems": 1024, "items": _FOLDER},
        # In pairs, so that clusters are judged, too: they become names of namespaces.
        "parts": {
            "type": "array",
            "maxItems": MOST_CLUSTERS,
            "items": {
                "type": "object",
                "properties": {
                    "cluster": {**_NAME, "pattern": f"{_NAME['pattern']}|^[*]$"},
                    "namespaces": {**_NAMES, "maxItems": MOST_NAMESPACES},
                },
            },
        },
    },
}
_RESTORE = {**_RESTORE_ALONE, "properties": {**_RESTORE_ALONE["properties"], "former_restore": _RESTORE_ALONE}}
_NAMES_OF_MEMBERS = {**_NAMES, "maxItems": 10_000}
#: A move: names become arguments, and are shown.
_MOVE = {
    "type": "object",
    "properties": {
        "series": _NAME,
        "backup": _BACKUP_NAME_OR_NONE,
        "started": _TEXT,
        "step": {"type": "string", "pattern": "^[A-Za-z]{0,32}$"},
        "held": _NAMES,
        "source": {"type": "string", "maxLength": 512, "pattern": "^[-a-z0-9.]+/[-a-z0-9.]+$"},
        "unfenced": _NAMES_OF_MEMBERS,
        "epoch": {"type": "integer", "minimum": 0},
        "revision": _REVISION,
        **{key: {"type": "boolean"} for key in ("closed", "undoing", "planned", "fenced")},
    },
}
#: Fields of a ``State`` that are plain values; those that are records of something have schemas of their own.
_PLAIN = {
    "type": "object",
    "properties": {
        "owner": _UUID,
        "version": {"type": "string", "pattern": "^v[0-9]{1,4}[.][0-9]{1,4}[.][0-9]{1,4}$"},
        "collection": _TEXT,
        "encryption_key": {"type": "string", "maxLength": 128, "pattern": "^[A-Za-z0-9+/]*={0,2}$"},
        "endpoint_host": {
            "type": "string",
            "maxLength": 253,
            "pattern": "^([A-Za-z0-9:]([-A-Za-z0-9.:]*[A-Za-z0-9:])?)?$",
        },
        "endpoint_type": {"type": "string", "maxLength": 32, "pattern": "^[A-Za-z]*$"},
        "host_cluster": _UID,
        "service_subnet": {"type": "string", "maxLength": 128, "pattern": "^[0-9a-fA-F.:/,]*$"},
        "passages": {"type": "array", "maxItems": 8, "items": {"type": "string", "pattern": "^[A-Za-z]{1,32}$"}},
        "digests": {"type": "object", "additionalProperties": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}},
        "restarts": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 2**31}},
        "restarts_due": _NAMES,
        "member_places": {
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 65535},
        },
        "etcd": _ETCD,
        "journal": {
            "type": "object",
            "properties": dict.fromkeys(("operation", "run", "started", "finished", "step"), _TEXT),
        },
        # Shown, and looked up by name: empty, or a name as objects have it.
        "manager": {
            "type": "object",
            "properties": {
                **{key: {**_NAME, "pattern": f"{_NAME['pattern']}|^$"} for key in ("namespace", "name")},
                **{key: {"type": "string", "pattern": "^[0-9A-Za-z-]{0,64}$"} for key in ("uid", "cluster")},
            },
        },
        "owned": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": _TEXT}},
        "backups": {
            "type": "object",
            "maxProperties": MOST_SERIES,
            "additionalProperties": {
                "type": "object",
                "properties": {
                    "name": {**_NAME, "maxLength": 128},
                    "started": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}[+]00:00$"},
                    **{
                        key: {"type": "integer", "minimum": 0}
                        for key in ("size", "revision", "duration", "allowed", "epoch")
                    },
                },
            },
        },
    },
}

#: Keys of maps of a ``State``, of which the schemas above judge the values.
_KEYS = {
    "digests": (_TEXT, "an image"),
    "restarts": (_NAME, "a component"),
    "member_places": (_NAME, "a member"),
    "owned": (_TEXT, "a cluster"),
    "backups": (_NAME, "an EtcdBackup"),
}


def read_state(files: Mapping[str, bytes], where: str) -> State:
    """State in these files, fully validated. ``where`` is their location for people.

    Raises ProblemsError if it cannot be read, or has content that no run of this collection can have written.
    """
    state = from_files(files, where)
    if told := _told(state):
        what = f"the installer's state says what this collection does not write: {told}"
        remedy = (
            "find out who has changed it, and restore it from a backup; nothing of it was used, nothing was changed"
        )
        raise ProblemsError(Problem(what, where, remedy, reason=Reason.INVALID_STATE))
    return state


def require_readable(state: State, where: str) -> None:
    """Raise ProblemsError if no later run could read this state: it is not stored then, so that the former one stays.

    ``where`` is its location for people.
    """
    if told := _told(state):
        what = f"this step would leave a state of the installer that no run could read any more: {told}"
        remedy = "the state is as it was before the step; have less of what is named, or report it"
        raise ProblemsError(Problem(what, where, remedy, reason=Reason.INVALID_STATE), "nothing of it was recorded")


def _told(state: State) -> str:
    """Findings about a state in words, the first of them; empty if there are none."""
    wrong = [f"{crd.spelt(each.path)} {each.what}" for each in findings(state)]
    more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return f"{'; '.join(wrong[:_SHOWN])}{more}"


def findings(state: State) -> Iterator[crd.Finding]:
    """Findings about a state, each at its path."""
    yield from _unfit(_plain(state), _PLAIN, ())
    yield from _of_keys(state)
    hosts, members = _entry_schema("hosts"), _member_schema()
    if not _is_map(state.hosts):
        yield crd.Finding("type", ("hosts",), "is no record of hosts")
        return
    for name, entry in state.hosts.items():
        yield from _of_entry(name, entry, hosts, ("hosts", name))
    for name, record in state.members.items():
        # What was not given is on record as null.
        given = {key: value for key, value in record.items() if value is not None} if _is_map(record) else record
        yield from _of_entry(name, {"name": name, **given} if _is_map(given) else given, members, ("members", name))
    if state.document is not None:
        yield from _unfit(state.document, manifest.schema(), ("document",))
    if state.restore is not None:
        yield from _unfit(_plain_restore(state.restore), _RESTORE, ("restore",))
    if state.handed_over is not None:
        plain = {**vars(state.handed_over), "held": list(state.handed_over.held)}
        yield from _unfit(plain, _MOVE, ("handedOver",))
    if state.taken_over is not None:
        plain = {**vars(state.taken_over), "unfenced": list(state.taken_over.unfenced)}
        yield from _unfit(plain, _MOVE, ("takenOver",))


def _of_keys(state: State) -> Iterator[crd.Finding]:
    """Findings about the keys of maps; what is no map is a finding of the schemas."""
    for field, (form, of) in _KEYS.items():
        found = getattr(state, field)
        for key in found if _is_map(found) else ():
            if not crd.fits(key, form):
                yield crd.Finding("pattern", (field, key), f"is no name of {of}")
    for cluster, uids in state.owned.items():
        for reference in uids:
            if not crd.fits(reference, _TEXT):
                yield crd.Finding("pattern", ("owned", cluster, reference), "is no name of an object")


def _of_entry(name: str, entry: Any, schema: crd.Schema, path: crd.Path) -> Iterator[crd.Finding]:
    """Findings about an entry of the document, under its name. Rules for its values count as part of the structure."""
    unfit = list(_unfit(entry, schema, path))
    yield from unfit
    if unfit:
        return
    if entry["name"] != name:
        yield crd.Finding("name", path, f"is the entry of {crd.shown(entry['name'])}")
    for key, value in entry.items():
        rules = schema["properties"][key]
        if "x-kubernetes-validations" in rules:
            for each in cel_rules.rule_findings(value, rules):
                yield crd.Finding(each.keyword, (*path, key, *each.path), each.what)


def _unfit(value: Any, schema: crd.Schema, path: crd.Path) -> Iterator[crd.Finding]:
    if crd.fits(value, schema):
        return
    for each in crd.structure_findings(value, schema):
        yield crd.Finding(each.keyword, (*path, *each.path), each.what)


def _plain(state: State) -> dict[str, Any]:
    found = {name: getattr(state, name) for name in _PLAIN["properties"]}
    etcd = _plain_etcd(state.etcd)
    lists = {name: list(found[name]) for name in ("passages", "restarts_due")}
    backups = {name: dict(vars(each)) for name, each in state.backups.items()}
    return {
        **found,
        **lists,
        "backups": backups,
        "etcd": etcd,
        "journal": vars(state.journal),
        "manager": vars(state.manager),
    }


def _plain_etcd(etcd: EtcdState) -> dict[str, Any]:
    records = {name: [dict(vars(each)) for each in getattr(etcd, name)] for name in ("members", "left")}
    return {**vars(etcd), "nodes": list(etcd.nodes), **records}


def _plain_restore(restore: RestoreState) -> dict[str, Any]:
    lists = {name: list(getattr(restore, name)) for name in ("members", "prepared", "held", "replaced", "aside")}
    parts = [{"cluster": name, "namespaces": list(spaces)} for name, spaces in restore.parts.items()]
    found = {**vars(restore), **lists, "former": _plain_etcd(restore.former), "parts": parts}
    upon = found.pop("former_restore")
    return {**found, "former_restore": _plain_restore(upon)} if upon else found


@functools.cache
def _entry_schema(section: str) -> dict[str, Any]:
    """Schema of an entry of ``spec.hosts`` or ``spec.members``."""
    found: dict[str, Any] = manifest.schema()["properties"]["spec"]["properties"][section]["items"]
    return found


@functools.cache
def _member_schema() -> dict[str, Any]:
    """Schema of an entry of ``spec.members``, with the field that only a record has."""
    entry = _entry_schema("members")
    return {**entry, "properties": {**entry["properties"], FORMER_MODE: entry["properties"]["mode"]}}


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)
