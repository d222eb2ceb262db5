# SPDX-License-Identifier: Apache-2.0
"""Addresses that never collide, records that survive a crash, a lock that dies with its holder."""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from karmada_lab import state
from karmada_lab.errors import LabError
from karmada_lab.machine import is_alive, start_ticks
from karmada_lab.state import Lab, MachineRecord


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("KARMADA_LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("KARMADA_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KARMADA_LAB_SUBNET", raising=False)
    return Lab.from_environment()


def test_address_ranges_do_not_overlap(lab):
    clusters = range(state.MAX_CLUSTERS)
    ranges = [
        *(lab.service_range(index) for index in clusters),
        *(lab.cluster_pod_range(index) for index in clusters),
        lab.bridge_network,
    ]
    assert all(not one.overlaps(other) for one, other in itertools.combinations(ranges, 2))
    assert all(part.subnet_of(lab.subnet) for part in ranges)
    ranges6 = [
        *(lab.service_range6(index) for index in clusters),
        *(lab.cluster_pod_range6(index) for index in clusters),
        lab.bridge_network6,
    ]
    assert all(not one.overlaps(other) for one, other in itertools.combinations(ranges6, 2))
    assert all(part.subnet_of(lab.subnet6) for part in ranges6)
    assert lab.subnet6.subnet_of(ipaddress.IPv6Network("fd00::/8"))


def test_load_balancers_are_on_the_bridge_and_are_no_machines(lab):
    ranges = [lab.load_balancer_range(index) for index in range(state.MAX_CLUSTERS)]
    assert all(part.subnet_of(lab.bridge_network) for part in ranges)
    machines = {ipaddress.IPv4Address(lab.machine_address(index)) for index in range(200)}
    assert not any(address in part for address in machines for part in ranges)
    ranges6 = [lab.load_balancer_range6(index) for index in range(state.MAX_CLUSTERS)]
    assert all(part.subnet_of(lab.bridge_network6) for part in ranges6)
    machines6 = {ipaddress.IPv6Address(lab.machine_address6(index)) for index in range(200)}
    assert not any(address in part for address in machines6 for part in ranges6)


def test_node_ranges_are_parts_of_their_cluster(lab):
    for node in range(state.MAX_NODES):
        assert lab.node_pod_range(5, node).subnet_of(lab.cluster_pod_range(5))
        assert lab.node_pod_range6(5, node).subnet_of(lab.cluster_pod_range6(5))


def test_two_state_folders_are_two_labs(monkeypatch):
    monkeypatch.delenv("KARMADA_LAB_SUBNET", raising=False)
    monkeypatch.delenv("KARMADA_LAB_STATE", raising=False)
    default = Lab.from_environment()
    monkeypatch.setenv("KARMADA_LAB_STATE", "/tmp/other")
    other = Lab.from_environment()
    assert default.id != other.id
    assert not default.subnet.overlaps(other.subnet)
    assert not default.subnet6.overlaps(other.subnet6)
    assert len(f"{other.id}-199") <= 15  # the kernel's limit for an interface name


@pytest.mark.parametrize("subnet", ["10.60.0.0/24", "nonsense", "10.60.1.0/16"])
def test_a_wrong_subnet_is_refused_by_name(monkeypatch, subnet):
    monkeypatch.setenv("KARMADA_LAB_SUBNET", subnet)
    with pytest.raises(LabError, match="KARMADA_LAB_SUBNET"):
        Lab.from_environment()


def test_a_record_cut_off_by_a_crash_is_no_record(lab):
    state.save(lab, MachineRecord("good", 0, "10.0.0.1", "host"))
    torn = lab.machines / "torn" / "record.json"
    torn.parent.mkdir()
    torn.write_text('{"name": "torn", "ind')
    assert list(state.machine_records(lab)) == ["good"]


def test_free_index_fills_gaps_and_has_an_end():
    assert state.free_index({0, 1, 3}, 5, "things") == 2
    with pytest.raises(LabError, match="room for 2 things"):
        state.free_index({0, 1}, 2, "things")


def test_the_lock_is_released_when_its_holder_is_killed(tmp_path):
    lock = tmp_path / "lock"
    program = (
        "import sys, time; from pathlib import Path; from karmada_lab.state import exclusive\n"
        "with exclusive(Path(sys.argv[1]), 'x'):\n print('held', flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(state.__file__).parent.parent)}
    with subprocess.Popen(
        [sys.executable, "-c", program, lock], stdout=subprocess.PIPE, text=True, env=environment
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.kill()
    # A test that hangs here has found that it is held for ever.
    with state.exclusive(lock, "the lock"):
        assert lock.read_text() == f"{os.getpid()}\n"


def test_a_removed_lock_file_does_not_admit_two(tmp_path):
    lock = tmp_path / "lock"
    with state.exclusive(lock, "x"):
        lock.unlink()
    with state.exclusive(lock, "x"):
        assert lock.exists()


def test_a_reused_process_id_is_not_our_machine():
    ours = MachineRecord("m", 0, "10.0.0.1", "host", pid=os.getpid(), started=start_ticks(os.getpid()))
    assert is_alive(ours)
    ours.started += 1
    assert not is_alive(ours)
    assert not is_alive(MachineRecord("m", 0, "10.0.0.1", "host"))


def test_files_are_replaced_with_their_mode(tmp_path):
    path = tmp_path / "secret.json"
    path.write_text("old")
    state.write_text(path, json.dumps({}), 0o600)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
