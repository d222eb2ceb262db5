# SPDX-License-Identifier: Apache-2.0
"""The state on a host: written whole or not at all, never by an older one."""

from __future__ import annotations

import base64
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_state
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System


def files(**contents: str) -> dict[str, str]:
    return {name: base64.b64encode(content.encode()).decode() for name, content in contents.items()}


def write(system: System, instance: str, serial: int, content: dict[str, str], check: bool = False) -> bool:
    """As a run does that has looked right before."""
    wanted = {"serial": serial, "files": content, "digest": host_state.digest_of(serial, content), "lineage": []}
    return host_state.write_state(system, instance, wanted, host_state.read_state(system, instance)["digest"], check)


def kept(system: System) -> dict[str, Any]:
    found = host_state.read_state(system, "prod")
    return {key: found[key] for key in ("serial", "files")}


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(str(tmp_path))


def test_what_was_written_is_read_and_only_root_can_read_it(system: System) -> None:
    assert kept(system) == {"serial": 0, "files": {}}
    assert write(system, "prod", 1, files(key="secret")) is True
    assert kept(system) == {"serial": 1, "files": files(key="secret")}
    folder = system.path("/var/lib/karmada-installer/prod")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert write(system, "prod", 1, files(key="secret")) is False


def test_the_next_state_replaces_all_of_the_one_before(system: System) -> None:
    write(system, "prod", 3, files(a="1", b="2"))
    write(system, "prod", 4, files(a="3"))
    assert kept(system) == {"serial": 4, "files": files(a="3")}


def test_a_check_run_writes_nothing(system: System) -> None:
    assert write(system, "prod", 1, files(a="1"), check=True) is True
    assert host_state.read_state(system, "prod")["serial"] == 0


@pytest.mark.parametrize("moment", ["new one half written", "old one aside", "new one in place, old one not yet gone"])
def test_a_kill_at_any_moment_leaves_one_whole_state(system: System, moment: str) -> None:
    write(system, "prod", 1, files(a="1"))
    parent = system.path("/var/lib/karmada-installer")
    if moment == "new one half written":
        (parent / ".prod.x1").mkdir()
        (parent / ".prod.x1" / "a").write_text("2")
    elif moment == "old one aside":
        (parent / ".prod.x1").mkdir()
        (parent / "prod").rename(parent / ".prod.before")
    else:
        (parent / ".prod.before").mkdir()
    host_state.recover(system, "prod")
    assert kept(system) == {"serial": 1, "files": files(a="1")}
    assert [path.name for path in parent.iterdir()] == ["prod"]


def test_a_full_disk_is_told_with_the_folder_and_the_state_before_stays(
    system: System, request: pytest.FixtureRequest
) -> None:
    write(system, "prod", 1, files(a="1"))
    request.getfixturevalue("full_disk")
    with pytest.raises(HostError, match="karmada-installer/prod cannot be written: No space left on device"):
        write(system, "prod", 2, files(a="2"))
    assert kept(system) == {"serial": 1, "files": files(a="1")}
    assert [path.name for path in system.path("/var/lib/karmada-installer").iterdir()] == ["prod"]


def test_a_state_without_its_serial_is_an_error_and_not_a_reason_to_begin_anew(system: System) -> None:
    write(system, "prod", 1, files(a="1"))
    system.path("/var/lib/karmada-installer/prod/serial").unlink()
    with pytest.raises(HostError, match="is damaged"):
        host_state.read_state(system, "prod")


def test_removing_one_instance_leaves_the_other(system: System) -> None:
    write(system, "prod", 1, files(a="1"))
    write(system, "test", 1, files(a="1"))
    assert host_state.remove_state(system, "prod", check=True) is True
    assert host_state.remove_state(system, "prod") is True
    assert host_state.remove_state(system, "prod") is False
    assert host_state.read_state(system, "test")["serial"] == 1
    host_state.remove_state(system, "test")
    assert not system.path("/var/lib/karmada-installer").exists()


