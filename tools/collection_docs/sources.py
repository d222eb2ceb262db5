# SPDX-License-Identifier: Apache-2.0
"""Documentation of plugins and roles as ansible-doc tells it, and playbooks and roles as files."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = ROOT / "collections/ansible_collections/karmada/installer"
NAME = "karmada.installer"

#: Variables that the inventory plugin and the playbooks set, and nobody else.
GIVEN = frozenset(
    {"karmada_backups", "karmada_restores", "karmada_deployment", "karmada_connection", "karmada_operation"}
)

Task = Mapping[str, Any]
_SECTIONS = ("block", "rescue", "always")
_ROLE = ("ansible.builtin.import_role", "ansible.builtin.include_role")
_FILE = ("ansible.builtin.import_tasks", "ansible.builtin.include_tasks")


@functools.cache
def documented() -> Mapping[str, Mapping[str, Any]]:
    """Kind of plugin (``module``, ``inventory``, ``role``, ...) → name without the collection's → its documentation.

    Fragments are merged into it. Raises CalledProcessError if Ansible cannot read it.
    """
    with tempfile.TemporaryDirectory() as home:
        own = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        done = subprocess.run(
            [str(Path(sys.executable).parent / "ansible-doc"), "--metadata-dump", "--json", NAME],
            env={
                **own,
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"),
                "ANSIBLE_HOME": home,
                "ANSIBLE_LOCALHOST_WARNING": "0",
            },
            cwd=home,
            check=True,
            capture_output=True,
            text=True,
        )
    found = json.loads(done.stdout)["all"]
    return {
        kind: {name.removeprefix(f"{NAME}."): doc for name, doc in sorted(each.items()) if name.startswith(f"{NAME}.")}
        for kind, each in found.items()
    }


@functools.cache
def load(path: Path) -> Any:
    """Content of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def verbs() -> list[str]:
    """Playbooks that users call, by name."""
    return sorted(path.stem for path in (COLLECTION / "playbooks").glob("[!_]*.yml"))


@dataclass(frozen=True)
class Use:
    """A play or a task of a verb with what it stands in; ``selectable`` if a tag on the command line can choose it."""

    content: Task
    selectable: bool


@functools.cache
def uses(verb: str) -> tuple[Use, ...]:
    """Every play and task of a verb, those of imported playbooks, roles and files included."""
    return tuple(_plays(COLLECTION / f"playbooks/{verb}.yml"))


def _plays(file: Path) -> Iterator[Use]:
    for play in load(file):
        yield Use(play, selectable=True)
        if other := play.get("ansible.builtin.import_playbook"):
            yield from _plays(file.parent / other)
        for section in ("pre_tasks", "tasks", "post_tasks"):
            yield from _tasks(play.get(section) or (), file.parent, selectable=True)


def _tasks(
    tasks: Iterable[Task], folder: Path, *, selectable: bool, within: frozenset[Path] = frozenset()
) -> Iterator[Use]:
    """Tasks with those that they include; ``within`` are the files that include them, as one may include itself."""
    for task in tasks:
        yield Use(task, selectable)
        for section in _SECTIONS:
            yield from _tasks(task.get(section) or (), folder, selectable=selectable, within=within)
        for key in _FILE:
            if key in task:
                named = task[key]["file"] if isinstance(task[key], Mapping) else task[key]
                for path in sorted({*folder.glob(_any(named))} - within):
                    inside = within | {path}
                    yield from _tasks(load(path) or (), folder, selectable=selectable, within=inside)
        for key in _ROLE:
            if key in task:
                inner = COLLECTION / "roles" / _role(task[key]) / "tasks"
                entry = str(task[key].get("tasks_from", "main")).removesuffix(".yml")
                for path in sorted(inner.glob(f"{_any(entry)}.yml")):
                    # Of a role that is included, a tag chooses the inclusion and not its tasks.
                    yield from _tasks(load(path) or (), inner, selectable=selectable and "import_role" in key)


def _any(named: str) -> str:
    """Pattern of the files that a name stands for: where a variable is in it, every one that there is."""
    return re.sub(r"{{.*?}}", "*", named)


def _role(arguments: Mapping[str, Any]) -> str:
    return str(arguments["name"]).removeprefix(f"{NAME}.")


def roles_of(content: Task) -> list[str]:
    """Name of the role that a task imports or includes; empty for any other task."""
    return [_role(content[key]) for key in _ROLE if key in content]


def entries_of(content: Task) -> list[tuple[str, str]]:
    """Role that a task imports or includes, and the entry point that it takes; empty for any other task."""
    return [
        (_role(content[key]), str(content[key].get("tasks_from", "main")).removesuffix(".yml"))
        for key in _ROLE
        if key in content
    ]


def role_options(role: str) -> dict[str, Mapping[str, Any]]:
    """Variables of a role in all of its entry points, without those that the inventory sets."""
    found: dict[str, Mapping[str, Any]] = {}
    entries = documented()["role"][role]["entry_points"]
    # What the role as a whole says of a variable is said better than what a part of it says.
    for entry in sorted(entries, key=lambda name: name != "main"):
        for name, option in (entries[entry].get("options") or {}).items():
            if name not in GIVEN:
                found.setdefault(name, option)
    return found


def module_of(content: Task) -> tuple[str, Mapping[str, Any]] | None:
    """Action of ours that a task calls, and its arguments."""
    for key, value in content.items():
        if key.startswith(f"{NAME}.") and key.removeprefix(f"{NAME}.") in documented()["module"]:
            return key.removeprefix(f"{NAME}."), value or {}
    return None


# -- text --------------------------------------------------------------------------------------------------------------

_CODE = re.compile(r"\b(?:C|O|V|RV|E|M|P)\(([^)]*)\)")


def markdown(text: str | Iterable[str]) -> str:
    """Description in Ansible's markup as Markdown, on one line; paragraphs of a list follow one another."""
    told = text if isinstance(text, str) else " ".join(text)
    told = _CODE.sub(lambda found: f"`{_without_type(found[1])}`", told)
    told = re.sub(r"\bI\(([^)]*)\)", r"*\1*", told)
    told = re.sub(r"\bB\(([^)]*)\)", r"**\1**", told)
    told = re.sub(r"\bL\(([^,)]*),\s*([^)]*)\)", r"[\1](\2)", told)
    return re.sub(r"\bU\(([^)]*)\)", r"<\1>", " ".join(told.split()))


def _without_type(name: str) -> str:
    """Name of a plugin or option without its type, which only Ansible needs: ``a.b.c#lookup``, ``a.b.c#lookup:x``."""
    return re.sub(r"^[\w.]+#\w+:", "", name).partition("#")[0]


def row(*cells: str) -> str:
    """Row of a table."""
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def option_row(name: str, option: Mapping[str, Any]) -> str:
    """Row of a table of options: name, type, default, meaning."""
    return row(f"`{name}`", type_of(option), default_of(option), markdown(option.get("description", "")))


def type_of(option: Mapping[str, Any]) -> str:
    """Type as people write it, with the values that are allowed."""
    kind = str(option.get("type", "str"))
    told = f"list of {option.get('elements', 'str')}" if kind == "list" else kind
    choices = ", ".join(f"`{each}`" for each in option.get("choices") or ())
    return f"{told}: {choices}" if choices else told


def default_of(option: Mapping[str, Any]) -> str:
    """Default as it is written in YAML; the word required where there is none to be."""
    if option.get("required"):
        return "required"
    default = option.get("default")
    if default is None or default == "":
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"
