# SPDX-License-Identifier: Apache-2.0
"""The judge of many objects at once notices what is lost, doubled, unfair or too much."""

from __future__ import annotations

import importlib.util
import json
from datetime import UTC, datetime
from pathlib import Path

_FILE = Path(__file__).resolve().parents[2] / "operator_many" / "together.py"
_SPEC = importlib.util.spec_from_file_location("together", _FILE)
together = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(together)


def said(at, message, name, run):
    time = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": time, "message": message, "object": f"KarmadaDeployment {name}", "run": run})


def run(name, began, ended, outcome="succeeded"):
    identity = f"{name}-{began}"
    return [
        said(began, "starts karmada.installer.install: it is new", name, identity),
        said(ended, f"run ended: {outcome}, 9 changed, 1.0 s", name, identity),
    ]


def judged(*runs, objects=("a/1", "b/2", "a/3"), most=2, last="a/3"):
    lines = ["no line of the operator", *(line for each in runs for line in each)]
    return list(together.broken(together.runs_of(lines), objects, most, last))


def test_each_once_so_many_at_once_and_the_second_of_a_namespace_last():
    assert judged(run("a/1", 0, 10), run("b/2", 1, 5), run("a/3", 6, 20)) == []


def test_one_that_is_lost_failed_or_doubled_is_told():
    assert len(judged(run("a/1", 0, 10), run("a/3", 6, 20))) == 1
    assert len(judged(run("a/1", 0, 10), run("b/2", 1, 5, "failed"), run("a/3", 6, 20))) == 1
    assert len(judged(run("a/1", 0, 10), run("b/2", 1, 5), run("b/2", 11, 12), run("a/3", 6, 20))) == 1
    unended = run("a/3", 6, 20)[:1]
    assert len(judged(run("a/1", 0, 10), run("b/2", 1, 5), unended)) == 1


def test_more_or_fewer_at_once_are_told():
    assert len(judged(run("a/1", 0, 10), run("b/2", 1, 8), run("a/3", 6, 20))) == 1
    assert len(judged(run("a/1", 0, 10), run("b/2", 11, 12), run("a/3", 13, 20))) == 1


def test_a_second_turn_of_a_namespace_before_the_first_of_another_is_told():
    assert len(judged(run("a/1", 0, 10), run("a/3", 1, 5), run("b/2", 6, 20))) == 1


def test_a_look_in_between_is_no_installation():
    look = [line.replace(together.INSTALL, "karmada.installer.report") for line in run("a/1", 12, 13)]
    assert judged(run("a/1", 0, 10), run("b/2", 1, 5), look, run("a/3", 6, 20)) == []


def test_memory_is_that_of_a_control_group_of_either_version():
    one = "5:cpu,cpuacct:/kubepods/x\n4:memory:/kubepods/x\n0::/kubepods/x\n"
    assert together.group_files(one)[0] == "/sys/fs/cgroup/memory/kubepods/x/memory.usage_in_bytes"
    assert together.group_files("0::/kubepods/x\n")[0] == "/sys/fs/cgroup/kubepods/x/memory.current"
    assert together.working_set(f"{300 * 2**20}\ninactive_file 1\ntotal_inactive_file {100 * 2**20}\n") == 200
    assert together.working_set(f"{300 * 2**20}\ninactive_file {50 * 2**20}\n") == 250
