# SPDX-License-Identifier: Apache-2.0
"""CEL rules in the schema of a CRD, evaluated as by an API server. For structure and defaults see ``crd``."""

from __future__ import annotations

import functools
import hashlib
import ipaddress
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
#: Digests of rules with what they saw, that held: see ``kept_verdicts``. At most so many.
HELD: set[str] = set()
_MOST_HELD = 10_000


def rule_findings(
    document: Mapping[str, Any], schema: Schema, previous: Mapping[str, Any] | None = None
) -> Iterator[Finding]:
    """Rules that do not hold. Both documents have their defaults; the new one fits the structure of the schema."""
    yield from _rule_findings(document, _ABSENT if previous is None else previous, schema, ())


def change_findings(document: Mapping[str, Any], schema: Schema, previous: Mapping[str, Any]) -> Iterator[Finding]:
    """Rules about changes (those with ``oldSelf``) that do not hold, and no others; documents as above."""
    yield from _rule_findings(document, previous, schema, (), changes_only=True)


def _rule_findings(
    value: Any, old: Any, schema: Schema, path: Path, *, changes_only: bool = False
) -> Iterator[Finding]:
    if changes_only and (old is _ABSENT or not _tells_of_changes(schema)):
        return
    for rule in schema.get("x-kubernetes-validations", ()):
        needs_old = _is_about_changes(rule)
        if (needs_old and old is _ABSENT) or (changes_only and not needs_old):
            continue
        names = {"self": value, "oldSelf": old} if needs_old else {"self": value}
        failure = _failure(rule["rule"], names, schema)
        if failure is not None:
            below: Path = tuple(step for step in rule.get("fieldPath", "").split(".") if step)
            message = _message(rule, names, schema)
            what = f"{shown(value)} {message}" if isinstance(value, str | int) else message
            what = f"{what} ({failure})" if failure else what
            yield Finding(rule.get("reason", "rule"), path + below, what, about(schema, below))
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema_below(schema, key)
            if child is not None:
                before = old.get(key, _ABSENT) if isinstance(old, dict) else _ABSENT
                yield from _rule_findings(item, before, child, (*path, key), changes_only=changes_only)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            before = _counterpart(item, old, schema)
            yield from _rule_findings(item, before, schema["items"], (*path, index), changes_only=changes_only)


def _is_about_changes(rule: Mapping[str, str]) -> bool:
    return "oldSelf" in rule["rule"]


def _tells_of_changes(schema: Schema) -> bool:
    """Return whether a rule about changes is here or below: without one, thousands of entries are not compared."""
    below = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return any(map(_is_about_changes, schema.get("x-kubernetes-validations", ()))) or any(
        _tells_of_changes(each) for each in below if isinstance(each, Mapping)
    )


def _counterpart(item: Any, old: Any, schema: Schema) -> Any:
    """Entry of the previous list that has the same keys. Entries of other lists have no identity over time."""
    keys = schema.get("x-kubernetes-list-map-keys")
    if not keys or not isinstance(old, list) or not isinstance(item, dict):
        return _ABSENT
    for candidate in old:
        if isinstance(candidate, dict) and all(candidate.get(key) == item.get(key) for key in keys):
            return candidate
    return _ABSENT


def _for_cel(value: Any, schema: Schema | None) -> Any:
    """Plain data in which names of fields, but not those of map entries, are escaped as in rules."""
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


@functools.lru_cache(maxsize=10_000)
def _escaped(name: str) -> str:
    if name in _CEL_KEYWORDS:
        return f"__{name}__"
    return re.sub(r"__|[.\-/]", lambda found: _CEL_ESCAPES[found[0]], name)


def _failure(expression: str, names: Mapping[str, Any], schema: Schema) -> str | None:
    """None if the rule holds, an empty string if it does not, otherwise the reason why it could not be evaluated."""
    reads = _reads(expression)
    if any(guard.holds(names["self"]) for guard in reads.guards):
        return None
    seen = {name: reads.of(name, value, schema) for name, value in names.items()}
    if "oldSelf" in seen and seen["self"] == seen["oldSelf"]:
        return None  # no rule refuses to let things be as they were
    # Of thousands of entries most are alike in what a rule sees of them.
    return _verdict(expression, json.dumps(seen))


