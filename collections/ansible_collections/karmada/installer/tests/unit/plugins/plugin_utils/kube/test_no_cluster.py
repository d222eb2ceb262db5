# SPDX-License-Identifier: Apache-2.0
"""Where there is no host cluster, nothing is found in it, nothing gets into it, and nothing is sent anywhere."""

from __future__ import annotations

import socket
from typing import NoReturn

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import NotFound
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.no_cluster import NoCluster

NOTHING = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> NoCluster:
    def refused(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket, "create_connection", refused)
    monkeypatch.setattr(socket.socket, "connect", refused)
    return NoCluster("host cluster")


def test_what_is_read_is_empty(cluster: NoCluster) -> None:
    assert cluster.get("v1", "Namespace", "karmada") is None
    assert cluster.list("v1", "Node") == []
    assert cluster.list("storage.k8s.io/v1", "StorageClass") == []


def test_what_is_written_is_refused_in_words_for_people(cluster: NoCluster) -> None:
    with pytest.raises(NotFound, match="there is no host cluster"):
        cluster.apply(NOTHING)
    with pytest.raises(NotFound, match="there is no host cluster"):
        cluster.patch_merge("v1", "ConfigMap", "a", "b", {"data": {}})
