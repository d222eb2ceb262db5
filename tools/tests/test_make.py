# SPDX-License-Identifier: Apache-2.0
"""`make test` runs all that it says, three at a time, and calls nothing passed that has no record."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from evidence.capabilities import CAPABILITIES
from evidence.choices import choices_of

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = "collections/ansible_collections/karmada/installer/tests/contract"
# Says how it is called, and how many parts run by then. The first part of each of the three lanes goes on when all
# three have begun, and those of two lanes when b has, too, which follows one of them: so no order depends on how fast
# the machine is. Its first line is not the first of a line here, by which linters know shell scripts.
PROGRAM = """#!/usr/bin/env bash
words="$*"
case "$words" in "python tools/evidence run "*)
  part=${words#python tools/evidence run }; part=${part#--go-on }; part=${part%% *}
  mkdir -p running begun; env -0 >"environment-$part"
  touch "running/$part"; echo "$(ls running | wc -l) $words" >>log; touch "begun/$part"
  case "$part" in a|contract|unit)
    for _ in $(seq 600); do [ -e begun/a ] && [ -e begun/contract ] && [ -e begun/unit ] && break; sleep 0.1; done ;;
  esac
  case "$part" in a|b|unit)
    for _ in $(seq 600); do [ -e begun/a ] && [ -e begun/b ] && [ -e begun/unit ] && break; sleep 0.1; done ;;
  esac
  sleep 0.2; rm "running/$part" ;;