def _message(rule: Mapping[str, str], names: Mapping[str, Any], schema: Schema) -> str:
    """Message of a broken rule: ``messageExpression``, or ``message`` if that does not give one line of text."""
    if "messageExpression" not in rule:
        return rule["message"]
    reads = _reads(rule["messageExpression"])
    text = _text(rule["messageExpression"], json.dumps({key: reads.of(key, names[key], schema) for key in names}))
    return text if text and "\n" not in text else rule["message"]


@dataclass(frozen=True)
class _Guard:
    """Condition at the beginning of a rule that makes it hold.

    Such as ``!has(self.a.b) ||``, ``self.a != 'text' ||`` or ``self.a == 1 ||``.

    Most rules concern fields that most documents do not have, and then need not be compiled.
    """

    path: tuple[str, ...]
    #: What the field is compared with, as JSON, and by which operator; empty: it holds where the field is absent.
    operator: str = ""
    other: str = ""

    def holds(self, value: Any) -> bool:
        for step in self.path[:-1]:
            value = value.get(step) if isinstance(value, dict) else None
        if not isinstance(value, dict):
            return False  # an error, in CEL
        field = self.path[-1]
        if not self.operator:
            return field not in value
        return field in value and (value[field] == json.loads(self.other)) is (self.operator == "==")


@dataclass(frozen=True)
class _Reads:
    """Values that a rule can see, so that the others need not be passed to it.

    ``paths``: the paths that it names below ``self`` and ``oldSelf``, as rules spell them; () if it may see all. If one
    of the ``guards`` holds, so does the rule. ``keys_only``: of a map it sees the keys. ``entries``: lists of ``self``
    of which it only asks whether all entries, or any, meet a condition on these fields; duplicates make no difference.
    ``presence``: fields of ``self`` of which it only asks whether they exist.
    """

    paths: Mapping[str, frozenset[tuple[str, ...]]]
    guards: tuple[_Guard, ...] = ()
    keys_only: bool = False
    entries: Mapping[str, frozenset[str]] = field(default_factory=dict)
    presence: frozenset[str] = frozenset()

    def of(self, name: str, value: Any, schema: Schema) -> Any:
        """Part of the value that the rule sees, with names escaped as in rules."""
        if not isinstance(value, dict):
            return _for_cel(value, schema)
        if self.keys_only and "properties" not in schema:
            return dict.fromkeys(value)
        seen = _only(value, schema, self.paths[name])
        if name == "self" and seen is not value:
            seen |= {key: _distinct(value[key], fields) for key, fields in self.entries.items() if key in value}
            seen |= dict.fromkeys(self.presence & value.keys(), True)
        return _for_cel(seen, schema)


def _only(value: Any, schema: Schema | None, paths: Collection[tuple[str, ...]]) -> Any:
    """A value without the fields to which no path leads. A path's part below a list or map is a function."""
    fields = (schema or {}).get("properties")
    if not isinstance(value, dict) or not fields or () in paths:
        return value
    below = {key: {path[1:] for path in paths if path[0] == _escaped(key)} for key in value}
    return {key: _only(item, fields.get(key), below[key]) for key, item in value.items() if below[key]}


