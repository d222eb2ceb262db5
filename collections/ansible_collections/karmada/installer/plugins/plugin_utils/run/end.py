# SPDX-License-Identifier: Apache-2.0
"""End of a run by a signal: its forks are killed, its lock is released, its private folder is removed.

Ansible cleans up after SIGINT only. SIGTERM (a cancelled job, a machine that shuts down) and SIGHUP (a closed session)
would end it at once, so its first process handles them here.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from ansible import constants

from .. import private_file, run_process
from . import private_folder

#: From the signal to the end; some supervisors allow only ten seconds between SIGTERM and SIGKILL.
ENDING_SECONDS = 9.0
_LOCK = "lock.json"
_LOCK_STAYS = """
The lock of this run could not be released in time, so it may stay on the host cluster.
The next run from this machine takes it over, one from elsewhere a while later.
"""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name))

#: Releases the lock that ``holding`` noted; returns whether it is known not to be ours any more.
Release = Callable[[Mapping[str, Any]], bool]
#: Title of the step that is under way, as far as a callback has told it; see ``under_way``.
_step = ""


def under_way(title: str) -> None:
    """Note the title of the step that begins, for ``_farewell``."""
    global _step  # noqa: PLW0603 - a signal handler has nobody to ask
    _step = title


def attend(release: Release) -> bool:
    """Take charge of the end of this run, if this is its first process and has not done so yet. Return whether it did.

    This is called where strategies load the class of an action before they fork (``action_loader.get(…,
    class_only=True)`` in ``run`` of linear and free): the only moment at which code of a collection runs in that
    process after Ansible has set its own signal handlers. The process is recognised by these.
    """
    manager = getattr(sys.modules.get("ansible.executor.task_queue_manager"), "TaskQueueManager", None)
    of_ansible = signal.getsignal(signal.SIGTERM)
    if manager is None or not isinstance(getattr(of_ansible, "__self__", None), manager):
        return False
    if threading.current_thread() is not threading.main_thread():
        return False
    run_process.mark_alive()
    private_folder.sweep()
    first = os.getpid()
    # Forks of Ansible end without atexit; other forks inherit the registration and must not remove the folder.
    atexit.register(lambda: private_folder.remove() if os.getpid() == first else None)
    for each in _SIGNALS:
        before = signal.getsignal(each)
        if before is not signal.SIG_IGN:  # as under nohup
            signal.signal(each, _answer(before, release))
    return True


def _answer(before: Any, release: Release) -> Callable[[int, FrameType | None], None]:
    """Handler of a signal: end the run in order, then call the handler ``before``."""
    first = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        for each in _SIGNALS:
            # A closing session sends SIGHUP more than once. A second Ctrl-C ends the process at once.
            signal.signal(each, signal.SIG_DFL if each == signal.SIGINT else signal.SIG_IGN)
        _end(release)
        if number == signal.SIGINT and os.getpid() == first:
            _say(_farewell())
        if number != signal.SIGINT:
            # Ansible's own cleanup does not run after these signals.
            shutil.rmtree(constants.DEFAULT_LOCAL_TMP, ignore_errors=True)
        signal.signal(number, before)
        if callable(before):
            before(number, frame)
        os.kill(os.getpid(), number)

    return end


def _say(text: str) -> None:
    # Not by a stream, which this thread may be writing to.
    with suppress(OSError):
        os.write(2, text.encode())


def _farewell() -> str:
    """Lines for who has stopped a run by Ctrl-C."""
    where = textwrap.fill(f"Stopped at: {_step}" if _step else "Stopped.", 80)
    return f"\n{where}\nRun the same command again: it goes on from there.\n"


def _end(release: Release) -> None:
    deadline = time.monotonic() + ENDING_SECONDS
    # A fork that could still write must be gone before others may take the lock.
    ended = run_process.end_forks(ENDING_SECONDS / 2)
    held = _held()
    if held is not None and not (ended and _is_released(release, held, deadline)):
        _say(_LOCK_STAYS)
    if ended:
        private_folder.remove()


def _is_released(release: Release, held: Mapping[str, Any], deadline: float) -> bool:
    """Return whether the lock was released before the deadline, of the clock ``time.monotonic``."""
    answers: list[bool] = []
    # In a thread, because the server may be unreachable for longer than the time we have.
    thread = threading.Thread(target=lambda: answers.append(release(held)), daemon=True)
    thread.start()
    thread.join(deadline - time.monotonic())
    return answers == [True]


# -- the lock that is held ---------------------------------------------------------------------------------------------


def holding(lock: Mapping[str, Any] | None) -> None:
    """Note the lock that this run holds from now on, in the form that ``Release`` takes; None: it holds none."""
    path = private_folder.of_this_run() / _LOCK
    if lock is None:
        path.unlink(missing_ok=True)
        return
    private_folder.make(path.parent)
    private_file.write(path, json.dumps(lock))


def _held() -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(Path(private_folder.of_this_run() / _LOCK).read_text())
    except (OSError, ValueError):
        return None
    return found
