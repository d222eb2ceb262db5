# SPDX-License-Identifier: Apache-2.0
"""Contract of a run: what is handed to whoever carries it out, and what comes back, line by line.

Its forms are processes (``processes``) and Jobs (``jobs``); both run ``worker``. No secret is in either direction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from ansible_collections.karmada.installer.plugins.plugin_utils.redaction import printable, redacted, within

from .kinds import Key

#: Bytes of one line: a report of 1,000 members has some 300 KiB.
LONGEST_LINE = 8 * 1024 * 1024
#: Bytes of a message that reaches a status, an Event or a log.
MESSAGE = 1024


class Outcome(StrEnum):
    """End of a run. A run is lost when it ended without telling how."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    LOST = "lost"


@dataclass(frozen=True)
class RunSpec:
    """A run to carry out. ``variables`` are extra variables, of names and truth only. Limits in seconds and MiB.

    ``name`` is that of the object, ``deployment`` that of the KarmadaDeployment that it belongs to, if it is none.
    ``kind`` and ``order`` (``orders.Order.plain``) are for whoever finds the run after the operator that started it.
    """

    run_id: str
    namespace: str
    name: str
    playbook: str
    #: Of the KarmadaDeployment, as it was decided upon; another one is not carried out. Empty and 0: whatever is there.
    uid: str = ""
    generation: int = 0
    deployment: str = ""
    check: bool = False
    variables: dict[str, Any] = field(default_factory=dict)
    time_limit: float = 7200.0
    memory_limit: int = 1024
    kind: str = ""
    order: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Object that it is for."""
        return Key(self.kind, self.namespace, self.name)

    def text(self) -> str:
        """The spec as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> RunSpec:
        """Spec from its JSON. Raises ValueError, TypeError for anything else."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Ending:
    """End of a run. ``problems`` are in the plain form of a ``Problem``; ``report`` is a status, if there is one.

    ``phase``, ``reason`` and ``component`` are those of the task that failed, as the collection's actions return them.
    ``seen_gone``: whether its processes were seen gone, so that nobody needs to wait for its lock to fall silent.
    """

    outcome: Outcome
    message: str = ""
    failed_task: str = ""
    phase: str = ""
    reason: str = ""
    component: str = ""
    ok: int = 0
    changed: int = 0
    failed: int = 0
    problems: tuple[dict[str, str], ...] = ()
    report: dict[str, Any] | None = None
    peak_mib: int = 0
    #: What a playbook passes on of backups and restores: fields of their status.
    facts: dict[str, Any] = field(default_factory=dict)
    seen_gone: bool = True

    @property
    def reasons(self) -> frozenset[str]:
        """Reasons of its errors; empty if it told none."""
        return frozenset(each.get("reason", "") for each in self.problems if each.get("severity") == "error")


@dataclass(frozen=True)
class Task:
    """A task that has begun, or ``waits`` for something now.

    ``phase`` is the one that the object enters with it, empty if that does not tell.
    """

    play: str
    role: str
    task: str
    phase: str = ""
    waits: str = ""


class UnderWay(OSError):  # noqa: N818 - what it says
    """A run of the object goes on that an earlier operator started."""


class LeftBehind(Exception):  # noqa: N818 - what it says
    """The operator ends, and this run goes on without it."""


class Run(Protocol):
    """A run under way."""

    def follow(self) -> Iterator[Task | Ending]:
        """Tasks as they begin, and the ending as the last. Raises LeftBehind if the run outlives the operator."""

    def cancel(self, why: str) -> None:
        """Ask it to end; returns at once. Safe from any thread, and repeatable."""


@dataclass(frozen=True)
class Left:
    """A run that an earlier operator has started, under way or over."""

    spec: RunSpec
    run: Run
    began: datetime


class Executor(Protocol):
    """Carries out runs."""

    def start(self, spec: RunSpec) -> Run:
        """Start a run. Raises OSError if that fails, UnderWay if one of the object is to be found among those left."""

    def left(self) -> Sequence[Left]:
        """Runs that nobody has followed to their end. Raises ApiError."""

    def close(self) -> None:
        """Start no run any more. Those under way are ended, or left behind."""


def parsed(line: bytes) -> Task | Ending | None:
    """Message in a line of a worker; None if there is none."""
    try:
        found = json.loads(line)
        kind = found.pop("event")
        if kind == "task":
            play, role, task, phase = (printable(found[key], 200) for key in ("play", "role", "task", "phase"))
            return Task(play, role, task, phase, told(found["waits"]))
        if kind != "result":
            return None
        found["outcome"] = Outcome(found["outcome"])
        found["problems"] = tuple({str(key): str(text) for key, text in each.items()} for each in found["problems"])
        return Ending(**found)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def told(text: object) -> str:
    """Text of a run as others may see it: one line, without secrets, bounded."""
    return within(printable(redacted(str(text)[: 16 * MESSAGE]), MESSAGE), MESSAGE)
