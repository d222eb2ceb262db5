# SPDX-License-Identifier: Apache-2.0
"""A control plane on one host, and two more hosts that run agents of its members."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent
from ansible_collections.karmada.installer.plugins.plugin_utils.render.agent_units import AgentAccess
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered
from ansible_collections.karmada.installer.tests.unit.support.samples import document

Object = dict[str, Any]

ROW = "karmada-agent"
SERVER = "https://192.0.2.50:6443"
ACCESS = AgentAccess(agent.host_access("m1", SERVER, {"data": {"token": "dA==", "ca.crt": "Y2E="}}) or b"", "identity")
CP = {"name": "cp1", "address": "192.0.2.1", "roles": ["etcd", "controlPlane"]}
GATEWAYS = [
    {"name": name, "address": f"198.51.100.{n}", "roles": ["agent"]} for n, name in enumerate(("gw1", "gw2"), 1)
]
NO_FACTS: Object = {"units": {}, "users": {}, "architecture": "x86_64"}


def entry(name: str, *hosts: str) -> Object:
    return {"name": name, "mode": "Pull", "secretRef": {"name": name}, **({"agentHosts": list(hosts)} if hosts else {})}


def deployment(*members: Object, hosts: list[Object] | None = None, **spec: Any) -> Object:
    """One control-plane host and two that run agents."""
    return document({"mode": "Binary", "hosts": hosts or [CP, *GATEWAYS], "members": list(members), **spec})


BOTH = (entry("m1", "gw1"), entry("m2", "gw1", "gw2"))


def access_of(*names: str) -> dict[str, AgentAccess]:
    return {name: replace(ACCESS, kubeconfig=ACCESS.kubeconfig.replace(b"m1", name.encode())) for name in names}


def after_install(**fields: Any) -> State:
    known = {"document": deployment(*BOTH), "hosts": {each["name"]: each for each in (CP, *GATEWAYS)}}
    return remembered(**{**known, **fields})


def joined(runs: Runs, *members: Object, names: tuple[str, ...] = ("m1", "m2")) -> Run:
    """The step after that in which these members were registered."""
    run = runs.step(deployment(*members))
    run.place.hand_on_agents(run, access_of(*names), more=False)
    return runs.step(deployment(*members))


def tree(run: Run, host: str = "gw1") -> Object:
    return run.on_host(host).tree([ROW])


class Asked:
    """An action on a host, with what it asks modules for in the place of doing it."""

    def __init__(self, action: type[HostAction], run: Run, host: str, answer: Any = None) -> None:
        self.asked: list[Object] = []
        self.answer = answer
        self.action: Any = action.__new__(action)
        self.action.karmada, self.action.variables = run, {"inventory_hostname": host}
        self.action._task = SimpleNamespace(check_mode=False, delegate_to=None, name="the step")
        self.action.on_host = self._on_host

    def _on_host(self, module: str, **arguments: Any) -> Object:
        self.asked.append({"module": module, **arguments})
        if isinstance(self.answer, Exception):
            raise self.answer
        return dict(self.answer or {"changed": True})

    def perform(self, **arguments: Any) -> Object:
        found: Object = self.action._performed(self.action.karmada, arguments)
        return found
