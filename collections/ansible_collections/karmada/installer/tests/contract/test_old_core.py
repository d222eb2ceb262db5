# SPDX-License-Identifier: Apache-2.0
"""Whoever runs this with the ansible-core that comes with AWX is told so, wherever it is noticed first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT, environment_of

PLAYBOOKS = CHECKOUT / "collections/ansible_collections/karmada/installer/playbooks"
REQUIREMENTS = "requirements-old-core.txt"
#: It reads no document, and works with what AWX has.
WITHOUT_DOCUMENT = "awx_objects"
TOLD = (
    "karmada.installer needs ansible-core 2.19 and Python 3.11 or newer where Ansible runs, and this is ansible-core "
    "2.15."
)
REMEDY = "In AWX, give the job template and the inventory source an execution environment with the collection"

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 12), reason="ansible-core 2.15 runs on Python 3.11 and older")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with a document, and an inventory source that names it."""
    document = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND, "metadata": {"name": "prod"}, "spec": {}}
    (tmp_path / "prod.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    source = {"plugin": "karmada.installer.karmada", "manifest": "prod.yaml"}
    (tmp_path / "site.karmada.yml").write_text(yaml.safe_dump(source), encoding="utf-8")
    return tmp_path


def said(folder: Path, program: str, *arguments: str) -> tuple[int, str]:
    """Exit code of a program of the old ansible-core, and what it says, in one line."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "collections"),
        # As AWX sets it: a source that cannot be read is an error.
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "True",
    }
    done = subprocess.run(
        [environment_of(REQUIREMENTS) / "bin" / program, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, " ".join(done.stdout.split())


def test_an_update_of_the_inventory_tells_it(folder: Path) -> None:
    code, told = said(folder, "ansible-inventory", "--inventory", "site.karmada.yml", "--list")
    assert code != 0
    assert TOLD in told
    assert REMEDY in told


@pytest.mark.parametrize("playbook", sorted({each.stem for each in PLAYBOOKS.glob("[a-z]*.yml")} - {WITHOUT_DOCUMENT}))
def test_a_playbook_tells_it(folder: Path, playbook: str) -> None:
    # Of an inventory that was stored by an update before, as a job of AWX has it: no source is read that would tell it.
    hosts = "[karmada_control]\nprod ansible_connection=local\n[karmada_in_pods]\nprod\n[karmada_hosts]\n"
    (folder / "stored.ini").write_text(hosts, encoding="utf-8")
    code, told = said(folder, "ansible-playbook", "--inventory", "stored.ini", f"karmada.installer.{playbook}")
    assert code != 0
    assert TOLD in told
    assert REMEDY in told
