# SPDX-License-Identifier: Apache-2.0
"""Repositories to copy: what is in them is read as AWX, Ansible and the inventory plugin read it."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import COLLECTION_VERSION
from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source

REPOSITORY = Path(__file__).parents[7]
AWX = REPOSITORY / "examples/awx"
#: Lines by which AWX takes a file for a playbook (``awx/main/utils/ansible.py``).
PLAYBOOK = re.compile(r"^(\s*-?\s*)(ansible\.builtin\.)?(hosts|include|import_playbook):", re.MULTILINE)
#: For a person at a terminal: the file that it makes must not stay in a job; and what makes the templates.
BY_HAND = {"break_glass.yml", "awx_objects.yml"}


def test_awx_offers_the_playbooks_and_nothing_else() -> None:
    files = {path for path in AWX.rglob("*.y*ml") if PLAYBOOK.search(path.read_text(encoding="utf-8"))}
    ours = {path.name: path.read_text(encoding="utf-8") for path in (REPOSITORY / "playbooks").glob("*.yml")}
    assert {path.name: path.read_text(encoding="utf-8") for path in files} == {
        name: text for name, text in ours.items() if name not in BY_HAND
    }
    assert {path.parent for path in files} == {AWX / "playbooks"}


@pytest.mark.parametrize("path", sorted(AWX.rglob("*.karmada.yml")), ids=lambda path: path.name)
def test_a_source_is_loaded_where_awx_reads_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(AWX)
    source = inventory_source.load(str(path))
    assert source.connection["kubeconfig"] is None, "the credential says which cluster it is"
    assert source.connection["beside"] == "sites/prod", "the folder of a job is another one"


def test_no_secret_is_in_it() -> None:
    for path in AWX.rglob("*.y*ml"):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            assert not (isinstance(document, dict) and document.get("kind") == "Secret"), path


def test_the_collection_is_found_with_every_version_of_awx() -> None:
    config = configparser.ConfigParser()
    config.read(AWX / "ansible.cfg")
    assert "/runner/requirements_collections" in config["defaults"]["collections_path"].split(":")
    wanted = yaml.safe_load((AWX / "collections/requirements.yml").read_text(encoding="utf-8"))["collections"]
    assert wanted == [{"name": "karmada.installer", "version": COLLECTION_VERSION}]


def test_the_execution_environment_has_what_the_tests_run_with() -> None:
    made = yaml.safe_load((REPOSITORY / "ee/execution-environment.yml").read_text(encoding="utf-8"))
    found = made["dependencies"]
    pins = [found["ansible_core"]["package_pip"], found["ansible_runner"]["package_pip"], *found["python"]]
    pinned = (REPOSITORY / "requirements.txt").read_text(encoding="utf-8").lower()
    assert [each for each in pins if f"\n{each.lower()} " not in pinned] == []
    assert made["additional_build_files"][0]["src"] == f"../build/karmada-installer-{COLLECTION_VERSION}.tar.gz"
