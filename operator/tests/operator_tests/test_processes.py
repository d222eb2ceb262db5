# SPDX-License-Identifier: Apache-2.0
"""Runs as processes: what they do beyond the contract (``test_executors``), with a real ansible-runner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from karmada_operator import environment, process_tree, processes, worker
from karmada_operator.executor import Ending, Outcome, RunSpec, Task
from karmada_operator.processes import ProcessExecutor

from operator_tests.stand_ins import alive, alive_below, playbook

SECRET = "s3cr3t-0f-th3-0p3rat0r"
SAYS = """
from ansible.plugins.callback import CallbackBase
from ansible_collections.karmada.installer.plugins.plugin_utils.run.said import say

class CallbackModule(CallbackBase):
    CALLBACK_NAME, CALLBACK_TYPE = "says", "aggregate"

    def v2_runner_on_ok(self, result):
        say("[3 s of 60 s] Deployment x: ErrImagePull password=hunter2hunter2")
        say("a note")
        self._display.display("[9 s of 60 s] by others")
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def executor(root: Path) -> ProcessExecutor:
    # The source names an object, and there is no cluster: localhost is implicit, as in the first play of our playbooks.
    environment = {**os.environ, "SECRET": SECRET, "HTTPS_PROXY": f"http://me:{SECRET}@proxy:1"}
    return ProcessExecutor(root, {**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})


def spec(tmp_path: Path, tasks: str, **more: Any) -> RunSpec:
    return RunSpec(run_id=f"r-{tmp_path}", namespace="a", name="x", playbook=playbook(tmp_path, tasks), **more)


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


def test_a_run_has_a_private_folder_and_a_clean_environment(
    executor: ProcessExecutor, root: Path, tmp_path: Path
) -> None:
    seen = tmp_path / "seen.json"
    tasks = f"""
    - name: Look around
      ansible.builtin.shell: >-
        {sys.executable} -c 'import json, os, pathlib, stat;
        here = pathlib.Path(os.environ["HOME"]);
        print(json.dumps([dict(os.environ), oct(stat.S_IMODE(here.stat().st_mode)),
        [str(p.relative_to(here)) for p in here.rglob("*") if p.is_file()],
        (here / "site.karmada.yml").read_text()]))' > {seen}
    """
    _, ending = followed(executor, spec(tmp_path, tasks))
    assert ending.outcome is Outcome.SUCCEEDED, ending
    environment, mode, files, source = json.loads(seen.read_text())
    assert mode == "0o700"
    assert json.loads(source)["namespace"] == "a"
    assert "uid" not in json.loads(source)
    assert SECRET not in json.dumps(environment)
    assert environment["ANSIBLE_HOST_KEY_CHECKING"] == "True"
    assert [each for each in files if "job_events" in each and "partial" not in each] == []
    assert list(root.iterdir()) == []


def test_a_proxy_with_a_secret_is_named_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    given = {"HTTPS_PROXY": f"http://me:{SECRET}@proxy:1", "http_proxy": "http://proxy:1", "PATH": "/bin"}
    assert environment.passed(given) == {"http_proxy": "http://proxy:1", "PATH": "/bin"}
    (line,) = caplog.messages
    assert line == "runs do not get HTTPS_PROXY: it has the name of a user, or a password, in it"


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


def test_a_failed_action_of_ours_says_phase_reason_and_component(executor: ProcessExecutor, tmp_path: Path) -> None:
    """Outside of a play with a document; and a text of Ansible's own that bears the same name is no reason."""
    tasks = "- {name: Checks, karmada.installer.preflight: {}}"
    _, ending = followed(executor, spec(tmp_path, tasks))
    assert (ending.failed_task, ending.phase, ending.reason) == ("Checks", "Preflight", "DocumentNotLoaded")
    assert ending.component == ""
    others = "- {name: Breaks, ansible.builtin.include_tasks: nowhere.yml}"
    _, ending = followed(executor, spec(tmp_path, others))
    assert (ending.outcome, ending.phase, ending.reason) == (Outcome.FAILED, "", "")


def test_what_a_step_waits_for_is_told_and_what_others_print_is_not(executor: ProcessExecutor, tmp_path: Path) -> None:
    folder = tmp_path / "callback_plugins"
    folder.mkdir()
    # Displays as the collection's steps do, from the first task on.
    (folder / "says.py").write_text(SAYS)
    executor._environment["ANSIBLE_CALLBACK_PLUGINS"] = str(folder)
    tasks, ending = followed(executor, spec(tmp_path, "- {name: Waits, ansible.builtin.debug: {msg: x}}"))
    assert ending.outcome is Outcome.SUCCEEDED, ending
    waits = [(each.task, each.waits) for each in tasks if each.waits]
    assert waits == [("Waits", "[3 s of 60 s] Deployment x: ErrImagePull password=<redacted>")]


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
        monkeypatch.setattr(processes, "_of_run", lambda _run_id, _folder: [])
    tasks = detached(tmp_path, 0)
    _, ending = followed(executor, spec(tmp_path, tasks))
    assert ending.outcome is Outcome.SUCCEEDED, ending
    assert alive(str(tmp_path)) == []


