# SPDX-License-Identifier: Apache-2.0
"""Bytes there and back, in the form that API servers take."""

from __future__ import annotations

import base64
import json

from ansible_collections.karmada.installer.plugins.plugin_utils.encoding import base64_files, base64_text, files_of
from hypothesis import given
from hypothesis import strategies as st


@given(st.dictionaries(st.text(), st.binary(max_size=200)))
def test_files_come_back_as_they_were(files: dict[str, bytes]) -> None:
    assert files_of(json.loads(json.dumps(base64_files(files)))) == files


def test_a_long_value_stays_one_line_in_the_standard_alphabet() -> None:
    found = base64_text(bytes(range(256)))
    assert "\n" not in found
    assert {"+", "/"} <= set(found)
    assert base64.b64decode(found, validate=True) == bytes(range(256))


def test_a_secret_without_data_has_no_files() -> None:
    assert files_of(None) == files_of({}) == {}
