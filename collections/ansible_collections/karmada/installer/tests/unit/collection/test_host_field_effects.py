# SPDX-License-Identifier: Apache-2.0
"""Every field that is for plain hosts only has an effect: on how a host is reached, or on what it is to be."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import COMPONENTS
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.run import ssh
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.agent_hosts import ACCESS
from ansible_collections.karmada.installer.tests.unit.support.document_fields import ON_HOSTS, put
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered, seen
from ansible_collections.karmada.installer.tests.unit.support.samples import document

Object = dict[str, Any]

REACHED, TREES = "how hosts are reached", "what hosts are to be"
#: path → two values of the field, and where the difference shows. None leaves it out. [] is the first host.
ROWS: dict[str, tuple[Any, Any, str]] = {
    "spec.hosts[].name": ("cp1", "cp9", TREES),
    "spec.hosts[].address": ("192.0.2.1", "192.0.2.9", TREES),
    "spec.hosts[].roles": (["etcd", "controlPlane"], ["etcd"], TREES),
    "spec.hosts[].port": (None, 2022, REACHED),
    "spec.hosts[].hostKeyFingerprint": (None, "SHA256:" + "n3v/r+Te1" * 4 + "a0dy012", REACHED),
    "spec.ssh.user": (None, "operator", REACHED),
    "spec.ssh.port": (None, 2222, REACHED),
    "spec.ssh.privateKeySecretRef.name": ("one", "two", REACHED),
    "spec.ssh.knownHostsSecretRef.name": ("one", "two", REACHED),
    "spec.endpoint.virtualIP.address": ("192.0.2.100", "192.0.2.101", TREES),
    "spec.endpoint.virtualIP.virtualRouterID": (None, 77, TREES),
    "spec.members[].agentHosts": (["gw1"], ["gw2"], TREES),
}
AROUND: Object = {
    "mode": "Binary",
    "hosts": [
        {"name": "cp1", "address": "192.0.2.1", "roles": ["etcd", "controlPlane"]},
        {"name": "cp2", "address": "192.0.2.2", "roles": ["controlPlane"]},
        {"name": "gw1", "address": "192.0.2.3", "roles": ["agent"]},
        {"name": "gw2", "address": "192.0.2.4", "roles": ["agent"]},
    ],
    "members": [{"name": "m1", "mode": "Pull", "secretRef": {"name": "m1"}, "agentHosts": ["gw1"]}],
    "endpoint": {"type": "VirtualIP", "virtualIP": {"address": "192.0.2.100"}},
}


def test_every_field_has_a_row_and_every_row_a_field() -> None:
    assert set(ROWS) == ON_HOSTS


def with_value(path: str, value: Any) -> Object:
    whole = {"spec": copy.deepcopy(AROUND)}
    put(whole, path, value)
    return document(whole["spec"])


def effects(runs: Runs, deployment: Object) -> Object:
    """Everything that this document makes of each host, by its place in the document; keys that are there are kept."""
    spec = deployment["spec"]
    trees = []
    for place, host in enumerate(spec["hosts"]):
        files = runs.handover.observed(f"place-{place}").files
        facts = {"architecture": "x86_64", "interface": "eth0"}
        runs.see(**{host["name"]: seen(Stored(4).after(remembered()), files=files, facts=facts)})
        view = runs.step(deployment).on_host(host["name"])
        runs.handover.agents = {"m1": ACCESS.plain}
        parts = [view.tree(component.name for component in COMPONENTS), view.tree(["karmada-agent"])]
        trees.append((units.merged(parts, "owner"), view.load_balancer_tree()))
        runs.see(**{f"place-{place}": {"files": {file["path"]: file["content"] for file in trees[-1][0]["files"]}}})
    read = Spec(spec)
    reached = [(ssh.variables(each.plain, read.ssh, "/secrets"), ssh.roles(read, each)) for each in read.hosts]
    return {REACHED: reached, TREES: trees}


@pytest.mark.parametrize("path", ROWS)
def test_a_field_has_an_effect(path: str, tmp_path: Path) -> None:
    one, other, where = ROWS[path]
    runs = Runs(tmp_path / "run")
    first = effects(runs, with_value(path, one))
    assert effects(runs, with_value(path, one)) == first, "else every row would pass"
    assert effects(runs, with_value(path, other))[where] != first[where]
