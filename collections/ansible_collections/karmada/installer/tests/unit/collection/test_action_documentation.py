# SPDX-License-Identifier: Apache-2.0
"""What an action understands is what its module documents, as ansible-doc shows it."""

from __future__ import annotations

import functools
import importlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands

COLLECTION = Path(__file__).parents[3]
PLUGINS = "ansible_collections.karmada.installer.plugins"
ACTIONS = sorted(path.stem for path in (COLLECTION / "plugins/action").glob("[!_]*.py"))
#: What every action gets without naming it among its own options.
SHARED = {"deployment", "connection"}
COMPARED = ("type", "elements", "choices", "default", "required")


@functools.cache
def documentation() -> dict[str, dict[str, Any]]:
    """All modules as ansible-doc renders them, fragments included."""
    names = [f"karmada.installer.{name}" for name in ACTIONS]
    with tempfile.TemporaryDirectory() as folder:
        done = ansible_commands.run("ansible-doc", "--json", "-t", "module", *names, directory=Path(folder))
    assert done.returncode == 0, done.stderr
    return {name.rpartition(".")[2]: doc for name, doc in json.loads(done.stdout).items()}


def action(name: str) -> Any:
    return importlib.import_module(f"{PLUGINS}.action.{name}").ActionModule


def described(option: dict[str, Any]) -> dict[str, Any]:
    """The part of an option that decides what is accepted. False and None mean the same as nothing."""
    found = {key: option[key] for key in COMPARED if option.get(key) not in (None, False)}
    return {"default": False, **found} if option.get("default") is False else found


def tasks(block: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """All tasks of an example, plays and blocks included."""
    for task in block:
        yield task
        for section in ("tasks", "block", "rescue", "always"):
            yield from tasks(task.get(section, []))


@pytest.mark.parametrize("name", ACTIONS)
def test_ansible_doc_renders_it(name: str) -> None:
    doc = documentation()[name]["doc"]
    assert doc["has_action"]
    assert doc["version_added"]
    assert {"check_mode", "diff_mode", "idempotent"} <= set(doc["attributes"])
    assert all(doc["attributes"][each]["support"] for each in ("check_mode", "diff_mode", "idempotent"))
    assert documentation()[name]["return"] or not issubclass(action(name), (KarmadaAction, HostAction))


#: Actions that make sense in a playbook of a user's own, by themselves.
FOR_USERS = {"break_glass", "member_scheduling", "preflight", "report"}


@pytest.mark.parametrize("path", sorted((COLLECTION / "plugins/modules").glob("*.py")), ids=lambda path: path.stem)
def test_a_list_of_actions_tells_users_which_are_for_them(path: Path) -> None:
    module = importlib.import_module(f"{PLUGINS}.modules.{path.stem}")
    short = yaml.safe_load(module.DOCUMENTATION)["short_description"]
    wanted = "Inner step on a host: " if path.stem.startswith("_") else "Inner step: "
    assert short.startswith(wanted) == (path.stem not in FOR_USERS), short


@pytest.mark.parametrize("name", ACTIONS)
def test_options_are_those_of_the_action(name: str) -> None:
    understood = {key: described(option) for key, option in getattr(action(name), "OPTIONS", {}).items()}
    options = documentation()[name]["doc"].get("options", {})
    if issubclass(action(name), KarmadaAction):
        assert set(options) >= SHARED
    assert {key: described(option) for key, option in options.items() if key not in SHARED} == understood


@pytest.mark.parametrize(("kind", "name"), [("callback", "report"), ("inventory", "karmada"), ("lookup", "ssh_folder")])
def test_ansible_doc_warns_of_nothing(tmp_path: Path, kind: str, name: str) -> None:
    """``ansible-test sanity`` takes a warning for an error: of two names in one assignment, for example."""
    done = ansible_commands.run("ansible-doc", "-t", kind, f"karmada.installer.{name}", directory=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_shared_options_are_those_of_a_run() -> None:
    options = documentation()["certificates"]["doc"]["options"]
    assert {options[each]["type"] for each in SHARED} == {"dict"}
    # The inventory keeps where two of the files are in one.
    assert set(options["connection"]["suboptions"]) == {each.name for each in fields(Connection)} | {"beside"}


@pytest.mark.parametrize("name", ACTIONS)
def test_examples_use_what_is_documented(name: str) -> None:
    used = False
    for task in tasks(yaml.safe_load(documentation()[name]["examples"])):
        for key, arguments in task.items():
            if not key.startswith("karmada.installer."):
                continue
            other = key.rpartition(".")[2]
            used = used or other == name
            assert set(arguments or {}) <= set(documentation()[other]["doc"].get("options", {}))
    assert used, "no example uses the action itself"
