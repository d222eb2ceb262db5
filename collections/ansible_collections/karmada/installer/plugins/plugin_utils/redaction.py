# SPDX-License-Identifier: Apache-2.0
"""Text of others (messages of API servers, logs, events, names), made safe to display. No I/O.

Two things are removed: secrets, and characters that a terminal or an editor would interpret. So the author of a message
cannot move the cursor, set the window title, hide a line, or reverse the direction of text.
"""

from __future__ import annotations

import re

REDACTED = "<redacted>"
#: Characters of a one-line message, at most.
LONGEST = 2000
#: Replacement for a character that cannot be shown.
UNSHOWN = "\N{REPLACEMENT CHARACTER}"
#: Whole escape sequences of terminals: colours and cursor (CSI), titles and links (OSC and the like), others.
_ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]*[0-~]"
)
_LINE_ENDS = re.compile("\r\n?|[\v\f\x1c-\x1e\x85\u2028\u2029]")
#: Controls of C0, C1 and DEL except tab and line feed; what is invisible or changes direction; surrogates.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # A log may be cut off within a key: then everything up to its end belongs to the key.
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
    """Text without private keys, tokens and passwords; certificates and everything else that can be shown stay.

    Lines are kept, and end with a line feed only. Secrets are searched for with escape sequences and without them:
    colours between a name and its value would hide one, and so would a sequence that takes a letter of the name along.
    """
    return _without_secrets(shown(_without_secrets(text)))


def _without_secrets(text: str) -> str:
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def shown(text: str) -> str:
    """Text without anything that a terminal interprets: the only controls left are tabs and line feeds."""
    if text.isascii() and text.isprintable():
        return text
    return _CONTROLS.sub(UNSHOWN, _LINE_ENDS.sub("\n", _ESCAPES.sub("", text)))


def within(text: str, most: int) -> str:
    """Text in at most ``most`` bytes of UTF-8, which is what an API server counts; what is cut ends in an ellipsis."""
    data = text.encode(errors="replace")
    if len(data) <= most:
        return text
    return data[: most - len("…".encode())].decode(errors="ignore") + "…"


def printable(text: object, longest: int = LONGEST) -> str:
    """Text in one printable line of at most ``longest`` characters, with single spaces between words."""
    # Text far beyond the limit is not processed at all: it may be as long as an answer.
    line = " ".join(shown(str(text)[: 4 * longest]).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
