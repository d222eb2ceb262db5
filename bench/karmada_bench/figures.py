# SPDX-License-Identifier: Apache-2.0
"""From what was measured to figures: medians, ratios, and whether a goal is reached. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Side = Literal["ours", "peer"]
Measurement = Mapping[str, Any]
"""``round`` (from 1), ``side``, ``case`` (key of a Case), ``value`` in its unit, and of what is run ``cpu_seconds``."""


@dataclass(frozen=True)
class Case:
    """One thing that is measured. ``goal`` is the most that the ratio may be, or ours itself where there is none.

    ``ratio_to`` names the side and the case that the ratio is to, where it is not the same case of the peer.
    ``absolute`` is for what has no ratio: counts, and times that are not a share of anything.
    """

    key: str
    title: str
    unit: str = "s"
    goal: float | None = None
    ratio_to: tuple[Side, str] | None = None
    absolute: bool = False


CASES = (
    Case("install", "install", goal=0.45),
    Case("install_complete", "install until the same is proved for both"),
    Case("install_volume", "install with etcd on a volume claim"),
    Case("again", "install again, as a share of our own first", goal=0.2, ratio_to=("ours", "install")),
    Case("again_changed", "tasks that change something when installed again", "tasks", goal=0, absolute=True),
    Case("again_writes", "requests that write when installed again", "requests", goal=0, absolute=True),
    Case("join", "join a member until it is Ready", goal=1.0),
    Case("join_task", "of that, the task that joins"),
    Case("many_members", "95 simulated members and 5 broken ones at once; karmadactl: the 95 one by one", goal=0.2),
    Case("many_members_missing", "of the 95 not joined then", "members", goal=0, absolute=True),
    Case("many_members_untold", "of the 5 without a reason in the report", "members", goal=0, absolute=True),
    Case("many_members_left", "things left of the 5", "things", goal=0, absolute=True),
    Case("many_members_again", "the 95 and the 5 again"),
    Case("many_members_again_changed", "changes made by that", "changes", goal=0, absolute=True),
    Case("registered_join", "1,000 simulated members at once"),
    Case("registered_again", "the 1,000 again, with nothing to do", goal=20, absolute=True),
    Case("registered_again_changed", "changes of the 1,000 then", "changes", goal=0, absolute=True),
    Case("propagation", "application and policy until 2 replicas are ready"),
    Case("uninstall", "uninstall with the member, until the namespace is gone", goal=0.6),
    Case("left_objects", "objects left in the clusters", "objects", goal=0, absolute=True),
    Case("left_files", "files left on the machine it ran on", "files", goal=0, absolute=True),
    Case("object", "object to Ready by the operator, beside Karmada's operator", goal=0.5),
    Case("object_complete", "object until the same is proved for both"),
    Case("object_over_playbook", "of ours, more than the playbook takes", goal=3, absolute=True),
    Case("object_gone", "object deleted until it is gone", goal=12, absolute=True),
    Case("object_left", "objects left in its namespace then", "objects", goal=0, absolute=True),
    Case("memory", "memory of the install, at most", "MiB"),
    Case("help", "help"),
    Case("list", "ansible-inventory --list"),
    Case("list_5000", "ansible-inventory --list of 5,000 members", goal=5, absolute=True),
    Case("one_host", "one plain host from bare to ready", goal=0.3, ratio_to=("peer", "install")),
    Case("one_host_uninstall", "uninstall from one plain host"),
    Case("hosts", "three plain hosts from bare to ready", goal=1.0, ratio_to=("peer", "install")),
    Case("hosts_again", "three plain hosts, install again", goal=8, absolute=True),
    Case("hosts_again_changed", "tasks that change something then", "tasks", goal=0, absolute=True),
    Case("hosts_again_restarts", "units started anew then", "units", goal=0, absolute=True),
    Case("hosts_flag", "three plain hosts, a changed flag of the scheduler"),
    Case("hosts_flag_restarts", "other units started anew then", "units", goal=0, absolute=True),
    Case("hosts_flag_unanswered", "requests to the virtual IP that failed then", "requests", goal=0, absolute=True),
    Case("hosts_power_pause", "no answer at the virtual IP when its host loses power, at most", goal=3, absolute=True),
    Case("hosts_power_lost", "acknowledged writes lost then", "writes", goal=0, absolute=True),
    Case("hosts_power_missing", "writes that a watcher was not told of then", "writes", goal=0, absolute=True),
    Case("hosts_boot", "power back until all units work"),
    Case("hosts_uninstall", "uninstall from three plain hosts"),
    Case("hosts_left", "things left on the hosts", "things", goal=0, absolute=True),
)


@dataclass(frozen=True)
class Spread:
    """Median, least and greatest of what the rounds gave."""

    median: float
    least: float
    greatest: float


@dataclass(frozen=True)
class Figure:
    """A case with what was found for each side; None where a side was not measured.

    ours_cpu, peer_cpu: seconds of processors, where what was measured is a run.
    """

    case: Case
    ours: Spread | None
    peer: Spread | None
    ratio: float | None
    ours_cpu: Spread | None = None
    peer_cpu: Spread | None = None

    @property
    def reached(self) -> bool | None:
        """Return whether the goal is reached; None where there is none, or nothing to compare with it."""
        found = self.ours.median if self.case.absolute and self.ours else self.ratio
        return None if self.case.goal is None or found is None else found <= self.case.goal


@dataclass(frozen=True)
class Result:
    """A line of results.json. ``goal`` bounds ``ratio``, or ``ours`` where there is no ratio; ``_cpu``: seconds."""

    case: str
    ours: float | None
    peer: float | None
    unit: str
    ratio: float | None
    goal: float | None
    ours_cpu: float | None
    peer_cpu: float | None


def figures(measurements: Sequence[Measurement]) -> list[Figure]:
    """A figure for each case that was measured, in the order of CASES."""
    found = []
    for case in CASES:
        ours, peer = _spread(measurements, case.key, "ours"), _spread(measurements, case.key, "peer")
        if ours is None and peer is None:
            continue
        side, key = case.ratio_to or ("peer", case.key)
        base = _spread(measurements, key, side)
        ratio = ours.median / base.median if ours and base and base.median and not case.absolute else None
        spent = (_spread(measurements, case.key, each, "cpu_seconds") for each in ("ours", "peer"))
        found.append(Figure(case, ours, peer, None if ratio is None else round(ratio, 2), *spent))
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
                ours_cpu=each.ours_cpu.median if each.ours_cpu else None,
                peer_cpu=each.peer_cpu.median if each.peer_cpu else None,
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


def _spread(measurements: Sequence[Measurement], key: str, side: Side, of: str = "value") -> Spread | None:
    values = [each[of] for each in measurements if each["case"] == key and each["side"] == side and of in each]
    if not values:
        return None
    return Spread(*(round(one, 2) for one in (statistics.median(values), min(values), max(values))))
