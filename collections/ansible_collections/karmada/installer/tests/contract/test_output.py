# SPDX-License-Identifier: Apache-2.0
"""No secret is in anything that Ansible writes down, however much it is asked to tell.

The API server has no controllers, so an installation comes as far as its keys, certificates and etcd's objects, and an
uninstall waits in vain: enough to have every Secret that an instance begins with, and errors as well as results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import leaks
import pytest
import yaml
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands

NAMESPACE = "karmada-talkative"
DOCUMENT = {
    "apiVersion": "installer.karmada.io/v1alpha1",
    "kind": "KarmadaDeployment",
    "metadata": {"name": "talkative", "namespace": NAMESPACE},
    "spec": {
        "hostCluster": {"secretRef": {"name": "host"}},
        "installCRD": False,
        "encryption": {"provider": "secretbox"},
        "components": {"etcd": {"local": {"volumeData": {"emptyDir": {}}}}},
    },
}
TIMEOUTS = ("-e", "etcd_timeout=2", "-e", "uninstall_timeout=2", "-e", "karmada_confirm=talkative")


@pytest.fixture(scope="module")
def site(api_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user has: a document, an inventory source, and the host cluster's kubeconfig with its key inside."""
    directory = tmp_path_factory.mktemp("site")
    secret = directory / "secrets" / "host"
    secret.mkdir(parents=True)
    (secret / "kubeconfig").write_text(api_server.kubeconfig_for_secret())
    (directory / "prod.yaml").write_text(yaml.safe_dump(DOCUMENT))
    source = {"plugin": "karmada.installer.karmada", "manifest": "prod.yaml", "secrets": "./secrets"}
    (directory / "site.karmada.yml").write_text(yaml.safe_dump(source))
    return directory


@pytest.fixture(scope="module")
def told(site: Path) -> dict[str, str]:
    """Name of an output → its text."""
    found = {}
    for name, playbook, *options in (
        ("check", "install", "--check"),
        ("install", "install"),
        ("install again", "install"),
        ("uninstall", "uninstall"),
    ):
        done = ansible_commands.run(
            "ansible-playbook", "-i", "site.karmada.yml", f"karmada.installer.{playbook}", "--diff",
            *options, *TIMEOUTS,
            directory=site, ANSIBLE_VERBOSITY="4", ANSIBLE_LOG_PATH=str(site / "ansible.log"),
            ANSIBLE_CALLBACK_RESULT_FORMAT="json", ANSIBLE_CALLBACKS_ENABLED="ansible.builtin.tree",
            ANSIBLE_CALLBACK_TREE_DIR=str(site / "tree"),
        )  # fmt: skip
        found[name] = done.stdout + done.stderr
    found["log"] = (site / "ansible.log").read_text()
    found |= {f"tree/{path.name}": path.read_text() for path in (site / "tree").iterdir()}
    return found


def test_no_output_shows_a_secret(api_server: Any, told: dict[str, str]) -> None:
    assert "not ready after" in told["install"], told["install"][-3000:]
    assert "still there after its deletion was asked for" in told["uninstall"], told["uninstall"][-3000:]
    status, answer = api_server.request("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets")
    assert status == 200
    values = leaks.values_of(answer["items"])
    assert f"{NAMESPACE}/talkative-installer-state/instance.json/encryptionKey" in values
    assert len([name for name in values if name.endswith(".key")]) > 5, sorted(values)
    client_key = leaks.texts_of(api_server.client_key.read_bytes())
    for name, text in told.items():
        assert list(leaks.leaks(text, {**values, "kubeconfig": client_key})) == [], name
