# SPDX-License-Identifier: Apache-2.0
"""ansible-navigator runs each command of its guide as it stands there, without an execution environment."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import leaks
import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT, ApiServer, environment_of

GUIDE = CHECKOUT / "docs/guides/navigator.md"
REQUIREMENTS = "requirements-navigator.txt"
WITHOUT = ["--execution-environment", "false"]
#: Each command of the guide: how it ends where no cluster is named, and what it then says.
COMMANDS = {
    "inventory --inventory site.karmada.yml --list": (0, '"karmada_control"'),
    "run karmada.installer.preflight --inventory site.karmada.yml --check": (2, "KUBECONFIG: no kubeconfig was given"),
    "run karmada.installer.install --inventory site.karmada.yml": (2, "KUBECONFIG: no kubeconfig was given"),
    "run karmada.installer.report --inventory site.karmada.yml": (2, "KUBECONFIG: no kubeconfig was given"),
    "collections": (0, "full_name: karmada.installer.preflight"),
    "doc karmada.installer.karmada --type inventory": (0, "Reads the document that describes a Karmada control plane"),
}

#: Its environment takes minutes to make, and shows what ``ansible-playbook`` has shown: ``make test-full`` asks for it.
in_navigator = pytest.mark.skipif(not os.environ.get("TEST_NAVIGATOR"), reason="TEST_NAVIGATOR is not set")


def of_guide() -> list[str]:
    """Commands in the shell blocks of the guide, those that are there in both forms once."""
    blocks = re.findall(r"```shell\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert all(line.startswith("ansible-navigator ") for line in lines)
    return list(dict.fromkeys(line.partition(" ")[2].replace(f" {shlex.join(WITHOUT)}", "") for line in lines))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with what the guide tells of a checkout, and a document."""
    for name in ("ansible-navigator.yml", "ansible.cfg", "collections"):
        (tmp_path / name).symlink_to(CHECKOUT / name)
    document = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND, "metadata": {"name": "prod"}, "spec": {}}
    (tmp_path / "prod.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    source = {"plugin": "karmada.installer.karmada", "manifest": "prod.yaml"}
    (tmp_path / "site.karmada.yml").write_text(yaml.safe_dump(source), encoding="utf-8")
    return tmp_path


def navigate(folder: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one command of the guide there, with nothing of whoever runs the tests."""
    programs = environment_of(REQUIREMENTS) / "bin"
    (folder / "home").mkdir(exist_ok=True)
    return subprocess.run(
        [programs / "ansible-navigator", *shlex.split(command), *WITHOUT],
        cwd=folder,
        env={"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder / "home"), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )


def test_each_command_of_the_guide_is_tried() -> None:
    assert sorted(of_guide()) == sorted(COMMANDS)


@in_navigator
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_guide_works_or_is_refused_in_words(folder: Path, command: str) -> None:
    code, told = COMMANDS[command]
    done = navigate(folder, command)
    assert done.returncode == code, done.stdout
    assert told in done.stdout
    assert "Traceback" not in done.stdout


@in_navigator
def test_a_run_reaches_the_cluster_that_the_environment_names(folder: Path, api_server: ApiServer) -> None:
    (folder / "kubeconfig").write_text(api_server.kubeconfig_for_secret(), encoding="utf-8")
    command = "run karmada.installer.report --inventory site.karmada.yml"
    assert command in of_guide()
    done = navigate(folder, command, K8S_AUTH_KUBECONFIG=str(folder / "kubeconfig"))
    assert done.returncode == 0, done.stdout
    assert (folder / "prod.report.json").exists(), "it is left beside the document"
    key = leaks.texts_of(api_server.client_key.read_bytes())
    left = [path for path in folder.rglob("*") if path.is_file() and path.name != "kubeconfig"]
    for name, text in {"output": done.stdout, **{path.name: path.read_text(errors="replace") for path in left}}.items():
        assert list(leaks.leaks(text, {"kubeconfig": key})) == [], name
