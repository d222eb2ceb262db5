# SPDX-License-Identifier: Apache-2.0
"""Taints have several owners; each changes its own and keeps those of the others."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.step import merged
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import taints as member_taints
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, merge
from hypothesis import given
from hypothesis import strategies as st

TAINTS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from("abc"), "effect": st.sampled_from(["NoSchedule", "NoExecute"])},
        optional={"value": st.sampled_from(["", "x", "y"])},
    ),
    unique_by=member_taints.name_of,
)


def cluster(taints: list[Any], **annotations: str) -> dict[str, Any]:
    metadata = {"name": "m1", "resourceVersion": "1", "annotations": annotations}
    return {"apiVersion": registration.CLUSTER_API, "kind": "Cluster", "metadata": metadata, "spec": {"taints": taints}}


@given(others=TAINTS, first=TAINTS, second=TAINTS)
def test_what_the_document_says_is_there_and_what_others_say_stays(
    others: list[Any], first: list[Any], second: list[Any]
) -> None:
    live = cluster(others)
    for wanted in (first, second):
        before = {member_taints.name_of(each): each for each in live["spec"].get("taints") or []}
        ours = (live["metadata"].get("annotations") or {}).get(member_taints.TAINTS_ANNOTATION, "").split(",")
        if patch := member_taints.patch_for(live, MemberEntry({"taints": wanted})):
            after = merged(live, patch)
            merge(live, patch)
            assert after["spec"] == live["spec"]
        found = {member_taints.name_of(each): each.get("value", "") for each in live["spec"].get("taints") or []}
        assert found.items() >= {member_taints.name_of(each): each.get("value", "") for each in wanted}.items()
        theirs = {name: each.get("value", "") for name, each in before.items() if name not in ours}
        assert {*found} == {*theirs} | {*map(member_taints.name_of, wanted)}
        assert member_taints.patch_for(live, MemberEntry({"taints": wanted})) is None


def test_a_cluster_of_which_the_document_says_nothing_is_not_touched() -> None:
    assert member_taints.patch_for(cluster([{"key": "a", "effect": "NoSchedule"}]), MemberEntry({})) is None


class Busy(FakeCluster):
    """Somebody writes ``writes`` times, each time after we have looked."""

    writes = 0

    def get(self, *arguments: Any, **more: Any) -> Any:
        found = super().get(*arguments, **more)
        if self.writes:
            self.writes -= 1
            live = self.objects[registration.CLUSTER_API, "Cluster", None, "m1"]
            live["metadata"]["resourceVersion"] += "1"
            live["spec"]["taints"] = [{"key": f"theirs-{self.writes}", "effect": "NoSchedule"}]
        return found


def test_what_others_write_meanwhile_is_not_lost() -> None:
    control_plane = Busy("control plane", cluster([]))
    control_plane.writes = 3
    (change,) = member_taints.change(
        control_plane,
        "m1",
        lambda live: member_taints.patch_for(live, MemberEntry({"taints": [{"key": "a", "effect": "NoExecute"}]})),
    )
    found = control_plane.objects[registration.CLUSTER_API, "Cluster", None, "m1"]["spec"]["taints"]
    assert [member_taints.name_of(each) for each in found] == ["theirs-0:NoSchedule", "a:NoExecute"]
    assert (change.action, "key: a" in change.diff["after"]) == ("changed", True)


def test_a_cluster_that_is_never_left_alone_or_not_there_is_told() -> None:
    control_plane = Busy("control plane", cluster([]))
    control_plane.writes = 1000
    add = [{"key": "a", "effect": "NoExecute"}]
    with pytest.raises(ProblemsError, match="somebody changed it each time"):
        member_taints.change(control_plane, "m1", lambda live: member_taints.patch_of(live, add, ()))
    with pytest.raises(ProblemsError, match="no such Cluster"):
        member_taints.change(control_plane, "m2", lambda live: member_taints.patch_of(live, add, ()))


def test_check_mode_tells_and_writes_nothing() -> None:
    control_plane = FakeCluster("control plane", cluster([]))
    add = [{"key": "a", "effect": "NoExecute"}]
    (change,) = member_taints.change(
        control_plane, "m1", lambda live: member_taints.patch_of(live, add, ()), check=True
    )
    assert "key: a" in change.diff["after"]
    assert control_plane.log == []
