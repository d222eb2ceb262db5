# SPDX-License-Identifier: Apache-2.0
"""What AWX keeps of a report: never too much of it, and what is broken is always in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.report import artifact
from hypothesis import given, settings
from hypothesis import strategies as st


def member(number: int, *, ready: bool, message: str = "") -> dict[str, Any]:
    return {"name": f"member{number}", "ready": ready, "reason": "Ready" if ready else "NotJoined", "message": message}


def status(**more: Any) -> dict[str, Any]:
    return {"phase": "Completed", "membersReady": "2/2", "conditions": [{"type": "Ready"}], **more}


def test_a_report_that_fits_is_whole_with_what_is_broken_first() -> None:
    members = [member(1, ready=True), member(2, ready=False), member(3, ready=True)]
    found = artifact.of_status(status(members=members))
    assert [each["name"] for each in found["members"]] == ["member2", "member1", "member3"]
    assert artifact.LEFT_OUT not in found
    assert {key: each for key, each in found.items() if key != "members"} == status()


@pytest.mark.parametrize("broken", [0, 3, 1000])
def test_of_a_thousand_members_the_broken_ones_are_told_first_and_the_rest_is_counted(broken: int) -> None:
    members = [member(number, ready=number >= broken, message="m" * 2000) for number in range(1000)][::-1]
    changes = [{"step": f"step {number}", "what": "w" * 300} for number in range(1024)]
    found = artifact.of_status(status(members=members, changes=changes))
    assert len(json.dumps(found)) <= artifact.MOST_BYTES
    told = [each["ready"] for each in found["members"]]
    assert told == sorted(told), "those that are not ready come first"
    assert min(broken, len(told)) == told.count(False)
    assert found["leftOut"] == {"changes": 1024, "members": 1000 - len(told)}
    assert len(json.dumps(found)) > artifact.MOST_BYTES - 1000, "there is room for no more"
    assert found["conditions"] == [{"type": "Ready"}]


TEXTS = st.text(max_size=2000)
ENTRIES = st.lists(st.dictionaries(st.sampled_from(["name", "message", "ready"]), TEXTS, max_size=3), max_size=40)


@settings(max_examples=40, deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(artifact.SHORTENED, ENTRIES)), st.integers(2_000, 20_000))
def test_no_report_takes_more_than_it_may(lists: dict[str, Any], most: int) -> None:
    found = artifact.of_status({"phase": "Completed", **lists}, most)
    assert len(json.dumps(found)) <= most
    for name in artifact.SHORTENED:
        assert len(found[name]) + found.get("leftOut", {}).get(name, 0) == len(lists[name])
