# SPDX-License-Identifier: Apache-2.0
"""Validation of the answers of plain hosts against the form that their modules give them. No I/O.

Root of a host decides what it answers. Parts of that become paths, names of programs to fetch, and text shown on the
machine where Ansible runs. Ansible itself acts upon more keys of an answer than ours: it makes variables of
``ansible_facts``, which are stronger than those of the inventory, and shows ``warnings`` as they are. So only the keys
of a module's own form go on; all others are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from ansible_collections.karmada.installer.plugins.module_utils import host_backup, host_reach

from ..document import crd
from ..redaction import printable

#: Problems shown of one answer; more would help nobody.
_SHOWN = 3


def _list(items: crd.Schema, most: int) -> dict[str, Any]:
    return {"type": "array", "maxItems": most, "items": items}


def _map(values: crd.Schema, most: int) -> dict[str, Any]:
    return {"type": "object", "maxProperties": most, "additionalProperties": values}


def _fields(*optional: str, **fields: crd.Schema) -> dict[str, Any]:
    """Object with these fields only; all are required but the ``optional`` ones."""
    return {"type": "object", "properties": fields, "required": sorted(set(fields) - set(optional))}


#: Longest text of an answer.
TEXT = 1024
_TEXT = {"type": "string", "maxLength": TEXT, "pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]*$"}
_WORD = {"type": "string", "maxLength": 64, "pattern": "^[A-Za-z0-9_.:@-]*$"}
_ADDRESS = {"type": "string", "maxLength": 64, "pattern": "^[0-9A-Fa-f.:/]+$"}
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_CONTENT = {"type": "string", "maxLength": 16 * 1024 * 1024, "pattern": "^[A-Za-z0-9+/]*={0,2}$"}
_DIGEST = {"type": "string", "pattern": "^([0-9a-f]{64})?$"}
_FILES = _map(_CONTENT, 256)
_COPY = _fields(serial=_NUMBER, files=_FILES)
_STORED = _fields(
    "digest",
    "lineage",
    "previous",
    **_COPY["properties"],
    digest=_DIGEST,
    lineage=_list(_DIGEST, 64),
    previous=_COPY,
)
#: Facts in the form of ``host_state.facts``.
_FACTS = _fields(
    architecture=_WORD,
    python=_WORD,
    systemd=_NUMBER,
    machine_id=_WORD,
    boot_id=_WORD,
    boot_time=_NUMBER,
    memory=_NUMBER,
    selinux_enforcing={"type": "boolean"},
    apparmor_profiles=_list(_TEXT, 4096),
    has_address={"type": "boolean"},
    interface=_TEXT,
    interfaces=_list(_fields(name=_TEXT, mac=_WORD, addresses=_list(_ADDRESS, 4096)), 4096),
    virtual_ip_at=_WORD,
    listening=_list(
        _fields(address=_WORD, port={"type": "integer", "minimum": 0, "maximum": 65535}, group=_TEXT), 65536
    ),
    free=_map(_NUMBER, 16),
    devices=_map(_NUMBER, 16),
    units=_map(_fields(owner=_TEXT, description=_TEXT), 4096),
    users=_map(_TEXT, 4096),
    missing_programs=_list(_WORD, 16),
    time={"type": "number"},
)
_DECIMAL = {"type": "string", "pattern": "^[0-9]{1,20}$"}
_ID = {"type": "string", "pattern": "^[0-9a-f]{1,16}$"}
_URLS = _list({"type": "string", "maxLength": 300, "pattern": "^https?://[A-Za-z0-9.:\\[\\]_-]+$"}, 8)
_KNOWN_MEMBERS = _fields(
    cluster_id=_ID,
    members=_list(_fields(id=_ID, name=_TEXT, peer_urls=_URLS, client_urls=_URLS, learner={"type": "boolean"}), 32),
)
_HASH = _fields(revision=_NUMBER, value={"type": "integer", "minimum": 0, "maximum": 2**32 - 1}, compacted=_NUMBER)
#: Folders with data of etcd, as ``host_old_data.look`` tells them.
_FOLDERS = _list(
    _fields("size", name={"type": "string", "pattern": "^gen-[0-9]{1,10}(-[0-9a-f]{1,16})?$"}, size=_NUMBER), 256
)
#: Answer of a member of etcd in the form of ``etcd_member.look``, ``hash_at`` and ``counted_at``. Numbers of 64 bits
#: are texts there, as etcd has them.
_ETCD = {
    "type": "object",
    "properties": {
        "message": _TEXT,
        "data": {"type": "boolean"},
        "status": _fields(
            header=_fields(cluster_id=_DECIMAL, member_id=_DECIMAL, revision=_DECIMAL),
            version=_WORD,
            leader=_DECIMAL,
            isLearner={"type": "boolean"},
            errors=_list(_TEXT, 8),
            raftIndex=_DECIMAL,
            raftTerm=_DECIMAL,
            dbSize=_DECIMAL,
            dbSizeInUse=_DECIMAL,
            dbSizeQuota=_DECIMAL,
        ),
        "known": _KNOWN_MEMBERS,
        "hash": _HASH,
        "counted": _fields(revision=_NUMBER, counts=_map(_NUMBER, 64)),
        "folders": _FOLDERS,
    },
}
_YES = {"type": "boolean"}
#: Status of HTTP; 0 if there was no answer.
_STATUS = {"type": "integer", "minimum": 0, "maximum": 999}
#: Text of several lines, which is redacted where it arrives.
_LINES = {"type": "string", "maxLength": 16 * 1024 * 1024}
_PATH = {"type": "string", "maxLength": 4096, "pattern": "^/[^\\x00-\\x1f\\x7f-\\x9f]*$"}
_FAULT = _fields(
    fault={
        "type": "string",
        "enum": [
            *(host_reach.UNKNOWN_NAME, host_reach.NO_ROUTE, host_reach.REFUSED, host_reach.SILENT, host_reach.NOT_TLS),
            *(host_reach.OTHER_NAME, host_reach.OTHER_AUTHORITY, host_reach.EXPIRED, host_reach.NOT_YET_VALID),
            *(host_reach.OTHER, host_reach.NOT_TRIED),
        ],
    },
    detail=_LINES,
)
#: Name of a backup or of a file of one. An empty record has none.
_PLAIN = {"type": "string", "maxLength": 255, "pattern": "^[!-~]*$"}
_BACKUPS = _fields(
    *("unfit", "fault", "free", "entries", "records", "size", "length", "content"),
    changed={"type": "boolean"},
    unfit=_fields(path=_PATH, why={"type": "string", "enum": [*host_backup.UNFIT]}),
    fault=_fields(errno=_WORD, text=_TEXT),
    free=_NUMBER,
    entries=_list({"type": "array", "minItems": 2, "maxItems": 2, "items": _PLAIN}, host_backup.MOST_FILES),
    records=_map(_CONTENT, host_backup.MOST_FILES),
    size=_NUMBER,
    length={"type": "integer", "minimum": 0, "maximum": host_backup.PIECE},
    content=_fields(base64=_CONTENT),
)
_DIFF = _fields(
    *("before", "after", "before_header", "after_header", "prepared"),
    before=_LINES,
    after=_LINES,
    before_header=_LINES,
    after_header=_LINES,
    prepared=_LINES,
)
_CHANGED = _fields(changed=_YES)
_WRITTEN = _fields("answer", changed=_YES, answer=_ETCD)
_READ = _fields(changed=_YES, stored=_STORED, files=_map(_CONTENT, 4096), facts=_FACTS, programs=_map(_DIGEST, 4096))
_TREE = _fields(
    *("diff", "outdated", "units"),
    changed=_YES,
    changes=_list(_LINES, 65536),
    diff=_list(_DIFF, 65536),
    outdated=_list(_TEXT, 4096),
    units=_map(_fields(program=_TEXT, reason=_LINES), 4096),
)
#: Answer of a module that could not do what it was asked. Whoever has the lock is told by those that ask for it.
_FAILED = _fields(
    *("changed", "changes", "diff", "holder", "msg", "module_stderr", "module_stdout", "rc", "failed"),
    failed=_YES,
    changed=_YES,
    changes=_TREE["properties"]["changes"],
    diff=_TREE["properties"]["diff"],
    holder={"type": "string", "maxLength": 1024, "pattern": "^[!-~]*$"},
    msg=_LINES,
    module_stderr=_LINES,
    module_stdout=_LINES,
    rc={"type": "integer", "minimum": -(2**31), "maximum": 2**31},
)
#: Module → form of its answer when it has done what it was asked.
_FORMS: Mapping[str, crd.Schema] = {
    "_host_tree": _TREE,
    "_host_program_files": _fields(
        "installed", "removed", changed=_YES, installed=_list(_PATH, 4096), removed=_list(_PATH, 4096)
    ),
    "_host_state": _READ,
    "_backup_folder": _BACKUPS,
    "_etcd_member": _fields(changed=_YES, answer=_ETCD),
    "_etcd_room": _CHANGED,
    "_etcd_snapshot": _fields(changed=_YES, size=_NUMBER, acknowledged=_NUMBER),
    "_etcd_change": _fields(
        "known", "added", "later", changed={"type": "boolean"}, known=_KNOWN_MEMBERS, added=_ID, later=_TEXT
    ),
    "_host_restore": _fields(
        *("running", "there", "status", "member", "hash", "counts", "size", "removed", "admission", "restarted"),
        "folders",
        changed=_YES,
        member=_ETCD,
        running=_list(_TEXT, 256),
        there=_YES,
        status=_STATUS,
        hash=_HASH,
        counts=_map(_NUMBER, 64),
        size=_NUMBER,
        folders=_FOLDERS,
        removed=_list(_PATH, 256),
        # A request for each cluster.
        admission=_map(_fields(status=_STATUS, message=_TEXT), 65536),
        restarted=_list(_TEXT, 256),
    ),
    "_host_log": _fields(changed=_YES, lines=_map(_LINES, 65536)),
    "_host_reach": _fields(changed=_YES, unreached=_map(_FAULT, 65536)),
    "ansible.builtin.stat": _fields(changed=_YES, stat=_fields(exists=_YES)),
    "ansible.builtin.package": _CHANGED,
}
#: States of ``_host_state`` that read what is there; the others answer whether they have changed it.
_READING = ("read", "locked")


class Answer(NamedTuple):
    """Answer with the keys that its module gives it, and the reason why it is refused; the reason is empty if it is
    used.
    """

    found: dict[str, Any]
    refusal: str


def of_module(module: str, arguments: Mapping[str, Any], answer: object) -> Answer:
    """Answer of a host to a module of ours, without any key that this module does not give.

    An answer of another form is refused. One that says that the module failed stays one, whatever else is in it.
    """
    if not isinstance(answer, Mapping):
        return Answer({}, "what it answered does not have the form that it should have")
    if answer.get("failed") or answer.get("unreachable"):
        known = _known(answer, _FAILED)
        kept = {key: value for key, value in known.items() if crd.fits({key: value}, _FAILED)}
        # Whether a host is reached is for our own connection to say, not for the host.
        return Answer({**kept, "failed": True}, "")
    form = _FORMS[module]
    if module == "_host_state" and arguments["state"] not in _READING:
        form = _WRITTEN
    if module == "_etcd_snapshot" and arguments["state"] == "absent":
        form = _CHANGED
    known = _known(answer, form)
    why = _refusal(known, form) or _unasked(module, arguments, known)
    return Answer({} if why else known, why)


def _known(answer: Mapping[str, Any], form: crd.Schema) -> dict[str, Any]:
    """Keys of the form; of what Ansible's own modules tell about a file, too, because they tell more than we ask."""
    found = {key: value for key, value in answer.items() if key in form["properties"]}
    if isinstance(found.get("stat"), Mapping):
        found["stat"] = {key: value for key, value in found["stat"].items() if key == "exists"}
    return found


def _unasked(module: str, arguments: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Reason to refuse an answer about something that was not asked for, or without something that was."""
    if module == "_host_state" and "facts" in answer:
        # Checks of disks ask for these folders.
        lacking = [
            each for each in arguments["folders"] for key in ("free", "devices") if each not in answer["facts"][key]
        ]
        return f"it did not answer about {lacking[0]}" if lacking else ""
    if module == "_host_reach":
        more = set(answer["unreached"]) - {target["name"] for target in arguments["targets"]}
    elif module == "_host_log":
        more = set(answer["lines"]) - set(arguments["texts"])
    else:
        return ""
    return f"it answered about {printable(min(more), 64)}, which it was not asked for" if more else ""


def _refusal(answer: Mapping[str, Any], form: crd.Schema) -> str:
    """Reason to refuse an answer; empty if it has this form."""
    if crd.fits(answer, form):
        return ""
    found = islice(crd.structure_findings(answer, form), _SHOWN)
    wrong = "; ".join(f"{crd.spelt(each.path)} {each.what}" for each in found)
    return f"what it answered does not have the form that it should have: {wrong}" if wrong else ""
