# SPDX-License-Identifier: Apache-2.0
"""Inventories that have a part of a control plane, as jobs of AWX get them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.run import inventory_parts
from ansible_collections.karmada.installer.tests.unit.support.samples import document

HOSTS = [{"name": f"cp{number}", "address": f"192.0.2.{number}"} for number in (1, 2, 3)]
WHOLE: dict[str, list[str]] = {
    "karmada_in_pods": ["karmada_control"],
    "karmada_on_hosts": [],
    "karmada_hosts": ["cp1", "cp2", "cp3"],
    "karmada_members": ["member1", "member2"],
}


def variables(groups: dict[str, list[str]], *, hosts: bool = False) -> dict[str, Any]:
    """Those of a task, with an inventory of these groups. The document has three plain hosts, or none."""
    deployment = document()
    if hosts:
        deployment["spec"] = {**deployment["spec"], "mode": "Binary", "hosts": HOSTS}
    everything = sorted({host for each in groups.values() for host in each})
    known = {host: {"karmada_deployment": deployment} for host in everything if host == "karmada_control"}
    return {"groups": {"all": everything, **groups}, "hostvars": known, "inventory_hostname": "localhost"}


@pytest.mark.parametrize("hosts", [True, False])
def test_a_whole_inventory_lacks_nothing(hosts: bool) -> None:
    whole = WHOLE if hosts else {**WHOLE, "karmada_hosts": []}
    assert inventory_parts.missing(variables(whole, hosts=hosts)) is None


@pytest.mark.parametrize("groups", [{}, {"web": ["web1"]}])
def test_an_inventory_of_something_else_is_no_part(groups: dict[str, list[str]]) -> None:
    assert inventory_parts.missing(variables(groups)) is None


def test_without_hosts_in_the_document_those_of_another_one_are_told() -> None:
    found = inventory_parts.missing(variables({**WHOLE, "karmada_hosts": ["other1"]}, hosts=False))
    assert found is not None
    assert found.what == "it has plain hosts that are not in the document: other1"


def test_members_that_queries_or_people_have_left_out_are_not_missing() -> None:
    assert inventory_parts.missing(variables({**WHOLE, "karmada_members": ["member2"]}, hosts=True)) is None


@pytest.mark.parametrize(
    ("groups", "what"),
    [
        ({**WHOLE, "karmada_in_pods": []}, "it has groups of a control plane, and not the host karmada_control"),
        ({"karmada_members": ["member1"]}, "it has groups of a control plane, and not the host karmada_control"),
        (
            {"ungrouped": ["karmada_control", "member1"]},
            f"it has the host karmada_control, and not its groups {', '.join(WHOLE)}",
        ),
        ({**WHOLE, "karmada_hosts": ["cp2"]}, "it lacks plain hosts of the document: cp1, cp3"),
        ({**WHOLE, "karmada_hosts": []}, "it lacks plain hosts of the document: cp1, cp2, cp3"),
        (
            {**WHOLE, "karmada_hosts": ["cp1", "cp2", "cp3", "other1", "other2"]},
            "it has plain hosts that are not in the document: other1, other2",
        ),
    ],
    ids=["disabled", "slice", "smart", "slice-of-hosts", "hosts-disabled", "constructed-of-two"],
)
def test_a_part_is_told_with_what_to_do_in_awx(groups: dict[str, list[str]], what: str) -> None:
    found = inventory_parts.missing(variables(groups, hosts=True))
    assert found is not None
    assert (found.what, found.where) == (what, "inventory")
    assert "In AWX" in found.remedy
    assert "Job slicing to 1" in found.remedy
