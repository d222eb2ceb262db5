# SPDX-License-Identifier: Apache-2.0
"""A cache of registered members belongs to the server that was asked."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi

from .test_instances import OBJECTS, ON_HOSTS, instance, listed


@pytest.mark.parametrize("options", [{"name": "hosts"}, {"instances": "all"}], ids=["one", "several"])
def test_a_cache_of_one_server_is_not_shown_of_another(
    tmp_path: Path, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have an object of one name, and the inventory source is the same file."""
    cache = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": str(tmp_path / "cache")}
    source = tmp_path / "all.karmada.yml"
    said = {"plugin": "karmada.installer.karmada", "namespace": "b", "membership": "live", **options, **cache}
    source.write_text(yaml.safe_dump(said), encoding="utf-8")

    def members(server: StubApi) -> tuple[list[str], int]:
        before = len(server.requests)
        config = tmp_path / server.url.rpartition(":")[2]
        config.write_text(json.dumps(server.kubeconfig()), encoding="utf-8")
        monkeypatch.setenv("KUBECONFIG", str(config))
        found = listed(tmp_path, str(source))
        asked = sum("clusters" in path for _, path in server.requests[before:])
        variables = found["_meta"]["hostvars"].values()
        return sorted(each["karmada_member_name"] for each in variables if "karmada_member_name" in each), asked

    with StubApi() as api, StubApi() as other:
        for server, name in ((api, "here"), (other, "there")):
            server.types["installer.karmada.io/v1alpha1"] = [
                {
                    "name": "karmadadeployments",
                    "kind": "KarmadaDeployment",
                    "namespaced": True,
                    "verbs": ["list", "get"],
                }
            ]
            server.types["v1"] = [
                {"name": "secrets", "kind": "Secret", "namespaced": True, "verbs": ["get"]},
                {"name": "namespaces", "kind": "Namespace", "namespaced": False, "verbs": ["get"]},
            ]
            server.types["cluster.karmada.io/v1alpha1"] = [
                {"name": "clusters", "kind": "Cluster", "namespaced": False, "verbs": ["list", "get"]}
            ]
            kubeconfig = base64.b64encode(json.dumps(server.kubeconfig()).encode()).decode()
            secret = {"metadata": {"name": "hosts-admin-config", "namespace": "b"}, "data": {"kubeconfig": kubeconfig}}
            server.put("api/v1/secrets", {"apiVersion": "v1", "kind": "Secret", **secret})
            server.put(OBJECTS, {**instance("b", "hosts", ON_HOSTS), "status": {"installed": True}})
            registration = {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name}}
            server.put("apis/cluster.karmada.io/v1alpha1/clusters", {**registration, "spec": {}, "status": {}})
        assert members(api)[0] == ["here", "m3"]
        assert members(other)[0] == ["m3", "there"]
        # Each has an entry of its own.
        assert members(api) == (["here", "m3"], 0)
        assert members(other) == (["m3", "there"], 0)
    kept = "".join(f"{path.name} {path.read_text()}" for path in (tmp_path / "cache").iterdir())
    assert "t0ps3cret" not in kept
