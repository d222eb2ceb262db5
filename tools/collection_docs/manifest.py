# SPDX-License-Identifier: Apache-2.0
"""Page of all fields of the document, from the schema."""

from __future__ import annotations

import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .sources import row

Schema = Mapping[str, Any]

FIXED = (
    "Once `status.installed` is true, an API server holds these to what they were. Where nothing writes the status, "
    "and for a document from a file, preflight asks the same rules with the document that was carried out last."
)


EXAMPLE = "metadata: {name: prod}\nspec: {}"
LOOK = "[A complete example](../guides/example.md) shows them in their places."


def page(definition: Schema, example: str = EXAMPLE, look: str = LOOK) -> str:
    """One section for each object of the document, with a table of its fields.

    ``example`` follows apiVersion and kind of the smallest document; ``look`` says where there is a larger one.
    """
    version = definition["spec"]["versions"][0]
    root = version["schema"]["openAPIV3Schema"]
    group, kind = definition["spec"]["group"], definition["spec"]["names"]["kind"]
    lines = [
        "<!-- SPDX-License-Identifier: Apache-2.0 -->",
        "<!-- Generated from the schema by `make reference`. Change the schema, not this page. -->",
        "",
        f"# {kind}",
        "",
        *_paragraph(root["description"]),
        "",
        "```yaml",
        f"apiVersion: {group}/{version['name']}",
        f"kind: {kind}",
        *example.splitlines(),
        "```",
        "",
        *_paragraph(
            "A field that is not listed here is refused. A field whose default is `{}` is there even when the document "
            "leaves it out, so that the defaults of its own fields count. Where fields share an object, its "
            "section is named after all of them: `….name` is a field of that name anywhere, `{one,other}` are both. "
            f"{look}"
        ),
        "",
    ]
    parts = [name for name in ("metadata", "spec", "status") if name in root["properties"]]
    sections = _Sections({name: root["properties"][name] for name in parts})
    for name in parts:
        lines += sections.of(root["properties"][name])
    if rules := _rules([("", root)]):
        lines += ["## Settings that do not change", "", *_paragraph(FIXED), "", *rules]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


class _Sections:
    """Sections of all objects. An object that several fields take has one, named after all of them."""

    def __init__(self, roots: Mapping[str, Schema]) -> None:
        #: object → the fields that take it: object in which each is, its name with [] for a list
        self._taken: dict[int, dict[tuple[int, str], None]] = defaultdict(dict)
        self._told: set[int] = set()
        for name, schema in roots.items():
            self._look(schema, 0, name)
        self._names: dict[int, str] = {}
        for each in self._taken:
            self._name(each)

    def _look(self, schema: Schema, parent: int, name: str) -> None:
        key = id(schema["properties"])
        known = key in self._taken
        self._taken[key][parent, name] = None
        if not known:
            for field, found in schema["properties"].items():
                inner, inner_name = _inner(found, field)
                if "properties" in inner:
                    self._look(inner, key, inner_name)

    def _name(self, key: int) -> str:
        """Path of an object, without the part in which those of its fields differ."""
        if key not in self._names:
            taken = self._taken[key]
            parents, names = (
                list(dict.fromkeys(each for each, _ in taken)),
                list(dict.fromkeys(each for _, each in taken)),
            )
            last = names[0] if len(names) == 1 else f"{{{','.join(names)}}}"
            found = self._below(parents[0], last) if len(parents) == 1 else f"….{last}"
            if found in self._names.values():
                found = self._below(parents[0], names[0])
            self._names[key] = found
        return self._names[key]

    def _below(self, parent: int, name: str) -> str:
        return f"{self._name(parent)}.{name}" if parent else name

    def of(self, schema: Schema) -> list[str]:
        """Section of one object, and those of the objects in it."""
        key = id(schema["properties"])
        if key in self._told:
            return []
        self._told.add(key)
        required = set(schema.get("required", ()))
        lines = [f"## `{self._names[key]}`", "", *_paragraph(schema.get("description", "")), ""]
        lines += ["| field | type | default | allowed | meaning |", "|---|---|---|---|---|"]
        sections: list[str] = []
        for name, field in schema["properties"].items():
            inner, _ = _inner(field, name)
            if "properties" in inner:
                sections += self.of(inner)
            lines.append(self._row(name, field, required=name in required))
        rules = _rules(_with_details(schema))
        return [*lines, "", *rules, *sections]

    def _row(self, name: str, field: Schema, *, required: bool) -> str:
        inner, _ = _inner(field, name)
        meaning = field.get("description", "")
        if "properties" in inner:
            home = self._names[id(inner["properties"])]
            meaning += f" Fields: [`{home}`](#{anchor(home)})."
        default = f"`{json.dumps(field['default'])}`" if "default" in field else "required" if required else ""
        return row(f"`{name}`", _type(field), default, _allowed(field), meaning)


