# SPDX-License-Identifier: Apache-2.0
"""A document that is an object of a cluster gives the same inventory as the same document in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source, manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support import corpus_files
from ansible_collections.karmada.installer.tests.unit.support.moments import until

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OBJECTS = f"/apis/{manifest.API_VERSION}/namespaces/karmada-prod/karmadadeployments"


@pytest.fixture(scope="module")
def stored(api_server: Any) -> Iterator[dict[str, Any]]:
    definition = yaml.safe_load(manifest._SCHEMA_FILE.read_text(encoding="utf-8"))
    api_server.request("POST", CRDS, definition)
    api_server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "karmada-prod"}})
    until(lambda: api_server.request("GET", OBJECTS)[0] == 200, "serving the CRD")
    status, made = api_server.request("POST", OBJECTS, manifest.parse(corpus_files.named("full").text))
    assert status == 201, made
    yield made
    api_server.request("DELETE", f"{CRDS}/{definition['metadata']['name']}")


def write(directory: Path, **options: str) -> str:
    path = directory / "karmada.yml"
    path.write_text(yaml.safe_dump({"plugin": "karmada.installer.karmada", **options}), encoding="utf-8")
    return str(path)


def test_an_object_says_what_its_file_says(api_server: Any, stored: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path, namespace="karmada-prod", name="prod", kubeconfig=str(api_server.kubeconfig))
    source = inventory_source.load(path)
    metadata = source.deployment["metadata"]
    assert (metadata.pop("uid"), metadata.pop("generation")) == (stored["metadata"]["uid"], 1)
    assert source.deployment == manifest.resolve(manifest.parse(corpus_files.named("full").text))
    assert source.connection["kubeconfig"] == str(api_server.kubeconfig)
    # Whoever runs it from an object finds the kubeconfig in a Secret.
    assert Connection.of(source.connection).kubeconfig_output is None


@pytest.mark.usefixtures("stored")
def test_the_environment_is_enough(api_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, namespace="karmada-prod", name="prod")
    monkeypatch.setenv("K8S_AUTH_KUBECONFIG", str(api_server.kubeconfig))
    monkeypatch.setenv("K8S_AUTH_CONTEXT", "test")
    source = inventory_source.load(path)
    assert source.deployment["metadata"]["name"] == "prod"
    assert (source.connection["kubeconfig"], source.connection["context"]) == (None, None)


@pytest.mark.usefixtures("stored")
def test_whoever_may_not_impersonate_is_refused_by_the_server(
    api_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, namespace="karmada-prod", name="prod")
    monkeypatch.setenv("K8S_AUTH_KUBECONFIG", str(api_server.kubeconfig))
    monkeypatch.setenv("K8S_AUTH_IMPERSONATE_USER", "somebody")
    with pytest.raises(ProblemsError, match="somebody"):
        inventory_source.load(path)
    monkeypatch.setenv("K8S_AUTH_IMPERSONATE_GROUPS", "some-group, system:masters")
    assert inventory_source.load(path).deployment["metadata"]["name"] == "prod"


@pytest.mark.usefixtures("stored")
def test_an_object_that_is_not_there(api_server: Any, tmp_path: Path) -> None:
    path = write(tmp_path, namespace="karmada-prod", name="test", kubeconfig=str(api_server.kubeconfig))
    with pytest.raises(ProblemsError, match="KarmadaDeployment karmada-prod/test: is not there"):
        inventory_source.load(path)
    path = write(tmp_path, namespace="karmada-prod", name="x", kubeconfig=str(api_server.kubeconfig), context="no")
    with pytest.raises(ProblemsError, match="no"):
        inventory_source.load(path)
