# SPDX-License-Identifier: Apache-2.0
"""Tokens that a member fills are waited for, and one that never does is told with what to look at."""

from __future__ import annotations

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.members import account_tokens
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster

MEMBER = FakeCluster("member m1")


def test_what_is_filled_later_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_tokens, "_PAUSE", 0)
    answers = [None, None, "token"]
    assert account_tokens.wait_for(lambda: answers.pop(0), MEMBER, "the token", "Secret a") == "token"
    assert answers == []


def test_what_is_never_filled_is_told_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_tokens, "FILLED_SECONDS", 0.0)
    with pytest.raises(ProblemsError) as caught:
        account_tokens.wait_for(lambda: None, MEMBER, "the tokens of its service accounts", "namespace a")
    for part in (
        "member m1, namespace a",
        "did not fill the tokens of its service accounts",
        "kube-controller-manager",
    ):
        assert part in str(caught.value)
    assert "what is there stays" in str(caught.value)
