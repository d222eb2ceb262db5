# SPDX-License-Identifier: Apache-2.0
"""Restores of control planes in memory: the backup that is restored, and runs that are killed on the way.

What has tests of its own is not in play here: whether the backup may be restored, where it lies, and what members have.
"""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import WantedRestore
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import carry_out, check, drift
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Chosen, Live
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal
from ansible_collections.karmada.installer.tests.unit.support import samples

BACKUP = "prod-20261125t020000z-1f3a9c"
#: The backup that a restore takes of what is there.
BACKUP_BEFORE = "prod-20261126t020000z-000000"
#: Another backup than the one that is restored first.
OTHER = "prod-20261124t020000z-2e4b8d"
#: goal of a run → operation in its journal
GOALS = {Goal.QUARANTINE: "restore", Goal.RELEASE: "release", Goal.UNDO: "restore_undo"}
#: Of the writes of a run, it is killed before each one with this distance; 1 for all of them.
MOMENTS = int(os.environ.get("RESTORE_MOMENTS", "7"))


class Killed(BaseException):
    """The run was killed at this moment."""


def with_a_backup(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have a backup there that nothing keeps from being restored; returns its record."""
    record = SimpleNamespace(
        name=BACKUP,
        cluster_id="c",
        counts={"works": 3},
        start=samples.NOW,
        files={},
        started=samples.NOW.isoformat(),
        revision=7,
    )
    series: Any = SimpleNamespace(name="nightly")
    there: Any = SimpleNamespace(where="there")
    chosen = Chosen(WantedRestore("back", "nightly"), series, there, record)  # type: ignore[arg-type]
    monkeypatch.setattr(check, "choose", lambda *_: chosen)
    monkeypatch.setattr(check, "look", lambda _run: Live())
    monkeypatch.setattr(carry_out.backup_series, "wanted", lambda *_: [series])
    monkeypatch.setattr(carry_out.backup_series, "opened", lambda *_: there)
    monkeypatch.setattr(check, "refuse", lambda *_: None)
    monkeypatch.setattr(check, "loss", lambda *_: ["everything since"])
    monkeypatch.setattr(drift, "look", lambda _run: drift.Report([]))
    return record


def with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have another backup chosen from now on."""
    found = check.choose(None, None)  # type: ignore[arg-type]
    record: Any = SimpleNamespace(**{**vars(found.record), "name": OTHER})
    monkeypatch.setattr(check, "choose", lambda *_: replace(found, record=record))
