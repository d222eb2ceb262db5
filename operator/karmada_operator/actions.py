# SPDX-License-Identifier: Apache-2.0
"""Actions upon one object, of which one is next. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem

from .kinds import Lane
from .orders import Order


@dataclass(frozen=True)
class Wait:
    """Nothing to do before ``until``; None means before something changes. ``reason`` is for programs."""

    why: str
    until: float | None = None
    reason: str = "Idle"


@dataclass(frozen=True)
class Claim:
    """Add the finalizer."""


@dataclass(frozen=True)
class Start:
    """Start a run for this order."""

    order: Order
    lane: Lane
    why: str


@dataclass(frozen=True)
class Cancel:
    """End the run under way."""

    why: str


@dataclass(frozen=True)
class Release:
    """Take the finalizer away. ``kept``: the instance stays. ``left`` says what stays that was to go."""

    kept: bool
    left: str = ""


@dataclass(frozen=True)
class Refuse:
    """No run, because of these problems of the annotations."""

    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Forget:
    """The object is gone: drop what is remembered of it."""


Action = Wait | Claim | Start | Cancel | Release | Refuse | Forget
