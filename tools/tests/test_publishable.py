# SPDX-License-Identifier: Apache-2.0
"""Sanity is looked at with every release of ansible-core that is supported, or it is told which one was not."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import publishable
import pytest
import sanity_ignores
import yaml


def test_each_release_has_a_python_that_it_is_pinned_for() -> None:
    text = (publishable.REPOSITORY / "requirements-sanity.txt").read_text(encoding="utf-8")
    pins = re.findall(r"^ansible-core==(\d+\.\d+)\.\S+ ; python_full_version (\S+) '(3\.\d+)", text, re.MULTILINE)
    assert pins == [("2.19", "<", "3.12"), ("2.20", "==", "3.12"), ("2.21", ">=", "3.13")]
    assert publishable.CORES == {"2.19": "3.11", "2.20": "3.12", "2.21": "3.13"}
    assert set(publishable.CORES) == set(sanity_ignores.PYTHONS), "each has a file with what is passed over"
    assert all(python in sanity_ignores.PYTHONS[core] for core, python in publishable.CORES.items())


def test_our_own_python_is_taken_without_a_search() -> None:
    found = publishable.interpreter(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert found == Path(sys.executable).resolve()


def test_a_stand_in_that_runs_nothing_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "pyenv/versions/9.9.1/bin/python9.9"
    for path, script in ((tmp_path / "bin/python9.9", "exit 127"), (real, 'echo "$0"')):
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "nothing"))
    assert publishable.interpreter("9.9") is None
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert publishable.interpreter("9.9") == real


def test_one_that_is_not_there_is_a_failure_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(publishable, "interpreter", lambda _version: None)
    assert not publishable.sanity(tmp_path, "2.20", [])
    assert "There is no Python 3.12 here with venv" in capsys.readouterr().out


def test_defaults_of_roles_that_are_templates_are_not_what_documentation_is_judged_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishable, "BUILD", tmp_path)
    folder = tmp_path / "publishable/ansible_collections/karmada/installer"
    specs = folder / "roles/upgrade/meta/argument_specs.yml"
    specs.parent.mkdir(parents=True)
    (folder / ".git").mkdir()
    options = {
        "a": {"type": "int", "default": "{{ b | default(5) }}"},
        "b": {"type": "int", "default": 5},
        "c": {"type": "list", "default": ["{{ b }}"]},
    }
    specs.write_text(yaml.safe_dump({"argument_specs": {"main": {"options": options}, "other": {}}}), encoding="utf-8")
    before = specs.read_text(encoding="utf-8")
    copy = publishable.with_plain_defaults(folder)
    found = yaml.safe_load((copy / specs.relative_to(folder)).read_text(encoding="utf-8"))["argument_specs"]
    assert found["main"]["options"] == {"a": {"type": "int"}, "b": options["b"], "c": {"type": "list"}}
    assert (copy / ".git").is_dir(), "without it nothing in build/ would be looked at"
    assert specs.read_text(encoding="utf-8") == before, "the other checks look at what is published"
    (command, _), *_ = (each for name, each in publishable.checks(folder).items() if name == "antsibull-docs")
    assert command[-1] == str(copy)


def test_what_failed_is_written_down_for_the_record_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = {"one": ["false"], "two": ["true"]}
    monkeypatch.setattr(publishable, "WHY", tmp_path / "diagnostics/why.txt")
    monkeypatch.setattr(publishable, "unpacked", lambda _file: tmp_path)
    monkeypatch.setattr(publishable, "checks", lambda folder: {name: (each, folder) for name, each in ends.items()})
    monkeypatch.setattr(publishable, "sanity", lambda _folder, core, _arguments: core != "2.20")
    monkeypatch.setattr(sys, "argv", ["publishable.py"])
    assert publishable.main() == 1
    told = "Failed: one, sanity of ansible-core 2.20"
    assert publishable.WHY.read_text(encoding="utf-8").strip() == told
    assert capsys.readouterr().out.splitlines()[-1] == told
