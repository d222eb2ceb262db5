# SPDX-License-Identifier: Apache-2.0
"""Schema of a CRD as an API server applies it: defaults and structure. Its rules: ``cel_rules``.

This module knows no particular kind. Only the words of a finding are meant for people: which fields are accepted, and
the path at which something is refused, are those of an API server with strict field validation.
"""

from __future__ import annotations

import copy
import difflib
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..libraries import missing_library

Path = tuple[str | int, ...]
Schema = Mapping[str, Any]

# After a violation of these an API server evaluates no rules, which rely on the types and sizes they declare.
BLOCKING = frozenset({"type", "required", "enum", "maxLength", "maxItems", "maxProperties"})


@dataclass(frozen=True)
class Finding:
    """A problem with the path of its field.

    ``keyword`` is the part of the schema that it violates; for a rule with a ``reason`` it is that.
    """

    keyword: str
    path: Path
    what: str
    remedy: str = ""


def spelt(path: Path) -> str:
    """Path as an API server writes it: ``spec.members[0].name``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def shown(value: Any) -> str:
    """A value for a message: short, on one line, and without the part before the @ of a URL."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    text = re.sub(r"://[^/@\s]*@", "://***@", text)
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"


def kind_of(value: Any) -> str:
    """Type of a value in words, such as ``a string``."""
    names: dict[type, str] = {dict: "a mapping", list: "a list", str: "a string", bool: "a boolean", int: "an integer"}
    return "null" if value is None else names.get(type(value), "a number")


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Name that was probably meant; None if none is similar."""
    by_lower = {str(candidate).lower(): str(candidate) for candidate in names}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def about(schema: Schema, path: Path = ()) -> str:
    """Purpose of a field: the first sentence of its description, which states its form or gives an example."""
    for step in path:
        schema = schema.get("properties", {}).get(step, {})
    sentence, period, _ = str(schema.get("description", "")).partition(". ")
    return f"{sentence}." if period else sentence


# -- defaults ---------------------------------------------------------------------------------------------------------


def defaulted(document: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Copy with the defaults of the schema filled in.

    As in an API server, a field with ``null`` counts as not given. The document need not be valid; values that do not
    fit the schema are left as they are.
    """
    completed = copy.deepcopy(dict(document))
    _prune_nulls(completed, schema)
    _fill(completed, schema)
    return completed


def schema_below(schema: Schema | None, key: str) -> Schema | None:
    """Schema of this field, or of this entry of a map; None if there is none."""
    if schema is None:
        return None
    found = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
    return found if isinstance(found, Mapping) else None


def _is_dropped(value: Any, schema: Schema | None) -> bool:
    return value is None and schema is not None and not schema.get("nullable") and "default" not in schema


def _prune_nulls(value: Any, schema: Schema | None) -> None:
    if isinstance(value, dict):
        for key in list(value):
            child = schema_below(schema, key)
            if _is_dropped(value[key], child):
                del value[key]
            else:
                _prune_nulls(value[key], child)
    elif isinstance(value, list):
        for item in value:
            _prune_nulls(item, (schema or {}).get("items"))


def _fill(value: Any, schema: Schema) -> None:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        _write_integers(value)
    if isinstance(value, dict):
        for key, child in schema.get("properties", {}).items():
            if "default" in child and value.get(key) is None:
                value[key] = copy.deepcopy(child["default"])
        for key, item in value.items():
            child = schema_below(schema, key)
            if child is not None:
                if isinstance(item, float) and item.is_integer() and _takes_integers(child):
                    value[key] = int(item)  # in JSON, 1.0 is an integer
                _fill(item, child)
    elif isinstance(value, list) and "items" in schema:
        for item in value:
            _fill(item, schema["items"])


