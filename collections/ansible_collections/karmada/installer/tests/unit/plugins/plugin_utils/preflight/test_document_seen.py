# SPDX-License-Identifier: Apache-2.0
"""What a check has seen and what a later run would carry out: the same, or refused by the name of what has changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import preflight
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import crd_files
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import document_seen
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run, storage_class
from ansible_collections.karmada.installer.tests.unit.support.preflight_samples import NAMESPACE, SYSTEM, host
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state

AUDITED = {"audit": {"configMapRef": {"name": "audit"}}}


def config_map(policy: str) -> dict[str, Any]:
    metadata = {"name": "audit", "namespace": "karmada"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"policy.yaml": policy}}


def run_with(
    spec: dict[str, Any] | None = None, cluster: FakeCluster | None = None, name: str = "prod", **more: Any
) -> Run:
    run = fake_run(document(spec, name=name), cluster or host(SYSTEM), **more)
    run.__dict__["home"] = run.host_cluster
    return run


def left(run: Run) -> Any:
    """What a check leaves, after AWX has kept it."""
    return json.loads(json.dumps(document_seen.of_run(run)))


def told(run: Run, seen: Any, *, answers: bool = True) -> list[str]:
    found = document_seen.problems(run, seen, answers=answers)
    assert all(each.where and each.remedy for each in found)
    assert all(each.reason is Reason.DOCUMENT_CHANGED for each in found)
    return [each.what for each in found]


def test_the_same_is_carried_out_before_and_after_it_is_installed() -> None:
    seen = left(run_with())
    assert seen["instance"] == "karmada/prod"
    assert {"spec.mode", "spec.components", "the versions", "the host cluster"} <= set(seen["parts"])
    assert told(run_with(), seen) == []
    # The members follow the installation in the same workflow.
    assert told(run_with(stored=state()), left(run_with(stored=state()))) == []


def test_what_only_an_object_has_is_no_difference() -> None:
    seen, run = left(run_with()), run_with()
    run.deployment["metadata"] |= {"generation": 7, "uid": "another", "labels": {"a": "b"}, "annotations": {"c": "d"}}
    assert told(run, seen) == []


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ({"members": [{"name": "m1", "secretRef": {"name": "m1"}}]}, ["spec.members"]),
        ({"audit": {"enabled": False}}, ["spec.audit"]),
        ({"version": "v1.17.1"}, ["spec.version", "the versions"]),
        ({"components": {"karmadaWebhook": {"replicas": 3}}}, ["spec.components"]),
    ],
)
def test_each_field_that_has_changed_is_named(spec: dict[str, Any], parts: list[str]) -> None:
    for one, other in ((None, spec), (spec, None)):
        (what,) = told(run_with(other), left(run_with(one)))
        assert what.startswith("it is not what was checked before this run; changed since: ")
        assert set(parts) <= set(what.rpartition(": ")[2].split(", "))


def test_the_content_of_a_config_map_decides_too() -> None:
    seen = left(run_with(AUDITED, host(SYSTEM, config_map("level: None"))))
    assert told(run_with(AUDITED, host(SYSTEM, config_map("level: None"))), seen) == []
    for cluster in (host(SYSTEM, config_map("level: Metadata")), host(SYSTEM)):
        (what,) = told(run_with(AUDITED, cluster), seen)
        assert what.endswith("changed since: ConfigMap audit")


def test_another_cluster_is_another_installation_unless_nobody_may_know_it() -> None:
    there = copy.deepcopy(SYSTEM)
    there["metadata"]["uid"] = "id-2"
    seen = left(run_with())
    (what,) = told(run_with(cluster=host(there)), seen)
    assert what.endswith("changed since: the host cluster")
    assert told(run_with(cluster=host()), seen) == []
    assert told(run_with(), left(run_with(cluster=host()))) == []


def test_storage_that_has_gone_since_is_told() -> None:
    with_class = FakeCluster("host cluster", NAMESPACE, SYSTEM, storage_class("standard"))
    seen = left(run_with(cluster=with_class))
    (what,) = told(run_with(cluster=FakeCluster("host cluster", NAMESPACE, SYSTEM)), seen)
    assert what.endswith("changed since: where etcd keeps its data")


def test_the_check_of_another_control_plane_is_not_this_ones() -> None:
    (what,) = told(run_with(), left(run_with(name="second")))
    assert what == "the check before this run was of 'karmada/second'"


@pytest.mark.parametrize(
    "seen", [{"instance": "karmada/prod"}, {"parts": {}}, {"instance": 1, "parts": {}}, {"instance": "a/b", "parts": 1}]
)
def test_what_no_check_has_passed_on_is_refused(seen: Any) -> None:
    (problem,) = document_seen.problems(run_with(), seen, answers=True)
    assert (problem.where, problem.reason) == ("karmada_document_seen", Reason.INVALID_ARGUMENT)


def test_a_part_that_lacks_is_one_that_has_changed() -> None:
    seen = left(run_with())
    del seen["parts"]["spec.mode"]
    seen["parts"]["spec.of another version"] = "x"
    (what,) = told(run_with(), seen)
    assert what.endswith("changed since: spec.mode, spec.of another version")


def test_without_a_cluster_that_answers_the_document_is_compared_all_the_same() -> None:
    seen = left(run_with())
    dead = host(SYSTEM)
    dead.dead = True
    assert told(run_with(cluster=dead), seen, answers=False) == []
    (what,) = told(run_with({"audit": {"enabled": False}}, dead), seen, answers=False)
    assert what.endswith("changed since: spec.audit")


# -- the step ----------------------------------------------------------------------------------------------------------

Perform = Callable[..., dict[str, Any]]


@pytest.fixture
def perform(monkeypatch: pytest.MonkeyPatch) -> Perform:
    """The action on a run, with its options as a role gives them."""
    monkeypatch.setattr(crd_files, "crds", lambda *_: [])
    action = preflight.ActionModule.__new__(preflight.ActionModule)

    def performed(run: Run, **given: Any) -> dict[str, Any]:
        defaults = {name: option.get("default") for name, option in action.OPTIONS.items()}
        return action.perform(run, {**defaults, **given})

    return performed


@pytest.mark.parametrize("check", [False, True])
def test_the_step_refuses_what_was_not_checked_and_installs_without_a_check(perform: Perform, check: bool) -> None:
    seen = perform(run_with(check=check))["document_seen"]
    assert perform(run_with(check=check), document_seen=seen)["document_seen"] == seen
    assert perform(run_with({"audit": {"enabled": False}}, check=check))["document_seen"] != seen
    with pytest.raises(ProblemsError, match=r"changed since: spec\.audit") as refused:
        perform(run_with({"audit": {"enabled": False}}, check=check), document_seen=seen)
    assert [each.reason for each in refused.value.problems] == [Reason.DOCUMENT_CHANGED]


def test_the_step_tells_it_first_and_beside_everything_else(perform: Perform) -> None:
    seen = perform(run_with())["document_seen"]
    bad = run_with({"version": "v0.0.1"})
    with pytest.raises(ProblemsError) as refused:
        perform(bad, document_seen=seen)
    reasons = [each.reason for each in refused.value.problems]
    assert reasons[0] is Reason.DOCUMENT_CHANGED
    assert Reason.UNKNOWN_RELEASE in reasons
