# SPDX-License-Identifier: Apache-2.0
"""Members that could not be brought to what the document says are told with reason and next step, from step to step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.preflight import ActionModule as Preflight
from ansible_collections.karmada.installer.plugins.plugin_utils.components import image_pins
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import Journal
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.members import broken as broken_members
from ansible_collections.karmada.installer.plugins.plugin_utils.members.broken import BrokenMember
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import reach_from_pods
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight.findings import Findings
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run
from ansible_collections.karmada.installer.tests.unit.support.preflight_samples import host
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state

MUTE = Unreachable("member m1", "GET", "/", 0, "Unreachable", "no answer")
DOCUMENT = {"members": [{"name": name, "secretRef": {"name": name}} for name in ("m1", "m2")]}
ENDED = Journal()
WRONG = Problem(
    "it does not answer", "spec.members[m1].secretRef", "mend its address", reason=Reason.MEMBER_UNREACHABLE
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ProblemsError(WRONG), ("spec.members[m1].secretRef: it does not answer", "mend its address; then run again")),
        (
            ProblemsError(Problem("it is no kubeconfig", "", "Put one there.", reason=Reason.INVALID_KUBECONFIG)),
            ("it is no kubeconfig", "Put one there; then run again"),
        ),
        (
            ProblemsError(
                [WRONG, Problem("and it is late", "", "mend its address", reason=Reason.MEMBER_UNREACHABLE)],
                "its accounts stay",
            ),
            (
                "spec.members[m1].secretRef: it does not answer; and it is late; its accounts stay",
                "mend its address; then run again",
            ),
        ),
        (ProblemsError(Problem("it is odd", reason=Reason.UNUSABLE_ANSWER)), ("it is odd", "mend that and run again")),
        # After the name of the member, which stands before both, it is not said again.
        (MUTE, ("no answer (GET /)", "mend that and run again")),
        (ProblemsError(MUTE.problems), ("no answer (GET /)", "mend that and run again")),
        (
            ProblemsError(Problem(str(MUTE), "spec.members[m1].secretRef", reason=Reason.MEMBER_UNREACHABLE)),
            ("spec.members[m1].secretRef: no answer (GET /)", "mend that and run again"),
        ),
    ],
)
def test_reason_and_next_step(error: Exception, expected: tuple[str, str]) -> None:
    assert broken_members.reason_and_next_step("m1", error) == expected


def test_a_step_tells_the_next_one() -> None:
    broken = BrokenMember.of_problems("m1", [WRONG])
    assert BrokenMember.of(broken.plain) == broken
    assert broken_members.listing([broken]) == [
        "  - m1: spec.members[m1].secretRef: it does not answer",
        "    next: mend its address; then run again",
    ]


def preflight(
    found: Findings,
    on_broken_member: str,
    monkeypatch: pytest.MonkeyPatch,
    unreached: dict[str, list[Problem]] | None = None,
    *,
    check: bool = False,
    journal: Journal = ENDED,
) -> tuple[dict[str, Any], str]:
    """What the step says; asked to, pods find this. The journal is that of the run before."""
    said: list[str] = []
    monkeypatch.setattr("ansible_collections.karmada.installer.plugins.action.preflight.findings", lambda *_: found)
    monkeypatch.setattr(reach_from_pods, "problems", lambda _run, seconds: unreached if seconds == 60 else None)
    run = fake_run(document(DOCUMENT), host(), stored=state(journal=journal), check=check)
    run.say = said.append
    monkeypatch.setattr(image_pins, "notice", lambda _instance: "")
    arguments = {
        "scope": "install",
        "abandon_hosts": [],
        "confirm_host_cluster": "",
        "pull_images": False,
        "confirm_etcd_members": 0,
        "etcd_replace": [],
        "etcd_abandon_nodes": [],
        "document_seen": {},
        "on_broken_member": on_broken_member,
    }
    reach = {"reach_members": unreached is not None, "reach_timeout": 60}
    action: Any = Preflight
    return action.perform(None, run, {**arguments, **reach}), "\n".join(said)


def test_preflight_alone_fails_for_a_broken_member(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProblemsError, match="Mend its address"):
        preflight(Findings([], {"m1": [WRONG]}), "fail", monkeypatch)


def test_a_run_goes_on_without_a_broken_member_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found, said = preflight(Findings([], {"m1": [WRONG]}), "tell", monkeypatch)
    assert found["broken_members"] == [BrokenMember.of_problems("m1", [WRONG]).plain]
    assert "1 of 2 members cannot be worked on" in said
    assert "mend its address" in said
    found, said = preflight(Findings([]), "tell", monkeypatch)
    assert (found["broken_members"], said) == ([], "")


def test_where_the_run_before_was_interrupted_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    left = Journal("apply", "somebody@else", "2026-01-01T00:00:00+00:00", step="start the webhook")
    _found, said = preflight(Findings([]), "tell", monkeypatch, journal=left)
    assert "the last apply stopped at: start the webhook; going on from there" in said
    ended = replace(left, finished="2026-01-01T00:01:00+00:00", step="")
    assert preflight(Findings([]), "tell", monkeypatch, journal=ended)[1] == ""


def test_what_is_wrong_with_the_whole_is_refused_with_what_is_wrong_with_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Problem("it is full", "host cluster", "make room", reason=Reason.QUOTA_EXCEEDED)
    with pytest.raises(ProblemsError) as caught:
        preflight(Findings([whole], {"m1": [WRONG]}), "tell", monkeypatch)
    assert caught.value.problems == [whole, WRONG]


def test_what_pods_do_not_reach_is_that_members_problem_beside_what_else_is_wrong_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    far = Problem(
        "a pod does not reach it", "spec.members[m1].secretRef", "open the firewall", reason=Reason.MEMBER_UNREACHABLE
    )
    both = preflight(Findings([], {"m1": [WRONG]}), "tell", monkeypatch, {"m1": [far], "m2": [far]})[0]
    assert both["broken_members"] == [
        BrokenMember.of_problems("m1", [WRONG, far]).plain,
        BrokenMember.of_problems("m2", [far]).plain,
    ]
    whole = Problem("it is full", "host cluster", "make room", reason=Reason.QUOTA_EXCEEDED)
    with pytest.raises(ProblemsError) as caught:
        preflight(Findings([whole]), "tell", monkeypatch, {"m1": [far]})
    assert caught.value.problems == [whole]


def test_in_check_mode_no_pods_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    found, said = preflight(Findings([]), "tell", monkeypatch, {"m1": [WRONG]}, check=True)
    assert found["broken_members"] == []
    assert said == "hint: what pods reach is not tried in check mode, because it takes pods"


def test_a_problem_is_told_once() -> None:
    assert Findings([WRONG], {"m1": [WRONG]}).all == [WRONG]


def test_a_step_tells_the_next_one_its_problems_as_data() -> None:
    (problem,) = BrokenMember.of(BrokenMember.of_problems("m1", [WRONG]).plain).problems
    assert problem.reason is Reason.MEMBER_UNREACHABLE
