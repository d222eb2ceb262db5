# SPDX-License-Identifier: Apache-2.0
"""Observations of plain hosts out of plain data, as far as a test has any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.run.handover import Handover
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_observation import HostObservation


def observed(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, HostObservation]:
    """Host → what was seen of it."""
    return {name: HostObservation.of(plain) for name, plain in hosts.items()}


def note(handover: Handover, host: str, plain: Mapping[str, Any]) -> None:
    """Have a step note this of a host."""
    seen = HostObservation.of(plain)
    handover.note(host, **{name: getattr(seen, name) for name in plain})
