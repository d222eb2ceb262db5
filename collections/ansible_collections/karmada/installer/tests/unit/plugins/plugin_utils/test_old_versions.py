# SPDX-License-Identifier: Apache-2.0
"""What is too old to run the engine is told before the engine is imported."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleError
from ansible_collections.karmada.installer.plugins import plugin_utils

FILE = Path(plugin_utils.__file__)


def imported() -> None:
    """Import the package anew, as the first plugin of a run does."""
    spec = importlib.util.spec_from_file_location("engine_of_somebody", FILE)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.mark.parametrize("core", ["2.19.0", "2.20.0.dev0", "2.21.0b1", "3.0.0"])
def test_a_newer_one_is_taken(core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ansible.release", SimpleNamespace(__version__=core))
    imported()


@pytest.mark.parametrize(
    ("core", "python", "told"),
    [
        ("2.15.13", (3, 9, 18), "this is ansible-core 2.15.13 on Python 3.9.18"),
        ("2.18.1", (3, 11, 7), "this is ansible-core 2.18.1 on Python 3.11.7"),
        ("2.19.1", (3, 10, 1), "this is ansible-core 2.19.1 on Python 3.10.1"),
    ],
)
def test_an_older_one_is_refused_with_what_to_do_in_awx(
    core: str, python: tuple[int, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ansible.release", SimpleNamespace(__version__=core))
    monkeypatch.setattr(sys, "version_info", python)
    with pytest.raises(AnsibleError) as refused:
        imported()
    said = str(refused.value)
    assert "needs ansible-core 2.19 and Python 3.11 or newer" in said
    assert told in said
    assert "In AWX, give the job template and the inventory source an execution environment" in said


def test_without_ansible_it_is_an_error_of_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ansible.release", "ansible.errors"):
        monkeypatch.delitem(sys.modules, module)
    imported()
    monkeypatch.setattr(sys, "version_info", (3, 10, 1))
    with pytest.raises(ImportError, match=r"and this is Python 3\.10\.1 "):
        imported()


def test_the_metadata_of_the_collection_says_the_same() -> None:
    text = (FILE.parents[2] / "meta/runtime.yml").read_text(encoding="utf-8")
    assert f'requires_ansible: ">={".".join(map(str, plugin_utils.CORE))}.0"' in text