def anchor(path: str) -> str:
    """Anchor of a section's heading, as Markdown pages on the usual hosts have it."""
    return "".join(letter for letter in path.lower() if letter.isalnum() or letter in "-_")


def _inner(field: Schema, path: str) -> tuple[Schema, str]:
    """Items of a list, or the field itself."""
    return (field["items"], f"{path}[]") if field.get("type") == "array" else (field, path)


def _type(field: Schema) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if field.get("type") == "object" and isinstance(field.get("additionalProperties"), Mapping):
        return f"map of string to {_type(field['additionalProperties'])}"
    kind = str(field.get("type", "any"))
    return f"{kind} ({field['format']})" if field.get("format") == "date-time" else kind


def _allowed(field: Schema) -> str:
    found = []
    if "enum" in field:
        found.append(", ".join(f"`{each}`" for each in field["enum"]))
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None:
        found.append(f"{low} to {high}" if high is not None else f"at least {low}")
    elif high is not None:
        found.append(f"at most {high}")
    for key, text in (
        ("minLength", "at least {} characters"),
        ("maxLength", "at most {} characters"),
        ("maxItems", "at most {} entries"),
        ("maxProperties", "at most {} entries"),
    ):
        if key in field:
            told = text.format(field[key])
            found.append(told.replace("1 characters", "1 character") if field[key] == 1 else told)
    if field.get("x-kubernetes-list-type") == "set":
        found.append("no entry twice")
    if keys := field.get("x-kubernetes-list-map-keys"):
        found.append(f"no `{', '.join(keys)}` twice")
    return "; ".join(found)


def _with_details(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """An object and its fields, lists and maps with what they consist of; objects in it have sections of their own."""
    yield "", schema
    for name, field in schema["properties"].items():
        entries = field.get("items") or field.get("additionalProperties")
        if "properties" not in field:
            yield name, field
        if isinstance(entries, Mapping) and "properties" not in entries:
            yield f"{name}[]", entries


def _rules(details: Iterable[tuple[str, Schema]]) -> list[str]:
    """Patterns of fields and the messages of rules, by field; the rules themselves folded away."""
    told, cel = [], []
    for path, schema in details:
        if "pattern" in schema:
            told.append(f"* `{path}` matches `{schema['pattern']}`")
        for rule in schema.get("x-kubernetes-validations", ()):
            where = (path + rule.get("fieldPath", "")).removeprefix(".")
            told.append(f"* {f'`{where}` ' if where else ''}{rule['message']}")
            cel += [f"// {where + ' ' if where else ''}{rule['message']}", " ".join(rule["rule"].split()), ""]
    folded = ['<details markdown="1">', "<summary>These rules in CEL</summary>", "", "```cel", *cel[:-1], "```", ""]
    return [*(["Rules:", "", *told, ""] if told else []), *([*folded, "</details>", ""] if cel else [])]


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False)
