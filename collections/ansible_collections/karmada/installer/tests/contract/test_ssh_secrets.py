# SPDX-License-Identifier: Apache-2.0
"""SSH key and host keys from Secrets beside a document that is an object: SSH finds them, and nobody else does."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer, running_api_server
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands
from ansible_collections.karmada.installer.tests.unit.support.moments import until

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OBJECTS = f"/apis/{manifest.API_VERSION}/namespaces/site/karmadadeployments"
HOST_KEYS = "192.0.2.1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINever\n"
SPEC = {
    "mode": "Binary",
    "hosts": [{"name": "cp1", "address": "192.0.2.1"}],
    "ssh": {"user": "karmada", "privateKeySecretRef": {"name": "key"}, "knownHostsSecretRef": {"name": "hosts"}},
}
#: In the place of ssh: says what it was called with, and what the files that were named then hold.
SSH = """#!/bin/sh
printf '%s\\n' "$@" > "$SEEN/arguments"
for word in "$@"; do
  case "$word" in
    IdentityFile=*)
      file=$(echo "${word#*=}" | tr -d '"')
      cat "$file" > "$SEEN/key"
      stat -c %a "$file" > "$SEEN/mode" ;;
    *UserKnownHostsFile=*) cat "$(echo "${word#*=}" | tr -d '"')" > "$SEEN/hosts" ;;
  esac
done
echo "No ED25519 host key is known for 192.0.2.1" >&2
exit 255
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running_api_server(tmp_path_factory.mktemp("ssh")) as found:
        definition = yaml.safe_load(manifest._SCHEMA_FILE.read_text(encoding="utf-8"))
        found.request("POST", CRDS, definition)
        found.request("POST", "/api/v1/namespaces", {"metadata": {"name": "site"}})
        until(lambda: found.request("GET", OBJECTS)[0] == 200, "serving the CRD")
        deployment = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND, "metadata": {"name": "prod"}}
        status, made = found.request("POST", OBJECTS, {**deployment, "spec": SPEC})
        assert status == 201, made
        yield found


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("key") / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(file)], check=True)
    return file.read_text()


@pytest.fixture
def site(server: ApiServer, tmp_path: Path) -> Path:
    source = {
        "plugin": "karmada.installer.karmada",
        "namespace": "site",
        "name": "prod",
        "kubeconfig": str(server.kubeconfig),
    }
    (tmp_path / "site.karmada.yml").write_text(yaml.safe_dump(source))
    (tmp_path / "seen").mkdir()
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    return tmp_path


def put(server: ApiServer, name: str, key: str, content: str) -> None:
    path = "/api/v1/namespaces/site/secrets"
    server.request("DELETE", f"{path}/{name}")
    data = {key: base64.b64encode(content.encode()).decode()}
    status, made = server.request("POST", path, {"metadata": {"name": name}, "data": data})
    assert status == 201, made


def preflight(site: Path) -> subprocess.CompletedProcess[str]:
    command = [
        "-i",
        "site.karmada.yml",
        "-vvvv",
        "karmada.installer.preflight",
        "-e",
        f"ansible_ssh_executable={site}/ssh",
    ]
    return ansible_commands.run("ansible-playbook", *command, directory=site, SEEN=str(site / "seen"))


def everything_written(site: Path) -> str:
    files = [path for path in site.rglob("*") if path.is_file() and "seen" not in path.parts]
    return "".join(path.read_text(errors="replace") for path in files)


def test_ssh_reads_them_while_the_run_lasts_and_nothing_of_them_is_left_or_shown(
    server: ApiServer, site: Path, key: str
) -> None:
    put(server, "key", "ssh-privatekey", key)
    put(server, "hosts", "known_hosts", HOST_KEYS)
    done = preflight(site)
    seen: Any = {path.name: path.read_text() for path in (site / "seen").iterdir()}
    assert seen.get("key") == key, done.stdout + done.stderr
    assert seen["mode"].strip() == "600"
    assert seen["hosts"] == HOST_KEYS
    assert "its SSH host key is not known" in done.stdout
    secret = key.splitlines()[1]
    assert secret not in done.stdout + done.stderr + seen["arguments"] + everything_written(site)
    assert list(site.rglob("ssh-privatekey")) == []


def test_the_inventory_names_no_file_of_its_own_and_leaves_none(server: ApiServer, site: Path, key: str) -> None:
    put(server, "key", "ssh-privatekey", key)
    done = ansible_commands.run("ansible-inventory", "-i", "site.karmada.yml", "--list", directory=site)
    assert done.returncode == 0, done.stderr
    assert "{{ lookup('karmada.installer.ssh_folder') }}/ssh-privatekey" in done.stdout
    assert key.splitlines()[1] not in done.stdout + done.stderr + everything_written(site)
    assert list(site.rglob("ssh-privatekey")) == []


def test_a_secret_that_is_missing_is_told_once_before_anybody_connects(server: ApiServer, site: Path) -> None:
    server.request("DELETE", "/api/v1/namespaces/site/secrets/key")
    put(server, "hosts", "known_hosts", HOST_KEYS)
    done = preflight(site)
    assert done.returncode == 2
    assert done.stdout.count("there is no Secret site/key") > 0
    assert list((site / "seen").iterdir()) == []
