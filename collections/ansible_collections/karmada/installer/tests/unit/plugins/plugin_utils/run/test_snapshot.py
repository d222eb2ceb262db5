# SPDX-License-Identifier: Apache-2.0
"""A snapshot keeps what was seen, and a new one has nothing of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
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


# -- nobody changes one ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["state", "endpoint_host", "live", "route", "anything"])
def test_it_refuses_to_be_changed(name: str) -> None:
    run = on(FakeCluster("host cluster", node("192.0.2.1")))
    for seen in (run.snapshot, run.live):
        with pytest.raises(FrozenInstanceError):
            setattr(seen, name, "other")
        with pytest.raises(FrozenInstanceError):
            delattr(seen, name)
    assert run.endpoint_host == "192.0.2.1"


PLUGINS = Path(__file__).parents[5] / "plugins"
ENGINE = sorted(path for folder in ("plugin_utils", "action") for path in (PLUGINS / folder).rglob("*.py"))
SNAPSHOTS = ("Snapshot", "Live")


def changed(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of what would change a snapshot: an attribute that is set or deleted, or its ``__dict__``."""
    tree = ast.parse(source)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in SNAPSHOTS]
    made = {id(part) for each in classes for part in ast.walk(next(_methods(each, "__init__"), each))}
    own = {id(part) for each in classes for part in ast.walk(each)} - made
    for part in ast.walk(tree):
        if not isinstance(part, ast.Attribute):
            continue
        holder = part.value.attr if isinstance(part.value, ast.Attribute) else getattr(part.value, "id", "")
        is_one = holder in ("snapshot", "live") or (holder == "self" and id(part) in own)
        if part.attr == "__dict__" or (is_one and not isinstance(part.ctx, ast.Load)):
            yield part.lineno, ast.unparse(part)


def _methods(node: ast.ClassDef, name: str) -> Iterator[ast.FunctionDef]:
    return (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == name)


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: str(path.relative_to(PLUGINS)))
def test_nothing_of_a_snapshot_is_set_again(path: Path) -> None:
    assert list(changed(path.read_text())) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("run.snapshot.state = other", 1),
        ("del live.route", 1),
        ("run.snapshot.addresses += ()", 1),
        ("run.__dict__.pop('state')", 1),
        ("class Snapshot:\n def __init__(self): self.a = 1\n def look(self): self.a = 2", 1),
        ("class Run:\n def look(self): self.snapshot = Snapshot()", 0),
        ("seen = run.snapshot.state", 0),
    ],
)
def test_what_changes_a_snapshot_is_found(source: str, found: int) -> None:
    assert len(list(changed(source))) == found
