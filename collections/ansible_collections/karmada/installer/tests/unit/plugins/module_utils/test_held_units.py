# SPDX-License-Identifier: Apache-2.0
"""Units of packages do not start while these are installed, also when the run is killed in the middle of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import held_units, host_system
from ansible_collections.karmada.installer.plugins.module_utils.held_units import hold, release
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.instance import Instance
from ansible_collections.karmada.installer.plugins.plugin_utils.render import load_balancer, units
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document

BINARY = {
    "mode": "Binary",
    "hosts": [{"name": "h1", "address": "192.0.2.1", "roles": ["controlPlane", "etcd"]}],
    "endpoint": {"type": "VirtualIP", "virtualIP": {"address": "192.0.2.100"}},
}


def instance(name: str = "prod") -> Instance:
    return Instance.of(document(BINARY, name=name), releases.newest(), OWNER, "10.96.0.0/12")


INSTANCE = instance()
TREE = load_balancer.packages(INSTANCE)
UNITS = [each["unit"] for each in TREE["held"]]


class Host(host_system.System):
    """A host whose packages bring units that are enabled, and start unless a condition of theirs is never true."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.enabled: dict[str, bool] = {}
        self.running: set[str] = set()
        (root / "etc/systemd/system").mkdir(parents=True)

    def drop_ins(self) -> list[Path]:
        return sorted(self.path("/etc/systemd/system").glob("*.service.d/*.conf"))

    def install(self, *names: str) -> None:
        for name in names:
            self.enabled[name] = True
            if not any("ConditionPathExists=!/\n" in each.read_text() for each in self.drop_ins() if name in str(each)):
                self.running.add(name)

    def command(self, *arguments: str) -> str:
        names = arguments[arguments.index("--") + 1 :] if "--" in arguments else ()
        if arguments[1] == "show":
            return "\n\n".join(f"LoadState={'loaded' if name in self.enabled else 'not-found'}" for name in names)
        if arguments[1] == "disable":
            self.enabled.update(dict.fromkeys(names, False))
        return ""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_units_of_new_packages_do_not_start_and_are_left_disabled(host: Host) -> None:
    assert [change.what for change in hold(host, TREE, check=True)] == [
        "hold haproxy.service",
        "hold keepalived.service",
    ]
    assert not host.drop_ins()
    hold(host, TREE)
    assert len(host.drop_ins()) == len(UNITS)
    assert not hold(host, TREE)
    host.install(*UNITS)
    release(host, TREE)
    assert (host.running, host.enabled) == (set(), dict.fromkeys(UNITS, False))
    assert not list(host.path("/etc/systemd/system").iterdir())
    assert not release(host, TREE)


def test_a_package_that_was_there_serves_the_site_and_is_left_alone(host: Host) -> None:
    host.install("haproxy.service")
    hold(host, TREE)
    host.install("keepalived.service")
    release(host, TREE)
    assert host.enabled == {"haproxy.service": True, "keepalived.service": False}
    assert host.running == {"haproxy.service"}


@pytest.mark.parametrize("installed", [(), UNITS[:1], UNITS], ids=len)
def test_after_a_kill_an_install_goes_on_with_it(host: Host, installed: list[str]) -> None:
    hold(host, TREE)
    host.install(*installed)
    hold(host, TREE)
    host.install(*UNITS)
    assert [change.what for change in release(host, TREE)] == [f"disable {name}" for name in UNITS]
    assert (host.running, host.enabled) == (set(), dict.fromkeys(UNITS, False))


def test_every_later_step_ends_it(host: Host) -> None:
    trees = [
        load_balancer.skeleton(INSTANCE),
        load_balancer.absent(INSTANCE),
        units.merged([load_balancer.absent(INSTANCE), units.skeleton(INSTANCE)], INSTANCE.owner),
    ]
    for tree in trees:
        hold(host, TREE)
        assert release(host, tree)
        assert not host.drop_ins()


def test_what_the_site_has_put_beside_it_stays(host: Host) -> None:
    hold(host, TREE)
    own = host.drop_ins()[0].with_name("site.conf")
    own.write_text("")
    release(host, TREE)
    assert host.drop_ins() == [own]


def test_another_control_plane_of_the_host_holds_them_for_itself(host: Host) -> None:
    hold(host, TREE)
    other = load_balancer.packages(instance("other"))
    hold(host, other)
    release(host, other)
    assert len(host.drop_ins()) == len(UNITS)
    assert held_units.release(host, TREE)
