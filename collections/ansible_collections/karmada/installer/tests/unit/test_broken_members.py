# SPDX-License-Identifier: Apache-2.0
"""Members that could not be brought to what the document says are told with reason and next step, from step to step."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.preflight import ActionModule as Preflight
from ansible_collections.karmada.installer.plugins.plugin_utils import broken_members
from ansible_collections.karmada.installer.plugins.plugin_utils.api_errors import Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.broken_members import BrokenMember
from ansible_collections.karmada.installer.plugins.plugin_utils.checks import Findings
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError
from ansible_collections.karmada.installer.tests.unit.fake_cluster import fake_run
from ansible_collections.karmada.installer.tests.unit.preflight_samples import host
from ansible_collections.karmada.installer.tests.unit.samples import document, state

MUTE = Unreachable("member m1", "GET", "/", 0, "Unreachable", "no answer")
DOCUMENT = {"members": [{"name": name, "secretRef": {"name": name}} for name in ("m1", "m2")]}
WRONG = Problem("it does not answer", "spec.members[m1].secretRef", "mend its address")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ProblemsError(WRONG), ("spec.members[m1].secretRef: it does not answer", "mend its address; then run again")),
        (
            ProblemsError([WRONG, Problem("and it is late", "", "mend its address")], "its accounts stay"),
            (
                "spec.members[m1].secretRef: it does not answer; and it is late; its accounts stay",
                "mend its address; then run again",
            ),
        ),
        (ProblemsError(Problem("it is odd")), ("it is odd", "mend that and run again")),
        (MUTE, (str(MUTE), "mend that and run again")),
    ],
)
def test_reason_and_next_step(error: Exception, expected: tuple[str, str]) -> None:
    assert broken_members.reason_and_next_step(error) == expected


def test_a_step_tells_the_next_one() -> None:
    broken = BrokenMember.of_problems("m1", [WRONG])
    assert BrokenMember.of(broken.plain) == broken
    assert broken_members.listing([broken]) == [
        "  - m1: spec.members[m1].secretRef: it does not answer",
        "    next: mend its address; then run again",
    ]


def preflight(found: Findings, on_broken_member: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], str]:
    said: list[str] = []
    monkeypatch.setattr("ansible_collections.karmada.installer.plugins.action.preflight.findings", lambda *_: found)
    run = fake_run(document(DOCUMENT), host(), stored=state())
    run.say = said.append
    arguments = {"scope": "install", "abandon_hosts": [], "pull_images": False, "on_broken_member": on_broken_member}
    action: Any = Preflight
    return action.perform(None, run, arguments), "\n".join(said)


def test_preflight_alone_fails_for_a_broken_member(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProblemsError, match="mend its address"):
        preflight(Findings([], {"m1": [WRONG]}), "fail", monkeypatch)


def test_a_run_goes_on_without_a_broken_member_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found, said = preflight(Findings([], {"m1": [WRONG]}), "tell", monkeypatch)
    assert found["broken_members"] == [BrokenMember.of_problems("m1", [WRONG]).plain]
    assert "1 of 2 members cannot be worked on" in said
    assert "mend its address" in said
    found, said = preflight(Findings([]), "tell", monkeypatch)
    assert (found["broken_members"], said) == ([], "")


def test_what_is_wrong_with_the_whole_is_refused_with_what_is_wrong_with_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Problem("it is full", "host cluster", "make room")
    with pytest.raises(ProblemsError) as caught:
        preflight(Findings([whole], {"m1": [WRONG]}), "tell", monkeypatch)
    assert caught.value.problems == [whole, WRONG]


def test_a_problem_is_told_once() -> None:
    assert Findings([WRONG], {"m1": [WRONG]}).all == [WRONG]