class Facts(System):
    """A machine of files below a folder, on which some programs print what the test says."""

    def __init__(self, root: str, **printed: str) -> None:
        super().__init__(root)
        self.printed = printed

    def command(self, *arguments: str) -> str:
        if arguments[0] == "ip" and arguments[2] in self.printed:
            return self.printed[arguments[2]]
        raise HostError(f"{arguments[0]} cannot be run")


def test_facts_know_who_listens_and_which_addresses_are_ours(system: System) -> None:
    asked = time.time()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        silent = host_state.facts(system, "127.0.0.1", [])["listening"]
        listener.listen()
        found = host_state.facts(system, "127.0.0.1", ["/var/lib/karmada"])
    assert ("127.0.0.1", port) not in {(each["address"], each["port"]) for each in silent}
    (ours,) = [each for each in found["listening"] if (each["address"], each["port"]) == ("127.0.0.1", port)]
    assert ours["group"] == Path("/proc/self/cgroup").read_text().strip().rsplit(":", 1)[-1]
    assert found["has_address"] is True
    assert host_state.facts(system, "192.0.2.1", [])["has_address"] is False
    assert found["architecture"] == os.uname().machine
    assert found["free"]["/var/lib/karmada"] > 0
    assert found["devices"]["/var/lib/karmada"] == system.path("/").stat().st_dev
    assert found["systemd"] == 0
    assert asked <= found["time"] <= time.time()


