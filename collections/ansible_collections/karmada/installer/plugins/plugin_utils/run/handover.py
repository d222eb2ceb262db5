# SPDX-License-Identifier: Apache-2.0
"""Handover between the steps of a run: observations of plain hosts, and the installer's state.

Both hold private keys, so they are never Ansible variables, which verbose output, callbacks and caches show. They are
files in a folder for this user only, which is removed with the run: see ``private_folder``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from .. import private_file
from . import private_folder
from .changes import StepChange, merged
from .host_observation import HostObservation, Notes

_STATE, _MEMBERS, _AGENTS, _WORKED_ON = "state.json", "members.json", "agents.json", "worked-on.json"
_ETCD_STEP = "etcd-step.json"
_CHANGES = "changes"


class Handover:
    """Files of one run. Steps may write concurrently, each for another host."""

    def __init__(self, folder: Path | None = None) -> None:
        """``folder`` None: the private folder of the playbook run that this process belongs to."""
        self._given = folder
        self._part = ""

    @classmethod
    def of(cls, instance: str) -> Handover:
        """Handover of ``<namespace>/<name>`` in the playbook run that this process belongs to.

        A playbook of somebody's own may work on several, one after the other, whose hosts may have the same names: one
        must not get the keys of another.
        """
        made = cls()
        # Names of namespaces have no dot, and those of other files of the folder are none of these.
        made._part = instance.replace("/", ".")
        return made

    @cached_property
    def _folder(self) -> Path:
        return self._given or private_folder.of_this_run() / self._part

    @property
    def stored(self) -> dict[str, Any] | None:
        """State that the run continues with, ``{serial, files}``; None before it was chosen."""
        return _read(self._folder / _STATE)

    @stored.setter
    def stored(self, value: Mapping[str, Any] | None) -> None:
        self._write(self._folder / _STATE, value)

    @property
    def members(self) -> dict[str, Any] | None:
        """Members as the control plane shows them, ``{access, ready}`` with base64; None before it was asked."""
        return _read(self._folder / _MEMBERS)

    @members.setter
    def members(self, value: Mapping[str, Any]) -> None:
        self._write(self._folder / _MEMBERS, value)

    @property
    def agents(self) -> dict[str, Any]:
        """Member → plain form of its agent's ``AgentAccess``, of members whose agents were looked at."""
        return _read(self._folder / _AGENTS) or {}

    @agents.setter
    def agents(self, value: Mapping[str, Any]) -> None:
        self._write(self._folder / _AGENTS, value)

    @property
    def worked_on(self) -> tuple[str, ...]:
        """Members that are as listed after the step that joins, or in check mode would be; the others stay as is."""
        return tuple((_read(self._folder / _WORKED_ON) or {}).get("members", ()))

    @worked_on.setter
    def worked_on(self, value: Iterable[str]) -> None:
        self._write(self._folder / _WORKED_ON, {"members": list(value)})

    @property
    def etcd_step(self) -> dict[str, Any]:
        """The last step with members of etcd on hosts, in the form of the playbook that takes it; empty before it."""
        return _read(self._folder / _ETCD_STEP) or {}

    @etcd_step.setter
    def etcd_step(self, value: Mapping[str, Any]) -> None:
        self._write(self._folder / _ETCD_STEP, value)

    @property
    def changes(self) -> list[StepChange]:
        """Changes of the steps so far, in their order."""
        found = (_read(each) or {} for each in sorted(self._folder.glob(f"{_CHANGES}-*.json")))
        return merged(StepChange.of(each) for part in found for each in part.get("changes", ()))

    def add_changes(self, changes: Sequence[StepChange]) -> None:
        """Add the changes of one step; others may add theirs at the same moment."""
        if changes:
            path = self._folder / f"{_CHANGES}-{time.time_ns():020}-{os.getpid()}.json"
            self._write(path, {"changes": [each.plain for each in changes]})

    def observed(self, host: str) -> HostObservation:
        """Observation of a host; empty if nothing has looked at it yet."""
        return HostObservation.of(_read(self._path(host)) or {})

    def note(self, host: str, **seen: Unpack[Notes]) -> None:
        """Update the observation of a host; fields that are not given keep their values."""
        plain = HostObservation(**seen).plain
        self._write(self._path(host), {**(_read(self._path(host)) or {}), **{name: plain[name] for name in seen}})

    def all_observed(self, hosts: Iterable[str]) -> dict[str, HostObservation]:
        """Observations of several hosts, by name."""
        return {host: self.observed(host) for host in hosts}

    def _path(self, host: str) -> Path:
        return self._folder / f"host-{host}.json"

    def _write(self, path: Path, value: Mapping[str, Any] | None) -> None:
        private_folder.make(self._folder)
        private_file.write(path, json.dumps(value))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] | None = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return found
