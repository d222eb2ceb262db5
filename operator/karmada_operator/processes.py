# SPDX-License-Identifier: Apache-2.0
"""Runs as processes of this one: a worker each, in a private folder, with a clean environment."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ansible_collections.karmada.installer.plugins.plugin_utils.run_process import RUN_ID

from . import environment as surroundings
from . import process_tree
from .executor import LONGEST_LINE, Ending, Executor, Left, Outcome, Run, RunSpec, Task, parsed, told
from .worker import GRACE, PARENT

#: Seconds that a worker gets beyond its own limits before it is killed.
MARGIN = 30.0
_FOLDER = "run-"
_TAIL = 4096


class ProcessExecutor(Executor):
    """Starts workers. ``root`` is a folder of our own, on a tmpfs; what an earlier operator left there is removed.

    ``artifacts`` is a directory that stands in all their inventory sources.
    """

    def __init__(
        self, root: Path, environment: Mapping[str, str] = os.environ, *, artifacts: Path | None = None
    ) -> None:
        self._root = root
        self._environment = surroundings.passed(environment)
        if artifacts is not None:
            self._environment[surroundings.ARTIFACTS] = str(artifacts.absolute())
        self._guard = threading.Lock()
        self._runs: dict[int, ProcessRun] = {}
        self._unclaimed: set[int] = set()
        self._closed = False
        process_tree.become_subreaper()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in root.glob(f"{_FOLDER}*"):
            shutil.rmtree(left, ignore_errors=True)

    def start(self, spec: RunSpec) -> ProcessRun:
        """Start a worker. The thread that calls this has to be the one that follows the run: the kernel ends the
        worker with it.
        """
        folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=self._root))
        try:
            with self._guard, (folder / "stderr").open("wb") as stderr:
                if self._closed:
                    raise OSError("the operator ends")
                process = subprocess.Popen(
                    [sys.executable, "-m", "karmada_operator.worker"],
                    cwd=folder,
                    env={**self._environment, **surroundings.of_run(spec.run_id, folder), PARENT: str(os.getpid())},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    start_new_session=True,
                )
                run = ProcessRun(self, spec, folder, process)
                self._runs[process.pid] = run
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return run

    def close(self) -> None:
        """Start no run any more, and end all; whoever follows them sees them gone."""
        with self._guard:
            self._closed, runs = True, list(self._runs.values())
        for run in runs:
            run.cancel("the operator ends")

    def reap(self) -> None:
        """Take the exit statuses of orphans that came to us, at the second call that finds them.

        Children that others of this process wait for are taken by them before that.
        """
        with self._guard:
            dead = set(process_tree.dead_children(os.getpid())) - set(self._runs)
            process_tree.reap(dead & self._unclaimed)
            self._unclaimed = dead

    def left(self) -> list[Left]:
        """None: they end with the operator that started them."""
        return []

    def forget(self, run: ProcessRun) -> None:
        """See everything of a run gone whose worker has ended, and remove its folder."""
        process_tree.end(lambda: _of_run(run.spec.run_id, run.folder), 0.0)
        with self._guard:
            self._runs.pop(run.pid, None)
        shutil.rmtree(run.folder, ignore_errors=True)


class ProcessRun(Run):
    """One worker."""

    def __init__(
        self, executor: ProcessExecutor, spec: RunSpec, folder: Path, process: subprocess.Popen[bytes]
    ) -> None:
        self.spec, self.folder, self.pid = spec, folder, process.pid
        self._executor, self._process = executor, process
        self._why = ""
        self._timers: list[threading.Timer] = []

    def follow(self) -> Iterator[Task | Ending]:
        self._kill_after(self.spec.time_limit + GRACE + MARGIN)
        ending = None
        try:
            for found in self._lines():
                if isinstance(found, Ending):
                    ending = found
                else:
                    yield found
        finally:
            if ending is None:
                # It has ended without a word, or nobody listens any more.
                self._end()
            self._process.wait()
            for each in self._timers:
                each.cancel()
            tail = self._tail()
            self._executor.forget(self)
        yield ending or self._lost(tail)

    def cancel(self, why: str) -> None:
        self._why = self._why or why
        self._end()

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        self._kill_after(GRACE + MARGIN)

    def _lines(self) -> Iterator[Task | Ending]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            return
        with contextlib.suppress(BrokenPipeError), stdin:
            stdin.write(self.spec.text().encode())
        with stdout:
            while line := stdout.readline(LONGEST_LINE):
                if (found := parsed(line)) is not None:
                    yield found

    def _kill_after(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _lost(self, tail: str) -> Ending:
        """Ending of a run whose worker did not tell one."""
        if self._why:
            return Ending(Outcome.CANCELLED, told(self._why))
        code = self._process.returncode
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return Ending(Outcome.LOST, told(f"the run ended by {how} without a result. {tail}"))

    def _tail(self) -> str:
        try:
            with (self.folder / "stderr").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
                return file.read().decode("utf-8", "replace").strip()
        except OSError:
            return ""


def _of_run(run_id: str, folder: Path) -> list[int]:
    """Processes below us that have the mark of a run, or that its private folder shows to be of it.

    SSH's master, which outlives the command that started it, writes its title over its environment, and has the path of
    its socket there; another program may have been started without an environment, where that run worked.
    """
    mark, folders = f"{RUN_ID}={run_id}", {str(folder.absolute()), str(folder.resolve())}
    return [pid for pid in process_tree.living(os.getpid()) if _has_mark(pid, mark) or _is_at(pid, folders)]


def _has_mark(pid: int, mark: str) -> bool:
    with contextlib.suppress(OSError):
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def _is_at(pid: int, folders: Collection[str]) -> bool:
    """Return whether a process has one of these folders, or what is in it, in its arguments or as its directory."""
    words = []
    with contextlib.suppress(OSError):
        words.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    with contextlib.suppress(OSError):
        words.append(os.fsencode(Path(f"/proc/{pid}/cwd").readlink()))
    # The name of such a folder has random letters, always as many, so it begins no other one.
    return any(os.fsencode(each) in word for each in folders for word in words)
