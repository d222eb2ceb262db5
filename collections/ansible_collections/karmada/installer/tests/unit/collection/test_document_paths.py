# SPDX-License-Identifier: Apache-2.0
"""A resolved document is read through its view (``components.spec``), and by no paths of strings.

A path is a field taken by its name from a variable or an attribute that is called like the document, its spec, one of
its sections or an entry of it. Those that stay are in a table, which may only get shorter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.manifest import schema

PLUGINS = Path(__file__).parents[3] / "plugins"
#: kube knows nothing of the document.
FILES = sorted(
    path
    for folder in ("action", "inventory", "lookup", "plugin_utils")
    for path in (PLUGINS / folder).rglob("*.py")
    if path.parent.name != "kube"
)
#: file → number of paths that stay in it, because what they read is not yet, or not any more, a resolved document
LEFT = {
    # fills in what the schema cannot express
    "plugin_utils/document/manifest.py": 9,
    # judges entries on record, of which nothing is certain
    "plugin_utils/document/recorded.py": 2,
    # documents of earlier versions, which kept there what the state has today
    "plugin_utils/components/state.py": 3,
}


def field_names(node: dict[str, Any]) -> Iterator[str]:
    """Names of all fields below a schema."""
    for name, each in node.get("properties", {}).items():
        yield name
        yield from field_names(each)
    if "items" in node:
        yield from field_names(node["items"])


SPEC: dict[str, Any] = schema()["properties"]["spec"]
FIELDS = set(field_names(SPEC))
#: name of a variable or an attribute → the fields of what it holds, wherever it is called so
HOLD = {
    "deployment": {"spec"},
    "document": {"spec"},
    "spec": set(SPEC["properties"]),
    "settings": FIELDS,
    "endpoint": FIELDS,
    "entry": FIELDS,
}


def key_of(node: ast.expr) -> tuple[ast.expr, str] | None:
    """What is indexed and the key, for ``a["b"]`` and ``a.get("b", …)``; None for anything else."""
    if isinstance(node, ast.Subscript):
        indexed, key = node.value, node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        indexed, key = node.func.value, node.args[0]
    else:
        return None
    return (indexed, key.value) if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def holder(node: ast.expr) -> str:
    """The last name of what is indexed: ``spec`` in ``run.spec``, in ``run.spec.plain`` and in ``(spec or {})``."""
    if isinstance(node, ast.BoolOp):
        return holder(node.values[0])
    if isinstance(node, ast.Attribute):
        return holder(node.value) if node.attr == "plain" else node.attr
    if found := key_of(node):
        return found[1]
    return node.id if isinstance(node, ast.Name) else ""


def paths(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each field of the document that is taken by its name, but for ``Spec(document["spec"])``."""
    tree = ast.parse(source)
    views = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Spec")
    made = {id(part) for view in views for part in ast.walk(view)}
    for node in ast.walk(tree):
        found = key_of(node) if isinstance(node, ast.expr) and id(node) not in made else None
        if found and found[1] in HOLD.get(holder(found[0]), ()):
            yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('run.spec["mode"]', ["mode"]),
        ('(run.spec.get("endpoint") or {})["host"]', ["endpoint", "host"]),
        ('deployment["spec"]["members"]', ["spec", "members"]),
        ('instance.spec.plain["hosts"]', ["hosts"]),
        ('entry["name"]', ["name"]),
        ('settings.get("port", 0)', ["port"]),
        ('Spec(source.deployment["spec"]).mode', []),
        ('Spec((document or {}).get("spec") or {})', []),
        # objects of Kubernetes and other things
        ('service["spec"]["ports"]', []),
        ('spec["template"]', []),
        ("settings.plain[key]", []),
    ],
)
def test_a_path_is_found(source: str, found: list[str]) -> None:
    nodes = [ast.parse(text, mode="eval").body for _line, text in paths(source)]
    assert sorted(key[1] for node in nodes if (key := key_of(node))) == sorted(found)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PLUGINS)))
def test_no_file_spells_more_paths_than_before(path: Path) -> None:
    found, name = list(paths(path.read_text())), str(path.relative_to(PLUGINS))
    told = "\n".join(f"{path}:{line}: {text}" for line, text in found)
    assert len(found) <= LEFT.get(name, 0), f"read it by a view of components.spec:\n{told}"
    assert len(found) == LEFT.get(name, 0), f"write {len(found)} into the table, so that it stays so"
