# SPDX-License-Identifier: Apache-2.0
"""How a run ends when somebody ends it: its forks with it, its lock given back, its private folder gone.

Ansible ends in order after SIGINT only. SIGTERM (a job that is cancelled, a machine that goes down) and SIGHUP (a
session that is closed) would end it at once, so they are answered here, in its first process.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from ansible import constants

from .. import private_file, run_process
from . import private_folder

#: Some give a process ten seconds between SIGTERM and SIGKILL.
RELEASE_SECONDS = 5.0
_LOCK = "lock.json"
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name))

#: Takes what ``holding`` was told, and gives back the lock.
Release = Callable[[Mapping[str, Any]], None]


def attend(release: Release) -> None:
    """Take care of the end of this run, if this is the first process of one, and nobody has yet.

    That is where strategies load the class of an action before they fork (``action_loader.get(…, class_only=True)`` in
    ``run`` of linear and free): the only moment at which code of a collection runs there after Ansible has set its own
    handlers of signals. By these the process is recognised.
    """
    manager = getattr(sys.modules.get("ansible.executor.task_queue_manager"), "TaskQueueManager", None)
    of_ansible = signal.getsignal(signal.SIGTERM)
    if manager is None or not isinstance(getattr(of_ansible, "__self__", None), manager):
        return
    if threading.current_thread() is not threading.main_thread():
        return
    run_process.mark_alive()
    private_folder.sweep()
    first = os.getpid()
    # Forks of Ansible end without this, and others are not meant.
    atexit.register(lambda: private_folder.remove() if os.getpid() == first else None)
    for each in _SIGNALS:
        before = signal.getsignal(each)
        if before is not signal.SIG_IGN:  # as nohup has it
            signal.signal(each, _answer(before, release))


def _answer(before: Any, release: Release) -> Callable[[int, FrameType | None], None]:
    """What is done upon a signal: first what only we know of, then what was done before."""

    def end(number: int, frame: FrameType | None) -> None:
        for each in _SIGNALS:
            # A session that is closed says it more than once. Who insists on the keyboard gets it at once.
            signal.signal(each, signal.SIG_DFL if each == signal.SIGINT else signal.SIG_IGN)
        _end(release)
        if number != signal.SIGINT:
            # Nobody comes to that any more.
            shutil.rmtree(constants.DEFAULT_LOCAL_TMP, ignore_errors=True)
        signal.signal(number, before)
        if callable(before):
            before(number, frame)
        os.kill(os.getpid(), number)

    return end


def _end(release: Release) -> None:
    # A fork that could still write must not do so when others may.
    if run_process.end_forks():
        held = _held()
        if held is not None:
            # In a thread, because the server may be away for longer than we are given.
            thread = threading.Thread(target=release, args=(held,), daemon=True)
            thread.start()
            thread.join(RELEASE_SECONDS)
        private_folder.remove()


# -- which lock it is --------------------------------------------------------------------------------------------------


def holding(lock: Mapping[str, Any] | None) -> None:
    """Note which lock this run holds from now on, in words for ``release``; None: none any more."""
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
