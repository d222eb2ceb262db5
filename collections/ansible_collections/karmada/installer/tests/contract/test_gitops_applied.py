# SPDX-License-Identifier: Apache-2.0
"""Control planes from Git, applied by kubectl to a real API server; what External Secrets does is done here by hand.

Its definitions are stubs, with the fields that the example uses and no other: the API server refuses one that nobody
knows, and a value that none of its versions has.
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source, manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection, References
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT, binary
from ansible_collections.karmada.installer.tests.unit.support.moments import until

EXAMPLE = CHECKOUT / "examples/gitops"
NAMESPACES = {"operator": "karmada-prod", "files": "karmada-edge"}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VERSION = "external-secrets.io/v1"
TEXT = {"type": "string"}


def record(required: str, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": fields}


def one_of(*values: str) -> dict[str, Any]:
    return {**TEXT, "enum": [*values]}


SPECS = {
    "SecretStore": record(
        "provider",
        provider=record(
            "vault",
            vault=record(
                "server auth",
                server=TEXT,
                path=TEXT,
                version=one_of("v1", "v2"),
                caProvider=record("type name", type=one_of("Secret", "ConfigMap"), name=TEXT, key=TEXT),
                auth=record(
                    "kubernetes",
                    kubernetes=record(
                        "mountPath role", mountPath=TEXT, role=TEXT, serviceAccountRef=record("name", name=TEXT)
                    ),
                ),
            ),
        ),
    ),
    "ExternalSecret": record(
        "secretStoreRef target data",
        refreshInterval=TEXT,
        secretStoreRef=record("name kind", name=TEXT, kind=one_of("SecretStore", "ClusterSecretStore")),
        target=record(
            "name",
            name=TEXT,
            creationPolicy=one_of("Owner", "Orphan", "Merge", "None"),
            deletionPolicy=one_of("Delete", "Merge", "Retain"),
        ),
        data={
            "type": "array",
            "items": record(
                "secretKey remoteRef", secretKey=TEXT, remoteRef=record("key", key=TEXT, property=TEXT, version=TEXT)
            ),
        },
    ),
}


def definition(kind: str) -> dict[str, Any]:
    group, _, version = VERSION.partition("/")
    plural = f"{kind.lower()}s"
    schema = record("spec", apiVersion=TEXT, kind=TEXT, metadata={"type": "object"}, spec=SPECS[kind])
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [served],
        },
    }


@pytest.fixture(scope="module")
def host_cluster(api_server: Any) -> Iterator[Any]:
    """An API server that knows the kinds of the example."""
    definitions = [yaml.safe_load(manifest._SCHEMA_FILE.read_text(encoding="utf-8")), *map(definition, SPECS)]
    for each in definitions:
        status, made = api_server.request("POST", CRDS, each)
        assert status == 201, made
        group, plural = each["spec"]["group"], each["spec"]["names"]["plural"]
        path = f"/apis/{group}/{each['spec']['versions'][0]['name']}/{plural}"
        until(lambda path=path: api_server.request("GET", path)[0] == 200, f"serving {plural}")
    yield api_server
    for each in definitions:
        api_server.request("DELETE", f"{CRDS}/{each['metadata']['name']}")
    for namespace in NAMESPACES.values():
        for kind in ("secrets", "serviceaccounts"):
            api_server.request("DELETE", f"/api/v1/namespaces/{namespace}/{kind}")


def applied(server: Any, folder: str, cache: Path) -> None:
    """Run the command that the example's own page has."""
    kubectl = binary("kubectl", "TEST_KUBECTL")
    command = [kubectl, "apply", "--kustomize", folder, f"--kubeconfig={server.kubeconfig}", f"--cache-dir={cache}"]
    done = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def objects(server: Any, folder: str, group: str, plural: str) -> dict[str, dict[str, Any]]:
    status, found = server.request("GET", f"/apis/{group}/namespaces/{NAMESPACES[folder]}/{plural}")
    assert status == 200, found
    return {each["metadata"]["name"]: each for each in found["items"]}


