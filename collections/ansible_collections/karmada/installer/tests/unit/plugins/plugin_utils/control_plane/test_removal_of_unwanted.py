# SPDX-License-Identifier: Apache-2.0
"""Removal of what a document no longer asks for: components, budgets and policies, and only what is ours."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import bootstrap, removal
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.removal import INSTANCE, kept, left, thing
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    OPTIONAL,
    OWNER,
    document,
    rendered,
    state,
)

OPTIONAL_NAMES = ["karmada-descheduler", "karmada-search", "karmada-metrics-adapter"]


def changed_mind(before: dict[str, Any], now: dict[str, Any], *others: dict[str, Any], known: bool = True) -> Run:
    """An instance that was installed with ``before``, and a run with ``now``."""
    found = rendered(before)
    host = FakeCluster("host cluster", *found.objects)
    for other in others:
        host.put(other)
    uids = {
        f"{kind} karmada/{name}": each["metadata"]["uid"]
        for (_version, kind, _namespace, name), each in host.objects.items()
        if known and not name.endswith("-theirs")
    }
    return fake_run(document(now), host, stored=state(owned={"host": uids}))


def names_of(objects: list[dict[str, Any]]) -> set[str]:
    return {f"{each['kind']} {each['metadata']['name']}" for each in objects}


@pytest.mark.parametrize("name", OPTIONAL_NAMES)
def test_a_component_that_is_switched_off_is_taken_away_whole(name: str) -> None:
    field = BY_NAME[name].field
    others = {each: {} for each in OPTIONAL if each != field}
    before = {**OPTIONAL, field: {"replicas": 2}}
    run = changed_mind({"components": before}, {"components": others})
    made = names_of(rendered({"components": before}).objects) - names_of(rendered({"components": others}).objects)
    assert names_of(removal.unwanted(run, OPTIONAL_NAMES, kept({"components": others}))) == made
    assert {kind.split()[0] for kind in made} >= {"Deployment", "Secret", "PodDisruptionBudget", "NetworkPolicy"}


def test_components_that_are_not_asked_about_stay() -> None:
    run = changed_mind({"components": OPTIONAL}, {})
    assert removal.unwanted(run, ["karmada-webhook", "etcd"], kept({})) == []
    found = removal.unwanted(run, ["karmada-search"], kept({}))
    assert {each["metadata"]["labels"]["app.kubernetes.io/name"] for each in found} == {"karmada-search"}


def test_what_is_wanted_stays() -> None:
    run = changed_mind({"components": OPTIONAL}, {"components": OPTIONAL})
    assert removal.unwanted(run, OPTIONAL_NAMES, kept({"components": OPTIONAL})) == []


@pytest.mark.parametrize("known", [True, False], ids=["of others", "without record"])
def test_what_only_looks_like_a_part_of_an_unwanted_component_stays(known: bool) -> None:
    label = {**INSTANCE, "app.kubernetes.io/name": "karmada-search"}
    run = changed_mind({"components": OPTIONAL}, {}, thing("Secret", "prod-search-theirs", label), known=known)
    found = names_of(removal.unwanted(run, OPTIONAL_NAMES, []))
    assert "Secret prod-search-theirs" not in found
    assert bool(found) == known


def test_a_budget_goes_when_one_replica_is_left_and_stays_when_it_is_applied() -> None:
    two = {"components": {"karmadaWebhook": {"replicas": 2}, "karmadaScheduler": {"replicas": 2}}}
    now = {"components": {"karmadaScheduler": {"replicas": 2}}}
    run = changed_mind(two, now)
    names = ["karmada-webhook", "karmada-scheduler"]
    assert names_of(removal.unwanted(run, names, kept(now))) == {"PodDisruptionBudget prod-webhook"}


def test_network_policies_go_when_they_are_switched_off_each_with_its_component() -> None:
    off = {"networkPolicies": {"enabled": False}}
    run = changed_mind({}, off)
    found = removal.unwanted(run, ["karmada-webhook", "etcd"], kept(off))
    assert names_of(found) == {"NetworkPolicy prod-webhook", "NetworkPolicy prod-etcd"}


@pytest.mark.parametrize("check", [True, False], ids=["check", "for good"])
def test_what_is_unwanted_is_removed_and_forgotten_but_not_in_check_mode(
    check: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = changed_mind({"components": OPTIONAL}, {})
    run.check = check
    monkeypatch.setattr(Run, "writing", lambda *_: nullcontext())
    saved: list[Any] = []
    monkeypatch.setattr(Run, "save", lambda _run, new: saved.append(new))
    unwanted = removal.unwanted(run, OPTIONAL_NAMES, [])
    changes = run.remove_from_host_cluster("take away", unwanted)
    assert {change.action for change in changes} == {"deleted"}
    assert len(changes) == len(unwanted)
    assert ("Deployment prod-search" in left(run.host_cluster)) == check
    assert "Deployment prod-webhook" in left(run.host_cluster)
    if check:
        assert saved == []
    else:
        owned = saved[0].owned["host"]
        assert "Deployment karmada/prod-search" not in owned
        assert "Deployment karmada/prod-webhook" in owned


def test_in_the_control_plane_only_what_is_ours_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "writing", lambda *_: nullcontext())
    run = changed_mind({"components": OPTIONAL}, {})
    found = rendered({"components": OPTIONAL})
    made = bootstrap.aggregation(OWNER, found.addresses, OPTIONAL_NAMES)
    made += bootstrap.foundation(OWNER, [], found.addresses)
    theirs = next(each for each in made if each["metadata"]["name"] == "v1beta1.metrics.k8s.io")
    theirs["metadata"]["labels"] = {}
    inside = FakeCluster("control plane", *made)
    run.__dict__["control_plane"] = inside
    refs = [each for name in OPTIONAL_NAMES for each in bootstrap.of_component(name)]
    changes = run.remove_from_control_plane("take away", refs)
    assert {change.action for change in changes} == {"deleted"}
    assert inside.names("APIService") == {"v1beta1.metrics.k8s.io"}
    assert inside.names("Service") == {"karmada-aggregated-apiserver"}
    assert run.remove_from_control_plane("take away", refs) == []
