# SPDX-License-Identifier: Apache-2.0
"""An image of its own for one component starts that unit anew on each host that has it, and no other one."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_tree
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    COMPONENTS,
    ETCD,
    wanted_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import Component
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.tests.unit.support.host_tree import Host, said
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import HOSTS, Object, Runs, deployment

EVERY = [component.name for component in COMPONENTS]
OPTIONAL: Object = {"karmadaDescheduler": {}, "karmadaSearch": {}, "karmadaMetricsAdapter": {}}
#: What runs on these hosts; estimators and agents come with members.
ON_HOSTS = [component for component in COMPONENTS if not component.per_member]


def with_image(component: Component | None) -> Object:
    """The document, with an image of its own for this component."""
    tag = {"imageTag": "patched"}
    own: Object = {}
    if component:
        own = {"etcd": {"local": tag}} if component.field == "etcd" else {component.field: tag}
    return deployment(components={**OPTIONAL, **own})


def tree_of(runs: Runs, host: str, document: Object) -> Object:
    """What a host is to be. Programs of a stand-in for a host answer nobody."""
    found = copy.deepcopy(runs.step(document).on_host(host).tree(EVERY))
    for unit in found["units"]:
        unit["health"] = None
    return found


@pytest.mark.parametrize("component", ON_HOSTS, ids=lambda component: component.name)
def test_that_unit_and_no_other_is_started_anew(
    installed: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, component: Component
) -> None:
    monkeypatch.setattr("os.chown", lambda *_arguments, **_named: None)
    unit = units.unit_name(installed.step().instance, component)
    had_it = []
    for name in (host["name"] for host in HOSTS):
        host = Host(tmp_path / name)
        host.path("/var/lib").mkdir(parents=True)
        before = tree_of(installed, name, with_image(None))
        host_tree.converge(host, before)
        # Certificates are kept, as a host with these files has them.
        files = {each["path"]: each["content"] for each in before["files"] if each["path"].startswith("/etc/karmada")}
        installed.see(**{name: {"files": files}})
        assert host_tree.converge(host, tree_of(installed, name, with_image(None))) == []
        has_it = unit in [each["name"] for each in before["units"]]
        changes = said(host_tree.converge(host, tree_of(installed, name, with_image(component))))
        # An API server that uses no other member of etcd cannot work on without the one of its host.
        around = [client for each in before["units"] if each["name"] == unit for client in each.get("clients", ())]
        restarts = [f"restart {each}" for each in (unit, *around)]
        assert changes == ([f"change /etc/systemd/system/{unit}", *restarts] if has_it else [])
        assert component is ETCD or not around
        had_it += [name] * has_it
    assert had_it, "no host has it"


def test_all_components_of_a_control_plane_on_hosts_are_tried(installed: Runs) -> None:
    wanted = {component.name for component in wanted_components(installed.step(with_image(None)).spec)}
    assert wanted <= {component.name for component in ON_HOSTS}
