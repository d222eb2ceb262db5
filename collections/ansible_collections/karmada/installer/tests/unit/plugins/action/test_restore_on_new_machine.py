# SPDX-License-Identifier: Apache-2.0
"""A machine that is new under the name of a lost host gets the data of its member like others, and no etcd before."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_lock, host_snapshot
from ansible_collections.karmada.installer.plugins.module_utils.host_system import UNIT_FOLDER
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.tools import ETCDUTL
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.plugins.module_utils import test_host_restore as snapshots
from ansible_collections.karmada.installer.tests.unit.support.host_tree import Host
from ansible_collections.karmada.installer.tests.unit.support.restore_hosts_in_memory import FORMER, MEMBERS
from ansible_collections.karmada.installer.tests.unit.support.restore_steps import HOLDER, performed
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered, seen

JOURNAL = RestoreState(
    *("back", "nightly", "prod-20261125t020000z-1f3a9c", "2026-11-25T02:00:00+00:00", "0d6c2a35", 2, 10**9, FORMER),
    members=MEMBERS,
)


class NewMachine:
    """A host on which nothing is but the program that a run has sent, and the lock of that run."""

    def __init__(self, folder: Path) -> None:
        self.host, self.runs = Host(folder / "etcd1"), Runs(folder / "run")
        stored = Stored().after(replace(remembered(etcd=FORMER), restore=JOURNAL), on_hosts=False)
        self.runs.see_all(seen(stored))
        self.runs.see(etcd1=seen(Stored()))
        run = self.runs.step(holder=HOLDER)
        self.user = units.user_name(run.instance, ETCD)
        self.host.path("/var/lib").mkdir(parents=True)
        program = self.host.path(units.program(run.instance, ETCDUTL))
        program.parent.mkdir(parents=True)
        program.write_text(snapshots.ETCDUTL)
        program.chmod(0o755)
        host_lock.take(self.host, "prod", HOLDER)
        self.sent = folder / "snapshot.db"
        self.sent.write_bytes(snapshots.SNAPSHOT)

    def made(self) -> dict[str, Any]:
        """Result of the step that makes the data."""
        digest = hashlib.sha256(snapshots.SNAPSHOT).hexdigest()
        snapshot = {"file": str(self.sent), "size": len(snapshots.SNAPSHOT), "digest": digest}
        return performed(self.runs, self.host, "etcd1", "made", snapshot=snapshot)


@pytest.fixture
def machine(tmp_path: Path) -> NewMachine:
    return NewMachine(tmp_path)


def test_it_gets_the_user_and_the_folders_of_etcd_and_then_the_data(machine: NewMachine) -> None:
    found = machine.made()
    assert found.get("msg") is None
    assert found["changes"][0] == f"create user {machine.user}"
    assert found["changes"][-1] == "created /var/lib/karmada/prod/etcd/gen-2"
    data = machine.host.path("/var/lib/karmada/prod/etcd/gen-2")
    assert (data / "member/wal/0").read_bytes() == snapshots.SNAPSHOT
    assert data.parent.stat().st_mode & 0o777 == 0o700
    assert machine.runs.handover.observed("etcd1").restore["made"] == 2
    assert not machine.host.path(host_snapshot.FOLDER).exists()


def test_no_etcd_starts_there_that_would_have_no_data(machine: NewMachine) -> None:
    assert machine.made()["changed"]
    assert machine.host.running == {}
    assert list(machine.host.path(UNIT_FOLDER).iterdir()) == []
    assert [each.name for each in machine.host.path("/etc/karmada/prod").rglob("*.yaml")] == []


def test_a_user_of_somebody_else_under_that_name_is_told_and_gets_nothing(machine: NewMachine) -> None:
    machine.host.users[machine.user] = "somebody"
    assert f"user {machine.user} exists and is not of this control plane" in machine.made()["msg"]
    assert not machine.host.path("/var/lib/karmada").exists()
    assert not machine.host.path(host_snapshot.FOLDER).exists()
