# SPDX-License-Identifier: Apache-2.0
"""Changes of a run: each step's are handed on in one form, and the report of the run has all of them once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import ApplyFailed, Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.run import changes as changes_of_steps
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import (
    KarmadaAction,
    StepAction,
    changed_result,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.run.changes import StepChange
from ansible_collections.karmada.installer.plugins.plugin_utils.run.handover import Handover
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import document
from ansible_collections.karmada.installer.tests.unit.support.tasks import task

DEPLOYMENT = Ref("apps/v1", "Deployment", "prod-scheduler", "karmada")


def test_what_steps_tell_of_objects_is_kind_and_name() -> None:
    changes = [Change(DEPLOYMENT, "created"), Change(Ref("v1", "Namespace", "karmada"), "unchanged")]
    assert changes_of_steps.of_step(changed_result(changes)) == [
        StepChange("created", "Deployment", "karmada/prod-scheduler")
    ]
    assert changes_of_steps.of_step({"changed": False, "changes": ["create /etc/a"]}, "cp1") == []


def test_a_name_that_stands_there_already_is_not_said_again() -> None:
    assert str(StepChange("created", "Cluster", "m1", member="m1")) == "created Cluster m1"
    assert str(StepChange("created", "Secret", "k/m1", member="m1")) == "created Secret k/m1 (m1)"


def test_what_was_done_for_a_member_names_it_and_is_there_once() -> None:
    account = "created ServiceAccount karmada-cluster/karmada-impersonator"
    result = {
        "changed": True,
        "changes": [account, account, "changed Deployment karmada/prod-search"],
        "members": [{"name": name, "changes": [account]} for name in ("m1", "m2")],
    }
    assert [each.plain for each in changes_of_steps.of_step(result)] == [
        {"action": "created", "kind": "ServiceAccount", "name": account.split(" ")[2], "member": "m1"},
        {"action": "created", "kind": "ServiceAccount", "name": account.split(" ")[2], "member": "m2"},
        {"action": "changed", "kind": "Deployment", "name": "karmada/prod-search"},
    ]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("create user karmada-prod-etcd", ("created", "User", "karmada-prod-etcd")),
        ("create directory /etc/karmada", ("created", "Directory", "/etc/karmada")),
        ("create /etc/karmada/a b", ("created", "File", "/etc/karmada/a b")),
        ("change /etc/karmada/a", ("changed", "File", "/etc/karmada/a")),
        ("set owner and mode of /etc/karmada/a", ("changed", "File", "/etc/karmada/a")),
        ("remove unit karmada-prod-etcd.service", ("deleted", "Unit", "karmada-prod-etcd.service")),
        ("remove /etc/karmada/a", ("deleted", "File", "/etc/karmada/a")),
        ("restart karmada-prod-etcd.service", ("restarted", "Unit", "karmada-prod-etcd.service")),
        ("hold karmada-prod-etcd.service", ("held", "Unit", "karmada-prod-etcd.service")),
    ],
)
def test_what_modules_tell_of_hosts_is_kind_and_name_too(told: str, expected: tuple[str, str, str]) -> None:
    assert changes_of_steps.of_step({"changed": True, "changes": [told]}, "cp1") == [StepChange(*expected, host="cp1")]


def test_programs_of_hosts_are_changes() -> None:
    found = changes_of_steps.of_step({"changed": True, "installed": ["/usr/local/lib/karmada/v1/etcd"]}, "cp1")
    assert found == [StepChange("created", "File", "/usr/local/lib/karmada/v1/etcd", host="cp1")]


def test_a_thing_that_is_made_and_changed_in_one_run_is_a_thing_that_is_made(tmp_path: Path) -> None:
    made, changed = StepChange("created", "ConfigMap", "a"), StepChange("changed", "ConfigMap", "a")
    for part in ([made, changed], [changed], [StepChange("deleted", "ConfigMap", "b")], []):
        Handover(tmp_path).add_changes(part)
    assert Handover(tmp_path).changes == [made, StepChange("deleted", "ConfigMap", "b")]
    assert Handover(tmp_path / "of another run").changes == []


class Step(KarmadaAction):
    """A step that ends as it is told, without Ansible around it."""

    def __init__(self, ends: Any) -> None:
        self.ends = ends
        self._task = task("workloads", "control_plane")

    def validate_argument_spec(self, **_: Any) -> Any:
        return None, {}

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        del run, arguments
        if isinstance(self.ends, Exception):
            raise self.ends
        return dict(self.ends)


@pytest.mark.parametrize("fails", [False, True])
def test_every_step_hands_on_what_it_has_changed_also_one_that_fails(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = [Change(DEPLOYMENT, "changed")]
    step = Step(ApplyFailed("apply", [(DEPLOYMENT, ValueError("no"))], done) if fails else changed_result(done))
    run = fake_run(document(), FakeCluster("host cluster"))
    run.place.handover = Handover(tmp_path)
    monkeypatch.setattr(StepAction.__mro__[1], "run", lambda *_: {})
    monkeypatch.setattr(step, "_make_run", lambda _arguments: run)
    result = step.run(task_vars={})
    assert (result.get("failed", False), result["changed"]) == (fails, True)
    assert Handover(tmp_path).changes == [StepChange("changed", "Deployment", "karmada/prod-scheduler")]
