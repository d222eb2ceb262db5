# SPDX-License-Identifier: Apache-2.0
"""Take out of a text that others wrote (logs, events) what must not be shown. No I/O."""

from __future__ import annotations

import re

REDACTED = "<redacted>"
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # A log may break off in the middle of a key: then everything to its end is one.
    (re.compile(r"-----BEGIN (?!CERTIFICATE-)[A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)", re.DOTALL), REDACTED),
    (re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]+"), REDACTED),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+"), REDACTED),
    (re.compile(r"(?i)\b(bearer|basic) +[\w.~+/=-]{8,}"), rf"\1 {REDACTED}"),
    (
        re.compile(r"(?i)\b([\w-]*(?:token|password|passwd|secret))([\"']?\s*[=:]\s*[\"']?)[^\s\"',;]{6,}"),
        rf"\1\2{REDACTED}",
    ),
    (re.compile(r"(://[^/\s:@]+:)[^/\s@]+@"), rf"\1{REDACTED}@"),
    # Bootstrap tokens have one form everywhere.
    (re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"), REDACTED),
)


def redacted(text: str) -> str:
    """The text without private keys, tokens and passwords; certificates and everything else stay."""
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text
