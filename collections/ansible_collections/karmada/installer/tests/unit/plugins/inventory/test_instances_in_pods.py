# SPDX-License-Identifier: Apache-2.0
"""``membership: live`` of several control planes in pods: whose client each is asked by."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.shared_clients import SharedClients
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registered
from ansible_collections.karmada.installer.tests.unit.support.samples import document
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi

from .test_instances import OBJECTS, ON_HOSTS, api, hosts, instance, listed, member, site

__all__ = ["api"]  # a fixture
#: The stub speaks without TLS.
PLAIN = {"insecureSkipTLSVerification": True}


def of_states(requests: list[tuple[str, str]]) -> list[str]:
    """Names of the states that a server was asked for."""
    paths = [path for _, path in requests if path.endswith("-installer-state")]
    return sorted(path.rpartition("/")[2].removesuffix("-installer-state") for path in paths)


def test_all_of_one_inventory_log_in_to_their_cluster_once(tmp_path: Path, api: StubApi) -> None:
    for number in range(5):
        api.put(OBJECTS, instance("a", f"pods{number}", {"hostCluster": PLAIN, "members": [member("m1")]}))
    api.put(OBJECTS, instance("a", "hosts", ON_HOSTS))
    source = site(tmp_path, api, membership="live")
    login = api.kubeconfig_with_login(tmp_path / "logins")
    (tmp_path / "kubeconfig").write_text(json.dumps(login), encoding="utf-8")
    found = listed(tmp_path, source)
    assert len(hosts(found, "karmada_all_members")) == 6, "none is installed yet"
    assert of_states(api.requests) == [f"pods{number}" for number in range(5)]
    assert (tmp_path / "logins").read_text() == "login\n"


def test_a_host_cluster_of_its_own_is_asked_with_its_own_kubeconfig(
    tmp_path: Path,
    api: StubApi,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even if two name the same Secret: what one of them is refused is none of the other's business."""
    (tmp_path / "kubeconfig").write_text(json.dumps(api.kubeconfig()), encoding="utf-8")
    read: list[str] = []

    def noted(name: str) -> None:
        taken = getattr(kubeconfig, name)
        monkeypatch.setattr(kubeconfig, name, lambda *given, **more: read.append(name) or taken(*given, **more))

    noted("from_file")
    noted("from_secret")

    def source(name: str, **host: Any) -> inventory_source.Source:
        connection = {"kubeconfig": str(tmp_path / "kubeconfig"), "object_uid": "a-uid"}
        return inventory_source.Source(document({"hostCluster": {**PLAIN, **host}}, name), connection, "live")

    with StubApi() as other, SharedClients() as clients:
        data = {"kubeconfig": base64.b64encode(json.dumps(other.kubeconfig()).encode()).decode()}
        secret = {"metadata": {"name": "site", "namespace": "karmada"}, "data": data}
        api.put("api/v1/secrets", {"apiVersion": "v1", "kind": "Secret", **secret})
        own = {"secretRef": {"name": "site"}}
        sources = [source("p1"), source("p2"), source("s1", **own), source("s2", **own)]
        assert registered.live_of_all(sources, clients, at_once=3) == [registered.Registered()] * 4
        assert of_states(api.requests) == ["p1", "p2"]
        assert of_states(other.requests) == ["s1", "s2"]
    assert sorted(read) == ["from_file", "from_secret", "from_secret"]
