# SPDX-License-Identifier: Apache-2.0
"""Objects that members do not take are told with what they have answered, and with the cure where it is known."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.members import unapplied

THERE = "Failed to apply all manifests (0/1): resource(kind=Deployment, shop/web) already exist in the cluster m1"


def binding(name: str = "web", **members: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{name}-deployment", "namespace": "shop"},
        "spec": {"resource": {"kind": "Deployment", "namespace": "shop", "name": name}},
        "status": {"aggregatedStatus": [{"clusterName": member, **said} for member, said in members.items()]},
    }


@pytest.mark.parametrize(
    "fine",
    [
        binding(m1={"applied": True}),
        # Not yet.
        binding(m1={}),
        {"metadata": {"name": "web"}, "spec": {}, "status": {}},
        {"metadata": {"name": "web"}, "spec": {}},
    ],
)
def test_what_is_applied_or_will_be_is_no_matter(fine: dict[str, Any]) -> None:
    assert unapplied.warning([fine]) is None


def test_what_was_on_the_member_before_is_told_with_what_makes_karmada_take_it() -> None:
    found = unapplied.warning([binding(m1={"appliedMessage": THERE}, m2={"applied": True}), binding("db")])
    assert str(found) == (
        f"1 object could not be applied where a policy placed it: Deployment shop/web on m1 ({THERE}). "
        "Karmada takes over what is there already if the policy has conflictResolution: Overwrite"
    )
    assert found is not None
    assert found.reason == "ObjectNotApplied"


def test_of_many_some_are_named_and_another_reason_has_no_cure_of_ours() -> None:
    refused = {"appliedMessage": "denied by policy\x1b[2J" + "x" * 500}
    found = unapplied.warning([binding(f"web{number}", m1=refused, m2=refused) for number in range(5)])
    assert str(found).startswith(
        "5 objects could not be applied where a policy placed them: Deployment shop/web0 on m1 ("
    )
    assert str(found).endswith("), and 7 more")
    assert str(found).isprintable()
    assert len(str(found)) < 800
