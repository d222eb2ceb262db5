# SPDX-License-Identifier: Apache-2.0
"""Keys of a cache: the same for the same server, whoever asks, and another one for another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document.inventory_source import Source
from ansible_collections.karmada.installer.plugins.plugin_utils.members import looked_up
from ansible_collections.karmada.installer.tests.unit.support import certificates
from ansible_collections.karmada.installer.tests.unit.support.samples import document

HERE, THERE = "https://192.0.2.1:6443", "https://192.0.2.2:6443"
ON_HOSTS = {
    "mode": "Binary",
    "hosts": [{"name": "cp1", "address": "192.0.2.1"}],
    "endpoint": {"type": "External", "host": "karmada.example.com"},
}


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KARMADA_KUBECONFIG", "K8S_AUTH_HOST", "K8S_AUTH_KUBECONFIG", "K8S_AUTH_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def written(path: Path, *servers: str, user: str = "t0ps3cret", **cluster: Any) -> str:
    """Path of a kubeconfig with a context for each server, the first one the current one."""
    names = [f"c{number}" for number in range(len(servers))]
    config = {
        "clusters": [
            {"name": name, "cluster": {"server": each, **cluster}} for name, each in zip(names, servers, strict=True)
        ],
        "users": [{"name": "me", "user": {"token": user}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in names],
        "current-context": names[0],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return str(path)


def key(
    spec: dict[str, Any] | None = None,
    *,
    name: str = "prod",
    installed: bool = True,
    options: Any = None,
    **source: Any,
) -> str:
    found = looked_up.key(options or {}, [Source(document(spec, name=name), source, "live", installed=installed)])
    assert len(found) == 32
    assert "t0ps3cret" not in found
    return found


def test_the_same_server_has_the_same_key_whatever_the_credential(tmp_path: Path) -> None:
    one, renewed = (written(tmp_path / name, HERE, user=name) for name in ("one", "renewed"))
    assert key(kubeconfig=one) == key(kubeconfig=renewed) != key()


def test_a_kubeconfig_that_leads_elsewhere_has_another_key(tmp_path: Path) -> None:
    path = tmp_path / "config"
    found = {key(kubeconfig=written(path, server)) for server in (HERE, THERE)}
    found.add(key(kubeconfig=written(path, HERE, **{"tls-server-name": "another"})))
    found.add(key(kubeconfig=written(path, HERE, **{"proxy-url": "http://192.0.2.9:3128"})))
    for each in (certificates.CA, certificates.TWIN):
        (tmp_path / "ca.crt").write_bytes(each.certificate)
        found.add(key(kubeconfig=written(path, HERE, **{"certificate-authority": "ca.crt"})))
    assert len(found) == 6


def test_each_way_to_choose_a_server_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = written(tmp_path / "both", HERE, THERE)
    found = [key(kubeconfig=both), key(kubeconfig=both, context="c1")]
    found.append(key({"hostCluster": {"context": "c1"}}, kubeconfig=both))
    assert found[0] != found[1] == found[2]
    for variable in ("KUBECONFIG", "K8S_AUTH_KUBECONFIG"):
        monkeypatch.setenv(variable, both)
        assert key() == found[0]
        monkeypatch.setenv("K8S_AUTH_CONTEXT", "c1")
        assert key() == found[1]
        monkeypatch.delenv("K8S_AUTH_CONTEXT")
        monkeypatch.delenv(variable)
    monkeypatch.setenv("K8S_AUTH_API_KEY", "t0ps3cret")
    monkeypatch.setenv("K8S_AUTH_HOST", HERE)
    assert key() == found[0]
    monkeypatch.setenv("K8S_AUTH_IMPERSONATE_USER", "jane")
    assert key() not in found


def test_a_control_plane_on_hosts_is_looked_up_by_its_own_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", written(tmp_path / "host", HERE))
    left = tmp_path / "prod.kubeconfig"
    nobody = key(ON_HOSTS, kubeconfig_output=str(left))
    found = [key(ON_HOSTS, kubeconfig_output=written(left, server)) for server in (HERE, THERE)]
    monkeypatch.setenv("KARMADA_KUBECONFIG", written(tmp_path / "given", THERE))
    assert key(ON_HOSTS, kubeconfig_output=written(left, HERE)) == found[1]
    assert len({nobody, *found}) == 3
    # Beside an object it is a Secret of the cluster that has both.
    beside = [key(ON_HOSTS, object_uid="uid")]
    monkeypatch.setenv("KUBECONFIG", written(tmp_path / "host", THERE))
    assert key(ON_HOSTS, object_uid="uid") not in beside


def test_a_secret_with_the_host_cluster_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {"hostCluster": {"secretRef": {"name": "site"}}}
    folder, file = tmp_path / "secrets", tmp_path / "secrets/site/kubeconfig"
    assert key(spec, secrets=str(folder)) not in [
        key(spec, secrets=str(Path(written(file, server)).parents[1])) for server in (HERE, THERE)
    ]
    assert key(spec, secrets=str(Path(written(file, HERE)).parents[1])) != key(
        spec, secrets=str(Path(written(file, THERE)).parents[1])
    )
    monkeypatch.setenv("KUBECONFIG", written(tmp_path / "home", HERE))
    other = {"hostCluster": {"secretRef": {"name": "other"}}}
    assert len({key(spec), key(other), key()}) == 3


def test_options_the_name_and_whether_it_is_installed_count(tmp_path: Path) -> None:
    path = written(tmp_path / "config", HERE)
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"name": "second"},
        {"installed": False},
        {"options": {"label_selector": "a=b"}},
    )
    assert len({key(kubeconfig=path, **each) for each in ways}) == 4


def test_a_program_of_the_kubeconfig_is_not_run(tmp_path: Path) -> None:
    path, here = Path(written(tmp_path / "config", HERE)), key(kubeconfig=str(tmp_path / "config"))
    config = yaml.safe_load(path.read_text())
    call = {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [str(tmp_path / "ran")]}
    config["users"][0]["user"] = {"exec": {**call, "interactiveMode": "Never"}}
    path.write_text(json.dumps(config))
    assert key(kubeconfig=str(path)) == here
    assert not (tmp_path / "ran").exists()