def versions(server: Any, folder: str) -> dict[str, str]:
    """Version of each object that the folder may have made."""
    kinds = ((VERSION, "secretstores"), (VERSION, "externalsecrets"), (manifest.API_VERSION, "karmadadeployments"))
    found = {
        f"{plural}/{name}": each["metadata"]["resourceVersion"]
        for group, plural in kinds
        for name, each in objects(server, folder, group, plural).items()
    }
    for path in ("", "/serviceaccounts/external-secrets"):
        status, each = server.request("GET", f"/api/v1/namespaces/{NAMESPACES[folder]}{path}")
        assert status == 200, each
        found[path] = each["metadata"]["resourceVersion"]
    return found


@pytest.mark.parametrize("folder", NAMESPACES)
def test_a_folder_is_applied_as_it_is_and_a_second_time_nothing_changes(
    folder: str, host_cluster: Any, tmp_path: Path
) -> None:
    applied(host_cluster, folder, tmp_path)
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert f"kubectl apply --kustomize {folder}\n" in page
    before = versions(host_cluster, folder)
    # kubectl calls a document configured whose members have defaults by now; nothing is written for that.
    applied(host_cluster, folder, tmp_path)
    assert versions(host_cluster, folder) == before
    assert objects(host_cluster, folder, VERSION, "secretstores").keys() == {"vault"}
    (document,) = (yaml.safe_load(path.read_text()) for path in EXAMPLE.glob(f"{folder}/*.yaml") if _is_document(path))
    members = {each["name"] for each in document["spec"]["members"]}
    assert objects(host_cluster, folder, VERSION, "externalsecrets").keys() == members
    # A document as a file is no object as well.
    there = objects(host_cluster, folder, manifest.API_VERSION, "karmadadeployments")
    assert there.keys() == ({document["metadata"]["name"]} if folder == "operator" else set())


def _is_document(path: Path) -> bool:
    return f"kind: {manifest.KIND}\n" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", NAMESPACES)
def test_a_run_finds_the_secrets_that_external_secrets_writes(
    folder: str, host_cluster: Any, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied(host_cluster, folder, tmp_path)
    path = EXAMPLE / "files/edge.karmada.yml"
    if folder == "operator":
        path = tmp_path / "prod.karmada.yml"
        source = {"plugin": "karmada.installer.karmada", "namespace": NAMESPACES[folder], "name": "prod"}
        path.write_text(yaml.safe_dump(source), encoding="utf-8")
    monkeypatch.setenv("K8S_AUTH_KUBECONFIG", str(host_cluster.kubeconfig))
    loaded = inventory_source.load(str(path))
    for each in objects(host_cluster, folder, VERSION, "externalsecrets").values():
        keys = [entry["secretKey"] for entry in each["spec"]["data"]]
        content = {key: base64.b64encode(host_cluster.kubeconfig_for_secret().encode()).decode() for key in keys}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": each["spec"]["target"]["name"]}}
        host_cluster.request("POST", f"/api/v1/namespaces/{NAMESPACES[folder]}/secrets", {**secret, "data": content})
    references = References(loaded.deployment, Connection.of(loaded.connection), lambda: cluster)
    for member in loaded.deployment["spec"]["members"]:
        found = references.secret(member["secretRef"]["name"], f"member {member['name']}")
        assert found.keys() == {"kubeconfig"}


@pytest.mark.parametrize(
    ("wrong", "told"), [("refreshIntervall: 5m", "refreshIntervall"), ("target: {creationPolicy: Keep}", "Keep")]
)
def test_the_stubs_refuse_what_nobody_knows(wrong: str, told: str, host_cluster: Any) -> None:
    """Else that it was applied would say nothing."""
    path = f"/apis/{VERSION}/namespaces/{NAMESPACES['files']}/externalsecrets?fieldValidation=Strict&dryRun=All"
    documents = yaml.safe_load_all((EXAMPLE / "files/secrets.yaml").read_text(encoding="utf-8"))
    (good,) = (each for each in documents if each["kind"] == "ExternalSecret")
    good["metadata"]["name"] = "another"
    assert host_cluster.request("POST", path, good)[0] == 201
    change = yaml.safe_load(wrong)
    changed = {key: {**good["spec"][key], **each} if key == "target" else each for key, each in change.items()}
    status, answer = host_cluster.request("POST", path, {**good, "spec": {**good["spec"], **changed}})
    assert status in (400, 422), answer
    assert told in answer["message"]
