# SPDX-License-Identifier: Apache-2.0
"""Runs as processes, with a real ansible-runner and small playbooks: what comes back, and what is left: nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from karmada_operator import process_tree, processes
from karmada_operator.executor import Ending, RunSpec, Task, parsed, told
from karmada_operator.processes import ProcessExecutor
from karmada_operator.reconcile import Outcome

SECRET = "s3cr3t-0f-th3-0p3rat0r"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def executor(root: Path) -> ProcessExecutor:
    # The source names an object, and there is no cluster: localhost is implicit, as in the first play of our playbooks.
    environment = {**os.environ, "SECRET": SECRET, "HTTPS_PROXY": f"http://me:{SECRET}@proxy:1"}
    return ProcessExecutor(root, {**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})


def spec(tmp_path: Path, tasks: str, **more: Any) -> RunSpec:
    play = tmp_path / "play.yml"
    head = "- name: P\n  hosts: localhost\n  gather_facts: false\n  tasks:\n"
    play.write_text(head + textwrap.indent(textwrap.dedent(tasks), "    "))
    return RunSpec(run_id=f"r-{tmp_path}", namespace="a", name="x", playbook=str(play), **more)


def followed(executor: ProcessExecutor, wanted: RunSpec, on_task: Callable[[Any], object] = lambda _run: None) -> Any:
    """Tasks and the ending of a run."""
    run = executor.start(wanted)
    tasks: list[Task] = []
    for each in run.follow():
        if isinstance(each, Ending):
            return tasks, each
        tasks.append(each)
        on_task(run)
    raise AssertionError("it did not end")


def alive(mark: str) -> list[int]:
    """Processes anywhere whose arguments have this word."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                if mark in (entry / "cmdline").read_text().split("\0") and stat[0] != "Z":
                    found.append(int(entry.name))
    return found