*) echo "- $words" >>log ;;
esac
case "$words" in *"$FAILS"*) exit 1 ;; esac
"""


@pytest.fixture
def checkout(tmp_path):
    """A Makefile with scenarios, whose programs only say how they are called."""
    (tmp_path / "Makefile").symlink_to(ROOT / "Makefile")
    for name, text in {".ci/venv": PROGRAM, "bin/go": "#!/bin/sh\necho go1.99\n"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for name, text in {"a": "", "b": "KARMADA_LAB_STATE"}.items():
        (tmp_path / "molecule" / name).mkdir(parents=True)
        (tmp_path / "molecule" / name / "molecule.yml").write_text(text)
    return tmp_path


def make(checkout: Path, *words: str, fails: str = "nothing of this", **environment: str) -> int:
    done = subprocess.run(
        ["make", *words, "SCENARIOS=a b"], cwd=checkout, capture_output=True, text=True, check=False,
        env={
            "PATH": f"{checkout}/bin:{os.environ['PATH']}", "HOME": str(checkout), "FAILS": fails, **environment,
        },
    )  # fmt: skip
    return done.returncode


def told(checkout: Path, begin: str) -> list[str]:
    """Commands that begin so, without how many ran."""
    lines = [line.partition(" ")[2] for line in (checkout / "log").read_text().splitlines()]
    return [line for line in lines if line.startswith(begin)]


def test_all_parts_run_three_at_a_time_and_linters_when_one_has_ended(checkout):
    assert make(checkout, "test") == 0
    parts = [line.split()[3] for line in told(checkout, "python tools/evidence run")]
    assert sorted(parts) == ["a", "b", "contract", "lint", "unit"]
    assert sorted(parts[:3]) == ["a", "contract", "unit"]
    counts = [int(line.split()[0]) for line in (checkout / "log").read_text().splitlines() if line[0].isdigit()]
    assert max(counts) == 3
    assert told(checkout, "python tools/evidence longest") == ["python tools/evidence longest lint unit contract a b"]
    [passed] = told(checkout, "python tools/evidence passed")
    assert passed.split()[4:] == ["lint", "unit", "contract", "a", "b"]
    assert passed.split()[3].startswith("--since=20")
    # From before the lab and the programs are made, and of what has passed only.
    [total] = told(checkout, "python tools/evidence total")
    assert total.split()[3:] == [passed.split()[3], "test", "lint", "unit", "contract", "a", "b"]


def test_what_the_environment_says_narrows_nothing(checkout):
    narrow = {"PYTEST_ARGS": "-k nothing", "GO_ON": "yes", "CONTRACT": "", "LINTERS": "docs", "CHECKS": "lint"}
    assert make(checkout, "test", "PYTEST_ARGS=-k nothing", "GO_ON=yes", "CHECKS=lint", **narrow) == 0
    runs = told(checkout, "python tools/evidence run")
    assert len(runs) == 5
    assert not [line for line in runs if "--go-on" in line or "-k nothing" in line]
    [contract] = [line for line in runs if " contract -- pytest " in line]
    assert CONTRACT in contract
    [lint] = [line for line in runs if " lint -- " in line]
    assert "lint-types" in lint


def test_the_whole_goes_on_where_it_was_stopped(checkout):
    assert make(checkout, "test-full") == 0
    runs = told(checkout, "python tools/evidence run")
    assert all(line.startswith("python tools/evidence run --go-on ") for line in runs)
    parts = [line.split()[4] for line in runs]
    assert sorted(parts) == ["a", "b", "contract", "lint", "publishable", "unit"]
    assert parts.index("lint") < parts.index("publishable"), "linters tell in a minute what it would tell in an hour"
    names = "lint unit contract publishable a b"
    assert told(checkout, "python tools/evidence passed") == [f"python tools/evidence passed {names}"]
    assert told(checkout, "python tools/evidence longest") == [f"python tools/evidence longest {names}"]


def test_what_galaxy_asks_for_is_on_record_unless_it_was_asked_for_less(checkout):
    looks = "env REQUIREMENTS=requirements-publish.txt .ci/venv python tools/publishable.py"
    assert make(checkout, "publishable") == 0
    built = [line.split()[0] for line in told(checkout, "") if "evidence" not in line]
    assert built == ["python", "python", "ansible-galaxy"], "the artifact is that of now"
    assert told(checkout, "python tools/evidence run") == [f"python tools/evidence run publishable -- {looks}"]
    (checkout / "log").unlink()
    assert make(checkout, "publishable", "SANITY_ARGS=--core 2.19") == 0
    assert told(checkout, "python tools/evidence") == []
    assert told(checkout, "python tools/publishable.py") == ["python tools/publishable.py --core 2.19"]
    (checkout / "log").unlink()
    assert make(checkout, "test-full", "SANITY_ARGS=--core 2.19", SANITY_ARGS="--core 2.20") == 0
    assert [line for line in told(checkout, "python tools/evidence run") if " publishable " in line] == [
        f"python tools/evidence run --go-on publishable -- {looks}"
    ]


def test_what_galaxy_refuses_fails_the_whole(checkout):
    assert make(checkout, "test-full", fails="run --go-on publishable ") != 0
    [failed] = told(checkout, "python tools/evidence failed")
    assert "publishable" in failed.split()


def test_the_whole_shows_every_part_that_a_capability_names(checkout):
    assert make(checkout, "test-full") == 0
    environment = dict(
        line.split("=", 1) for line in (checkout / "environment-a").read_text().split("\0") if "=" in line
    )
    shown = {
        name: choices_of(ROOT, name.partition(":")[0]) for area in CAPABILITIES for each in area.capabilities
        for name in each.shown_by
    }  # fmt: skip
    assert sum(bool(each.parts) for each in shown.values()) > 10
    lacking = [
        name for name, each in shown.items() if not each.shows(each.settings(environment), name.partition(":")[2])
    ]
    assert lacking == []


def test_a_part_that_fails_stops_no_other(checkout):
    assert make(checkout, "test", fails="evidence run b ") != 0
    assert len(told(checkout, "python tools/evidence run")) == 5
    assert told(checkout, "python tools/evidence failed") == ["python tools/evidence failed lint unit contract a b"]


def test_what_has_no_record_has_not_passed(checkout):
    assert make(checkout, "test", fails="evidence passed") != 0
    assert told(checkout, "python tools/evidence total") == []
