# SPDX-License-Identifier: Apache-2.0
"""A host that answers without end is given up and named, and fills no memory; connections are Ansible's own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.action import journal
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_access, host_action, host_bounds
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_bounds import AnswerUnboundedError
from ansible_collections.karmada.installer.tests.unit.plugins.module_utils.test_host_lock_asked import Asking
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import HOSTS, Runs, deployment


class Connection:
    """Connection that runs a program here, and reads what it prints to its end, as ssh's does."""

    def __init__(self) -> None:
        self.began = 0

    def exec_command(self, command: str) -> tuple[int, bytes, bytes]:
        self.began += 1
        done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def put_file(self, command: str) -> None:
        self.exec_command(command)


def refusal(connection: Connection, command: str, method: str = "exec_command") -> str:
    begun = time.monotonic()
    with pytest.raises(AnswerUnboundedError) as refused:
        getattr(connection, method)(command)
    assert time.monotonic() - begun < 30
    return str(refused.value)


def test_an_answer_within_its_bounds_is_as_it_was() -> None:
    connection = Connection()
    host_bounds.of(connection)
    assert connection.exec_command("echo out; echo err >&2; exit 3") == (3, b"out\n", b"err\n")


@pytest.mark.parametrize("where", ["", " >&2"])
@pytest.mark.parametrize("method", ["exec_command", "put_file"])
def test_what_has_no_end_is_not_read_to_its_end(where: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_bounds, "MOST_GROWTH", 32 << 20)
    connection = Connection()
    host_bounds.of(connection)
    # In a process of a process: what holds the pipe open is not what was started.
    assert refusal(connection, f"sh -c 'yes{where}'; true", method) == "it answered more than 32 MiB"


def test_what_is_larger_than_an_answer_can_be_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_bounds, "MOST_BYTES", 1 << 20)
    connection = Connection()
    host_bounds.of(connection)
    assert refusal(connection, "head -c 1048577 /dev/zero") == "it answered more than 1 MiB"
    assert len(connection.exec_command("head -c 1048576 /dev/zero")[1]) == 1 << 20


def test_silence_has_an_end_too() -> None:
    connection = Connection()
    bounds = host_bounds.of(connection)
    with bounds.lasting(0.5):
        assert refusal(connection, "sleep 60; true") == "it did not end its answer within 0 s"
    assert bounds.seconds == host_bounds.LOOK_SECONDS


def test_a_file_may_take_long_to_send() -> None:
    connection = Connection()
    with host_bounds.of(connection).lasting(0.2):
        connection.put_file("sleep 0.6")


def test_programs_that_ran_before_go_on() -> None:
    connection = Connection()
    bounds = host_bounds.of(connection)
    with subprocess.Popen(["sleep", "60"]) as other:
        with bounds.lasting(0.3):
            refusal(connection, "sleep 60")
        assert other.poll() is None
        other.kill()


def test_a_connection_that_is_used_again_is_bounded_once() -> None:
    connection: Any = SimpleNamespace(exec_command=lambda _: (0, b"", b""))
    first = host_bounds.of(connection)
    bounded = connection.exec_command
    assert host_bounds.of(connection) is first
    assert connection.exec_command is bounded


@pytest.mark.parametrize("module", ["_host_state", *host_action.CHANGING_MODULES, "_host_log"])
def test_a_step_has_the_time_that_it_may_need(tmp_path: Path, module: str) -> None:
    asking, seconds = Asking(journal.OnHost, Runs(tmp_path / "run")), []
    execute = asking.action._execute_module
    asking.action._bounds = host_bounds.Bounds(None)

    def executed(**asked: Any) -> Any:
        seconds.append(asking.action._bounds.seconds)
        return execute(**asked)

    asking.action._execute_module = executed
    asking.action.on_host(module, state="kept", texts=[])
    changes = module in host_action.CHANGING_MODULES
    assert seconds == [host_bounds.CHANGE_SECONDS if changes else host_bounds.LOOK_SECONDS]


@pytest.mark.parametrize("said", ["it answered more than 32 MiB", "it did not end its answer within 300 s"])
def test_preflight_names_it_with_what_to_do(said: str) -> None:
    problem = host_access.problem(f"cp1: {said}; nothing of that is used", host="cp1", address="192.0.2.1")
    assert problem.reason is Reason.HOST_STEP_FAILED
    assert problem.where == "host cp1 (192.0.2.1)"
    assert said.split()[-2] in problem.what
    assert problem.remedy


#: Each host says whether it was looked at, and the run goes on.
TASKS = [
    {"name": "Look", "karmada.installer.host_observe": {}, "register": "seen"},
    {"name": "Say", "ansible.builtin.debug": {"msg": "SEEN {{ inventory_hostname }} {{ seen.reached }}"}},
]
#: Runs a program that may have 3 GiB of addresses, as each of its processes may.
LIMITED = """\
import os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("kind", ["ssh", "local"])
def test_ansible_itself_reads_no_answer_without_end(tmp_path: Path, kind: str) -> None:
    """One host prints for ever in the place of its Python."""
    (tmp_path / "prod.yaml").write_text(yaml.safe_dump(deployment()))
    (tmp_path / "site.karmada.yml").write_text("plugin: karmada.installer.karmada\nmanifest: prod.yaml\n")
    programs = {"liar": "cat >/dev/null\nexec yes endless", "ssh": 'for last; do :; done\nexec sh -c "$last"'}
    for name, content in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{content}\n")
        (tmp_path / name).chmod(0o755)
    here = {"ansible_connection": kind, "ansible_ssh_executable": str(tmp_path / "ssh"), "ansible_become": False}
    mine = {host["name"]: {**here, "ansible_python_interpreter": sys.executable} for host in HOSTS}
    mine["cp2"]["ansible_python_interpreter"] = str(tmp_path / "liar")
    (tmp_path / "mine.yml").write_text(yaml.safe_dump({"karmada_hosts": {"hosts": mine}}))
    play = {"hosts": "karmada_hosts", "strategy": "linear", "gather_facts": False, "tasks": TASKS}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    playbook = str(Path(sys.executable).with_name("ansible-playbook"))
    inventories = ("-i", "site.karmada.yml", "-i", "mine.yml", "--limit", "cp1,cp2")
    done = ansible_commands.run("python3", "-c", LIMITED, playbook, *inventories, "play.yml", directory=tmp_path)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "SEEN cp1 True" in output
    assert "SEEN cp2 False" in output
    assert "MemoryError" not in output
