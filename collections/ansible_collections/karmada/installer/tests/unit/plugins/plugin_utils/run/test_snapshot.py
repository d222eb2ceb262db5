# SPDX-License-Identifier: Apache-2.0
"""A snapshot keeps what was seen, and a new one has nothing of it."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run, node
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state

NODE_PORT = {"endpoint": {"type": "NodePort"}}


def on(host: FakeCluster) -> Run:
    return fake_run(document(NODE_PORT), host, stored=state(endpoint_host=""))


def test_what_has_been_seen_stays_as_it_was() -> None:
    host = FakeCluster("host cluster", node("192.0.2.1"))
    before = on(host).snapshot
    assert before.endpoint_host == "192.0.2.1"
    host.put(node("192.0.2.2"))
    host.delete("v1", "Node", "192.0.2.1")
    assert before.endpoint_host == "192.0.2.1"


def test_who_looks_again_sees_what_is_there_now() -> None:
    host = FakeCluster("host cluster", node("192.0.2.1"))
    run = on(host)
    before = run.snapshot
    assert run.endpoint_host == "192.0.2.1"
    host.put(node("192.0.2.2"))
    host.delete("v1", "Node", "192.0.2.1")
    run.look_again()
    assert run.endpoint_host == "192.0.2.2"
    assert run.snapshot is not before
    assert before.endpoint_host == "192.0.2.1"


def test_another_state_is_rendered_anew_with_what_was_seen() -> None:
    host = FakeCluster("host cluster", node("192.0.2.1"))
    run = on(host)
    seen, before = run.live, run.material
    run.go_on_with(replace(run.state, service_account_key=b"another"))
    assert run.material.service_account_key == b"another"
    assert before.service_account_key != b"another"
    assert run.live is seen
