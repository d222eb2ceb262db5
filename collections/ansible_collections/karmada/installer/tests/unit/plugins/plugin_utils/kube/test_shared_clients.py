# SPDX-License-Identifier: Apache-2.0
"""Clients of one server that many share."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.shared_clients import SharedClients
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi


def written(path: Path, config: Any) -> str:
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def test_those_who_come_at_once_log_in_once_and_wait_for_it(tmp_path: Path) -> None:
    with StubApi() as api, SharedClients() as clients:
        path = written(tmp_path / "kubeconfig", api.kubeconfig_with_login(tmp_path / "logins"))
        with ThreadPoolExecutor(8) as workers:
            found = list(workers.map(lambda _: clients.of(path, None, "host cluster").version(), range(40)))
        assert len(found) == len([each for _, each in api.requests if each == "/version"]) == 40
    assert (tmp_path / "logins").read_text() == "login\n"


def test_another_context_is_another_client(tmp_path: Path) -> None:
    with StubApi() as api, StubApi() as other, SharedClients() as clients:
        config = api.kubeconfig()
        config["contexts"].append({"name": "other", "context": {"cluster": "other", "user": "me"}})
        config["clusters"].append({"name": "other", "cluster": {"server": other.url}})
        path = written(tmp_path / "kubeconfig", config)
        assert clients.of(path, None, "host cluster").server == api.url
        assert clients.of(path, "other", "host cluster").server == other.url
        with pytest.raises(ProblemsError, match="nowhere"):
            clients.of(path, "nowhere", "host cluster")


def test_name_troubles_and_the_lock_are_each_ones_own(tmp_path: Path) -> None:
    def refuse() -> None:
        raise AssertionError("it has no lock")

    with StubApi() as api, SharedClients() as clients:
        path = written(tmp_path / "kubeconfig", api.kubeconfig())
        one, two = clients.of(path, None, "host cluster"), clients.of(path, None, "home cluster")
        troubles: list[str] = []
        one.on_trouble, one.before_write = troubles.append, refuse
        assert (one.name, two.name) == ("host cluster", "home cluster")
        api.put("api/v1/namespaces", {"metadata": {"name": "a"}})
        two.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "a"}})
        with pytest.raises(AssertionError, match="it has no lock"):
            one.delete("v1", "ConfigMap", "b", "a")
        assert len(api.writes()) == 1
        api.faults.append(Fault("status", path="/version", status=503, times=1))
        two.version()
        assert troubles == []


def test_at_the_end_all_are_closed(tmp_path: Path) -> None:
    with StubApi() as api:
        path = written(tmp_path / "kubeconfig", api.kubeconfig())
        with SharedClients() as clients:
            found = clients.of(path, None, "host cluster")
            found.version()
        assert found._pool.pool is None