def test_a_run_tells_its_tasks_and_its_result(executor: ProcessExecutor, root: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    tasks = f"""
    - name: First
      ansible.builtin.debug: {{msg: "{{{{ given }}}}"}}
    - name: Report
      ansible.builtin.copy: {{content: '{{"phase": "Completed"}}', dest: "{{{{ lookup('env', 'HOME') }}}}/report.json"}}
    - name: Look around
      ansible.builtin.shell: >-
        {sys.executable} -c 'import json, os, pathlib, stat;
        here = pathlib.Path(os.environ["HOME"]);
        print(json.dumps([dict(os.environ), oct(stat.S_IMODE(here.stat().st_mode)),
        [str(p.relative_to(here)) for p in here.rglob("*") if p.is_file()],
        (here / "site.karmada.yml").read_text()]))' > {seen}
    """
    told_tasks, ending = followed(executor, spec(tmp_path, tasks, variables={"given": ["m1"]}))
    assert ending.outcome is Outcome.SUCCEEDED, ending
    assert [each.task for each in told_tasks] == ["First", "Report", "Look around"]
    assert (ending.ok, ending.changed, ending.failed) == (3, 2, 0)
    assert ending.report == {"phase": "Completed"}
    environment, mode, files, source = json.loads(seen.read_text())
    assert mode == "0o700"
    assert json.loads(source)["namespace"] == "a"
    assert SECRET not in json.dumps(environment)
    assert environment["ANSIBLE_HOST_KEY_CHECKING"] == "True"
    assert [each for each in files if "job_events" in each and "partial" not in each] == []
    assert list(root.iterdir()) == []


def test_artifacts_that_were_prepared_stand_in_every_source(root: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    executor = ProcessExecutor(root, environment, artifacts=tmp_path / "prepared")
    seen = tmp_path / "seen"
    tasks = f"""
    - name: Look
      ansible.builtin.command: cp {{{{ ansible_inventory_sources[0] }}}} {seen}
    """
    followed(executor, spec(tmp_path, tasks))
    assert json.loads(seen.read_text())["artifacts"] == str(tmp_path / "prepared")


def test_check_mode_reaches_the_playbook(executor: ProcessExecutor, tmp_path: Path) -> None:
    file = tmp_path / "made"
    tasks = f"- ansible.builtin.copy: {{content: x, dest: {file}}}"
    _, ending = followed(executor, spec(tmp_path, tasks, check=True))
    assert (ending.outcome, ending.changed) == (Outcome.SUCCEEDED, 1)
    assert not file.exists()


def test_a_failed_action_of_ours_says_phase_reason_and_component(executor: ProcessExecutor, tmp_path: Path) -> None:
    """Outside of a play with a document; and a text of Ansible's own that bears the same name is no reason."""
    tasks = "- {name: Checks, karmada.installer.preflight: {}}"
    _, ending = followed(executor, spec(tmp_path, tasks))
    assert (ending.failed_task, ending.phase, ending.reason) == ("Checks", "Preflight", "DocumentNotLoaded")
    assert ending.component == ""
    others = "- {name: Breaks, ansible.builtin.include_tasks: nowhere.yml}"
    _, ending = followed(executor, spec(tmp_path, others))
    assert (ending.outcome, ending.phase, ending.reason) == (Outcome.FAILED, "", "")


def test_a_failure_says_which_task_and_why_without_secrets(executor: ProcessExecutor, tmp_path: Path) -> None:
    tasks = """
    - name: Breaks
      ansible.builtin.fail: {msg: "no way: password=hunter2hunter2 {{ 'x' * 5000 }}"}
    """
    _, ending = followed(executor, spec(tmp_path, tasks))
    assert (ending.outcome, ending.failed_task, ending.failed) == (Outcome.FAILED, "Breaks", 1)
    assert ending.message.startswith("localhost: no way: password=<redacted>")
    assert "hunter2" not in ending.message
    assert len(ending.message) <= 1024


def test_a_playbook_that_is_not_there_is_a_failure(executor: ProcessExecutor, tmp_path: Path) -> None:
    missing = RunSpec(run_id="r-missing", namespace="a", name="x", playbook=str(tmp_path / "none.yml"))
    _, ending = followed(executor, missing)
    assert ending.outcome is Outcome.FAILED
    assert "ansible-playbook ended with" in ending.message


#: Starts a process that left its session and its parent, and another one that ignores SIGTERM.
DETACHED = """
- name: Detach
  ansible.builtin.shell: >-
    {python} -c 'import os, signal, time;
    os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0);
    signal.signal(signal.SIGTERM, signal.SIG_IGN); os.close(0); os.close(1); os.close(2); time.sleep(900)' {mark}
- name: Wait
  ansible.builtin.command: sleep {seconds}
"""


def detached(tmp_path: Path, seconds: int) -> str:
    return DETACHED.format(python=sys.executable, mark=str(tmp_path), seconds=seconds)


@pytest.mark.parametrize("swept", [True, False], ids=["with the operator's sweep", "by the worker alone"])
def test_what_detaches_itself_ends_with_the_run(
    executor: ProcessExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swept: bool
) -> None:
    if not swept:
        monkeypatch.setattr(processes, "_marked", lambda _run_id: [])
    tasks = detached(tmp_path, 0)
    _, ending = followed(executor, spec(tmp_path, tasks))
    assert ending.outcome is Outcome.SUCCEEDED, ending
    assert alive(str(tmp_path)) == []


def test_cancel_ends_everything(executor: ProcessExecutor, root: Path, tmp_path: Path) -> None:
    def cancel(run: Any) -> None:
        if alive(str(tmp_path)):
            run.cancel("nobody wants it")
            run.cancel("twice")

    _, ending = followed(executor, spec(tmp_path, detached(tmp_path, 900)), cancel)
    assert ending.outcome is Outcome.CANCELLED
    assert alive(str(tmp_path)) == []
    assert list(root.iterdir()) == []


def test_a_worker_that_is_killed_leaves_nothing(executor: ProcessExecutor, root: Path, tmp_path: Path) -> None:
    def kill(run: Any) -> None:
        if alive(str(tmp_path)):
            os.kill(run.pid, signal.SIGKILL)

    _, ending = followed(executor, spec(tmp_path, detached(tmp_path, 900)), kill)
    assert ending.outcome is Outcome.LOST
    assert "signal 9" in ending.message
    assert alive(str(tmp_path)) == []
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    ("limits", "outcome", "words"),
    [({"time_limit": 0.5}, Outcome.TIMED_OUT, "longer"), ({"memory_limit": 1}, Outcome.FAILED, "memory")],
)
def test_limits_end_a_run(executor: ProcessExecutor, tmp_path: Path, limits: Any, outcome: Outcome, words: str) -> None:
    _, ending = followed(executor, spec(tmp_path, "- ansible.builtin.command: sleep 900", **limits))
    assert ending.outcome is outcome
    assert words in ending.message


def test_a_run_ends_with_the_operator(root: Path, tmp_path: Path) -> None:
    """The operator is killed without a word, and what it had started ends."""
    code = f"""
import sys
from pathlib import Path
from karmada_operator.executor import RunSpec
from karmada_operator.processes import ProcessExecutor
run = ProcessExecutor(Path({str(root)!r})).start(RunSpec.of(sys.argv[1]))
for each in run.follow():
    print(each, flush=True)
"""
    wanted = spec(tmp_path, detached(tmp_path, 900))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", code, wanted.text()], env=environment, stdout=subprocess.PIPE
    ) as operator:
        until(lambda: alive(str(tmp_path)), "the process that detached itself")
        below = process_tree.living(operator.pid)
        operator.kill()
    until(lambda: not alive(str(tmp_path)), "its end")
    assert list(root.glob("run-*")), "nobody is there to remove it"
    next_one = ProcessExecutor(root, {})
    assert list(root.glob("run-*")) == []
    # Orphans came to this process, if it is a subreaper; it takes the exit status of what nobody waits for.
    until(
        lambda: next_one.reap() or not [pid for pid in below if Path(f"/proc/{pid}").exists()], "the end of all others"
    )


def test_all_runs_end_with_close(executor: ProcessExecutor, tmp_path: Path) -> None:
    found: list[Any] = []
    begun = threading.Event()
    wanted = spec(tmp_path, "- ansible.builtin.command: sleep 900")
    following = threading.Thread(target=lambda: found.append(followed(executor, wanted, lambda _run: begun.set())))
    following.start()
    assert begun.wait(300)
    executor.close()
    following.join(300)
    assert found[0][1].outcome is Outcome.CANCELLED


def test_a_run_that_nobody_follows_any_more_ends(executor: ProcessExecutor, root: Path, tmp_path: Path) -> None:
    run = executor.start(spec(tmp_path, "- ansible.builtin.command: sleep 900"))
    following = run.follow()
    assert isinstance(next(following), Task)
    following.close()
    assert not Path(f"/proc/{run.pid}").exists()
    assert list(root.iterdir()) == []


def test_nothing_is_started_after_the_end(executor: ProcessExecutor, root: Path, tmp_path: Path) -> None:
    executor.close()
    with pytest.raises(OSError, match="the operator ends"):
        executor.start(spec(tmp_path, "[]"))
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b'{"event": "task"}', b'{"event": "result", "outcome": "well"}', b'{"event": "other"}']
)
def test_what_is_no_line_is_nothing(line: bytes) -> None:
    assert parsed(line) is None


def test_messages_are_one_line_without_secrets() -> None:
    assert told("a\nb \x1b[31m token=abcdefghijk") == "a b token=<redacted>"
