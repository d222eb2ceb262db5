# SPDX-License-Identifier: Apache-2.0
"""Values of hosts, which the inventory plugin gives to Ansible's hosts without a further copy or check."""

from __future__ import annotations

import copy
import json
from typing import Any

import hypothesis.strategies as st
from ansible_collections.karmada.installer.plugins.plugin_utils.run.inventory_values import as_data
from hypothesis import given

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just("{{ 1 + 1 }}"),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=5), below, max_size=4),
    max_leaves=20,
)


@given(values)
def test_a_value_is_the_same_and_shares_nothing_that_can_change(value: Any) -> None:
    before = copy.deepcopy(value)
    found = as_data(value)
    assert json.dumps(found) == json.dumps(value)
    _empty(value)
    assert json.dumps(found) == json.dumps(before)


def _empty(value: Any) -> None:
    """Take everything out of a value and of all in it."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _empty(each)
        value.clear()
