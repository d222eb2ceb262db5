# SPDX-License-Identifier: Apache-2.0
"""Validation of the answers of plain hosts against the form that our module gives them. No I/O.

Root of a host decides what it answers. Parts of that become paths, names of programs to fetch, and text shown on the
machine where Ansible runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from ..document import crd

#: Problems shown of one answer; more would help nobody.
_SHOWN = 3


def _list(items: crd.Schema, most: int) -> dict[str, Any]:
    return {"type": "array", "maxItems": most, "items": items}


def _map(values: crd.Schema, most: int) -> dict[str, Any]:
    return {"type": "object", "maxProperties": most, "additionalProperties": values}


def _fields(**fields: crd.Schema) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": sorted(fields)}


_TEXT = {"type": "string", "maxLength": 1024, "pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]*$"}
_WORD = {"type": "string", "maxLength": 64, "pattern": "^[A-Za-z0-9_.:@-]*$"}
_ADDRESS = {"type": "string", "maxLength": 64, "pattern": "^[0-9A-Fa-f.:/]+$"}
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_CONTENT = {"type": "string", "maxLength": 16 * 1024 * 1024, "pattern": "^[A-Za-z0-9+/]*={0,2}$"}
_DIGEST = {"type": "string", "pattern": "^([0-9a-f]{64})?$"}
_FILES = _map(_CONTENT, 256)
_COPY = _fields(serial=_NUMBER, files=_FILES)
_STORED = {
    "type": "object",
    "required": ["serial", "files"],
    "properties": {
        **_COPY["properties"],
        "digest": _DIGEST,
        "lineage": _list(_DIGEST, 64),
        "previous": _COPY,
    },
}
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
_ANSWER = {
    "type": "object",
    "properties": {"stored": _STORED, "files": _map(_CONTENT, 4096), "facts": _FACTS, "programs": _map(_DIGEST, 4096)},
}


def refusal(answer: Mapping[str, Any]) -> str:
    """Reason to refuse a host's answer; empty if it has the form that ``host_state`` gives it."""
    if crd.fits(answer, _ANSWER):
        return ""
    found = islice(crd.structure_findings(answer, _ANSWER), _SHOWN)
    wrong = "; ".join(f"{crd.spelt(each.path)} {each.what}" for each in found)
    return f"what it answered does not have the form that it should have: {wrong}" if wrong else ""
