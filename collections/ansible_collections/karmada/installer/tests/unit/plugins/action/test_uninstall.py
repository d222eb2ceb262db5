# SPDX-License-Identifier: Apache-2.0
"""The last line of an uninstall: what is gone, and how much stays on members."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.uninstall import ActionModule
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.karmada_in_memory import application, work_for
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "prod-apiserver", "namespace": "karmada"},
}


def confirmed(
    inside: FakeCluster, *, check: bool = False, policy: str = "Delete", installed: bool = True, deployed: bool = True
) -> dict[str, Any]:
    """Result of the first stage, with the name of the control plane."""
    there = [DEPLOYMENT] if deployed else []
    run = fake_run(
        document({"deletion": {"policy": policy}}),
        FakeCluster("host cluster", *there),
        stored=state() if installed else None,
        check=check,
    )
    run.__dict__["control_plane"] = inside
    perform: Any = ActionModule.perform
    action: Any = type("Action", (), {"_without_state": ActionModule._without_state})()
    found: dict[str, Any] = perform(
        action, run, {"stage": "confirm", "confirm": "prod", "abandon_members": [], "timeout": 5}
    )
    return found


@pytest.fixture
def inside() -> FakeCluster:
    """Two applications on one member, one on another, and what Karmada has there for a Cluster itself."""
    of_cluster = work_for(application("rights"), "m3")
    of_cluster["metadata"]["ownerReferences"] = [{"kind": "Cluster", "name": "m3"}]
    works = [work_for(application(name), member) for name, member in (("web", "m1"), ("db", "m1"), ("web", "m2"))]
    return FakeCluster("control plane", *works, of_cluster)


def test_it_says_what_stays_on_which_member(inside: FakeCluster) -> None:
    assert confirmed(inside)["now"] == "prod is gone; 2 workloads stay on m1, 1 workload stays on m2"
    would = confirmed(inside, check=True, policy="Retain")["now"]
    assert would == ("prod would be gone; its data is kept; 2 workloads would stay on m1, 1 workload would stay on m2")


def test_it_says_that_nothing_stays_or_that_nobody_knows() -> None:
    assert confirmed(FakeCluster("control plane"))["now"] == "prod is gone; nothing stays on members"
    assert confirmed(FakeCluster("none"), deployed=False)["now"] == "prod is gone; it had propagated nothing"
    silent = FakeCluster("control plane")
    silent.dead = True
    assert "what stays on members could not be counted (control plane: no answer" in confirmed(silent)["now"]
    gone = confirmed(FakeCluster("none"), installed=False)
    assert (gone["installed"], gone["now"]) == (False, "prod is not installed there; nothing is left to remove")


@pytest.mark.parametrize(
    ("several", "confirm", "right"),
    [(True, "prod", False), (True, "elsewhere/prod", False), (True, "{full}", True), (False, "{full}", True)],
)
def test_one_of_several_is_removed_by_its_full_name(several: bool, confirm: str, right: bool) -> None:
    """Another namespace may have one of the same name, which a template without an answer might find."""
    run = fake_run(document({}), FakeCluster("host cluster", DEPLOYMENT), stored=state())
    run.__dict__["control_plane"] = FakeCluster("control plane")
    run.one_of_several = several
    full = run.full_name("prod")
    given = {"stage": "confirm", "confirm": confirm.format(full=full), "abandon_members": [], "timeout": 5}
    perform: Any = ActionModule.perform
    if right:
        assert perform(None, run, given)["installed"]
        return
    with pytest.raises(ProblemsError, match=f"removes the control plane {full};.*karmada_confirm={full}"):
        perform(None, run, given)
