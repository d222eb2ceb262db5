# SPDX-License-Identifier: Apache-2.0
"""What an empty answer means for each kind of argument."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.run.not_given import left_out

OPTIONS: dict[str, dict[str, Any]] = {
    "timeout": {"type": "int", "default": 120},
    "pull": {"type": "bool", "default": False},
    "names": {"type": "list", "elements": "str"},
    "form": {"type": "str", "default": "json"},
    "confirm": {"type": "str"},
    "deployment": {"type": "dict"},
}


@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_argument_leaves_its_default(empty: str) -> None:
    assert left_out(dict.fromkeys(OPTIONS, empty), OPTIONS) == {"confirm": empty}, "its step knows what it means"


def test_what_is_given_stays() -> None:
    given = {"timeout": "5", "pull": "false", "form": "html", "confirm": "prod", "deployment": {}, "unknown": ""}
    assert left_out(given, OPTIONS) == given


@pytest.mark.parametrize(
    ("given", "names"),
    [("a,b", ["a", "b"]), (" a, b ,", ["a", "b"]), ('["a"]', '["a"]'), (["a "], ["a "]), ([], [])],
    ids=["commas", "blanks", "JSON", "list", "empty-list"],
)
def test_a_line_of_names_is_a_list(given: Any, names: Any) -> None:
    assert left_out({"names": given}, OPTIONS) == {"names": names}
