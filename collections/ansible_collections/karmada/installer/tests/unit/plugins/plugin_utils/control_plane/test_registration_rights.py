# SPDX-License-Identifier: Apache-2.0
"""Clusters register themselves only where the document says so, and no longer when it does not."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import control_plane
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import bootstrap, stages
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document, state

NAMES = {f"{each['kind']} {each['metadata']['name']}" for each in bootstrap.registration(OWNER)}


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_plane, "wait_until", lambda *_, **__: None)
    monkeypatch.setattr(Run, "writing", lambda *_: nullcontext())


def carried_out(inside: FakeCluster, *, on: bool | None, check: bool = False) -> list[str]:
    """What the step for rights changes with the field in the document; None: it is not there."""
    spec: dict[str, Any] = {} if on is None else {"registration": {"karmadactl": on}}
    run = fake_run(document(spec), FakeCluster("host"), stored=state(), check=check)
    run.__dict__.update(control_plane=inside, control_plane_exists=True)
    action = object.__new__(control_plane.ActionModule)
    changes: list[str] = action.perform(run, {"stage": "rights", "wait": True, "timeout": 1})["changes"]
    return changes


def there(inside: FakeCluster) -> set[str]:
    return NAMES & {f"{kind} {name}" for _, kind, _, name in inside.objects}


@pytest.mark.parametrize("on", [None, False])
def test_nothing_of_it_is_there_unless_asked_for(on: bool | None) -> None:
    inside = FakeCluster("control plane")
    carried_out(inside, on=on)
    assert there(inside) == set()
    assert "ClusterRoleBinding system:karmada:components" in {f"{kind} {name}" for _, kind, _, name in inside.objects}


def test_it_comes_and_goes_with_the_field_and_a_second_run_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "control_plane_exists", True)
    inside = FakeCluster("control plane")
    carried_out(inside, on=False)
    assert {each.removeprefix("created ") for each in carried_out(inside, on=True)} == NAMES
    assert carried_out(inside, on=True) == []
    assert {each.removeprefix("deleted ") for each in carried_out(inside, on=None, check=True)} == NAMES
    assert there(inside) == NAMES
    assert {each.removeprefix("deleted ") for each in carried_out(inside, on=None)} == NAMES
    assert there(inside) == set()
    assert carried_out(inside, on=False) == []


def test_what_somebody_else_has_made_under_these_names_stays() -> None:
    inside = FakeCluster("control plane")
    for each in bootstrap.registration("somebody-else"):
        inside.put(each)
    carried_out(inside, on=False)
    assert there(inside) == NAMES


def test_bindings_go_before_the_roles_that_they_name() -> None:
    run = fake_run(document(), FakeCluster("host"), stored=state())
    kinds = [ref.kind for ref in stages.switched_off(run, ["rights"])]
    assert kinds == sorted(kinds, key=lambda kind: kind != "ClusterRoleBinding")
    assert stages.switched_off(run, ["foundation"]) == []


def test_each_stage_takes_away_its_own() -> None:
    """And all of them together are what the look for differences asks about."""
    run = fake_run(document(), FakeCluster("host"), stored=state())
    whole = stages.switched_off(run)
    parts = [ref for stage in ("rights", "addons") for ref in stages.switched_off(run, [stage])]
    assert whole == parts
    assert len({*whole}) == len(whole)
    assert Ref("rbac.authorization.k8s.io/v1", "ClusterRole", "system:karmada:agent-rbac-generator", None) in whole


@pytest.mark.parametrize(("mode", "refused"), [("Pull", True), ("Push", False)])
@pytest.mark.parametrize("on", [True, False])
def test_no_agent_has_the_name_of_who_makes_rights(on: bool, mode: str, refused: bool) -> None:
    """Also while it means nothing: its certificate would live on when registration is switched on."""
    member = {"name": bootstrap.RIGHTS_GENERATOR, "mode": mode, "secretRef": {"name": "m"}}
    deployment = document({"endpoint": {"type": "NodePort"}, "registration": {"karmadactl": on}})
    deployment["spec"]["members"] = [member]
    found = [each.where for each in manifest.validate(deployment)]
    assert found == (["spec.members[0].name"] if refused else [])
