# SPDX-License-Identifier: Apache-2.0
"""What the step makes of the variables that it is given; what it does then is in the tests of the engine."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import restore as action
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run
from ansible_collections.karmada.installer.tests.unit.support.held_works_in_memory import Inside, set_to_work
from ansible_collections.karmada.installer.tests.unit.support.restore_pods_in_memory import (
    DOCUMENT,
    GOALS,
    World,
    made,
    stored,
    take_steps,
)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = made(monkeypatch)
    found.inside = Inside(found)
    set_to_work(found, found.inside, monkeypatch)
    take_steps(found, Goal.QUARANTINE)
    return found


def release(world: World, **given: Any) -> dict[str, Any]:
    """One call of the step with what the playbook release was given."""
    step: Any = action.ActionModule.__new__(action.ActionModule)
    options = {name: option.get("default") for name, option in action.ActionModule.OPTIONS.items()}
    run = fake_run(DOCUMENT, world, operation=GOALS[Goal.RELEASE])
    run.control_plane = world.inside
    try:
        found: dict[str, Any] = step.perform(run, {**options, "goal": "release", "timeout": 0, **given})
    finally:
        run.close()
    return found


@pytest.mark.parametrize(
    "given",
    [
        {"namespaces": [""]},
        {"namespaces": ["", "shop"]},
        {"clusters": ["m1"], "namespaces": [" "]},
        {"clusters": [""]},
        {"clusters": ["*"]},
    ],
)
def test_a_name_that_is_none_releases_nothing(world: World, given: dict[str, Any]) -> None:
    """A list in JSON with a shell's variable that is not set has an empty name, and that of no namespace is empty."""
    writes, before = world.writes, stored(world)
    with pytest.raises(ProblemsError, match="which cannot be the name of a") as refused:
        release(world, **given)
    (problem,) = refused.value.problems
    assert problem.reason is Reason.INVALID_ARGUMENT
    assert problem.where == "restore_release_clusters, restore_release_namespaces"
    assert (world.writes, stored(world)) == (writes, before)


def test_names_in_variables_of_their_own_are_one_part_beside_others(world: World) -> None:
    release(world, clusters=["m1"], parts=[{"clusters": ["m2"], "namespaces": ["shop"]}])
    assert dict(stored(world).parts) == {"m1": (), "m2": ("shop",)}
