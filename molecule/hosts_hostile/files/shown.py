# SPDX-License-Identifier: Apache-2.0
"""Judges whether outputs and records are text that a terminal shows and does not obey: shown.py FILE...

Tabs and ends of lines are the only control characters in it, and nothing turns the direction of writing. Exit code 1:
something else is there, named by file and line.
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

found = [
    f"{path}:{number}: {character!a}"
    for path in map(Path, sys.argv[1:])
    for number, line in enumerate(path.read_bytes().decode(errors="surrogateescape").split("\n"), start=1)
    for character in sorted(set(line) - {"\t"})
    if unicodedata.category(character) in ("Cc", "Cf", "Cs")
]
print("\n".join(found) or f"{len(sys.argv) - 1} files, nothing that a terminal obeys")
sys.exit(1 if found else 0)
