# SPDX-License-Identifier: Apache-2.0
"""The order of a backup on plain hosts, played with stand-ins for its steps: who is asked, when hosts are locked."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands

HOSTS = ("h1", "h2", "h3")
COLLECTION = ansible_commands.CHECKOUT / "collections/ansible_collections/karmada/installer"
#: Answers by name and state of a step: the next of the list each time, and the last one ever after.
STAND_IN = """\
import json, os
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        name = self._task.action.rpartition(".")[2]
        state = "locked" if self._task.args.get("lock") else self._task.args.get("state", "")
        step = (name + " " + state).strip()
        host = self._task.delegate_to or task_vars["inventory_hostname"]
        folder = os.environ["KARMADA_TEST"]
        with open(os.path.join(folder, "log"), "a") as log:
            log.write(json.dumps([step, host, self._task.args], default=str) + "\\n")
        with open(os.path.join(folder, "answers")) as file:
            answers = json.load(file).get(step, [{}])
        with open(os.path.join(folder, "log")) as log:
            before = [line for line in log if json.loads(line)[0] == step]
        answer = answers[min(len(before), len(answers)) - 1]
        return {**result, "changed": False, **answer}
"""
STEPS = ("backup", "etcd_member", "etcd_snapshot", "host_observe", "journal")
PLAY = """\
- hosts: all
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - ansible.builtin.import_role:
        name: karmada.installer.backup
        tasks_from: {tasks}
        rolespec_validate: false
