# SPDX-License-Identifier: Apache-2.0
"""Commands are measured, and do not outlive the benchmark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from karmada_bench import command
from karmada_bench.command import BenchError, Ran, Runner, busy_share, resident, start_time, stop_left_over


@pytest.fixture
def runner(tmp_path):
    return Runner(tmp_path / "running.json", tmp_path / "logs", {"PATH": os.environ["PATH"]})


def test_what_a_command_does_is_kept(runner, tmp_path):
    found = runner.run("one", ["sh", "-c", "echo $WHAT; echo aside >&2"], settings={"WHAT": "said"})
    assert (found.code, found.output) == (0, "said\naside\n")
    assert (tmp_path / "logs/one.log").read_text() == found.output
    assert not runner.note.exists()


def test_memory_is_that_of_all_processes_together():
    # In one write, so that the lines of both stay apart.
    hold = 'import os; kept = bytearray(40 * 2**20); os.write(1, b"held\\n"); input()'
    both = f"'{sys.executable}' -c '{hold}' <&3 & '{sys.executable}' -c '{hold}' <&3; wait"
    with subprocess.Popen(
        ["sh", "-c", f"exec 3<&0; {both}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert [running.stdout.readline() for _ in range(2)] == ["held\n"] * 2
        assert resident(running.pid) > 80 * 2**20
        running.communicate("\n\n")
    assert running.returncode == 0


BURN = f"'{sys.executable}' -c 'import time\nwhile time.process_time() < 0.5: pass'"


def test_the_time_of_processors_is_that_of_children_too(runner):
    found = runner.run("burn", ["sh", "-c", f"{BURN} & {BURN}; wait"])
    assert found.cpu_seconds >= 1
    assert found.seconds > 0
    assert runner.run("idle", ["sleep", "0.1"]).cpu_seconds < 0.5


def test_what_has_lost_its_parent_counts_when_it_has_ended(runner, tmp_path):
    begun = f'(setsid sh -c "{BURN}; touch {tmp_path}/over" &)'
    found = runner.run("orphan", ["sh", "-c", f"{begun}; until test -e {tmp_path}/over; do sleep 0.05; done"])
    assert found.cpu_seconds >= 0.5


def test_what_outlives_a_command_counts_until_then_and_is_left_alone(runner, tmp_path):
    number = tmp_path / "number"
    begun = f'(setsid sh -c "{BURN}; echo \\$\\$ >{number}.new; mv {number}.new {number}; exec sleep 300" &)'
    found = runner.run("daemon", ["sh", "-c", f"{begun}; until test -e {number}; do sleep 0.05; done"])
    left = int(number.read_text())
    try:
        assert found.cpu_seconds >= 0.5
        assert start_time(left) is not None
    finally:
        os.kill(left, signal.SIGKILL)


def test_two_commands_count_as_one():
    one, two = Ran(1, 0, "a", 30, 2), Ran(10, 3, "b", 20, 20)
    assert one.then(two) == Ran(11, 3, "ab", 30, 22)


def test_the_busy_share_is_what_was_not_idle():
    assert busy_share((100, 1000), (150, 1200)) == 0.75
    assert busy_share((0, 0), (0, 0)) == 1


def test_the_most_memory_of_a_command_is_kept(runner, tmp_path, monkeypatch):
    looked = tmp_path / "looked"

    def look(pid):
        found = resident(pid)
        if found:
            looked.touch()
        return found

    monkeypatch.setattr(command, "resident", look)
    assert runner.run("two", ["sh", "-c", f"until test -e {looked}; do sleep 0.05; done"]).mebibytes > 0


def test_another_exit_code_is_an_error_that_names_the_log(runner):
    with pytest.raises(BenchError, match=r"three ended with 3; see .*/three\.log"):
        runner.run("three", ["sh", "-c", "exit 3"])
    assert runner.run("three", ["sh", "-c", "exit 3"], codes=None).code == 3


def test_a_command_that_does_not_end_is_killed_with_what_it_started(runner, tmp_path, monkeypatch):
    number = tmp_path / "number"
    wait = subprocess.Popen.wait

    def wait_until_begun(process, timeout=None):
        if timeout is None:
            return wait(process)
        while not number.exists():
            time.sleep(0.05)
        raise subprocess.TimeoutExpired("four", timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_until_begun)
    write = f"echo $$ >{number}.new; mv {number}.new {number}"
    with pytest.raises(BenchError, match="did not end within 60 s"):
        runner.run("four", ["sh", "-c", f"setsid sh -c '{write}; sleep 300' & sleep 300"], timeout=60)
    # It is killed, and gone a moment later; a test that hangs here has found that it lives on.
    while start_time(int(number.read_text())) is not None:
        time.sleep(0.05)


def test_what_a_killed_run_left_running_is_stopped(tmp_path):
    note = tmp_path / "running.json"
    with subprocess.Popen(["sleep", "300"]) as left:
        note.write_text(json.dumps({"pid": left.pid, "started": start_time(left.pid)}))
        assert stop_left_over(note)
        assert left.wait(300) == -9
    assert not note.exists()
    assert not stop_left_over(note)


def test_a_process_that_only_has_the_same_number_is_left_alone(tmp_path):
    note = tmp_path / "running.json"
    with subprocess.Popen(["sleep", "300"]) as other:
        note.write_text(json.dumps({"pid": other.pid, "started": 1}))
        assert not stop_left_over(note)
        time.sleep(0.1)
        assert other.poll() is None
        other.kill()
    assert not Path(note).exists()
