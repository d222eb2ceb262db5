# SPDX-License-Identifier: Apache-2.0
"""Progress of a play: how much of it is over when a task begins, for the bar at the foot of a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ansible import constants
from ansible.playbook.block import Block
from ansible.playbook.task_include import TaskInclude

#: Includes of which a run consists for the most part → their weight, in tasks. Another one counts as a task: what it
#: brings is not known before, and most bring nothing.
_LONG_INCLUDES = {"bring_up": 32, "stages": 32, "karmada.installer.members": 8}
#: Weight that a play has at least, unless it only prepares the next one.
_WHOLE_PLAY = 6


class PlayProgress:
    """Tasks of a play, as far as they are known before it begins, and how many of them are over."""

    def __init__(self, tasks: Any) -> None:
        #: UUID of a task → weight of all tasks before it, and its own
        self._before: dict[str, tuple[int, int]] = {}
        total = 0
        for task in _flat(tasks):
            weight = _weight(task)
            self._before[task._uuid] = (total, weight)
            total += weight
        self._total, self._done, self._room = total, 0, 0

    def at(self, task: Any) -> float:
        """Part of the play, from 0 to 1, that is over when this task begins; 0 if it only prepares the next play."""
        if self._total < _WHOLE_PLAY:
            return 0.0
        known = self._before.get(task._uuid)
        if known:
            self._done, self._room = max(self._done, known[0]), known[1] - 1
        elif self._room > 0:
            # A task of what was included last.
            self._done, self._room = self._done + 1, self._room - 1
        return self._done / self._total


def _flat(entries: Any) -> Iterator[Any]:
    """Tasks of blocks, in their order."""
    for entry in entries:
        if isinstance(entry, Block):
            for section in (entry.block, entry.always):
                yield from _flat(section)
        elif isinstance(entry, list):
            yield from _flat(entry)
        else:
            yield entry


def _weight(task: Any) -> int:
    """Weight of a task. ``meta`` only decides what comes next, and shows nothing."""
    if task.action in constants._ACTION_META:
        return 0
    if not isinstance(task, TaskInclude):
        return 1
    included = task.args.get("name") or task.args.get("file") or task.args.get("_raw_params") or ""
    return _LONG_INCLUDES.get(str(included).rpartition("/")[2].removesuffix(".yml"), 1)
