# SPDX-License-Identifier: Apache-2.0
"""The documents of ``corpus/``, and those of EtcdBackup and EtcdRestore, with what their comments say of them.

``# expect: PATH: PART OF THE MESSAGE`` is a problem that must be found; all of a document's problems are listed.
``# update of: NAME`` makes the good document of that name the one that was carried out before.
``# stage: text`` says that the text is refused before it becomes a document.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DIRECTORY = Path(__file__).parent / "corpus"
BACKUPS = Path(__file__).parent / "corpus_backups"
RESTORES = Path(__file__).parent / "corpus_restores"


@dataclass(frozen=True)
class CorpusFile:
    """One document and what is said of it."""

    path: Path
    text: str
    expected: tuple[tuple[str, str], ...]
    update_of: str
    is_text_stage: bool

    def __str__(self) -> str:
        return self.path.stem


def good(directory: Path = DIRECTORY) -> list[CorpusFile]:
    return [_read(path) for path in sorted((directory / "good").glob("*.yaml"))]


def bad(directory: Path = DIRECTORY) -> list[CorpusFile]:
    return [_read(path) for path in sorted((directory / "bad").glob("*.yaml"))]


def of_installed() -> list[CorpusFile]:
    """Bad because the status of the document before says that the control plane is installed, and for nothing else."""
    updates = [
        file
        for file in bad()
        if "\nstatus: {installed: true}\n" in (named(file.update_of).text if file.update_of else "")
    ]
    return [file for file in updates if "kind of storage" not in file.text]


def named(name: str) -> CorpusFile:
    return _read(DIRECTORY / "good" / f"{name}.yaml")


def _read(path: Path) -> CorpusFile:
    text = path.read_text(encoding="utf-8")
    update = re.search(r"^# update of: (\S+)$", text, re.MULTILINE)
    return CorpusFile(
        path=path,
        text=text,
        # a path has no colon followed by a space; that of a whole text is empty
        expected=tuple((found[1], found[2]) for found in re.finditer(r"^# expect: ?(.*?): (.*)$", text, re.MULTILINE)),
        update_of=update[1] if update else "",
        is_text_stage="\n# stage: text\n" in text,
    )