def _write_integers(value: Any) -> None:
    """Write integral floats as integers, as an API server does even without a schema; no field of a pod takes 1.0."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(entries):
        if isinstance(item, float) and item.is_integer():
            value[key] = int(item)
        _write_integers(item)


def _takes_integers(schema: Schema) -> bool:
    return schema.get("type") == "integer" or bool(schema.get("x-kubernetes-int-or-string"))


# -- structure --------------------------------------------------------------------------------------------------------


def structure_findings(document: Mapping[str, Any], schema: Schema) -> Iterator[Finding]:
    """Violations of types, sizes, patterns and names of fields."""
    for error in _validator()(schema).iter_errors(document):
        keyword = str(error.validator)
        what, remedy = _explained(keyword, error, schema)
        yield Finding(keyword, tuple(error.absolute_path), what, remedy)


def fits(value: Any, schema: Schema) -> bool:
    """Return whether a value certainly fits the structure of a schema; in doubt, ask ``structure_findings``.

    It takes 0.2 ms for an entry of a few fields, and each step of a run reads a thousand entries again.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return _fits_string(value, schema) or _fits_integer(value, schema)
    known = _FITS.get(schema.get("type", ""))
    return known(value, schema) if known else bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def _fits_object(value: Any, schema: Schema) -> bool:
    if not isinstance(value, dict):
        return False
    fields, more = schema.get("properties", {}), schema.get("additionalProperties")
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        more = {"x-kubernetes-preserve-unknown-fields": True}
    if not isinstance(more, Mapping) and not value.keys() <= fields.keys():
        return False
    if not value.keys() >= set(schema.get("required", ())) or not _within(len(value), schema, "Properties"):
        return False
    return all(fits(item, fields.get(key, more)) for key, item in value.items())


def _fits_array(value: Any, schema: Schema) -> bool:
    if not isinstance(value, list) or not _within(len(value), schema, "Items"):
        return False
    if not all(fits(item, schema.get("items", {})) for item in value):
        return False
    kind = schema.get("x-kubernetes-list-type")
    if kind == "map":
        fields = schema["x-kubernetes-list-map-keys"]
        return len({json.dumps([item.get(field) for field in fields]) for item in value}) == len(value)
    return kind != "set" or len({json.dumps(item, sort_keys=True) for item in value}) == len(value)


def _fits_string(value: Any, schema: Schema) -> bool:
    if not isinstance(value, str) or not _within(len(value), schema, "Length"):
        return False
    return value in schema.get("enum", (value,)) and ("pattern" not in schema or matches(schema["pattern"], value))


def _fits_integer(value: Any, schema: Schema) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))


def _fits_boolean(value: Any, schema: Schema) -> bool:
    del schema
    return isinstance(value, bool)


def _fits_number(value: Any, schema: Schema) -> bool:
    del schema
    return isinstance(value, int | float) and not isinstance(value, bool)


def _within(size: int, schema: Schema, what: str) -> bool:
    least, most = schema.get(f"min{what}", size), schema.get(f"max{what}", size)
    return bool(least <= size <= most)


_FITS = {
    "object": _fits_object,
    "array": _fits_array,
    "string": _fits_string,
    "integer": _fits_integer,
    "boolean": _fits_boolean,
    "number": _fits_number,
}


@functools.cache
def _jsonschema() -> Any:
    # An eighth of the time of an inventory of one document; those that fit (``fits``) do without.
    try:
        import jsonschema  # noqa: PLC0415
    except ImportError as error:
        raise missing_library("jsonschema") from error
    return jsonschema


@functools.cache
def _validator() -> Any:
    """Validator of jsonschema for the dialect of CRDs."""
    taken = ["anyOf", "enum", "items", "maximum", "minimum", "maxItems", "maxLength", "maxProperties"]
    taken += ["minItems", "minLength", "minProperties", "additionalProperties"]
    known = _jsonschema().Draft4Validator
    return _jsonschema().validators.create(
        meta_schema={},
        validators={
            **{keyword: known.VALIDATORS[keyword] for keyword in taken},
            "properties": _check_properties,
            "type": _check_type,
            "required": _check_required,
            "pattern": _check_pattern,
            "x-kubernetes-list-type": _check_list_type,
        },
        type_checker=known.TYPE_CHECKER,
    )


def _check_properties(validator: Any, properties: Any, instance: Any, node: Any) -> Iterator[Any]:
    yield from _jsonschema().Draft4Validator.VALIDATORS["properties"](validator, properties, instance, node)
    if isinstance(instance, dict) and not _is_open(node):
        for key in instance:
            if key not in properties:
                yield _jsonschema().ValidationError(
                    "unknown", validator="unknown", path=[key], instance=key, schema=node
                )


def _is_open(node: Any) -> bool:
    """Return whether an object may have fields that the schema does not name."""
    return "additionalProperties" in node or bool(node.get("x-kubernetes-preserve-unknown-fields"))


