# SPDX-License-Identifier: Apache-2.0
"""A run is dead when the last of its processes is, and no process of it outlives the first."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils import run_process
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.moments import until

PRELUDE = """
import multiprocessing, os, pathlib, subprocess, sys, time
from ansible_collections.karmada.installer.plugins.plugin_utils import run_process
here = pathlib.Path(sys.argv[1])
def tell(name, text):
    (here / f".{name}").write_text(str(text))
    (here / f".{name}").rename(here / name)
fork = multiprocessing.get_context("fork").Process
"""


def started(code: str, here: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
    return subprocess.Popen([sys.executable, "-c", PRELUDE + code, str(here)], env=environment)


def told(here: Path, name: str) -> str:
    until((here / name).exists, name)
    return (here / name).read_text()


def lives(pid: int) -> bool:
    return run_process._start_time(pid) is not None


def killed(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def test_a_run_is_alive_while_a_fork_of_it_is_and_dead_after_that(tmp_path: Path) -> None:
    code = """
run_process.mark_alive()
def work():
    tell("fork", os.getpid())
    time.sleep(600)
fork(target=work).start()
tell("identity", run_process.holder_identity())
time.sleep(600)
"""
    first = started(code, tmp_path)
    identity, fork = told(tmp_path, "identity"), int(told(tmp_path, "fork"))
    assert not run_process.holder_is_dead(identity)
    killed(first)
    assert lives(fork)
    assert not run_process.holder_is_dead(identity), "this fork could still write"
    os.kill(fork, signal.SIGKILL)
    until(lambda: run_process.holder_is_dead(identity), "the end of the last process")


def test_a_program_that_a_fork_has_started_does_not_keep_a_run_alive(tmp_path: Path) -> None:
    code = """
run_process.mark_alive()
program = subprocess.Popen(["sleep", "600"])
tell("program", program.pid)
tell("identity", run_process.holder_identity())
time.sleep(600)
"""
    first = started(code, tmp_path)
    identity, program = told(tmp_path, "identity"), int(told(tmp_path, "program"))
    killed(first)
    try:
        assert lives(program)
        assert run_process.holder_is_dead(identity)
    finally:
        os.kill(program, signal.SIGKILL)


def test_a_run_of_which_nobody_may_ask_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forbidden:
        def __init__(self, *_: Any) -> None: ...

        def __enter__(self) -> Forbidden:
            return self

        def __exit__(self, *_: object) -> None: ...

        def connect(self, _name: str) -> None:
            raise PermissionError

    identity = run_process.holder_identity().rpartition("/")[0] + "/1"
    assert run_process.holder_is_dead(identity)
    monkeypatch.setattr(run_process.socket, "socket", Forbidden)
    assert not run_process.holder_is_dead(identity)


@pytest.mark.parametrize("number", ["", "x", "-1", "1.0", "1e3", " 1", "\u00b2", "9" * 5000])
@pytest.mark.parametrize("place", [2, 3], ids=["process", "start"])
def test_a_name_that_no_run_has_is_of_nobody_who_could_be_dead(number: str, place: int) -> None:
    """Root of a host knows the name of this run, and can make up another one of its form."""
    parts = run_process.holder_identity().split("/")
    parts[place] = number
    assert not run_process.holder_is_dead("/".join(parts))


@pytest.mark.parametrize("namespace", ["pid", "net"])
def test_a_run_in_another_namespace_cannot_be_judged(namespace: str) -> None:
    host, boot, pid, _start = run_process.holder_identity().split("/")
    here = str(Path(f"/proc/self/ns/{namespace}").stat().st_ino)
    assert here in boot.split(".")
    assert run_process.holder_is_dead(f"{host}/{boot}/{pid}/1")
    assert not run_process.holder_is_dead(f"{host}/{boot.replace(here, '1')}/{pid}/1")


def test_a_run_from_before_this_machine_was_started_is_told_from_one_of_another_machine_or_container() -> None:
    host, boot, pid, start = run_process.holder_identity().split("/")
    assert run_process.holder_is_of_earlier_boot(f"{host}/earlier.{boot.partition('.')[2]}/{pid}/{start}")
    assert not run_process.holder_is_of_earlier_boot(f"elsewhere/earlier.1.1/{pid}/{start}")
    assert not run_process.holder_is_of_earlier_boot(f"{host}/{boot.partition('.')[0]}.1.1/{pid}/{start}")
    for unknown in ("", host, f"{host}//{pid}/{start}", f"{host}/earlier"):
        assert not run_process.holder_is_of_earlier_boot(unknown)


def test_a_fork_and_what_it_waits_for_end_with_the_first_process(tmp_path: Path) -> None:
    code = """
