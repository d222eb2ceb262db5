# SPDX-License-Identifier: Apache-2.0
"""A role's defaults, its argument specification and its README say the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROLES = Path(__file__).parents[3] / "roles"
NAMES = sorted(path.name for path in ROLES.iterdir() if (path / "tasks").is_dir())
#: What the inventory plugin and the play give; no role sets them.
GIVEN = {"karmada_deployment": "dict", "karmada_connection": "dict", "karmada_operation": "str"}
#: As ``GIVEN``, where backups are looked at.
GIVEN_FOR_BACKUPS = {"karmada_backups": "list", "karmada_restores": "list"}
TYPES = {"int": int, "str": str, "bool": bool, "list": list, "dict": dict}


def load(role: str, path: str) -> dict[str, Any]:
    file = ROLES / role / path
    return (yaml.safe_load(file.read_text(encoding="utf-8")) or {}) if file.is_file() else {}


def entry_points(role: str) -> dict[str, dict[str, Any]]:
    return load(role, "meta/argument_specs.yml")["argument_specs"]


def options(role: str) -> dict[str, dict[str, Any]]:
    """Those of all entry points; a role that only has parts (``tasks_from``) has no main one."""
    return {name: option for entry in entry_points(role).values() for name, option in entry["options"].items()}


def names_given(tasks: Any) -> Iterator[str]:
    """The variables that tasks make: what they register, and what their loops go through."""
    for task in tasks or ():
        yield from filter(None, (task.get("register"), task.get("loop_control", {}).get("loop_var")))
        for section in ("block", "rescue", "always"):
            yield from names_given(task.get(section))


def test_roles_without_documentation_are_not_passed_by() -> None:
    assert sorted(path.name for path in ROLES.iterdir()) == NAMES


@pytest.mark.parametrize("role", NAMES)
def test_entry_points_have_tasks_and_one_that_is_whole_has_a_main_one(role: str) -> None:
    names = set(entry_points(role))
    assert {name for name in names if not (ROLES / role / f"tasks/{name}.yml").is_file()} == set()
    assert ("main" in names) == (ROLES / role / "tasks/main.yml").is_file()


@pytest.mark.parametrize("role", NAMES)
def test_what_its_tasks_make_begins_with_its_name(role: str) -> None:
    made = {
        name
        for path in (ROLES / role / "tasks").rglob("*.yml")
        for name in names_given(yaml.safe_load(path.read_text(encoding="utf-8")))
    }
    assert {name for name in made if not name.startswith(f"{role}_")} == set()


@pytest.mark.parametrize("role", NAMES)
def test_defaults_are_those_of_the_argument_specification(role: str) -> None:
    own = {name: option for name, option in options(role).items() if name not in {**GIVEN, **GIVEN_FOR_BACKUPS}}
    assert load(role, "defaults/main.yml") == {name: option["default"] for name, option in own.items()}
    for name, option in own.items():
        assert name.startswith(f"{role}_")
        # what a variable of the user decides is a template here
        assert "{{" in str(option["default"]) or type(option["default"]) is TYPES[option["type"]]
        assert option["description"]
        assert option["type"] != "list" or option["elements"]


@pytest.mark.parametrize("role", NAMES)
def test_variables_of_the_host_are_named(role: str) -> None:
    given = {name: option["type"] for name, option in options(role).items() if name in GIVEN}
    assert given == GIVEN


@pytest.mark.parametrize("role", NAMES)
def test_readme_names_every_variable_and_the_role(role: str) -> None:
    text = (ROLES / role / "README.md").read_text(encoding="utf-8")
    assert f"name: karmada.installer.{role}" in text
    assert [name for name in load(role, "defaults/main.yml") if f"`{name}`" not in text] == []


@pytest.mark.parametrize("role", NAMES)
def test_metadata_is_complete(role: str) -> None:
    meta = load(role, "meta/main.yml")
    assert meta["dependencies"] == []
    assert {"author", "description", "license", "min_ansible_version", "platforms"} <= set(meta["galaxy_info"])
    assert all(entry["short_description"] for entry in entry_points(role).values())
    if "main" in entry_points(role):
        assert meta["galaxy_info"]["description"] == entry_points(role)["main"]["short_description"]


@pytest.mark.parametrize("role", NAMES)
def test_files_of_tasks_are_named_from_the_folder_of_the_role(role: str) -> None:
    """Named from a folder below, one is looked for beside the playbook first, which may have a file of that name."""
    tasks = ROLES / role / "tasks"
    named = {
        found
        for file in tasks.rglob("*.yml")
        for found in re.findall(r'_tasks: "?([\w/]+\.yml)', file.read_text(encoding="utf-8"))
    }
    assert {each for each in named if not (tasks / each).exists()} == set()