def test_a_worker_that_is_killed_leaves_nothing(executor: ProcessExecutor, root: Path, tmp_path: Path) -> None:
    def kill(run: Any) -> None:
        if alive(str(tmp_path)):
            os.kill(run.pid, signal.SIGKILL)

    _, ending = followed(executor, spec(tmp_path, detached(tmp_path, 900)), kill)
    assert ending.outcome is Outcome.LOST
    assert "signal 9" in ending.message
    assert alive(str(tmp_path)) == []
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("shown", ["socket", "directory"])
def test_what_has_no_environment_is_found_by_the_folder_of_its_run(tmp_path: Path, shown: str) -> None:
    """SSH's master writes a title over its environment; it has the path of its socket in it."""
    mine, other = tmp_path / "run-abcdefgh", tmp_path / "run-ijklmnop"
    found: dict[Path, int] = {}
    with ExitStack() as started:
        for folder in (mine, other):
            folder.mkdir()
            title = f"ssh: {folder}/ansible/cp/1f3a9c [mux]" if shown == "socket" else "x"
            process = subprocess.Popen(
                [sys.executable, "-c", "print(flush=True); input()", title],
                cwd=folder if shown == "directory" else "/",
                env={},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stdout
            process.stdout.readline()
            assert Path(f"/proc/{process.pid}/environ").read_bytes() == b""
            found[folder] = process.pid
        assert processes._of_run("r-1", mine) == [found[mine]]
        process_tree.end(lambda: processes._of_run("r-1", mine), 0.0)
        assert processes._of_run("r-1", other) == [found[other]], "that of another run goes on"


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


def test_the_memory_of_a_run_is_that_of_its_worker_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the worker are ansible-runner and what it has heard, which is not little."""
    mib = {os.getpid(): 40}
    looked: list[int] = []

    def memory_mib(pids: Any) -> int:
        looked[:] = pids
        return sum(mib.get(each, 0) for each in looked)

    monkeypatch.setattr(process_tree, "memory_mib", memory_mib)
    monkeypatch.setattr(worker, "LOOK", 0.001)
    stop, over = worker._Stop(), threading.Event()
    peak = worker._Peak(spec(tmp_path, "", memory_limit=30), stop)
    watching = threading.Thread(target=peak.watch, args=(over,))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        mib[child.pid] = 2
        watching.start()
        until(lambda: peak.mib == 42)
        assert looked.count(os.getpid()) == 1
        over.set()
        watching.join()
        child.kill()
    assert stop.outcome is Outcome.FAILED
    assert stop.why == "it took more memory than its limit of 30 MiB"


def test_a_run_that_nobody_follows_any_more_ends(executor: ProcessExecutor, root: Path, tmp_path: Path) -> None:
    run = executor.start(spec(tmp_path, "- ansible.builtin.command: sleep 900"))
    following = run.follow()
    assert isinstance(next(following), Task)
    following.close()
    assert not Path(f"/proc/{run.pid}").exists()
    assert list(root.iterdir()) == []


def test_a_run_that_is_cancelled_while_its_worker_starts_is_told_as_that(tmp_path: Path) -> None:
    """In the pod of a Job nobody sends the signal twice, and a process without a handler may never get it."""
    # In the place of the library that takes longest to load.
    (tmp_path / "ansible_runner.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n")
    order = tmp_path / "order.json"
    order.write_text(spec(tmp_path, "- ansible.builtin.fail: {msg: it was started}").text())
    found = subprocess.run(
        [sys.executable, "-m", "karmada_operator.worker", "--order", str(order)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
            "TMPDIR": str(tmp_path),
        },
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
    )
    assert found.returncode == 0
    result = json.loads(found.stdout.splitlines()[-1])
    assert (result["event"], result["outcome"], result["message"]) == ("result", "cancelled", "it was cancelled")


#: A worker that is cancelled when it has decided to start ansible-playbook, and before that is there.
CANCELLED = """
import os, signal, sys, time
import pexpect
from karmada_operator import worker

spawn = pexpect.spawn

def cancelled(*given, **named):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.5)  # Whoever ends what is there by now has done that.
    return spawn(*given, **named)

pexpect.spawn = cancelled
sys.exit(worker.main(sys.argv[1:]))
"""


def test_a_run_that_is_cancelled_just_before_its_playbook_starts_ends(tmp_path: Path) -> None:
    """A signal that finds nothing to end is not lost: the run would go on until it is killed with its lock held."""
    order = tmp_path / "order.json"
    order.write_text(spec(tmp_path, "- ansible.builtin.command: sleep 900").text())
    with subprocess.Popen(
        [sys.executable, "-c", CANCELLED, "--order", str(order)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            said = process.communicate(timeout=300)[0]
        finally:
            process_tree.end(lambda: alive_below(tmp_path), 0.0)
    assert json.loads(said.splitlines()[-1])["outcome"] == "cancelled"


def test_a_worker_loads_what_it_tells_of_a_run_with_and_no_part_of_the_engine_or_of_ansible() -> None:
    """Each run waits for that before its playbook starts: with them it was three times as long."""
    found = subprocess.run(
        [sys.executable, "-c", "import sys, karmada_operator.worker; print(*sys.modules)"],
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {each for each in found if each.partition(".")[0] == "karmada_operator"} == {
        f"karmada_operator{each}" for each in ("", ".environment", ".executor", ".kinds", ".process_tree", ".worker")
    }
    engine = {each.partition(".plugin_utils.")[2] for each in found if ".plugin_utils." in each}
    assert engine == {"awx_job", "document", "problems", "redaction", "run", "run.phases", "run.said", "run_process"}
    assert not {"ansible", "cryptography", "jinja2", "jsonschema", "kubernetes", "urllib3"} & set(found)