def work():
    run_process.end_with_main()
    program = subprocess.Popen(["sleep", "600"], start_new_session=True, preexec_fn=run_process.ends_with_us())
    tell("program", program.pid)
    tell("fork", os.getpid())
    program.wait()
def detached():
    os.setsid()
    work()
fork(target=detached).start()
time.sleep(600)
"""
    first = started(code, tmp_path)
    fork, program = int(told(tmp_path, "fork")), int(told(tmp_path, "program"))
    assert lives(fork)
    assert lives(program)
    killed(first)
    until(lambda: not lives(fork), "the end of the fork")
    until(lambda: not lives(program), "the end of its program")


def test_a_fork_whose_first_process_had_ended_before_goes_no_further(tmp_path: Path) -> None:
    code = """
def work():
    first = os.getppid()
    tell("fork", os.getpid())
    while os.getppid() == first:
        time.sleep(0.01)
    run_process.end_with_main()
    tell("went-on", "")
fork(target=work).start()
time.sleep(600)
"""
    first = started(code, tmp_path)
    fork = int(told(tmp_path, "fork"))
    killed(first)
    until(lambda: not lives(fork), "the end of the fork")
    assert not (tmp_path / "went-on").exists()


def test_outside_of_a_fork_nothing_is_tied_to_anybody(tmp_path: Path) -> None:
    code = """
if os.fork() == 0:
    first = os.getppid()
    tell("other", os.getpid())
    run_process.end_with_main()
    while os.getppid() == first:
        time.sleep(0.01)
    tell("went-on", "")
    os._exit(0)
time.sleep(600)
"""
    first = started(code, tmp_path)
    told(tmp_path, "other")
    killed(first)
    told(tmp_path, "went-on")


def _wait_for_ever() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pause()


def test_forks_are_ended_whatever_they_do_about_it() -> None:
    fork = multiprocessing.get_context("fork").Process(target=_wait_for_ever)
    fork.start()
    assert run_process.end_forks()
    assert not fork.is_alive()


def test_a_fork_that_nobody_has_noted_yet_is_ended() -> None:
    pid = os.fork()
    if not pid:
        _wait_for_ever()
    assert pid not in [each.pid for each in multiprocessing.active_children()]
    try:
        assert run_process.end_forks()
        assert os.waitpid(pid, os.WNOHANG) == (pid, signal.SIGKILL)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_every_fork_says_the_same_of_the_run() -> None:
    assert run_process.main_pid() == os.getpid()
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    fork = context.Process(target=lambda: answers.put(run_process.main_pid()))
    fork.start()
    assert answers.get() == os.getpid()
    fork.join()


def test_a_run_holds_locks_by_its_process_and_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KARMADA_RUN_ID", raising=False)
    assert run_process.run_holder() == run_process.holder_identity()
    monkeypatch.setenv("KARMADA_RUN_ID", "nightly-1")
    assert run_process.run_holder() == f"{run_process.holder_identity()}/nightly-1"
    assert not run_process.holder_is_dead(run_process.run_holder())


def test_an_id_does_not_hide_that_a_fork_of_the_run_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(run_process, "_is_marked", lambda identity: asked.append(identity) or True)
    gone = run_process.holder_identity().rpartition("/")[0] + "/1"
    assert not run_process.holder_is_dead(f"{gone}/nightly-1")
    assert asked == [gone], "the mark of a run is that of its first process"


@pytest.mark.parametrize("given", ["Nightly", "-a", "a-", "a/b", "a b", "a\n", "a" * 64])
def test_a_text_that_is_no_id_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("KARMADA_RUN_ID", given)
    with pytest.raises(ProblemsError, match="KARMADA_RUN_ID: cannot be the id of a run"):
        run_process.run_holder()
