# SPDX-License-Identifier: Apache-2.0
"""Promises of a release in parts that every place with members of etcd on hosts keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import PART_RELEASED
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal
from ansible_collections.karmada.installer.tests.unit.support.held_works_in_memory import PART, Inside, names, space
from ansible_collections.karmada.installer.tests.unit.support.restore_hosts_in_memory import stored, take_steps


def assert_killed_part_is_gone_on_with(
    in_quarantine: Callable[[], tuple[Any, Inside]], apart: int, *, more_than: int
) -> None:
    """Kill the release of a part after each change, or each so many; nobody else is told, and the next run ends it.

    ``more_than``: number below which there are too few changes, so that there is something to kill it at.
    """
    whole, _ = in_quarantine()
    take_steps(whole, Goal.RELEASE, **PART)
    assert whole.changes > more_than
    for killed_after in range(0, whole.changes, apart):
        world, inside = in_quarantine()
        take_steps(world, Goal.RELEASE, killed_after, **PART)
        assert inside.carried_out <= names("m1")
        take_steps(world, Goal.RELEASE, **PART)
        assert stored(world).step == PART_RELEASED
        assert inside.carried_out == names("m1")
        assert inside.labels() == {space("m2")}
