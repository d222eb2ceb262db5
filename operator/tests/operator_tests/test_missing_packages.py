# SPDX-License-Identifier: Apache-2.0
"""Whoever starts the operator with a Python that lacks packages reads which, and no traceback."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

from karmada_operator.__main__ import NEEDED

CHECKOUT = Path(__file__).resolve().parents[3]
WITH_COLLECTION = (CHECKOUT / "operator", CHECKOUT / "collections")


def started(*path: Path, packages: bool) -> subprocess.CompletedProcess[str]:
    """The operator started with these folders in PYTHONPATH, with or without installed packages."""
    without = [] if packages else ["-S"]
    return subprocess.run(
        [sys.executable, *without, "-m", "karmada_operator", "--help"],
        env={"PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_packages_are_told_by_name_with_the_command() -> None:
    done = started(*WITH_COLLECTION, packages=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    told, command = done.stderr.rstrip().split(": ")
    assert told == "Python packages are missing; install them"
    assert command.startswith(f"{sys.executable} -m pip install ")
    assert {"ansible-core", "ansible-runner", "prometheus_client", "urllib3", "PyYAML"} <= set(command.split())


def test_a_collection_that_is_not_found_is_told() -> None:
    done = started(CHECKOUT / "operator", packages=True)
    assert done.returncode == 2
    assert done.stderr.startswith("karmada.installer is missing: ")
    assert done.stderr.count("\n") == 1


def test_it_starts_where_nothing_is_missing() -> None:
    done = started(*WITH_COLLECTION, packages=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: karmada-operator" in done.stdout


def test_what_is_needed_is_declared() -> None:
    declared = configparser.ConfigParser()
    declared.read(CHECKOUT / "setup.cfg", encoding="utf-8")
    lines = "\n".join((declared["options"]["install_requires"], declared["options.extras_require"]["operator"]))
    assert set(NEEDED.values()) <= set(re.findall(r"^[A-Za-z][-\w]*", lines, re.MULTILINE))
