# SPDX-License-Identifier: Apache-2.0
"""From what was measured to figures: medians, ratios, and whether a goal is reached. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Side = Literal["ours", "peer"]
Measurement = Mapping[str, Any]
"""``round`` (from 1), ``side``, ``case`` (key of a Case) and ``value`` in the unit of the case."""


@dataclass(frozen=True)
class Case:
    """One thing that is measured. ``goal`` is the most that the ratio may be; of a count, the most that ours may be.

    ``ratio_to`` is the case of ours that the ratio is to, where it is not the same case of the peer.
    ``counted`` is for what is counted and not timed: it has no ratio.
    """

    key: str
    title: str
    unit: str = "s"
    goal: float | None = None
    ratio_to: str | None = None
    counted: bool = False


CASES = (
    Case("install", "install", goal=0.45),
    Case("install_complete", "install until the same is proved for both"),
    Case("install_volume", "install with etcd on a volume claim"),
    Case("again", "install again, as a share of our own first", goal=0.2, ratio_to="install"),
    Case("again_changed", "tasks that change something when installed again", "tasks", goal=0, counted=True),
    Case("again_writes", "requests that write when installed again", "requests", goal=0, counted=True),
    Case("join", "join a member until it is Ready", goal=1.0),
    Case("join_task", "of that, the task that joins"),
    Case("propagation", "application and policy until 2 replicas are ready"),
    Case("uninstall", "uninstall until the namespace is gone", goal=0.5),
    Case("left_objects", "objects left in the clusters", "objects", goal=0, counted=True),
    Case("left_files", "files left on the machine it ran on", "files", goal=0, counted=True),
    Case("memory", "memory of the install, at most", "MiB"),
    Case("help", "help"),
    Case("list", "ansible-inventory --list"),
)


@dataclass(frozen=True)
class Spread:
    """Median, least and greatest of what the rounds gave."""

    median: float
    least: float
    greatest: float


@dataclass(frozen=True)
class Figure:
    """A case with what was found for each side; None where a side was not measured."""

    case: Case
    ours: Spread | None
    peer: Spread | None
    ratio: float | None

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None where there is none, or nothing to compare with it."""
        found = self.ours.median if self.case.counted and self.ours else self.ratio
        return None if self.case.goal is None or found is None else found <= self.case.goal


@dataclass(frozen=True)
class Result:
    """A line of results.json. ``goal`` bounds ``ratio``, or ``ours`` where there is no ratio."""

    case: str
    ours: float | None
    peer: float | None
    unit: str
    ratio: float | None
    goal: float | None


def figures(measurements: Sequence[Measurement]) -> list[Figure]:
    """A figure for each case that was measured, in the order of CASES."""
    found = []
    for case in CASES:
        ours, peer = (_spread(measurements, case.key, side) for side in ("ours", "peer"))
        if ours is None and peer is None:
            continue
        base = _spread(measurements, case.ratio_to, "ours") if case.ratio_to else peer
        ratio = ours.median / base.median if ours and base and base.median and not case.counted else None
        found.append(Figure(case, ours, peer, None if ratio is None else round(ratio, 2)))
    return found


def results(measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    """The content of results.json."""
    return [
        asdict(
            Result(
                case=each.case.title,
                ours=each.ours.median if each.ours else None,
                peer=each.peer.median if each.peer else None,
                unit=each.case.unit,
                ratio=each.ratio,
                goal=each.case.goal,
            )
        )
        for each in figures(measurements)
    ]


def longest_tasks(tasks: Sequence[Mapping[str, Any]], run: str, number: int = 6) -> list[tuple[str, float]]:
    """The tasks of a run of ours that took longest, with the median of their seconds in all rounds.

    A task that is there more than once under one name counts with all its times together.
    """
    rounds: dict[str, dict[int, float]] = {}
    for each in tasks:
        if each["run"] == run:
            of_task = rounds.setdefault(each["task"], {})
            of_task[each["round"]] = of_task.get(each["round"], 0.0) + each["seconds"]
    medians = [(task, round(statistics.median(seconds.values()), 2)) for task, seconds in rounds.items()]
    return sorted(medians, key=lambda one: -one[1])[:number]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines of a screen, columns under each other; the first column is text, the others are figures."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in enumerate(pairs)
        ).rstrip()
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    ]


def _spread(measurements: Sequence[Measurement], key: str | None, side: str) -> Spread | None:
    values = [each["value"] for each in measurements if each["case"] == key and each["side"] == side]
    if not values:
        return None
    return Spread(*(round(one, 2) for one in (statistics.median(values), min(values), max(values))))
