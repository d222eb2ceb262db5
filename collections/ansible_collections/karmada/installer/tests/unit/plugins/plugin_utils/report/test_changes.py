# SPDX-License-Identifier: Apache-2.0
"""Changes of a run as text: by kind, with numbers and some names, and never longer than a screen."""

from __future__ import annotations

from ansible_collections.karmada.installer.plugins.plugin_utils.report import changes
from ansible_collections.karmada.installer.plugins.plugin_utils.run.changes import StepChange


def test_no_change_is_told_as_that() -> None:
    assert changes.lines([], check=False) == ["nothing was changed"]
    assert changes.lines([], check=True) == ["nothing would change"]


def test_they_are_grouped_by_kind_with_some_names() -> None:
    found = changes.lines(
        [
            *(StepChange("created", "Secret", f"karmada/prod-{name}") for name in "abcde"),
            StepChange("deleted", "Deployment", "karmada/prod-search"),
            *(StepChange("created", "ServiceAccount", "karmada-cluster/it", member=name) for name in ("m1", "m2")),
            StepChange("created", "File", "/etc/karmada/prod", host="cp1"),
        ],
        check=True,
    )
    assert found == [
        "9 changes would be made:",
        "  created 5 Secret: prod-a, prod-b, prod-c and 2 more",
        "  deleted Deployment prod-search",
        "  created 2 ServiceAccount: it (m1), it (m2)",
        "  created File /etc/karmada/prod (cp1)",
    ]


def test_many_kinds_are_counted() -> None:
    many = [StepChange("created", f"Kind{number}", name) for number in range(20) for name in "ab"]
    found = changes.lines(many, check=False)
    assert len(found) == changes.MOST_LINES + 2
    assert (found[0], found[-1]) == ("40 changes:", "  and 20 more, of 10 other kinds")
