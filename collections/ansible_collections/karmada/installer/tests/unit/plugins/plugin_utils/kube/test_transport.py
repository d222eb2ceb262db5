# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests as they are sent."""

from __future__ import annotations

import json

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import transport
from hypothesis import example, given
from hypothesis import strategies as st


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("\U0001f600 \x7f\x85\u2028\ufeff\ufffe")
def test_a_body_has_one_meaning_as_json_and_as_yaml(text: str) -> None:
    """Requests are JSON; an API server reads an apply as YAML, in which a key has 1,024 characters at most."""
    body = {text[:80]: [text]}
    sent = transport._json(body)
    assert json.loads(sent) == yaml.safe_load(sent) == body


def test_half_of_a_pair_of_surrogates_is_left_to_the_server() -> None:
    assert json.loads(transport._json({"a": "\ud800"})) == {"a": "\ud800"}
