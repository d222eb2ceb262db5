# SPDX-License-Identifier: Apache-2.0
"""What a check says when it fails for what it predicts."""

from __future__ import annotations

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.report import predicted
from ansible_collections.karmada.installer.plugins.plugin_utils.run.changes import StepChange

REMEDY = "Run the same without --check (in AWX: the template of the installation)"


def changes(number: int) -> list[StepChange]:
    return [StepChange("changed", "ConfigMap", f"karmada/prod-{each}") for each in range(number)]


@pytest.mark.parametrize(
    ("number", "head", "more"),
    [
        (1, "would make 1 change:", ""),
        (5, "would make 5 changes:", ""),
        (6, "would make 6 changes:", "  … and 1 more"),
        (1000, "would make 1000 changes:", "  … and 995 more"),
    ],
)
def test_the_first_are_named_and_all_are_counted(number: int, head: str, more: str) -> None:
    first, *named, last = predicted.failure("prod", changes(number)).splitlines()
    assert first.startswith("control plane prod is not as the document says")
    assert first.endswith(head)
    assert named == [
        *(f"  - change ConfigMap karmada/prod-{each}" for each in range(min(number, 5))),
        *([more] if more else []),
    ]
    assert last.startswith(REMEDY)


def test_nothing_to_change_is_no_failure() -> None:
    assert predicted.failure("prod", []) == ""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (StepChange("created", "Secret", "k/m1", member="m1"), "create Secret k/m1 (m1)"),
        (StepChange("changed", "File", "/etc/karmada/a", host="cp1"), "change File /etc/karmada/a (cp1)"),
        (StepChange("restarted", "Unit", "prod-etcd.service", host="cp1"), "restart Unit prod-etcd.service (cp1)"),
        (StepChange("began", "Restore", "prod"), "began Restore prod"),
        (StepChange("deleted", "Service", "k/\x1b[2Jodd"), "delete Service k/odd"),
    ],
)
def test_a_change_is_told_as_what_is_still_to_be_done(change: StepChange, told: str) -> None:
    assert f"  - {told}\n" in predicted.failure("prod", [change])
