# SPDX-License-Identifier: Apache-2.0
"""Repositories to copy: what is in them is read as AWX, Ansible and the inventory plugin read it."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import COLLECTION_VERSION
from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source

REPOSITORY = Path(__file__).parents[7]
AWX = REPOSITORY / "examples/awx"
GUIDE = REPOSITORY / "docs/guides/awx.md"
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


def test_awx_installs_what_it_can_reach_and_nothing_before_somebody_has_chosen(tmp_path: Path) -> None:
    """AWX gives the file to ansible-galaxy at each update of the project, and no public Galaxy has the collection."""
    path = AWX / "collections/requirements.yml"
    galaxy = str(Path(sys.executable).with_name("ansible-galaxy"))
    done = subprocess.run(
        [galaxy, "collection", "install", "--requirements-file", str(path), "--collections-path", str(tmp_path)],
        cwd=AWX,
        env={**os.environ, "ANSIBLE_GALAXY_SERVER": "http://127.0.0.1:9/"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
    text = path.read_text(encoding="utf-8")
    git, artifact = (
        yaml.safe_load(f"collections:\n{lines}".replace("\n# ", "\n"))["collections"][0]
        for lines in re.findall(r"^# collections:\n((?:# +.*\n)+)", text.replace("\n#\n", "\n\n"), re.MULTILINE)
    )
    assert (git["type"], artifact["type"]) == ("git", "file")
    assert git["name"].startswith("git+https://")
    assert (REPOSITORY / git["name"].partition("#/")[2] / "galaxy.yml").is_file(), "the folder of the collection in it"
    assert artifact["name"] == f"collections/karmada-installer-{COLLECTION_VERSION}.tar.gz"


@pytest.mark.parametrize("name", ["ansible.cfg", "collections/requirements.yml", "controller/settings.yml"])
def test_the_guide_tells_of_what_awx_or_its_user_acts_on(name: str) -> None:
    assert (AWX / name).is_file()
    assert f"`{name}`" in GUIDE.read_text(encoding="utf-8").replace("`examples/awx/", "`")


def test_the_guide_makes_the_objects_before_it_compares_them() -> None:
    """On an organization that has none of them, a check has nothing to compare and fails."""
    text = GUIDE.read_text(encoding="utf-8")
    calls = re.findall(r"^ansible-playbook karmada\.installer\.awx_objects.*$", text, re.MULTILINE)
    assert len(calls) > 1
    assert "--check" not in calls[0]


def test_the_guide_prepares_what_the_document_of_the_example_names() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    document = yaml.safe_load((AWX / "sites/prod.yaml").read_text(encoding="utf-8"))
    namespace = document["metadata"]["namespace"]
    rights = (REPOSITORY / "docs/reference/host-rights.yaml").read_text(encoding="utf-8")
    assert f"sed 's/karmada-system/{namespace}/' docs/reference/host-rights.yaml" in text
    assert max(line.count("karmada-system") for line in rights.splitlines()) == 1, "sed replaces one in each line"
    for member in document["spec"]["members"]:
        named = member["secretRef"]["name"]
        assert f"create secret generic {named} --namespace {namespace} --from-file=kubeconfig=" in text


def test_the_execution_environment_has_what_the_tests_run_with() -> None:
    made = yaml.safe_load((REPOSITORY / "ee/execution-environment.yml").read_text(encoding="utf-8"))
    found = made["dependencies"]
    pins = [found["ansible_core"]["package_pip"], found["ansible_runner"]["package_pip"], *found["python"]]
    pinned = (REPOSITORY / "requirements.txt").read_text(encoding="utf-8").lower()
    assert [each for each in pins if f"\n{each.lower()} " not in pinned] == []
    assert made["additional_build_files"][0]["src"] == f"../build/karmada-installer-{COLLECTION_VERSION}.tar.gz"
