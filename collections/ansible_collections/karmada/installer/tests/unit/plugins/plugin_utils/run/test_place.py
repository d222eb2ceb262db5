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
from ansible_collections.karmada.installer.plugins.plugin_utils.run import place


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
    here: Any = place.InPods.__new__(place.InPods)
    here.facts = SimpleNamespace(spec=Spec({"endpoint": {"type": "NodePort"}}))
    assert here.connect(seen) is answers
