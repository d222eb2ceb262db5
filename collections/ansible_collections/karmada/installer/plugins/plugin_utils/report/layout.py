# SPDX-License-Identifier: Apache-2.0
"""Layout of text for a terminal of 80 columns: wrapped lines, tables, durations, a bar. No I/O."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

#: Columns of everything that is shown.
WIDTH = 80
_BAR = 20


def wrapped(text: str, first: str = "", others: str | None = None, width: int = WIDTH) -> list[str]:
    """Lines of a text, ``first`` before the first of them and ``others`` (default: as wide, blank) before the rest.

    Line ends of the text and the indentation after them are kept. A word is never broken, because addresses, paths and
    commands are copied; one that is longer than a line stands alone on one.
    """
    others = " " * len(first) if others is None else others
    found: list[str] = []
    for line in text.split("\n"):
        own = line[: len(line) - len(line.lstrip())]
        # Further lines of a bullet begin below its text.
        hanging = own + ("  " if line.lstrip().startswith("- ") else "")
        found += textwrap.wrap(
            line.strip(),
            width,
            initial_indent=(others if found else first) + own,
            subsequent_indent=others + hanging,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [(others if found else first).rstrip()]
    return found


def cut(line: str, width: int = WIDTH) -> str:
    """Line of at most this width; where something is left out, it ends with an ellipsis."""
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def labelled(label: str, text: str, labels: int = 13, width: int = WIDTH) -> list[str]:
    """Lines of a text in the second column, its label in the first; ``labels`` is the width of that."""
    return wrapped(text, label.ljust(labels), width=width)


def table(rows: Iterable[Sequence[str]], indent: str = "", width: int = WIDTH) -> list[str]:
    """Rows with aligned columns. The last column is wrapped below itself where it does not fit."""
    cells = [list(row) for row in rows]
    if not cells:
        return []
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)]
    found: list[str] = []
    for row in cells:
        fixed = "".join(f"{cell.ljust(wide)}  " for cell, wide in zip(row[:-1], widths, strict=True))
        found += [line.rstrip() for line in wrapped(row[-1], indent + fixed, width=width)]
    return found


def columns(words: Sequence[str], indent: str = "", width: int = WIDTH) -> list[str]:
    """Words in as many aligned columns as fit, read downwards."""
    if not words:
        return []
    wide = max(map(len, words)) + 2
    across = max(1, (width - len(indent) + 2) // wide)
    height = -(-len(words) // across)
    return [
        (indent + "".join(word.ljust(wide) for word in words[line::height])).rstrip()
        for line in range(min(height, len(words)))
    ]


def duration(seconds: float) -> str:
    """Time for people: 0.4 s, 34 s, 3 min 20 s, 1 h 5 min."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def bar(fraction: float) -> str:
    """Bar of a fixed width, filled by a fraction between 0 and 1."""
    done = round(_BAR * min(1.0, max(0.0, fraction)))
    return f"[{'#' * done}{'.' * (_BAR - done)}]"
