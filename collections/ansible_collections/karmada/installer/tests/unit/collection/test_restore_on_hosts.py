# SPDX-License-Identifier: Apache-2.0
"""The order of a restore on plain hosts, played with stand-ins for its steps: what is done where, and what ends it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.in_pods import InPods
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.on_hosts import OnHosts
from ansible_collections.karmada.installer.tests.unit.collection.test_backup_on_hosts import STAND_IN
from ansible_collections.karmada.installer.tests.unit.collection.test_backup_on_hosts import order as order_of
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands

HOSTS = ("h1", "h2")
COLLECTION = ansible_commands.CHECKOUT / "collections/ansible_collections/karmada/installer"
STEPS = (
    *("backup", "etcd_member", "etcd_snapshot", "host_components", "host_observe", "host_programs", "journal"),
    *("programs", "restore", "restore_on_host"),
    *("admin_kubeconfig", "control_plane", "workloads"),
)
PLAY = """\
- hosts: all
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - ansible.builtin.import_role:
        name: karmada.installer.restore
        tasks_from: {entry}
        rolespec_validate: false
"""
LOOK = ["journal kept", "etcd_member", "restore_on_host seen"]
DECIDE = [*LOOK, "restore next"]
AT_END = [*LOOK, "restore next"]


def step(name: str, tasks: str = "", **more: Any) -> dict[str, Any]:
    return {
        "step": name,
        "tasks": tasks,
        "components": ["karmada-scheduler"],
        "series": "disk",
        "changed": True,
        **more,
    }


END: dict[str, Any] = {"step": "", "tasks": ""}
SNAPSHOT = {"file": "/cache/run-1/snapshot.db", "size": 9, "digest": "d"}


def played(
    folder: Path, *steps: dict[str, Any], code: int = 0, entry: str = "main", in_pods: bool = False, **answers: Any
) -> list[tuple[str, str, dict[str, Any]]]:
    """Steps in their order, each with its host and what it was given."""
    collection = folder / "ansible_collections/karmada/installer"
    (collection / "plugins/action").mkdir(parents=True)
    for name in STEPS:
        (collection / f"plugins/action/{name}.py").write_text(STAND_IN)
    (collection / "roles").symlink_to(COLLECTION / "roles")
    (folder / "play.yml").write_text(PLAY.format(entry=entry))
    told = {
        "restore next": [*steps, END],
        "restore noted": [{"again": False}],
        "restore delivered": [{"snapshot": SNAPSHOT}],
        "programs looked_for": [{"turns": [], "lacking": {}}],
        **{name.replace("__", " "): value for name, value in answers.items()},
    }
    (folder / "answers").write_text(json.dumps(told))
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    hosts: dict[str, Any] = (
        {"karmada_control": {}}
        if in_pods
        else {"karmada_control": {}} | {name: {"karmada_host": {"name": name}} for name in HOSTS}
    )
    inventory = {
        "all": {"hosts": hosts, "vars": here},
        **({} if in_pods else {"karmada_on_hosts": {"hosts": {key: {} for key in hosts}}}),
        "karmada_hosts": {"hosts": {} if in_pods else {key: {} for key in HOSTS}},
    }
    (folder / "hosts.json").write_text(json.dumps(inventory))
    done = ansible_commands.run(
        *("ansible-playbook", "-i", "hosts.json", "play.yml"),
        directory=folder,
        collection=False,
        KARMADA_TEST=str(folder),
    )
    assert done.returncode == code, done.stdout + done.stderr
    return [tuple(json.loads(line)) for line in (folder / "log").read_text().splitlines()]


def after_begin(steps: list[tuple[str, str, dict[str, Any]]]) -> list[str]:
    names = order_of(steps)
    assert names[: len(LOOK) + 1] == [*LOOK, "restore begun"]
    return names[len(LOOK) + 1 :]


def test_there_are_tasks_for_each_step_that_leaves_some() -> None:
    there = {each.stem for each in (COLLECTION / "roles/restore/tasks/on_hosts").glob("*.yml")}
    assert set(OnHosts.tasks.values()) - {"stages"} == there - {"look"}
    assert set(InPods.tasks.values()) == {"stages"}


def test_what_needs_no_host_is_written_to_each_and_that_is_all(tmp_path: Path) -> None:
    steps = played(tmp_path, step("Close"))
    assert after_begin(steps) == [*DECIDE, "journal written", *AT_END]
    hosts = {host for name, host, _given in steps if name in ("journal written", "restore_on_host seen")}
    assert hosts == set(HOSTS)
    assert {host for name, host, _given in steps if name.startswith("restore ")} == {"karmada_control"}


def test_it_is_on_every_host_before_anything_stops_there(tmp_path: Path) -> None:
    steps = played(tmp_path, step("StopWriters", "stopped"))
    expected = [*DECIDE, "journal written", "host_components", *LOOK, "restore noted", *AT_END]
    assert after_begin(steps) == expected
    (stopped, *_others) = [given for name, _host, given in steps if name == "host_components"]
    assert stopped == {"components": ["karmada-scheduler"], "restart": False, "wait_for": "none"}
    (noted,) = [given for name, _host, given in steps if name == "restore noted"]
    assert (noted["step"], noted["backup"], noted["troubles"]) == ("StopWriters", "", [])


def test_the_snapshot_is_deleted_here_whatever_comes_of_it(tmp_path: Path) -> None:
    sent = ["programs looked_for", "journal written", "host_programs", "restore delivered", "restore_on_host made"]
    steps = played(tmp_path, step("Prepare", "prepared"))
    begin = [*DECIDE, "journal written", *sent, "restore forgotten"]
    assert after_begin(steps) == [*begin, "restore noted", *AT_END]
    given = {name: told for name, _host, told in steps}
    assert given["restore_on_host made"]["snapshot"] == given["restore forgotten"]["snapshot"] == SNAPSHOT
    again = tmp_path / "again"
    again.mkdir()
    broken = {"restore_on_host__made": [{"failed": True, "msg": "no room"}]}
    steps = played(again, step("Prepare", "prepared"), code=2, **broken)
    assert after_begin(steps) == begin


def test_what_is_there_is_backed_up_while_the_hosts_stay_locked(tmp_path: Path) -> None:
    stored = {"stored": True, "anew": False, "troubles": [], "changed": False}
    steps = played(
        tmp_path,
        step("BackUp", "backed_up"),
        backup__begun=[{"sender": "h1", "witness": "h2"}],
        etcd_snapshot=[{"file": "/cache/run-2/snapshot.db", "revision": 70}],
        backup__stored=[stored],
        backup__recorded=[{**stored, "changed": True, "name": "prod-b"}],
    )
    names = after_begin(steps)
    assert "host_observe" not in " ".join(names)
    assert "journal released" not in names
    (noted,) = [given for name, _host, given in steps if name == "restore noted"]
    assert (noted["backup"], noted["troubles"]) == ("prod-b", [])
    (asked,) = [given for name, _host, given in steps if name == "backup stored"]
    assert (asked["now"], asked["at_once"]) == ("disk", True)


def test_a_backup_that_fails_is_told_to_who_decides(tmp_path: Path) -> None:
    steps = played(
        tmp_path,
        step("BackUp", "backed_up"),
        backup__begun=[{"sender": "h1", "witness": "h2"}],
        etcd_snapshot=[{"file": "/cache/run-2/snapshot.db", "revision": 70}],
        backup__stored=[{"stored": False, "anew": False, "troubles": ["it is full"], "changed": False}],
    )
    (noted,) = [given for name, _host, given in steps if name == "restore noted"]
    assert (noted["backup"], noted["troubles"]) == ("", ["it is full"])


def test_members_are_asked_again_until_they_agree(tmp_path: Path) -> None:
    prove = step("Prove", "counted")
    steps = played(tmp_path, prove, prove, restore__noted=[{"again": True}, {"again": False}])
    once = [*DECIDE, "journal written", "restore_on_host counted", "restore noted"]
    assert after_begin(steps) == [*once, *once, *AT_END]
    assert [given["last"] for name, _host, given in steps if name == "restore noted"] == [False, False]


@pytest.mark.parametrize(("entry", "goal"), [("release", "release"), ("undo", "undo")])
def test_members_of_etcd_start_together_and_are_put_on_record(tmp_path: Path, entry: str, goal: str) -> None:
    steps = played(tmp_path, step("StartFormer", "etcd_started"), entry=entry)
    rest = ["host_components", "etcd_member", "journal noted", "journal written", "host_components", "restore noted"]
    assert order_of(steps) == [*DECIDE, "journal written", *rest, *AT_END]
    assert {given["goal"] for name, _host, given in steps if name == "restore next"} == {goal}


def test_in_pods_no_host_is_asked_and_the_stages_are_taken(tmp_path: Path) -> None:
    steps = played(tmp_path, step("Close"), step("StartServers", "stages"), in_pods=True)
    assert {host for _name, host, _given in steps} == {"karmada_control"}
    names = order_of(steps)
    assert names[:2] == ["restore begun", "restore next"]
    assert names[2] == "workloads", "the API server"
    assert names[-2:] == ["restore noted", "restore next"]
    assert not {"journal written", "host_components", "restore_on_host seen"} & set(names)
    assert [given["step"] for name, _host, given in steps if name == "restore noted"] == ["StartServers"]
