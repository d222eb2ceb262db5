# SPDX-License-Identifier: Apache-2.0
"""Commands of the README and of the guide for the operator, carried out as they are written, by a real API server.

An operator is not there: the test writes what one would, so that a command which waits for it comes to its end.
"""

from __future__ import annotations

import base64
import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.tests.contract.conftest import (
    CHECKOUT,
    ApiServer,
)
from ansible_collections.karmada.installer.tests.contract.pasted_commands import User, block, ended
from ansible_collections.karmada.installer.tests.unit.support.moments import until

README, GUIDE = CHECKOUT / "README.md", CHECKOUT / "docs/guides/operator.md"
NAMESPACE = "karmada-system"
OBJECT = f"/apis/{manifest.API_VERSION}/namespaces/{NAMESPACE}/karmadadeployments/prod"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/karmada-installer"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
IMAGE = "registry.example.com/karmada-installer-operator"
KUBECONFIG = "of the control plane\n"


@pytest.fixture
def user(empty_api_server: ApiServer, tmp_path: Path) -> User:
    return User(empty_api_server, tmp_path / "checkout", "operator")


def operates(server: ApiServer, process: subprocess.Popen[str]) -> None:
    """Do for the object what an operator would, once it is there: a kubeconfig, then a status that says Ready."""
    until(lambda: process.poll() is not None or server.request("GET", OBJECT)[0] == 200, "the object")
    secret = {
        "metadata": {"name": "prod-admin-config"},
        "data": {"kubeconfig": base64.b64encode(KUBECONFIG.encode()).decode()},
    }
    server.request("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    ready = {"type": "Ready", "status": "True", "reason": "AllReady", "message": "", "observedGeneration": 1}
    status = {"phase": "Completed", "observedGeneration": 1, "conditions": [ready]}
    server.request("PATCH", f"{OBJECT}/status", {"status": status}, "application/merge-patch+json")


def is_installed(server: ApiServer, image: str) -> dict[str, Any]:
    """The operator's Deployment, when it is as it should be and every kind is served."""
    code, found = server.request("GET", DEPLOYMENT)
    assert code == 200, found
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image
    _, definitions = server.request("GET", DEFINITIONS)
    served = {each["spec"]["names"]["kind"] for each in definitions["items"]}
    assert served == {manifest.KIND, "EtcdBackup", "EtcdRestore"}
    return found


def test_the_commands_of_the_readme(empty_api_server: ApiServer, user: User) -> None:
    commands = block(README, "shell", "operator/crds")
    process = user.begins(commands)
    operates(empty_api_server, process)
    output = ended(process)
    assert "karmadadeployment.installer.karmada.io/prod created" in output
    assert "karmadadeployment.installer.karmada.io/prod condition met" in output
    is_installed(empty_api_server, f"{IMAGE}:0.1.0")
    _, found = empty_api_server.request("GET", OBJECT)
    assert found["spec"]["mode"] == "Container"
    # The second time as after an upgrade: nobody gets in the way of anybody.
    output = user.runs(commands)
    assert "deployment.apps/karmada-installer unchanged" in output


def test_the_commands_of_the_guide_without_helm(empty_api_server: ApiServer, user: User) -> None:
    user.runs(block(GUIDE, "shell", "--server-side --filename operator/crds"))
    is_installed(empty_api_server, f"{IMAGE}:0.1.0")
    (user.folder / "prod.yaml").write_text(block(GUIDE, "yaml", "kind: KarmadaDeployment\n"))
    process = user.begins(block(GUIDE, "shell", "apply --filename prod.yaml"))
    operates(empty_api_server, process)
    output = ended(process)
    assert "condition met" in output
    assert re.search(r"^prod +Container +Completed +True ", output, re.MULTILINE), output
    assert (user.folder / "prod.kubeconfig").read_text() == KUBECONFIG


def test_the_commands_of_the_guide_with_helm(empty_api_server: ApiServer, user: User) -> None:
    spec = importlib.util.spec_from_file_location("helm_of_the_lab", CHECKOUT / "tools/helm.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    user.has("helm", str(module.program()))
    output = user.runs(block(GUIDE, "shell", "helm install"))
    assert "STATUS: deployed" in output
    is_installed(empty_api_server, f"{IMAGE}:0.1.0")
    # Helm never changes definitions: the guide has them applied before an upgrade.
    user.runs("kubectl apply --server-side --filename operator/crds")
