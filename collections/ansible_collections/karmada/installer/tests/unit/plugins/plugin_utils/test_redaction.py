# SPDX-License-Identifier: Apache-2.0
"""What must not be shown is taken out, and what helps stays."""

from __future__ import annotations

import base64
import unicodedata

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.redaction import LONGEST, printable, redacted
from hypothesis import given
from hypothesis import strategies as st

HEADER = "-----BEGIN EC PRIVATE " + "KEY-----"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"read {HEADER}\nMHcCAQEE\n-----END EC PRIVATE " + "KEY-----\nand went on", "MHcCAQEE"),
        (f"read {HEADER}\nMHcCAQEE", "MHcCAQEE"),
        (
            "key " + base64.b64encode(HEADER.encode()).decode() + " and went on",
            base64.b64encode(HEADER.encode()).decode()[-8:],
        ),
        ("token eyJhbGciOi.eyJpc3MiOi.c2lnbmVk is bad", "c2lnbmVk"),
        ("Authorization: Bearer abcdefgh12345", "abcdefgh12345"),
        ("--token=abcdefgh --x=1", "abcdefgh"),
        ('{"password": "hunter22"}', "hunter22"),
        ("dial https://me:hunter22@registry.example.com/v2/", "hunter22"),
        ("bootstrap abcdef.0123456789abcdef refused", "0123456789abcdef"),
    ],
)
def test_secrets_are_taken_out(text: str, secret: str) -> None:
    assert secret in text
    assert secret not in redacted(text)
    assert "<redacted>" in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "Error: unknown flag: --no-such-flag",
        'Failed to pull image "docker.io/karmada/karmada-scheduler:v0.0.0": not found',
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "secret prod-webhook-cert not found",
        "pods prod-apiserver-6796459f5f-shvzb",
        "etcdserver: request timed out at 10.0.0.1:2379 after 5s",
    ],
)
def test_what_helps_stays(text: str) -> None:
    assert redacted(text) == text


# -- what a terminal would obey ----------------------------------------------------------------------------------------

#: Everything that must never be shown, by what Unicode calls it: controls, formats, halves of pairs, line separators.
OBEYED = {"Cc", "Cs", "Zl", "Zp"}
DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
PIECES = st.sampled_from(
    [
        *("\x1b]0;owned\x07", "\x1b[2J", "\x1b[31m", "\x9b5A", "\x1bP1$r\x1b\\", "\x1b", "\x1b[", "\x1b]"),
        *("\r", "\r\n", "\n", "\t", "\x7f", "\x85", "\u2028", "\ud800", *DIRECTIONS, "word", "password=hunter22"),
    ]
)
FOREIGN = st.lists(PIECES | st.text(st.characters(), max_size=8), max_size=60).map("".join)


@given(FOREIGN, st.integers(min_value=1, max_value=80))
def test_a_message_of_others_is_one_line_of_bounded_length_that_no_terminal_obeys(text: str, longest: int) -> None:
    line = printable(text, longest)
    assert len(line) <= longest
    assert len(line.splitlines()) <= 1
    assert not [each for each in line if unicodedata.category(each) in OBEYED or each in DIRECTIONS]
    line.encode()


@given(FOREIGN)
def test_logs_of_others_keep_their_lines_and_nothing_that_a_terminal_obeys(text: str) -> None:
    told = redacted(text)
    assert not [each for each in told if (unicodedata.category(each) in OBEYED and each not in "\n\t")]
    assert not set(told) & set(DIRECTIONS)
    assert "hunter22" not in told
    told.encode()


def test_what_a_sequence_of_a_terminal_means_goes_with_it() -> None:
    title, link = "\x1b]0;owned\x07", "\x1b]8;;https://evil.example\x1b\\"
    assert printable(f"{title}fine \x1b[1;31mred\x1b[0m {link}link") == "fine red link"
    assert redacted("\x1b[32mpassword\x1b[0m=\x1b[33mhunter22\x1b[0m") == "password=<redacted>"
    assert redacted("\x1bpassword=hunter22") == "assword=<redacted>", "ESC p is a sequence"
    assert redacted("one\r\ntwo\rthree") == "one\ntwo\nthree"
    assert printable("grün, 日本語, 👍") == "grün, 日本語, 👍"


def test_a_message_of_others_says_that_it_goes_on() -> None:
    assert printable("a" * 100, 10) == "a" * 9 + "…"
    assert len(printable("a" * 10**7)) == LONGEST
