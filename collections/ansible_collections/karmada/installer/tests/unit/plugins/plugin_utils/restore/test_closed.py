# SPDX-License-Identifier: Apache-2.0
"""Whether API servers refuse agents, by what each of them answers."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import CLIENT_SIGNING_CA
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.labels import NAME_LABEL
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import closed
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from cryptography import x509


def answers(monkeypatch: pytest.MonkeyPatch, status_of: dict[str, int], ended: str = "") -> list[str]:
    """Pods that accept agents, where each pod gives this answer; the one that has ``ended`` was evicted long ago."""
    host_cluster, certificates = FakeCluster("host cluster"), list[str]()
    run = fake_run(samples.document(), host_cluster, stored=samples.state())
    labels = dict(each.split("=", 1) for each in run.instance.pod_selector("karmada-apiserver").split(","))
    assert labels[NAME_LABEL] == "karmada-apiserver"
    for name in status_of:
        metadata = {"name": name, "namespace": run.namespace, "labels": labels, "uid": name}
        status = {"phase": "Failed", "reason": "Evicted"} if name == ended else {}
        host_cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}, "status": status})

    class Answering:
        def __init__(self, pod: str) -> None:
            self.pod = pod

        def get_raw(self, path: str, **_: Any) -> str:
            if status_of[self.pod] == 200:
                return "{}"
            raise ApiError(self.pod, "GET", path, status_of[self.pod], "", "")

        def close(self) -> None: ...

    def parts(_url: str, *, cert_pem: str, **_: str) -> None:
        certificates.append(cert_pem)

    monkeypatch.setattr(closed, "from_parts", parts)
    monkeypatch.setattr(closed, "cluster_behind", lambda _front, _namespace, pod, *_: Answering(pod))
    try:
        return closed.accepting_agents(run)
    finally:
        signer = x509.load_pem_x509_certificate(run.state.authorities[CLIENT_SIGNING_CA].certificate)
        assert certificates or not {*status_of} - {ended}
        for each in certificates:
            x509.load_pem_x509_certificate(each.encode()).verify_directly_issued_by(signer)


@pytest.mark.parametrize(("status", "accepts"), [(200, True), (403, True), (401, False)])
def test_it_accepts_agents_unless_it_does_not_know_who_asks(
    monkeypatch: pytest.MonkeyPatch, status: int, accepts: bool
) -> None:
    assert answers(monkeypatch, {"a": status}) == (["a"] if accepts else [])


def test_each_api_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answers(monkeypatch, {"a": 401, "b": 200, "c": 401}) == ["b"]


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_an_answer_that_says_nothing_is_no_proof(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    with pytest.raises(ApiError):
        answers(monkeypatch, {"a": status})


def test_one_that_was_evicted_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its object stays, and no quarantine would ever be proved by it."""
    assert answers(monkeypatch, {"a": 401, "evicted": 0}, ended="evicted") == []


@pytest.mark.parametrize("left", [{}, {"evicted": 0}])
def test_where_nobody_can_be_asked_nothing_is_proved(monkeypatch: pytest.MonkeyPatch, left: dict[str, int]) -> None:
    with pytest.raises(ApiError, match="no pod of karmada-apiserver is there to be asked"):
        answers(monkeypatch, left, ended="evicted")
