# SPDX-License-Identifier: Apache-2.0
"""YAML as clients of an API server read it: plain data only, no duplicate keys, and bounded in size.

PyYAML's loader turns text into dates and base-60 numbers, which JSON does not have, accepts duplicate keys, and expands
aliases without limit. So this module builds the data from the parser's events, without recursion. A subclass of that
loader is not enough: it composes a whole document, by recursion, before a constructor could count values or depth, and
it resolves aliases and scalars out of reach of the parser in C.
"""

from __future__ import annotations

import copy
import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

#: Loader in C, ten times as fast, if PyYAML was built with it.
SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_NODES = 200_000
MAX_DEPTH = 64

_TAG = "tag:yaml.org,2002:"
_BOOLEANS = {
    **dict.fromkeys(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_NULLS = {"", "~", "null", "Null", "NULL"}
_INTEGER = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MERGE = "<<"


class UnreadableError(Exception):
    """Text that is not YAML of this kind. ``line`` counts from 1; 0 means that there is none."""

    def __init__(self, what: str, line: int = 0, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.line = line
        self.remedy = remedy

    def place(self, text: str) -> str:
        """Place of the error for people; ``text`` names the text, or is empty."""
        return ", ".join(filter(None, (text, f"line {self.line}" if self.line else "")))


def load(text: str | bytes) -> Any:
    """Load the only document of a text that a program wrote, as PyYAML reads it. Raises yaml.YAMLError."""
    return yaml.load(text, SAFE_LOADER)  # noqa: S506 - it is a safe loader, in C or not


def documents_of(text: str | bytes) -> list[Any]:
    """Documents of a YAML text as dicts, lists, strings, numbers, booleans and None. Raises UnreadableError."""
    if isinstance(text, bytes):
        text = _decoded(text)
    builder = _Builder()
    try:
        for event in yaml.parse(text, SAFE_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise UnreadableError(
            f"is not YAML: {reason}",
            mark.line + 1 if mark else 0,
            "Write spaces instead of tabs, and quote values that begin with @ or %."
            if "cannot start any token" in reason
            else "",
        ) from None
    except yaml.YAMLError as error:
        raise UnreadableError(f"is not YAML: {str(error).splitlines()[0]}") from None
    return builder.documents


def _decoded(text: bytes) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError("is not text in UTF-8", text.count(b"\n", 0, error.start) + 1) from None


@dataclass
class _Open:
    """Mapping or list that is being read."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    nodes_before: int
    #: number of levels below it
    depth: int = 0
    key: str | None = None
    key_line: int = 0
    merged: list[dict[str, Any]] = field(default_factory=list)


class _Builder:
    def __init__(self) -> None:
        self.documents: list[Any] = []
        self._open: list[_Open] = []
        #: name → value, with its number of nodes and levels
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        self._nodes = 0

    def take(self, event: Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, DocumentStartEvent):
            self._anchors.clear()
        elif isinstance(event, DocumentEndEvent):
            pass
        elif isinstance(event, MappingStartEvent | SequenceStartEvent):
            self._start(event, line)
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            self._end(line)
        elif isinstance(event, ScalarEvent):
            self._count(1, line)
            self._scalar(event, line)
        elif isinstance(event, AliasEvent):
            self._alias(event.anchor, line)

    def _start(self, event: MappingStartEvent | SequenceStartEvent, line: int) -> None:
        mapping = isinstance(event, MappingStartEvent)
        if event.tag not in {None, "!", f"{_TAG}{'map' if mapping else 'seq'}"}:
            raise _bad_tag(event.tag, line)
        if self._expects_key():
            raise UnreadableError("has a mapping or a list for a key", line, "If this is a template, render it first.")
        self._deepen(1, line)
        self._count(1, line)
        self._open.append(_Open({} if mapping else [], event.anchor, self._nodes))

    def _end(self, line: int) -> None:
        done = self._open.pop()
        if isinstance(done.value, dict):
            for source in done.merged:
                for key, value in source.items():
                    done.value.setdefault(key, value)
        if done.anchor:
            self._anchors[done.anchor] = (done.value, self._nodes - done.nodes_before + 1, done.depth + 1)
        self._add(done.value, line)

    def _scalar(self, event: ScalarEvent, line: int) -> None:
        value = _scalar_value(event, line)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1, 0)
        if not self._expects_key():
            self._add(value, line)
        elif isinstance(value, str):
            self._key(value, line)
        else:
            raise UnreadableError(
                f"has the key {event.value}, which YAML reads as {_type_name(value)}", line, "Put it in quotes."
            )

    def _alias(self, anchor: str | None, line: int) -> None:
        if anchor is None or anchor not in self._anchors:
            raise UnreadableError(f"uses the alias *{anchor} inside of what it stands for, or before it", line)
        value, nodes, depth = self._anchors[anchor]
        self._count(nodes, line)
        self._deepen(depth, line)
        if not self._expects_key():
            # a copy, because the two places get different defaults
            self._add(copy.deepcopy(value), line)
        elif isinstance(value, str):
            self._key(value, line)
        else:
            raise UnreadableError("has a key that is not a string", line)

    def _expects_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is None

    def _key(self, key: str, line: int) -> None:
        top = self._open[-1]
        if key in top.value and key != _MERGE:
            raise UnreadableError(f"has the key {key} twice in the same mapping", line, "Remove one of the two.")
        top.key, top.key_line = key, line

    def _add(self, value: Any, line: int) -> None:
        if not self._open:
            self.documents.append(value)
            return
        top = self._open[-1]
        if isinstance(top.value, list):
            top.value.append(value)
            return
        key, top.key = top.key, None
        if key != _MERGE:
            top.value[str(key)] = value
            return
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise UnreadableError("merges (<<) something that is not a mapping", line)
        top.merged += [copy.deepcopy(source) for source in sources]

    def _deepen(self, levels: int, line: int) -> None:
        """Check the depth for this many new levels; nested aliases count as deep as their values."""
        if len(self._open) + levels > MAX_DEPTH:
            raise UnreadableError(f"is nested deeper than {MAX_DEPTH} levels", line)
        for below, each in enumerate(reversed(self._open)):
            each.depth = max(each.depth, levels + below)

    def _count(self, nodes: int, line: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise UnreadableError(f"has more than {MAX_NODES} values, those that aliases repeat included", line)


def _scalar_value(event: ScalarEvent, line: int) -> Any:
    tag = event.tag
    if tag in {"!", f"{_TAG}str"} or (tag is None and event.implicit[1] and not event.implicit[0]):
        return event.value
    if tag is None:
        return _plain_value(event.value, line)
    value = _plain_value(event.value, line)
    if tag != f"{_TAG}{_type_tag(value)}":
        raise _bad_tag(tag, line)
    return value


def _plain_value(text: str, line: int) -> Any:
    """Value of a plain scalar without a tag."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    try:
        if _INTEGER.fullmatch(text):
            return _integer(text.replace("_", ""))
        if _FLOAT.fullmatch(text):
            number = float(text.replace("_", ""))
            if math.isfinite(number):
                return number
    except ValueError:
        pass
    else:
        if not (_FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text)):
            return text
    raise UnreadableError(f"has the number {text[:40]}, which JSON cannot express", line, "Put it in quotes.")


def _integer(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if len(digits) > 1 and digits[0] == "0" and digits[1] not in "bBoOxX":
        return sign * int(digits, 8)
    return sign * int(digits, 0)


def _type_tag(value: Any) -> str:
    if value is None:
        return "null"
    return {bool: "bool", int: "int", float: "float"}.get(type(value), "str")


def _type_name(value: Any) -> str:
    return {"null": "null", "bool": "a boolean"}.get(_type_tag(value), "a number")


def _bad_tag(tag: str, line: int) -> UnreadableError:
    shown = "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag
    return UnreadableError(
        f"has the YAML tag {shown}", line, "The document takes plain values only; credentials belong into Secrets."
    )