def test_an_address_of_ipv6_is_read_as_it_is_written(system: System) -> None:
    with socket.socket(socket.AF_INET6) as listener:
        listener.bind(("::1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        found = host_state.facts(system, "::1", [])["listening"]
    assert "::1" in [each["address"] for each in found if each["port"] == port]


def test_facts_of_the_machine(tmp_path: Path) -> None:
    for path, content in {
        "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
        "proc/sys/kernel/random/boot_id": "3d2ab1a0-0000-4000-8000-000000000001\n",
        "proc/stat": "cpu  1 2 3\nbtime 1765000000\nprocesses 5\n",
        "proc/meminfo": "MemTotal:        2048 kB\nMemFree:  1 kB\n",
        "sys/fs/selinux/enforce": "1",
        "sys/kernel/security/apparmor/profiles": "/usr/sbin/haproxy (enforce)\nman_groff (complain)\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    found = host_state.facts(Facts(str(tmp_path)), "127.0.0.1", [])
    wanted = {
        "machine_id": "0123456789abcdef0123456789abcdef",
        "boot_id": "3d2ab1a0-0000-4000-8000-000000000001",
        "boot_time": 1765000000,
        "memory": 2048 * 1024,
        "selinux_enforcing": True,
        "apparmor_profiles": ["/usr/sbin/haproxy"],
    }
    assert {key: found[key] for key in wanted} == wanted


def test_facts_that_cannot_be_had_are_empty(tmp_path: Path) -> None:
    found = host_state.facts(Facts(str(tmp_path)), "", [], virtual_ip="192.0.2.9")
    empty = ("machine_id", "boot_id", "boot_time", "memory", "selinux_enforcing", "apparmor_profiles", "units")
    assert {key for key in empty if found[key]} == set()
    assert found["interface"] == found["virtual_ip_at"] == ""


_ADDRESSES = """[
 {"ifname": "lo", "address": "00:00:00:00:00:00", "addr_info": [{"local": "127.0.0.1", "prefixlen": 8}]},
 {"ifname": "eth0", "address": "02:00:00:00:00:01", "addr_info": [
   {"local": "192.0.2.1", "prefixlen": 24}, {"local": "2001:db8::1", "prefixlen": 64}]},
 {}
]"""


@pytest.mark.parametrize(
    ("address", "interface"), [("192.0.2.1", "eth0"), ("2001:DB8:0::1", "eth0"), ("192.0.2.2", ""), ("127.0.0.1", "lo")]
)
def test_facts_know_the_interface_of_an_address(tmp_path: Path, address: str, interface: str) -> None:
    found = host_state.facts(Facts(str(tmp_path), address=_ADDRESSES), address, [])
    assert found["interface"] == interface
    assert found["interfaces"][1] == {
        "name": "eth0",
        "mac": "02:00:00:00:00:01",
        "addresses": ["192.0.2.1/24", "2001:db8::1/64"],
    }


def test_without_iproute2_the_kernel_is_asked(tmp_path: Path) -> None:
    found = host_state.facts(Facts(str(tmp_path)), "127.0.0.1", [])
    (loopback,) = [each for each in found["interfaces"] if each["name"] == "lo"]
    assert "127.0.0.1/8" in loopback["addresses"]
    assert found["interface"] == "lo"


@pytest.mark.parametrize(
    ("answer", "holder"),
    [
        (
            '[{"dst": "127.0.0.9", "dev": "eth0", "lladdr": "02:00:00:00:00:07", "state": ["REACHABLE"]}]',
            "02:00:00:00:00:07",
        ),
        ('[{"dst": "127.0.0.9", "dev": "eth0", "state": ["FAILED"]}]', ""),
        ('[{"dst": "127.0.0.9", "dev": "eth0", "lladdr": "02:00:00:00:00:07", "state": ["STALE"]}]', ""),
        ("[]", ""),
        ("", ""),
    ],
)
def test_who_has_the_virtual_ip(tmp_path: Path, answer: str, holder: str) -> None:
    system = Facts(str(tmp_path), neighbour=answer)
    assert host_state.facts(system, "127.0.0.1", [], virtual_ip="127.0.0.9")["virtual_ip_at"] == holder


def test_who_has_the_virtual_ip_does_not_ask_for_it(tmp_path: Path) -> None:
    remembered = '[{"dst": "192.0.2.1", "dev": "eth0", "lladdr": "02:00:00:00:00:07", "state": ["REACHABLE"]}]'
    system = Facts(str(tmp_path), address=_ADDRESSES, neighbour=remembered)
    assert host_state.facts(system, "127.0.0.1", [], virtual_ip="192.0.2.1")["virtual_ip_at"] == ""


def test_units_with_names_like_ours_and_whose_they_are(system: System) -> None:
    folder = system.path("/etc/systemd/system")
    folder.mkdir(parents=True)
    (folder / "karmada-prod-etcd.service").write_text(
        "[Unit]\nDescription=etcd\nX-KarmadaOwner=1-2\n[Service]\nA=b=c\n"
    )
    (folder / "karmada-agent.service").write_text("[Unit]\n")
    (folder / "other.service").write_text("")
    assert host_state.facts(system, "127.0.0.1", [])["units"] == {
        "karmada-agent.service": {"owner": "", "description": ""},
        "karmada-prod-etcd.service": {"owner": "1-2", "description": "etcd"},
    }


def test_files_are_read_and_links_in_their_places_are_not(system: System, tmp_path: Path) -> None:
    """Root reads where users of components could once write."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "shadow").write_text("secret of the machine")
    folder = system.path("/etc/karmada/prod/etcd")
    (folder / "pki").mkdir(parents=True)
    (folder / "pki/ca.crt").write_text("ours")
    (folder / "etcd.yaml").symlink_to(outside / "shadow")
    (folder / "more").symlink_to(outside)
    os.mkfifo(folder / "waits")
    found = host_state.read_files(system, "/etc/karmada/prod")
    assert found == {"/etc/karmada/prod/etcd/pki/ca.crt": base64.b64encode(b"ours").decode()}
    assert host_state.read_files(system, "/etc/karmada/other") == {}
    system.path("/etc/karmada/other").symlink_to(outside)
    assert host_state.read_files(system, "/etc/karmada/other") == {}
