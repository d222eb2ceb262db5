# SPDX-License-Identifier: Apache-2.0
"""Runs on plain hosts that see what a test says of each host."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.run.handover import Handover
from ansible_collections.karmada.installer.plugins.plugin_utils.run.on_hosts import OnHosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.place import Place
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support import observations
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    NOW,
    TOKEN,
    document,
    state,
)

Object = dict[str, Any]

EXTERNAL: Object = {"type": "External", "host": "karmada.example.com"}
VIRTUAL: Object = {"type": "VirtualIP", "virtualIP": {"address": "192.0.2.100"}}
HOSTS = [
    {"name": "cp1", "address": "192.0.2.1", "roles": ["etcd", "controlPlane"]},
    {"name": "cp2", "address": "192.0.2.2", "roles": ["controlPlane"]},
    {"name": "etcd1", "address": "192.0.2.3", "roles": ["etcd"]},
    {"name": "etcd2", "address": "192.0.2.4", "roles": ["etcd"]},
]
NAMES = [host["name"] for host in HOSTS]


def deployment(**spec: Any) -> Object:
    return document({"mode": "Binary", "hosts": HOSTS, "endpoint": EXTERNAL, **spec})


def remembered(**fields: Any) -> State:
    """After an installation that came to its end."""
    known = {
        "etcd": EtcdState(token=TOKEN, storage="directory", bootstrapped=True),
        "document": deployment(),
        "hosts": {host["name"]: host for host in HOSTS},
    }
    return state(**{**known, **fields})


def seen(stored: Stored, **more: Any) -> Object:
    """Observation of a host on which nothing is to be done."""
    return {"stored": stored.plain, "files": {}, "programs": {}, "facts": {"architecture": "x86_64"}, **more}


class Runs:
    """Steps of one playbook run, each with a look of its own at what those before it have left."""

    def __init__(self, folder: Path) -> None:
        self.handover = Handover(folder)

    def see(self, **hosts: Object) -> None:
        for name, what in hosts.items():
            observations.note(self.handover, name, what)

    def see_all(self, what: Object) -> None:
        """Of all hosts; what those that only store keep of the state is which one it is."""
        for host in HOSTS:
            only_which = "controlPlane" not in host["roles"] and what.get("stored", {}).get("serial")
            self.see(**{host["name"]: {**what, **({"stored": {**what["stored"], "files": {}}} if only_which else {})}})

    def step(
        self,
        document: Object | None = None,
        *,
        check: bool = False,
        holder: str = "me@here",
        operation: str = "apply",
        place: Callable[..., Place] = OnHosts,
    ) -> Run:
        run = Run(
            document or deployment(),
            Connection(),
            operation=operation,
            holder=holder,
            check=check,
            say=lambda _message: None,
            place=partial(place, handover=self.handover),
        )
        run.now = NOW
        return run


FORMER = {"name": "cp3", "address": "192.0.2.13", "roles": ["controlPlane"]}
