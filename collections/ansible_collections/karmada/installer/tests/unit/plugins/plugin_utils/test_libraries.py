# SPDX-License-Identifier: Apache-2.0
"""What a user is told when a Python package is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.require_document import ActionModule
from ansible_collections.karmada.installer.plugins.plugin_utils import libraries
from ansible_collections.karmada.installer.tests.unit.support.tasks import task


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python without urllib3 and websocket-client."""
    for name in ("urllib3", "websocket"):
        monkeypatch.setitem(sys.modules, name, None)


def test_here_nothing_is_missing() -> None:
    assert libraries.all_missing() == []


@pytest.mark.usefixtures("without")
def test_every_missing_package_is_told_with_the_command_that_installs_it() -> None:
    found = libraries.all_missing()
    assert [each.what for each in found] == [
        "the Python package urllib3 (module urllib3) is missing",
        "the Python package websocket-client (module websocket) is missing",
    ]
    assert found[1].remedy.endswith(f"{sys.executable} -m pip install websocket-client")


@pytest.mark.usefixtures("without")
def test_the_first_step_of_a_playbook_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda *_args, **_kwargs: {})
    given = {"limit": "members", "report": "json", "fail_on_drift": False, "several": "choose"}
    monkeypatch.setattr(ActionModule, "validate_argument_spec", lambda *_args, **_kwargs: (None, given))
    action = object.__new__(ActionModule)
    action._task = task("require_document")
    result: dict[str, Any] = action.run(task_vars={"groups": {"all": ["karmada_control"]}})
    assert (result["failed"], result["phase"], result["reason"]) == (True, "Preflight", "MissingProgram")
    assert "pip install urllib3" in result["msg"]
    assert "pip install websocket-client" in result["msg"]


def test_a_package_for_one_purpose_says_which() -> None:
    said = str(libraries.missing_library("openshift", "endpoints of type Route"))
    assert "the Python package openshift (module openshift) is missing; endpoints of type Route need it" in said


#: Those that ansible-core may be without.
NOT_OF_ANSIBLE = [module for module in libraries.NEEDED if module not in ("cryptography", "jinja2", "yaml")]
LOADING = """
import importlib, sys
sys.modules.update(dict.fromkeys({modules!r}))
importlib.import_module("ansible_collections.karmada.installer.plugins.{plugin}")
from ansible_collections.karmada.installer.plugins.plugin_utils import libraries
from ansible_collections.karmada.installer.tests.unit.support.tasks import task
from ansible_collections.karmada.installer.tests.unit.support.tasks import task
print(len(libraries.all_missing()))
"""


@pytest.mark.parametrize("plugin", ["action.require_document", "inventory.karmada", "lookup.ssh_folder"])
def test_who_speaks_first_loads_without_them(plugin: str) -> None:
    """Else there would be nobody to tell it."""
    program = LOADING.format(modules=NOT_OF_ANSIBLE, plugin=plugin)
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.strip() == str(len(NOT_OF_ANSIBLE)), done.stderr
