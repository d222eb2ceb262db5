# SPDX-License-Identifier: Apache-2.0
"""The CEL rules of the schema of a CRD, as an API server evaluates them. Its structure and defaults: ``crd``."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..libraries import missing_library
from .crd import Finding, Path, Schema, about, matches, schema_below, shown

# Fields with names that CEL keeps for itself, or cannot spell, are spelt like this in rules.
_CEL_KEYWORDS = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
_CEL_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ABSENT = object()


def rule_findings(
    document: Mapping[str, Any], schema: Schema, previous: Mapping[str, Any] | None = None
) -> Iterator[Finding]:
    """Rules that do not hold. Both documents have their defaults; the new one fits the structure of the schema."""
    yield from _rule_findings(document, _ABSENT if previous is None else previous, schema, ())


def _rule_findings(value: Any, old: Any, schema: Schema, path: Path) -> Iterator[Finding]:
    for rule in schema.get("x-kubernetes-validations", ()):
        needs_old = re.search(r"\boldSelf\b", rule["rule"]) is not None
        if needs_old and old is _ABSENT:
            continue
        names = {"self": value, "oldSelf": old} if needs_old else {"self": value}
        failure = _failure(rule["rule"], names, schema)
        if failure is not None:
            below: Path = tuple(step for step in rule.get("fieldPath", "").split(".") if step)
            what = f"{shown(value)} {rule['message']}" if isinstance(value, str | int) else rule["message"]
            yield Finding("rule", path + below, f"{what} ({failure})" if failure else what, about(schema, below))
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema_below(schema, key)
            if child is not None:
                before = old.get(key, _ABSENT) if isinstance(old, dict) else _ABSENT
                yield from _rule_findings(item, before, child, (*path, key))
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _rule_findings(item, _counterpart(item, old, schema), schema["items"], (*path, index))


def _counterpart(item: Any, old: Any, schema: Schema) -> Any:
    """The entry of the previous list that has the same keys. Entries of other lists have no identity over time."""
    keys = schema.get("x-kubernetes-list-map-keys")
    if not keys or not isinstance(old, list) or not isinstance(item, dict):
        return _ABSENT
    for candidate in old:
        if isinstance(candidate, dict) and all(candidate.get(key) == item.get(key) for key in keys):
            return candidate
    return _ABSENT


def _for_cel(value: Any, schema: Schema | None) -> Any:
    """Plain data with the names of fields, not those of map entries, spelt as rules spell them."""
    if isinstance(value, dict):
        fields = (schema or {}).get("properties", {})
        return {
            (_escaped(key) if key in fields else key): _for_cel(item, schema_below(schema, key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_for_cel(item, (schema or {}).get("items")) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        # What does not fit is no integer for an API server, either.
        return float(value)
    return value


def _escaped(name: str) -> str:
    if name in _CEL_KEYWORDS:
        return f"__{name}__"
    return re.sub(r"__|[.\-/]", lambda found: _CEL_ESCAPES[found[0]], name)


def _failure(expression: str, names: Mapping[str, Any], schema: Schema) -> str | None:
    """None if the rule holds, an empty text if it does not, else why it could not be evaluated."""
    reads = _reads(expression)
    if any(isinstance(names["self"], dict) and field not in names["self"] for field in reads.optional):
        return None
    # Of thousands of entries most are alike in what a rule sees of them.
    return _verdict(expression, json.dumps({name: reads.of(name, value, schema) for name, value in names.items()}))


@dataclass(frozen=True)
class _Reads:
    """How much of its values a rule can see, so that the rest need not be given to it.

    ``fields``: for ``self`` and ``oldSelf`` the fields it names, as rules spell them; None if it may see all.
    ``optional`` are fields without which it holds, because it begins with ``!has(self.field) ||``. ``keys_only``: of a
    map it sees the keys. ``entries``: of each of these lists of ``self`` it asks only whether all entries, or any, are
    such and such, by these fields of them; how many are alike makes no difference. ``presence``: of these fields of
    ``self`` it asks only whether they are there.
    """

    fields: Mapping[str, frozenset[str] | None]
    optional: tuple[str, ...] = ()
    keys_only: bool = False
    entries: Mapping[str, frozenset[str]] = field(default_factory=dict)
    presence: frozenset[str] = frozenset()

    def of(self, name: str, value: Any, schema: Schema) -> Any:
        """What the rule sees of the value, as rules spell it."""
        if not isinstance(value, dict):
            return _for_cel(value, schema)
        if self.keys_only and "properties" not in schema:
            return dict.fromkeys(value)
        fields = self.fields[name]
        if fields is not None and "properties" in schema:
            value = {key: item for key, item in value.items() if _escaped(key) in fields}
            value |= {key: _distinct(value[key], seen) for key, seen in self.entries.items() if key in value}
            value |= dict.fromkeys(self.presence & value.keys(), True)
        return _for_cel(value, schema)


def _distinct(entries: Any, fields: Collection[str]) -> Any:
    """Those entries that differ in these fields, with nothing else of them."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return entries
    seen = [{key: item for key, item in entry.items() if _escaped(key) in fields} for entry in entries]
    return list({json.dumps(entry): entry for entry in seen}.values())


