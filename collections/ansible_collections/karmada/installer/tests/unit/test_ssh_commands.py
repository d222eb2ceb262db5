# SPDX-License-Identifier: Apache-2.0
"""What ssh really makes of the command lines that Ansible builds from our variables, asked by ``ssh -G``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils import manifest
from ansible_collections.karmada.installer.tests.unit import ansible_commands

DEPLOYMENT = {
    "apiVersion": manifest.API_VERSION,
    "kind": manifest.KIND,
    "metadata": {"name": "prod"},
    "spec": {
        "mode": "Binary",
        "hosts": [{"name": "cp1", "address": "192.0.2.1"}],
        "ssh": {"user": "karmada", "knownHostsSecretRef": {"name": "hosts"}},
    },
}
#: In the place of ssh: says how ssh understands what it was called with, and connects to nobody.
SSH = """#!/bin/sh
/usr/bin/ssh -G "$@" > "$SEEN" 2>&1
echo "Host key verification failed." >&2
exit 255
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "prod.yaml").write_text(yaml.safe_dump(DEPLOYMENT))
    source = {"plugin": "karmada.installer.karmada", "manifest": "prod.yaml", "secrets": "./secrets"}
    (tmp_path / "site.karmada.yml").write_text(yaml.safe_dump(source))
    (tmp_path / "secrets" / "hosts").mkdir(parents=True)
    (tmp_path / "secrets" / "hosts" / "known_hosts").write_text("192.0.2.2 ssh-ed25519 AAAA\n")
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("asked", ["", "False"])
def test_a_host_whose_key_is_not_known_is_refused_whatever_the_environment_asks_for(site: Path, asked: str) -> None:
    """ansible-runner and AWX run everything with ANSIBLE_HOST_KEY_CHECKING=False."""
    done = _connect(site, **({"ANSIBLE_HOST_KEY_CHECKING": asked} if asked else {}))
    options = (site / "seen").read_text().splitlines()
    assert "hostname 192.0.2.1" in options, done.stdout
    assert "user karmada" in options
    assert "stricthostkeychecking true" in options
    assert f"userknownhostsfile {site}/secrets/hosts/known_hosts" in options


def _connect(site: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return ansible_commands.run(
        *("ansible", "cp1", "-i", "site.karmada.yml", "-m", "ansible.builtin.ping"),
        *("-e", f"ansible_ssh_executable={site}/ssh"),
        directory=site,
        SEEN=str(site / "seen"),
        **environment,
    )