def _check_type(validator: Any, wanted: str, instance: Any, node: Any) -> Iterator[Any]:
    yield from _jsonschema().Draft4Validator.VALIDATORS["type"](validator, wanted, instance, node)
    if wanted == "object" and "properties" not in node and not _is_open(node):
        yield from _check_properties(validator, {}, instance, node)


def _check_required(_validator: Any, required: Any, instance: Any, node: Any) -> Iterator[Any]:
    for key in required if isinstance(instance, dict) else ():
        if key not in instance:
            child = node.get("properties", {}).get(key, {})
            yield _jsonschema().ValidationError("required", validator="required", path=[key], schema=child)


def _check_pattern(_validator: Any, pattern: str, instance: Any, _node: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not matches(pattern, instance):
        yield _jsonschema().ValidationError("pattern")


def _check_list_type(_validator: Any, kind: str, instance: Any, node: Any) -> Iterator[Any]:
    if not isinstance(instance, list) or kind == "atomic":
        return
    seen = set()
    for index, item in enumerate(instance):
        identity = item
        if kind == "map":
            fields = item if isinstance(item, dict) else {}
            identity = {key: fields.get(key) for key in node["x-kubernetes-list-map-keys"]}
        text = json.dumps(identity, sort_keys=True)
        if text in seen:
            yield _jsonschema().ValidationError(
                "twice", validator="twice", path=[index], instance=identity, schema=node
            )
        seen.add(text)


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # In Go, $ without flags is the end of the text; in Python it also stands before a final line break.
    return re.compile(re.sub(r"(?<!\\)\$(?![^\[]*\])", r"\\Z", pattern))


def matches(pattern: str, text: str) -> bool:
    """Return whether the pattern is found in the text, by the rules of an API server."""
    return _compiled(pattern).search(text) is not None


def _explained(keyword: str, error: Any, root: Schema) -> tuple[str, str]:
    """Violation in words, and its remedy."""
    node, value, limit = error.schema, error.instance, error.validator_value
    purpose = about(node)
    if keyword == "unknown":
        return "is not a field of this document", _remedy_for_unknown(value, node, tuple(error.absolute_path), root)
    if keyword == "required":
        return "is required", purpose
    if keyword == "twice":
        return f"{shown(value)} is there twice", "Remove one of the two."
    if keyword == "type":
        article = {"integer": "an integer", "object": "a mapping", "array": "a list"}.get(limit, f"a {limit}")
        unquoted = limit == "string" and isinstance(value, bool | int | float)
        return f"must be {article}, not {kind_of(value)} ({shown(value)})", "Put it in quotes." if unquoted else purpose
    if keyword == "enum":
        near = nearest(str(value), limit)
        return f"is {shown(value)}, but must be {' or '.join(limit)}", f"Did you mean {near}?" if near else purpose
    texts = {
        "pattern": f"{shown(value)} does not have the form that this field needs",
        "anyOf": f"must be an integer or a string, not {kind_of(value)}",
        "minimum": f"is {shown(value)}, but must be at least {limit}",
        "maximum": f"is {shown(value)}, but must be at most {limit}",
        "minLength": "is empty" if limit == 1 else f"must have at least {limit} characters",
        "maxLength": f"must have at most {limit} characters",
        "minItems": f"must have at least {limit} entries",
        "maxItems": f"must have at most {limit} entries",
        "minProperties": f"must have at least {limit} entries",
        "maxProperties": f"must have at most {limit} entries",
    }
    return texts[keyword], purpose


def _remedy_for_unknown(name: str, node: Schema, path: Path, root: Schema) -> str:
    fields = list(node.get("properties", {}))
    if near := nearest(name, fields):
        return f"Did you mean {near}?"
    elsewhere = _places_of(name, root["properties"].get("spec", {}), "spec")
    if elsewhere:
        return f"It belongs elsewhere: {', '.join(elsewhere[:3])}."
    if not fields:
        return "There are no fields here."
    place = spelt(path[:-1])
    return f"Fields of {place}: {', '.join(fields)}." if place else f"Fields: {', '.join(fields)}."


def _places_of(name: str, schema: Schema, path: str) -> list[str]:
    found = []
    for key, child in schema.get("properties", {}).items():
        if key == name:
            found.append(f"{path}.{key}")
        found += _places_of(name, child, f"{path}.{key}")
    return found + (_places_of(name, schema["items"], f"{path}[]") if "items" in schema else [])
