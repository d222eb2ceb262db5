# SPDX-License-Identifier: Apache-2.0
"""Inventory sources in a directory with documents, and what is said of those that are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support import corpus_files


def site(directory: Path) -> Path:
    """A directory with documents, and folders that a source may name."""
    for name in ("empty_spec", "full", "hostile_strings", "reserved_member_names", "directory"):
        shutil.copy(corpus_files.named(name).path, directory / f"{name}.yaml")
    for name in ("secrets", "config-maps", "artifacts"):
        (directory / name).mkdir()
    return directory


def write(directory: Path, **options: Any) -> str:
    path = directory / "site.karmada.yml"
    path.write_text(yaml.safe_dump({"plugin": "karmada.installer.karmada", **options}), encoding="utf-8")
    return str(path)


def refusal(path: str) -> str:
    with pytest.raises(ProblemsError) as error:
        inventory_source.load(path)
    return str(error.value)