@functools.cache
def _reads(expression: str) -> _Reads:
    fields: dict[str, frozenset[str] | None] = {}
    for name in ("self", "oldSelf"):
        named = re.findall(rf"\b{name}\.(\w+)", expression)
        alone = len(named) != len(re.findall(rf"\b{name}\b", expression))
        fields[name] = None if alone else frozenset(named)
    begin = re.match(r"(!has\(self\.\w+\)\s*\|\|\s*)*", expression)
    # A condition (? :) binds less than ||. Escaped names (__) are not those that the value has.
    plain = begin is not None and "?" not in expression and "__" not in expression
    optional = re.findall(r"self\.(\w+)", begin[0]) if begin and plain else []
    only = re.match(r"!?self\.(all|exists|exists_one)\(", expression)
    keys_only = bool(only) and len(re.findall(r"\bself\b", expression)) == 1
    presence = {
        name
        for name in fields["self"] or ()
        if len(re.findall(rf"\bhas\(self\.{name}\)", expression)) == len(re.findall(rf"\bself\.{name}\b", expression))
    }
    entries = _entries(expression, fields["self"] or ())
    return _Reads(fields, tuple(optional), keys_only, entries, frozenset(presence))


def _entries(expression: str, fields: Iterable[str]) -> dict[str, frozenset[str]]:
    """See ``_Reads.entries``."""
    found = {}
    for name in fields:
        asked = re.findall(rf"\bself\.{name}\.(?:all|exists)\((\w+),", expression)
        there = re.findall(rf"\bhas\(self\.{name}\)", expression)
        if not asked or len(asked) + len(there) != len(re.findall(rf"\bself\.{name}\b", expression)):
            continue
        named = {variable: re.findall(rf"\b{variable}\.(\w+)", expression) for variable in asked}
        # Each is spelt where it is declared, and then with a field.
        if all(len(re.findall(rf"\b{each}\b", expression)) == asked.count(each) + len(named[each]) for each in named):
            found[name] = frozenset(each for names in named.values() for each in names)
    return found


@functools.lru_cache(maxsize=10_000)
def _verdict(expression: str, names: str) -> str | None:
    """Like ``_failure``; ``names`` is what the rule sees, as JSON."""
    celpy = _celpy()
    try:
        given = {name: celpy.json_to_cel(value) for name, value in json.loads(names).items()}
        holds = _program(expression).evaluate(given)
    except celpy.CELEvalError as error:
        return f"the rule could not be evaluated: {error.args[0] if error.args else error}"
    return None if holds else ""


@functools.cache
def _celpy() -> Any:
    # Half of the time that a small document takes; documents that are refused for their structure do without.
    try:
        import celpy  # noqa: PLC0415
        import celpy.celtypes  # noqa: PLC0415
    except ImportError as error:
        raise missing_library("celpy") from error
    return celpy


@functools.cache
def _environment() -> Any:
    return _celpy().Environment()


@functools.cache
def _program(expression: str) -> Any:
    """Compiled when it is first needed: a document meets few of the rules."""
    environment = _environment()
    return environment.program(environment.compile(expression), functions={"matches": _cel_matches})


def _cel_matches(text: Any, pattern: Any) -> Any:
    # the same regular expressions as for patterns, whatever library celpy would take
    return _celpy().celtypes.BoolType(matches(str(pattern), str(text)))
