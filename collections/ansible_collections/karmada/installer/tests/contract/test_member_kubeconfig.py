# SPDX-License-Identifier: Apache-2.0
"""A kubeconfig that ssh has brought from a host leads to the API server, at the address that the document gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import document


def test_it_leads_to_the_member_at_the_address_of_the_document(
    api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = yaml.safe_load(api_server.kubeconfig_for_secret())
    # An address that nobody answers at, as 127.0.0.1 is for all but the host itself.
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "content").write_text(yaml.safe_dump(config))
    (tmp_path / "ssh").write_text(f"#!/bin/sh\nexec cat {tmp_path}/content\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    source = {"address": "192.0.2.21", "port": 22, "path": "/etc/kubernetes/admin.conf", "server": api_server.url}
    entry = {"name": "m1", "mode": "Push", "kubeconfigFrom": source}
    run: Any = fake_run(document({"members": [entry]}), FakeCluster("host cluster"))
    run.connection = Connection()
    with member_join.connected(run, MemberEntry(entry)) as cluster:
        assert cluster.get("v1", "Namespace", "kube-system")
        registration = member_join.registration_of(cluster)
    assert registration.endpoint == api_server.url
