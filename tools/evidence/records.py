# SPDX-License-Identifier: Apache-2.0
"""Records of runs: what is kept of them, which still hold, and which were the longest. Pure but for ``Store``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Record:
    """One run of a scenario, or of ``lint``, ``unit`` or ``contract``.

    parts: part of the checkout → digest of its content, of all that decide the result (see ``tree``); tree: one digest
    for all of them. dirty: something of them was not in the commit. began: UTC, to the second. settings: what the
    caller asked for by the environment, as in ``KILLS=20``. versions, machine: what the result may depend on besides.
    figures: step → what was measured in it, in words.
    """

    name: str
    passed: bool
    began: str
    seconds: float
    tree: str
    commit: str
    dirty: bool
    parts: Mapping[str, str]
    settings: Mapping[str, str]
    seed: int | None
    versions: Mapping[str, str]
    machine: Mapping[str, str]
    figures: Mapping[str, str] = field(default_factory=dict)

    def changed_since(self, parts: Mapping[str, str]) -> list[str]:
        """Parts that came, went or have another content now."""
        return sorted(part for part in {*self.parts, *parts} if self.parts.get(part) != parts.get(part))


def kept(records: Iterable[Record], new: Record) -> list[Record]:
    """Records that are kept after one more run: for each choice of settings the last pass, and a failure after it."""
    others = [each for each in records if each.settings != new.settings]
    passes = [each for each in records if each.settings == new.settings and each.passed and not new.passed]
    return sorted([*others, *passes[-1:], new], key=lambda each: (sorted(each.settings.items()), each.began))


def still_passed(
    records: Iterable[Record], parts: Mapping[str, str], settings: Mapping[str, str], versions: Mapping[str, str]
) -> Record | None:
    """The run that has passed with these settings and versions on this very content, unless it has failed there since.

    The machine is not compared: its kernel is another one after each of its updates.
    """
    same = [
        each
        for each in records
        if each.settings == settings and each.versions == versions and not each.changed_since(parts)
    ]
    return same[-1] if same and same[-1].passed else None


def newest_pass(records: Iterable[Record]) -> Record | None:
    """The run of these that passed last."""
    return max((each for each in records if each.passed), key=lambda each: each.began, default=None)


def newest_failure(records: Iterable[Record]) -> Record | None:
    """The run of these that failed last; ``kept`` forgets one as soon as a run with its settings has passed."""
    return max((each for each in records if not each.passed), key=lambda each: each.began, default=None)


def longest(records: Iterable[Record], number: int = 10) -> list[str]:
    """Lines for a screen: the longest of these runs first, with their share of the whole."""
    ordered = sorted(records, key=lambda each: -each.seconds)
    total = sum(each.seconds for each in ordered) or 1.0
    lines = [f"{each.seconds:8.0f} s  {each.seconds / total:4.0%}  {each.name}" for each in ordered[:number]]
    return [*lines, f"{total:8.0f} s        all {len(ordered)} parts"]


class Store:
    """Records in a folder of the checkout, a file for each name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, name: str) -> list[Record]:
        """Records of one scenario or check, those of one choice of settings from old to new."""
        file = self._file(name)
        return [record_of(each) for each in json.loads(file.read_text())] if file.exists() else []

    def add(self, new: Record) -> None:
        """Take one more in. The file is replaced as a whole, so a kill leaves the old one or the new one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps([asdict(each) for each in kept(self.of(new.name), new)], indent=1, sort_keys=True)
        unfinished = self._file(new.name).with_suffix(".unfinished")
        unfinished.write_text(text + "\n", encoding="utf-8")
        unfinished.replace(self._file(new.name))

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def record_of(content: Mapping[str, Any]) -> Record:
    """A record out of its JSON. Raises KeyError for one that lacks a field; figures are of some only."""
    return Record(
        **{each.name: content[each.name] for each in fields(Record) if each.name in content or each.name != "figures"}
    )
