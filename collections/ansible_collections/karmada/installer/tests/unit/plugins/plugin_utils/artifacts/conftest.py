# SPDX-License-Identifier: Apache-2.0
"""Checksums on record of releases, and servers that have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import (
    https,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import source as artifact_source
from ansible_collections.karmada.installer.tests.unit.support.web_server import (
    RegistryFiles,
    WebServer,
    program,
    tar,
)


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is recorded; nothing yet. Nothing waits, and no proxy of this machine is in the way."""
    recorded: dict[str, Any] = {}
    monkeypatch.setattr(artifact_source, "read_lock", lambda: recorded)
    monkeypatch.setattr(https.time, "sleep", lambda _: None)
    for variable in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    return recorded


@pytest.fixture
def served() -> dict[str, bytes]:
    """Path → content of the web server."""
    return {}


@pytest.fixture
def images() -> RegistryFiles:
    found = RegistryFiles()
    for name, version, path in (
        ("coreos/etcd", "v9.3.0", "usr/local/bin/etcd"),
        ("k8s/kube-apiserver", "v9.2.0", "usr/local/bin/kube-apiserver"),
        ("karmada/karmada-scheduler", "v9.1.0", "bin/karmada-scheduler"),
    ):
        content = program(path.rpartition("/")[2])
        found.image(name, version, {"amd64": [tar(("etc/passwd", b"root")), tar((path, content))]})
    return found


@pytest.fixture
def registry(images: RegistryFiles) -> Iterator[WebServer]:
    with WebServer(images) as running:
        yield running