"""
STORED = {"stored": True, "anew": False, "troubles": [], "changed": False}
MADE = {"stored": True, "anew": False, "troubles": [], "changed": True}
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "backup": [{"backups": [], "on_hosts": ["disk"], "troubles": []}],
    "backup begun": [{"sender": "h2", "witness": "h3"}],
    "etcd_snapshot": [{"file": "/cache/run-1/snapshot.db", "revision": 70, "acknowledged": 70}],
    "backup stored": [STORED],
    "backup recorded": [MADE],
    "backup listed": [{"backups": [{"name": "disk"}]}],
}


def played(
    folder: Path, code: int = 0, tasks: str = "main", *, grouped: bool = False, **answers: Any
) -> tuple[list[tuple[str, str, dict[str, Any]]], str]:
    """Steps in their order, each with its host and what it was given, and the output.

    ``grouped``: the hosts are in the group that the inventory has for plain hosts.
    """
    collection = folder / "ansible_collections/karmada/installer"
    (collection / "plugins/action").mkdir(parents=True)
    for name in STEPS:
        (collection / f"plugins/action/{name}.py").write_text(STAND_IN)
    (collection / "roles").symlink_to(COLLECTION / "roles")
    (folder / "play.yml").write_text(PLAY.format(tasks=tasks))
    (folder / "answers").write_text(json.dumps({**ANSWERS, **{k.replace("_", " "): v for k, v in answers.items()}}))
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    hosts = {"karmada_control": {}} | {name: {"karmada_host": {"name": name}} for name in HOSTS}
    groups = {"karmada_hosts": {"hosts": {key: {} for key in HOSTS}}} if grouped else {}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": here}, **groups}))
    done = ansible_commands.run(
        *("ansible-playbook", "-i", "hosts.json", "play.yml"),
        directory=folder,
        collection=False,
        KARMADA_TEST=str(folder),
    )
    assert done.returncode == code, done.stdout + done.stderr
    steps = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    return [tuple(each) for each in steps], done.stdout


def order(steps: list[tuple[str, str, dict[str, Any]]]) -> list[str]:
    """Names of the steps, those that all hosts do at once by one name."""
    names = [step for step, _host, _given in steps]
    return [name for number, name in enumerate(names) if number == 0 or names[number - 1] != name]


ONE = [
    *("etcd_member", "host_observe locked", "backup begun", "journal written", "etcd_snapshot", "etcd_member hashed"),
    *("journal released", "backup stored"),
]
RECORDED = ["host_observe locked", "backup recorded"]


def test_hosts_are_locked_while_a_member_sends_and_to_write_the_record(tmp_path: Path) -> None:
    steps, _ = played(tmp_path)
    assert order(steps) == ["backup", *ONE, *RECORDED, "journal written", "journal released", "backup listed"]
    done = {step: [host for name, host, _given in steps if name == step] for step, _host, _given in steps}
    # one host sends, another proves, and all are locked
    assert (done["etcd_snapshot"], done["etcd_member hashed"]) == (["h2"], ["h3"])
    assert sorted(done["host_observe locked"]) == sorted(2 * HOSTS)
    assert sorted(done["journal written"]) == sorted(2 * HOSTS)
    given = {name: told for name, _host, told in steps}
    assert given["etcd_member hashed"]["revision"] == 70
    assert given["backup recorded"]["snapshot"]["file"] == "/cache/run-1/snapshot.db"
    assert (given["backup stored"]["now"], given["backup stored"]["last"]) == ("disk", False)
    assert (given["backup begun"]["at_once"], given["backup stored"]["at_once"]) == (False, False)


def test_where_none_is_due_no_host_is_asked(tmp_path: Path) -> None:
    steps, _ = played(tmp_path, backup=[{"backups": []}])
    assert order(steps) == ["backup"]


@pytest.mark.parametrize("late", [False, True], ids=["before it is stored", "before it is recorded"])
def test_it_is_begun_anew_once_and_then_it_is_the_last_time(tmp_path: Path, late: bool) -> None:
    anew = {"stored": False, "anew": True, "troubles": [], "changed": False}
    if late:
        steps, _ = played(tmp_path, backup_recorded=[anew, MADE])
        first = [*ONE, *RECORDED, "journal released"]
    else:
        steps, _ = played(tmp_path, backup_stored=[anew, STORED])
        first = ONE
    assert order(steps) == ["backup", *first, *ONE, *RECORDED, "journal written", "journal released", "backup listed"]
    assert [told["last"] for name, _host, told in steps if name == "backup stored"] == [False, True]


def test_the_failure_of_one_keeps_no_other_from_its_work_and_the_run_fails(tmp_path: Path) -> None:
    due = {"backups": [], "on_hosts": ["disk", "share"], "troubles": ["the bucket is away"]}
    trouble = {"stored": False, "anew": False, "troubles": ["no room"], "changed": False}
    steps, said = played(tmp_path, code=2, backup=[due], backup_stored=[trouble, STORED])
    assert [told["now"] for name, _host, told in steps if name == "backup stored"] == ["disk", "share"]
    assert [told["now"] for name, _host, told in steps if name == "backup recorded"] == ["share"]
    assert "the bucket is away; no room" in said


def hosts_of(steps: list[tuple[str, str, dict[str, Any]]], *names: str) -> set[str]:
    return {host for name, host, _given in steps if name in names}


OPENING = ("backup", "backup stored", "backup recorded", "backup listed")


def test_what_opens_a_target_is_done_by_the_connection_of_the_host_that_has_the_backups(tmp_path: Path) -> None:
    steps, _ = played(tmp_path, grouped=True, backup_placed=[{"host": "h1"}])
    assert order(steps)[0] == "backup placed"
    assert [name for name, _host, _given in steps].count("backup placed") == 1
    assert hosts_of(steps, *OPENING) == {"h1"}
    assert hosts_of(steps, "backup placed", "backup begun") == {"karmada_control"}


@pytest.mark.parametrize("placed", [{"host": ""}, {}], ids=["nowhere", "untold"])
def test_where_no_host_has_them_nothing_is_delegated(tmp_path: Path, placed: dict[str, str]) -> None:
    steps, _ = played(tmp_path, grouped=True, backup_placed=[placed])
    assert hosts_of(steps, "backup placed", "backup begun", *OPENING) == {"karmada_control"}


@pytest.mark.parametrize(("tasks", "state"), [("list", "listed"), ("verify", "verified"), ("drill", "drilled")])
def test_whoever_reads_backups_is_delegated_to_their_host(tmp_path: Path, tasks: str, state: str) -> None:
    told = {"backup_drilled": [{"drilled": []}], "backup_placed": [{"host": "h3"}]}
    steps, _ = played(tmp_path, tasks=tasks, grouped=True, **told)
    assert [(name, host) for name, host, _given in steps] == [
        ("backup placed", "karmada_control"),
        (f"backup {state}", "h3"),
    ]
