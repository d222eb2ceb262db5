# SPDX-License-Identifier: Apache-2.0
"""The namespace, and who lives there."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run
from ansible_collections.karmada.installer.tests.unit.support.preflight_samples import (
    NAMESPACE,
    host,
    installed,
    problems,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import Rendered, document, etcd, rendered, state


@pytest.mark.parametrize(
    ("first", "second"), [("x", "x-kube"), ("x-kube", "x"), ("x", "x-aggregated"), ("x-aggregated", "x")]
)
def test_instances_whose_names_meet_are_refused(first: str, second: str) -> None:
    there = rendered(name=first)
    found = problems(
        fake_run(
            document(name=second), host(*there.objects), stored=state(owner="00000000-0000-4000-8000-000000000000")
        )
    )
    assert found
    assert all("is not of this control plane" in problem.what for problem in found)
    assert all(f"as a part of control plane {first})" in problem.what for problem in found)


def test_what_another_tool_made_under_our_name_is_refused_and_the_tool_is_named() -> None:
    theirs = rendered().one("Deployment", "prod-webhook")
    theirs["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    (problem,) = problems(fake_run(document(), host(theirs)))
    assert "a control plane that Helm made (Deployment prod-webhook)" in problem.what
    assert "helm uninstall" in problem.remedy
    theirs = rendered().one("Service", "prod-webhook")
    theirs["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    (problem,) = problems(fake_run(document(), host(theirs)))
    assert "Service karmada/prod-webhook exists" in problem.what
    assert "(managed by Helm)" in problem.what


def in_namespace(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    version = "apps/v1" if kind in ("Deployment", "StatefulSet") else fields.pop("version", "v1")
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "karmada"}, **fields}


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Secret", "prod-admin-etcd"), ("ConfigMap", "prod-etcd-config"), ("PodDisruptionBudget", "prod-etcd")],
)
def test_every_object_that_will_be_made_has_its_name_asked_for(kind: str, name: str) -> None:
    spec = etcd(replicas=3)
    ours = {(each["kind"], each["metadata"]["name"]): each["apiVersion"] for each in rendered(spec).objects}
    if kind == "Secret":
        name = next(name for found, name in ours if found == "Secret")
    theirs = in_namespace(kind, name)
    theirs["apiVersion"] = ours[kind, name]
    (problem,) = problems(fake_run(document(spec), host(theirs)))
    assert problem.what == f"{kind} karmada/{name} exists and is not of this control plane"


def test_a_control_plane_of_another_tool_in_the_namespace_is_refused_and_beside_ours_it_is_not() -> None:
    theirs = in_namespace("Deployment", "karmada-webhook")
    theirs["metadata"]["labels"] = {"karmada.io/bootstrapping": "app-defaults"}
    theirs["spec"] = {"template": {"spec": {"containers": [{"name": "x", "image": "karmada/karmada-webhook:v1"}]}}}
    (problem,) = problems(fake_run(document(), host(theirs)))
    assert "karmadactl init made (Deployment karmada-webhook); it is not touched" in problem.what
    run = installed()
    run.host_cluster.put(theirs)  # type: ignore[attr-defined]
    assert problems(run) == []


def test_a_karmada_object_of_the_operator_is_recognised_as_far_as_we_may_look() -> None:
    cluster = host(in_namespace("Karmada", "demo", version="operator.karmada.io/v1alpha1"))
    (problem,) = problems(fake_run(document(), cluster))
    assert "Karmada's operator made (Karmada demo)" in problem.what
    cluster.denied = {("list", "karmadas")}
    assert problems(fake_run(document(), cluster)) == []


def test_a_quota_that_is_too_small_is_told() -> None:
    small = in_namespace("ResourceQuota", "team", spec={"hard": {"pods": "3", "limits.memory": "1Gi"}})
    found = [problem.what for problem in problems(fake_run(document(), host(small)))]
    assert len(found) == 2
    assert "allows 3 pods" in found[0] + found[1]
    assert "counts limits.memory, so every container has to state it" in found[0] + found[1]


def test_a_quota_that_ours_fill_themselves_is_no_problem() -> None:
    run = installed()
    count = len([each for each in Rendered(document()).objects if each["kind"] == "Secret"])
    run.host_cluster.put(  # type: ignore[attr-defined]
        in_namespace(
            "ResourceQuota", "team", spec={"hard": {"secrets": str(count)}}, status={"used": {"secrets": count}}
        )
    )
    assert problems(run) == []


def test_a_claim_that_an_uninstall_kept_is_no_reason_against_the_next_install() -> None:
    kept = in_namespace("PersistentVolumeClaim", "data-prod-etcd-0", spec=CLAIM)
    limit = in_namespace("ResourceQuota", "team", spec={"hard": {"persistentvolumeclaims": "1"}})
    limit["status"] = {"used": {"persistentvolumeclaims": "1"}}
    assert problems(fake_run(document(), host(kept, limit))) == []
    other = in_namespace("PersistentVolumeClaim", "data-other-etcd-0", spec=CLAIM)
    (problem,) = problems(fake_run(document(), host(other, limit)))
    assert "needs 1 more" in problem.what


CLAIM = {"resources": {"requests": {"storage": "5Gi"}}}


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_pods_that_the_namespace_does_not_admit_are_told(level: str) -> None:
    volumes = {"extraVolumes": [{"name": "host", "hostPath": {"path": "/srv"}}]}
    spec = {"components": {"karmadaScheduler": volumes}}
    cluster = host()
    cluster.put({**NAMESPACE, "metadata": {"name": "karmada", "labels": {"pod-security.kubernetes.io/enforce": level}}})
    (problem,) = problems(fake_run(document(spec), cluster))
    assert f"the Pod Security level {level}, and the pods of karmada-scheduler break it: volume host" in problem.what
    assert "spec.components.karmadaScheduler" in problem.remedy
    assert problems(fake_run(document(), cluster)) == []


def test_without_a_level_it_is_said_that_what_the_api_server_enforces_cannot_be_seen() -> None:
    spec = {"components": {"karmadaScheduler": {"extraVolumes": [{"name": "h", "hostPath": {"path": "/srv"}}]}}}
    said: list[str] = []
    run = fake_run(document(spec), host())
    run.say = said.append
    assert problems(run) == []
    (told,) = said
    assert "cannot be seen from here" in told
