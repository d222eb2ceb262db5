# SPDX-License-Identifier: Apache-2.0
"""The way to the API server of a control plane in pods."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import KARMADA_CA
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import port_forward
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import in_pods, place
from ansible_collections.karmada.installer.plugins.plugin_utils.run.facts import Facts


def test_an_api_server_that_answers_needs_nothing_of_port_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = SimpleNamespace(certificate=b"certificate", key=b"key")
    seen = SimpleNamespace(
        own_identity=identity, state=SimpleNamespace(authorities={KARMADA_CA: identity}), public_url="https://x:5443"
    )
    answers = SimpleNamespace(get_raw=lambda *_given, **_more: b"ok")
    monkeypatch.setattr(place, "from_parts", lambda *_given, **_more: None)
    monkeypatch.setattr(place, "Cluster", lambda *_given: answers)
    # An import of it, whose library takes time in each fork, would fail.
    monkeypatch.setitem(sys.modules, port_forward.__name__, None)
    here: Any = in_pods.InPods.__new__(in_pods.InPods)
    here.facts = SimpleNamespace(spec=Spec({"endpoint": {"type": "NodePort"}}))
    assert here.connect(seen) is answers


def test_an_object_chooses_no_context_of_the_kubeconfig_of_whoever_carries_it_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as that of the operator, whose rights are not those of its author."""
    opened: list[str | None] = []
    found = SimpleNamespace(access=SimpleNamespace())

    def from_kubeconfig(_path: str | None, context: str | None, **_more: Any) -> Any:
        opened.append(context)
        return found

    monkeypatch.setattr(in_pods, "HostCluster", SimpleNamespace(from_kubeconfig=from_kubeconfig))
    monkeypatch.setattr(in_pods.host_cluster, "refuse_unverified", lambda *_given, **_more: None)

    def of(uid: str | None, host: dict[str, Any]) -> Any:
        here: Any = in_pods.InPods.__new__(in_pods.InPods)
        connection = SimpleNamespace(object_uid=uid, context="own", kubeconfig=None)
        here.facts = SimpleNamespace(
            spec=Spec({"hostCluster": host}), connection=connection, kept=lambda each: each, clients=None
        )
        here.facts.opened = Facts.opened.__get__(here.facts)
        return here.host_cluster

    with pytest.raises(ProblemsError, match="chooses a context") as refused:
        of("u1", {"context": "another"})
    assert [each.reason for each in refused.value.problems] == [Reason.INVALID_DOCUMENT]
    assert opened == []
    of("u1", {})
    # Who writes the file has the kubeconfig, too.
    of(None, {"context": "another"})
    assert opened == ["own", "another"]