def _distinct(entries: Any, fields: Collection[str]) -> Any:
    """Entries that differ in these fields, reduced to them."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return entries
    seen = [{key: item for key, item in entry.items() if _escaped(key) in fields} for entry in entries]
    return list({json.dumps(entry): entry for entry in seen}.values())


_GUARD = r"(?:!has\(self((?:\.\w+)+)\)|self((?:\.\w+)+) (==|!=) ('[^'\"\\]*'|\d+|true|false))\s*(?:\|\||\Z)\s*"


@functools.cache
def _reads(expression: str) -> _Reads:
    paths: dict[str, set[tuple[str, ...]]] = {"self": set(), "oldSelf": set()}
    for name, path in re.findall(r"\b(self|oldSelf)\b((?:\.\w+)*)", expression):
        paths[name].add(tuple(path.split(".")[1:]))
    begin = re.match(rf"(?:{_GUARD})*", expression)
    # A condition (? :) binds less than ||. Escaped names (__) are not those that the value has.
    plain = begin is not None and "?" not in expression and "__" not in expression
    guards = re.findall(_GUARD, begin[0]) if begin and plain else []
    only = re.match(r"!?self\.(all|exists|exists_one)\(", expression)
    keys_only = bool(only) and len(re.findall(r"\bself\b", expression)) == 1
    fields = {path[0] for path in paths["self"] if path}
    presence = {
        name
        for name in fields
        if len(re.findall(rf"\bhas\(self\.{name}\)", expression)) == len(re.findall(rf"\bself\.{name}\b", expression))
    }
    return _Reads(
        {name: frozenset(found) for name, found in paths.items()},
        tuple(
            _Guard(tuple((absent or compared).split(".")[1:]), operator, other.replace("'", '"'))
            for absent, compared, operator, other in guards
        ),
        keys_only,
        _entries(expression, fields),
        frozenset(presence),
    )


def _entries(expression: str, fields: Iterable[str]) -> dict[str, frozenset[str]]:
    """Lists for ``_Reads.entries``."""
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
    """Result as of ``_failure``, cached; ``names`` has the values that the rule sees, as JSON."""
    digest = hashlib.sha256(f"{expression}\0{names}".encode(errors="surrogatepass")).hexdigest()
    if digest in HELD:
        return None
    try:
        holds = _value(expression, names)
    except _celpy().CELEvalError as error:
        return f"the rule could not be evaluated: {error.args[0] if error.args else error}"
    if not holds:
        return ""
    if len(HELD) < _MOST_HELD:
        HELD.add(digest)
    return None


def _text(expression: str, names: str) -> str:
    """Text from a CEL expression; empty if the evaluation fails. ``names`` as in ``_verdict``."""
    try:
        return str(_value(expression, names)).strip()
    except _celpy().CELEvalError:
        return ""


def _value(expression: str, names: str) -> Any:
    """Value of a CEL expression. Raises CELEvalError."""
    given = {name: _celpy().json_to_cel(value) for name, value in json.loads(names).items()}
    return _program(expression).evaluate(given)


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
    """Program of a rule, compiled on first use: a document needs few of the rules."""
    environment = _environment()
    return environment.program(environment.compile(expression), functions=_FUNCTIONS)


def _cel_matches(text: Any, pattern: Any) -> Any:
    # the same regular expressions as for patterns, whatever library celpy would take
    return _celpy().celtypes.BoolType(matches(str(pattern), str(text)))


def _cel_format(template: Any, values: Any) -> Any:
    # An API server takes texts of unknown length in no other way: + of them is beyond its limit of costs.
    parts = iter([_spelt(each) for each in values])
    return _celpy().celtypes.StringType(re.sub("%s", lambda _: next(parts), str(template)))


def _spelt(value: Any) -> str:
    return f"[{', '.join(json.dumps(str(each)) for each in value)}]" if isinstance(value, list) else str(value)


def _cel_is_ip(text: Any) -> Any:
    return _celpy().celtypes.BoolType(_address(text) is not None)


def _cel_ip(text: Any) -> Any:
    # Addresses are compared only, so their one spelling stands for them.
    return _celpy().celtypes.StringType(_address(text)) if _address(text) else _celpy().CELEvalError("is no IP address")


def _address(text: Any) -> str | None:
    """Canonical form of an IP address; None for a text that an API server does not accept as one."""
    try:
        found = ipaddress.ip_address(str(text))
    except ValueError:
        return None
    unusable = isinstance(found, ipaddress.IPv6Address) and (found.scope_id or found.ipv4_mapped)
    return None if unusable else str(found)


#: What celpy lacks of Kubernetes' libraries for texts and IP addresses, and what it has otherwise.
_FUNCTIONS = {"matches": _cel_matches, "format": _cel_format, "isIP": _cel_is_ip, "ip": _cel_ip}
