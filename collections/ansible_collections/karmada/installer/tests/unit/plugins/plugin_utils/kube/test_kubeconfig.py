# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs: what is wrong in them, and the identities that come out of them."""

from __future__ import annotations

import base64
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.clusters import cluster_of
from ansible_collections.karmada.installer.tests.unit.support.samples import client_pair
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi

TOKEN = "t0ps3cret"


def written(tmp_path: Path, config: Any) -> str:
    file = tmp_path / "kubeconfig"
    file.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    return str(file)


def changed(api: StubApi, **user: Any) -> dict[str, Any]:
    return {**api.kubeconfig(), "users": [{"name": "me", "user": user}]}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError, match=f"{tmp_path}/none: there is no such kubeconfig"):
        Cluster.from_kubeconfig(str(tmp_path / "none"))


def test_broken_yaml_names_the_line_and_not_its_content(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError, match=r"not YAML \(line 2\)") as caught:
        Cluster.from_kubeconfig(written(tmp_path, f"a: b\n- {TOKEN}\n"))
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"current-context": "nope"}, "no context 'nope'.*There are: stub"),
        ({"current-context": ""}, "sets no current-context"),
        ({"users": []}, "names user 'me', which is not in users"),
        ({"clusters": []}, "names cluster 'stub', which is not in clusters"),
        ({"clusters": [{"name": "stub", "cluster": {}}]}, "has no server address"),
        ({"users": [{"name": "me", "user": {"tokenFile": "gone"}}]}, "gone does not exist"),
        ({"users": [{"name": "me", "user": {"client-certificate": "gone"}}]}, "gone does not exist"),
        (
            {"users": [{"name": "me", "user": {"client-key-data": "?", "client-certificate-data": "eA=="}}]},
            "not base64",
        ),
        ({"users": [{"name": "me", "user": {"exec": {"command": "no-such-plugin", "apiVersion": "v"}}}]}, "no-such-pl"),
    ],
)
def test_what_is_wrong_in_a_kubeconfig_is_named(
    api: StubApi, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ProblemsError, match=message):
        Cluster.from_kubeconfig(written(tmp_path, {**api.kubeconfig(), **change}))


def test_two_files_are_merged_as_kubectl_does(api: StubApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    config = api.kubeconfig()
    first.write_text(yaml.safe_dump({"contexts": config["contexts"], "current-context": "stub"}))
    second.write_text(yaml.safe_dump({"clusters": config["clusters"], "users": config["users"]}))
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'absent'}:{second}")
    assert Cluster.from_kubeconfig().version()["gitVersion"] == "v1.35.4"


def test_an_exec_plugin_gives_the_token_and_is_asked_again_when_refused(api: StubApi, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import json, pathlib\n"
        f"count = pathlib.Path({str(tmp_path)!r}, 'count'); n = int(count.read_text()) + 1 if count.exists() else 1\n"
        "count.write_text(str(n))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': f'token-{n}'}}))\n"
    )
    user = {"command": sys.executable, "args": [str(plugin)], "apiVersion": "client.authentication.k8s.io/v1"}
    cluster = cluster_of(changed(api, exec=user))
    cluster.version()
    assert api.headers[-1]["Authorization"] == "Bearer token-1"
    api.faults.append(Fault("status", status=401))
    cluster.version()
    assert api.headers[-1]["Authorization"] == "Bearer token-2"


def test_a_token_file_is_read_again_when_refused(api: StubApi, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    cluster = Cluster.from_kubeconfig(written(tmp_path, changed(api, tokenFile="token")))
    token.write_text("new\n")
    api.faults.append(Fault("status", status=401))
    cluster.version()
    assert [one["Authorization"] for one in api.headers] == ["Bearer old", "Bearer new"]


def test_in_a_pod_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ProblemsError, match="does not run in a pod"):
        Cluster.from_kubeconfig()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("pod-token")
    ca_pem, _ = client_pair()
    (tmp_path / "ca.crt").write_text(ca_pem)
    cluster = Cluster.from_kubeconfig()
    assert cluster.server == "https://[fd00::1]:443"
    assert cluster.access.headers() == {"Authorization": "Bearer pod-token"}


def test_client_keys_stay_in_memory(api: StubApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    cert, key = (base64.b64encode(pem.encode()).decode() for pem in client_pair())
    cluster_of(changed(api, **{"client-certificate-data": cert, "client-key-data": key}))
    assert list(tmp_path.iterdir()) == []
    other_key = base64.b64encode(client_pair()[1].encode()).decode()
    with pytest.raises(ProblemsError, match="client certificate and key cannot be used"):
        cluster_of(changed(api, **{"client-certificate-data": cert, "client-key-data": other_key}))


@pytest.mark.parametrize(
    ("address", "instead", "stores"),
    [
        ("http://192.0.2.1:8080", None, 0),
        ("https://192.0.2.1:6443", None, 1),
        ("http://127.0.0.1:8080", "https://192.0.2.1:6443", 1),
    ],
)
def test_the_trust_store_is_read_for_servers_that_have_a_certificate(
    address: str, instead: str | None, stores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading it takes longer than all else that is done for a client."""
    read: list[object] = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda context: read.extend([context]))
    config = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "one"}}],
        "clusters": [{"name": "one", "cluster": {"server": address}}],
    }
    access = kubeconfig.from_host(yaml.safe_dump(config).encode(), None, "field", "a file", instead)
    assert access.server == (instead or address)
    assert access.context.verify_mode is ssl.CERT_REQUIRED
    assert read == [access.context] * stores
