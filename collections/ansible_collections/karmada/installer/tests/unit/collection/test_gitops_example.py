# SPDX-License-Identifier: Apache-2.0
"""Control planes from Git: documents are valid, and Secrets that they name are written by ExternalSecrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source, manifest

REPOSITORY = Path(__file__).parents[7]
EXAMPLE = REPOSITORY / "examples/gitops"
FOLDERS = ("operator", "files")
#: Kinds that the example may have, with their API versions.
KINDS = {
    "Namespace": "v1",
    "ServiceAccount": "v1",
    "SecretStore": "external-secrets.io/v1",
    "ExternalSecret": "external-secrets.io/v1",
    manifest.KIND: manifest.API_VERSION,
}
#: Without these a document that is taken out of Git takes its control plane along.
KEPT = {"argocd.argoproj.io/sync-options": "Prune=false", "kustomize.toolkit.fluxcd.io/prune": "disabled"}


def objects(folder: str) -> dict[str, list[dict[str, Any]]]:
    """Kind → objects of a folder, those that kustomize leaves out included."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((EXAMPLE / folder).glob("*.yaml")):
        if path.name != "kustomization.yaml":
            for each in yaml.safe_load_all(path.read_text(encoding="utf-8")):
                found.setdefault(each["kind"], []).append(each)
    return found


def named_secrets(value: Any) -> Iterator[str]:
    """Secrets that a document names: its fields ``secretRef`` and those whose names end so."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key.lower().endswith("secretref"):
                yield inner["name"]
            yield from named_secrets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from named_secrets(inner)


@pytest.mark.parametrize("folder", FOLDERS)
def test_documents_are_valid(folder: str) -> None:
    (document,) = objects(folder)[manifest.KIND]
    assert [str(each) for each in manifest.validate(document)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_secret_that_a_document_names_is_written_by_an_external_secret(folder: str) -> None:
    found = objects(folder)
    (document,) = found[manifest.KIND]
    (store,) = found["SecretStore"]
    written = {each["spec"]["target"]["name"]: each["spec"] for each in found["ExternalSecret"]}
    assert len(written) == len(found["ExternalSecret"])
    assert set(written) == set(named_secrets(document["spec"]))
    for member in document["spec"]["members"]:
        spec = written[member["secretRef"]["name"]]
        assert [each["secretKey"] for each in spec["data"]] == ["kubeconfig"]
        assert all(each["remoteRef"].keys() == {"key", "property"} for each in spec["data"])
    for spec in written.values():
        assert spec["secretStoreRef"] == {"kind": "SecretStore", "name": store["metadata"]["name"]}
        # The Secrets of members outlive everything here: without them no member can be let go of.
        assert (spec["target"]["creationPolicy"], spec["target"]["deletionPolicy"]) == ("Orphan", "Retain")
    account = store["spec"]["provider"]["vault"]["auth"]["kubernetes"]["serviceAccountRef"]["name"]
    assert [each["metadata"]["name"] for each in found["ServiceAccount"]] == [account]


@pytest.mark.parametrize("folder", FOLDERS)
def test_all_of_it_is_in_the_namespace_of_the_document(folder: str) -> None:
    found = objects(folder)
    (document,) = found[manifest.KIND]
    (namespace,) = found["Namespace"]
    each_of = [each for kind, them in found.items() if kind != "Namespace" for each in them]
    assert {each["metadata"]["namespace"] for each in each_of} == {namespace["metadata"]["name"]}
    assert document["metadata"]["namespace"] == namespace["metadata"]["name"]


def test_no_value_of_a_secret_is_in_git() -> None:
    for folder in FOLDERS:
        for kind, them in objects(folder).items():
            assert {each["apiVersion"] for each in them} == {KINDS[kind]}, "no Secret, and nothing that nobody judges"
            assert not [each for each in them if each.keys() & {"data", "stringData"}]
    for path in EXAMPLE.rglob("*"):
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        assert not [word for word in ("PRIVATE KEY", "BEGIN CERTIFICATE", "token:", "password:") if word in text], path


def test_an_object_is_applied_and_never_pruned_and_a_file_is_not_applied() -> None:
    resources = {
        folder: yaml.safe_load((EXAMPLE / folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
        for folder in FOLDERS
    }
    assert resources == {
        "operator": ["namespace.yaml", "secrets.yaml", "prod.yaml"],
        "files": ["namespace.yaml", "secrets.yaml"],
    }
    (document,) = objects("operator")[manifest.KIND]
    assert document["metadata"]["annotations"] == KEPT
    for folder in FOLDERS:
        (namespace,) = objects(folder)["Namespace"]
        assert namespace["metadata"]["annotations"] == KEPT, "a namespace takes all of it along"


def test_the_source_takes_secrets_and_cluster_from_the_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE)
    source = EXAMPLE / "files/edge.karmada.yml"
    assert yaml.safe_load(source.read_text(encoding="utf-8")).keys() == {"plugin", "manifest"}
    loaded = inventory_source.load(str(source))
    assert loaded.deployment["metadata"]["name"] == "edge"
    assert loaded.connection["kubeconfig"] is None
