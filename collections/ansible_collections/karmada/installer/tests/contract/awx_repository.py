# SPDX-License-Identifier: Apache-2.0
"""The repository that users copy, as AWX checks it out, with more sources; and inventories that AWX makes smaller."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT
from awx_runner import Awx

NAMESPACE = "karmada-prod"
EXAMPLE = CHECKOUT / "examples/awx"
#: Of plain hosts whose keys are known, which is no secret. AWX has the key to log in with in an agent.
ON_HOSTS = {
    "apiVersion": manifest.API_VERSION,
    "kind": manifest.KIND,
    "metadata": {"name": "hosts", "namespace": NAMESPACE},
    "spec": {
        "mode": "Binary",
        "hosts": [{"name": "cp1", "address": "192.0.2.1"}],
        "ssh": {"user": "karmada", "knownHostsSecretRef": {"name": "hosts"}},
    },
}
HOST_KEYS = "192.0.2.1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINever\n"


def awx_in(root: Path) -> Awx:
    """AWX with the repository to copy, and beside its document sources of the object and of plain hosts."""
    project = root / "checkout"
    shutil.copytree(EXAMPLE, project)
    of_object = {"plugin": "karmada.installer.karmada", "namespace": NAMESPACE, "name": "prod"}
    (project / "sites/object.karmada.yml").write_text(yaml.safe_dump(of_object), encoding="utf-8")
    of_all = {"plugin": "karmada.installer.karmada", "instances": "all", "namespace": NAMESPACE}
    (project / "sites/all.karmada.yml").write_text(yaml.safe_dump(of_all), encoding="utf-8")
    of_hosts = {"plugin": "karmada.installer.karmada", "manifest": "hosts.yaml", "secrets": "secrets"}
    (project / "sites/hosts.karmada.yml").write_text(yaml.safe_dump(of_hosts), encoding="utf-8")
    (project / "sites/hosts.yaml").write_text(yaml.safe_dump(ON_HOSTS), encoding="utf-8")
    (project / "sites/secrets/hosts").mkdir(parents=True)
    (project / "sites/secrets/hosts/known_hosts").write_text(HOST_KEYS, encoding="utf-8")
    return Awx(root, project, CHECKOUT / "collections")


def without(inventory: dict[str, Any], *hosts: str) -> dict[str, Any]:
    """The same but for hosts that are disabled, or are in another slice."""
    kept = json.loads(json.dumps(inventory))
    for group in kept.values():
        if "hosts" in group:
            group["hosts"] = [each for each in group["hosts"] if each not in hosts]
    kept["_meta"]["hostvars"] = {key: each for key, each in kept["_meta"]["hostvars"].items() if key not in hosts}
    return dict(kept)


def smart(inventory: dict[str, Any]) -> dict[str, Any]:
    """The hosts without their groups, as a smart inventory has them."""
    return {"all": {"hosts": sorted(inventory["_meta"]["hostvars"])}, "_meta": inventory["_meta"]}
