# SPDX-License-Identifier: Apache-2.0
"""Text that others wrote (messages of API servers, logs, events, names), as it may be shown. No I/O.

Two things are taken out: secrets, and what a terminal or an editor would obey instead of showing it. So whoever writes
a message cannot move the cursor, name the window, hide a line, or have one read from right to left.
"""

from __future__ import annotations

import re

REDACTED = "<redacted>"
#: Characters that a message of one line may have at most.
LONGEST = 2000
#: What stands in the place of a character that has no form of its own.
UNSHOWN = "\N{REPLACEMENT CHARACTER}"
#: Escape sequences of terminals as a whole: colours and cursor (CSI), titles and links (OSC and the like), others.
_ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)?"
    "|\x1b[ -/]*[0-~]"
)
_LINE_ENDS = re.compile("\r\n?|[\v\f\x1c-\x1e\x85\u2028\u2029]")
#: Controls of C0, C1 and DEL but for tab and line feed; what is invisible or turns the direction; halves of characters.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
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
    """The text without private keys, tokens and passwords; certificates and everything else that can be shown stay.

    Lines stay lines, and end with a line feed only. Escape sequences go before secrets are looked for, or colours
    between a name and its value would hide one.
    """
    text = shown(text)
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def shown(text: str) -> str:
    """The text as lines that a terminal shows and does not obey: tabs and line feeds are the only controls in it."""
    if text.isascii() and text.isprintable():
        return text
    return _CONTROLS.sub(UNSHOWN, _LINE_ENDS.sub("\n", _ESCAPES.sub("", text)))


def printable(text: object, longest: int = LONGEST) -> str:
    """A text in one line that can be shown, cut off behind ``longest`` characters; words are a space apart."""
    # What is far beyond the limit is not even looked at: it may be as long as an answer.
    line = " ".join(shown(str(text)[: 4 * longest]).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
