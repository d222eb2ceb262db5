# SPDX-License-Identifier: Apache-2.0
"""Rules that held are not evaluated by the next run; whatever is wrong with what was kept, the verdict is the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import (
    cel_rules,
    inventory_source,
    kept_verdicts,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError

DOCUMENT = """\
apiVersion: installer.karmada.io/v1alpha1
kind: KarmadaDeployment
metadata: {name: prod}
spec:
  endpoint: {type: NodePort}
  members: [{name: m1, secretRef: {name: m1}}]
"""


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Rules that a run evaluates, until it is forgotten by ``another_run``."""
    found: list[str] = []
    value = cel_rules._value

    def evaluate(expression: str, names: str) -> Any:
        found.append(expression)
        return value(expression, names)

    monkeypatch.setattr(cel_rules, "_value", evaluate)
    return found


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept_verdicts, "folder", lambda: tmp_path / "cache")
    (tmp_path / "prod.yaml").write_text(DOCUMENT)
    path = tmp_path / "site.karmada.yml"
    path.write_text(yaml.safe_dump({"plugin": "karmada.installer.karmada", "manifest": "prod.yaml"}))
    another_run([])
    return path


def another_run(evaluated: list[str]) -> None:
    """Forget what this process knows."""
    evaluated.clear()
    cel_rules.HELD.clear()
    cel_rules._verdict.cache_clear()


def test_the_next_run_evaluates_nothing_and_knows_the_same(source: Path, evaluated: list[str]) -> None:
    first = inventory_source.load(str(source))
    assert evaluated
    assert kept_verdicts.file().stat().st_mode & 0o777 == 0o600
    another_run(evaluated)
    assert inventory_source.load(str(source)) == first
    assert evaluated == []


def test_another_process_of_the_same_version_takes_what_is_kept() -> None:
    program = f"from {kept_verdicts.__name__} import _fingerprint; print(_fingerprint())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert other.stdout == f"{kept_verdicts._fingerprint()}\n"


def test_each_version_has_a_file_of_its_own_and_few_stay(
    source: Path, evaluated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = kept_verdicts.file().parent
    inventory_source.load(str(source))
    ours = kept_verdicts.file()
    (folder / "rules").write_text("of an earlier version")
    for number in range(20):
        another_run(evaluated)
        with monkeypatch.context() as another_version:
            another_version.setattr(kept_verdicts, "_fingerprint", lambda number=number: f"{number:016}{0:048}")
            inventory_source.load(str(source))
        assert evaluated, "what another version has found counts for nothing"
        os.utime(ours)
    assert len(list(folder.iterdir())) == kept_verdicts._MOST_FILES
    assert ours.is_file()
    assert not (folder / "rules").exists()


def test_of_too_many_verdicts_those_of_the_document_at_hand_stay(
    source: Path, evaluated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory_source.load(str(source))
    ours, most = set(cel_rules.HELD), 2 * len(cel_rules.HELD)
    monkeypatch.setattr(kept_verdicts, "_MOST", most)
    for digit in "0f":
        path = kept_verdicts.file()
        first = path.read_text().partition("\n")[0]
        path.write_text("\n".join([first, *(f"{digit * 32}{number:032}" for number in range(most))]))
        path.chmod(0o600)
        another_run(evaluated)
        inventory_source.load(str(source))
        another_run(evaluated)
        inventory_source.load(str(source))
        assert evaluated == []
        assert ours <= cel_rules.HELD


def test_what_a_rule_has_not_seen_is_evaluated_and_refused_each_time(source: Path, evaluated: list[str]) -> None:
    inventory_source.load(str(source))
    document = source.parent / "prod.yaml"
    document.write_text(DOCUMENT.replace("NodePort", "VirtualIP"))
    for _ in range(2):
        another_run(evaluated)
        with pytest.raises(ProblemsError, match="endpoint"):
            inventory_source.load(str(source))
        assert 0 < len(evaluated) < 6


def others_may_write(path: Path) -> None:
    path.chmod(0o666)


def another_version(path: Path) -> None:
    path.write_text(f"{'0' * 64}\n{path.read_text().partition(chr(10))[2]}")
    path.chmod(0o600)


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\x00" * 1000)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def in_a_file(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()
    path.parent.touch()


@pytest.mark.parametrize("spoil", [others_may_write, another_version, garbage, a_folder, in_a_file])
def test_a_file_that_no_run_of_ours_has_left_counts_for_nothing(source: Path, evaluated: list[str], spoil: Any) -> None:
    first = inventory_source.load(str(source))
    all_of_them = sorted(evaluated)
    spoil(kept_verdicts.file())
    another_run(evaluated)
    assert inventory_source.load(str(source)) == first
    assert sorted(evaluated) == all_of_them
