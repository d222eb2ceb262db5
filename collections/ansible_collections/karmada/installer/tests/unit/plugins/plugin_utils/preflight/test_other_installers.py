# SPDX-License-Identifier: Apache-2.0
"""Control planes of other tools are recognised by what those tools write on their objects."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import other_installers
from ansible_collections.karmada.installer.tests.unit.support.samples import rendered

Object = dict[str, Any]


def workload(
    name: str, image: str = "docker.io/karmada/karmada-webhook:v1.18.2", kind: str = "Deployment", **metadata: Any
) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": {"template": {"spec": {"containers": [{"name": "x", "image": image}]}}},
    }


def told(*workloads: Object, karmadas: tuple[Object, ...] = ()) -> list[str]:
    found = other_installers.problems("ns", workloads, karmadas)
    assert all("spec.hostCluster.namespace" in each.remedy for each in found)
    return [f"{each.what} {each.remedy}" for each in found]


@pytest.mark.parametrize(
    ("metadata", "maker", "remedy"),
    [
        ({"labels": {"karmada.io/bootstrapping": "app-defaults"}}, "karmadactl init", "karmadactl deinit"),
        ({"labels": {"app.kubernetes.io/managed-by": "karmada-operator"}}, "Karmada's operator", "its Karmada object"),
        ({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, "Helm", "helm uninstall"),
        ({"annotations": {"meta.helm.sh/release-name": "karmada"}}, "Helm", "helm uninstall"),
        ({}, "another tool", "the tool that made it"),
        ({"labels": {"app.kubernetes.io/managed-by": "Flux"}}, "another tool", "the tool that made it"),
    ],
    ids=str,
)
def test_the_maker_is_named_with_the_way_to_remove_it(metadata: Object, maker: str, remedy: str) -> None:
    (found,) = told(workload("a", **metadata), workload("b", **metadata))
    assert f"a control plane that {maker} made (Deployment a, Deployment b); it is not touched" in found
    assert remedy in found


def test_ours_are_no_strangers_whatever_instance_they_are_of() -> None:
    assert (
        told(*(each for each in rendered(name="other").workloads if each["kind"] in ("Deployment", "StatefulSet")))
        == []
    )


@pytest.mark.parametrize(
    "image",
    ["karmada-operator:v1.18.2", "karmada-agent", "r:5000/karmada/karmada-scheduler-estimator:v1@sha256:0", "nginx"],
)
def test_what_may_stand_beside_a_control_plane_is_none(image: str) -> None:
    assert told(workload("x", image)) == []


@pytest.mark.parametrize(
    "image",
    ["karmada-webhook", "r:5000/mirror/karmada-scheduler@sha256:0", "r/karmada-aggregated-apiserver:v1.18.2@sha256:0"],
)
def test_images_are_known_by_their_last_part(image: str) -> None:
    assert len(told(workload("x", image))) == 1


def test_a_karmada_object_counts_before_its_operator_has_made_anything() -> None:
    (found,) = told(karmadas=({"metadata": {"name": "demo"}},))
    assert "Karmada's operator made (Karmada demo)" in found


def test_a_long_list_is_cut_and_two_tools_are_two_problems() -> None:
    many = [workload(f"w{number}", labels={"karmada.io/bootstrapping": "app-defaults"}) for number in range(7)]
    found = told(*many, workload("h", labels={"app.kubernetes.io/managed-by": "Helm"}))
    assert len(found) == 2
    assert "and 3 more" in found[0]
