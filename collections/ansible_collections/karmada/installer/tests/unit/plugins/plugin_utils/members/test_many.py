# SPDX-License-Identifier: Apache-2.0
"""Thousands of members in one step: what the journal says of it can be read by the next run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import member_join as join_action
from ansible_collections.karmada.installer.plugins.action import member_leave as leave_action
from ansible_collections.karmada.installer.plugins.plugin_utils.document import recorded
from ansible_collections.karmada.installer.plugins.plugin_utils.members import follow
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state

NAMES = [f"{number:04}-{'x' * 40}" for number in range(5000)]
ENTRIES = [{"name": name, "secretRef": {"name": name}} for name in NAMES]


class Written(Exception):  # noqa: N818 - no error: the step ends where it begins to write
    """Step that a run was about to carry out."""


def join(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    join_action._join(run, run.spec.members, {}, frozenset())


def start_agents(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_action.member_mode, "waits_for_agent", lambda *_: True)
    join_action._agents(run, run.spec.members, {})


def leave(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    run.__dict__["control_plane"] = FakeCluster("control plane")
    leaving: Any = leave_action.ActionModule
    given = {"stage": "leave", "confirm": ",".join(NAMES), "abandon": [], "timeout": 5, "on_broken_member": "fail"}
    leaving.perform(None, run, given)


def go_along(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    follow.follow(run, run.spec.members, {})


@pytest.mark.parametrize(
    ("step", "listed", "begin"),
    [
        (join, ENTRIES, "join 0000-"),
        (start_agents, ENTRIES, "start the agents of 0000-"),
        (leave, [], "leave 0000-"),
        (go_along, ENTRIES, "have 0000-"),
    ],
)
def test_a_step_for_thousands_of_members_is_on_record_with_the_first_of_them(
    step: Callable[[Run, pytest.MonkeyPatch], None],
    listed: list[dict[str, Any]],
    begin: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A state that no later run could read is not stored: the step would be refused."""
    before = state() if listed else state(members={entry["name"]: entry for entry in ENTRIES})
    run = fake_run(document({"members": listed}), FakeCluster("host cluster"), stored=before)

    @contextmanager
    def writing(text: str) -> Iterator[None]:
        recorded.require_readable(replace(before, journal=replace(before.journal, step=text)), "here")
        raise Written(text)
        yield

    monkeypatch.setattr(run, "writing", writing)
    with pytest.raises(Written, match=begin) as found:
        step(run, monkeypatch)
    assert " and 4996 more" in str(found.value)
