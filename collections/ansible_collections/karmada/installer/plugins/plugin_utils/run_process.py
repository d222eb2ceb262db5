# SPDX-License-Identifier: Apache-2.0
"""Processes of a run: their identity, signs of life, and their end with the first process.

A run consists of the process of ansible-playbook, its forks, in which actions work, and the programs that these start.
Each fork has a session of its own, so signals to the terminal, a job or a process group do not reach it.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import multiprocessing
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import awx_job
from .problems import Problem, ProblemsError, Reason

#: Environment variable with the id that whoever started the run gave it.
RUN_ID = "KARMADA_RUN_ID"
_RUN_ID = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
#: Of a process, and of the moment of its start in ticks. Whoever has a lock has written its name, or somebody else has.
_NUMBER = re.compile(r"[0-9]{1,20}")
#: Between two looks whether a process has ended.
_LOOK_SECONDS = 0.01
_PR_SET_PDEATHSIG = 1
#: Resolved before the first fork: as little as possible may happen between fork and exec.
_prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None
_marks: dict[str, socket.socket] = {}


def main_pid() -> int:
    """Process id of ansible-playbook, which is this process or its parent."""
    parent = multiprocessing.parent_process()
    return os.getpid() if parent is None or parent.pid is None else parent.pid


# -- signs of life -----------------------------------------------------------------------------------------------------


def holder_identity(pid: int | None = None) -> str:
    """``<hostname>/<boot id>/<pid>/<start time>`` of a process (default: this one), unique over time and machines.

    A run is identified by that of its first process: see ``main_pid``.
    """
    pid = os.getpid() if pid is None else pid
    host = socket.gethostname().replace("/", "_")
    return f"{host}/{boot_id()}/{pid}/{_start_time(pid) or 0}"


def run_id() -> str:
    """Id that this run was given in ``RUN_ID``; empty if none. Raises ProblemsError for a text that is no id."""
    given = os.environ.get(RUN_ID, "")
    if given and not _RUN_ID.fullmatch(given):
        raise ProblemsError(
            Problem(
                f"cannot be the id of a run: {given[:64]!r}",
                f"environment variable {RUN_ID}",
                "Give it at most 63 lower-case letters, digits and hyphens, with no hyphen at either end.",
                reason=Reason.INVALID_ARGUMENT,
            )
        )
    return given


def run_holder(job: str = "") -> str:
    """Name under which this run holds locks: the identity of its first process, then ``/<run id>`` if it has one.

    ``job`` stands in the place of an id, for runs that AWX has started (``awx_job.label``).
    """
    given = run_id() or job
    return holder_identity(main_pid()) + (f"/{given}" if given else "")


def is_holder(holder: str, names: str) -> bool:
    """Return whether one of ``names``, with commas between, names this holder: in full, or by the id of its run."""
    named = {each.strip() for each in names.split(",")} - {""}
    # What others have written there may have a comma itself, and is told to be repeated as it is.
    return not named.isdisjoint({holder, _run_id_of(holder)}) or names == holder != ""


def holder_in_words(holder: str) -> str:
    """Process and machine of a holder, and its run if that has an id; a holder of another form as it is."""
    parts, given = holder.split("/"), _run_id_of(holder)
    words = f"process {parts[2]} on {parts[0]}" if len(parts) >= 4 else holder
    if job := job_in_words(holder):
        return f"{job}, {words}"
    return f"run {given}, {words}" if given else words


def job_in_words(holder: str) -> str:
    """Job of AWX that a holder names, for people; empty if it names none."""
    return awx_job.in_words(_run_id_of(holder))


def _run_id_of(holder: str) -> str:
    return "/".join(holder.split("/")[4:])


def holder_is_dead(identity: str) -> bool:
    """Return whether this was a run on this machine without any living process. False if that cannot be known here."""
    parts = identity.split("/")
    boot = boot_id()
    if len(parts) < 4 or not boot or not all(map(_NUMBER.fullmatch, parts[2:4])) or parts[3] == "0":
        return False
    if parts[0] != socket.gethostname().replace("/", "_") or parts[1] != boot:
        return False
    return _start_time(int(parts[2])) != int(parts[3]) and not _is_marked("/".join(parts[:4]))


def holder_is_of_earlier_boot(identity: str) -> bool:
    """Return whether this was a run before a machine of this name was started. False if that cannot be known here.

    Two machines may have one name, so it is no proof where a run of the other one would be harmed.
    """
    parts = identity.split("/")
    boot = boot_id().partition(".")[0]
    if len(parts) < 4 or not boot or parts[0] != socket.gethostname().replace("/", "_"):
        return False
    return parts[1].partition(".")[0] not in ("", boot)


def mark_alive() -> None:
    """Mark this run as alive until the last of its processes has ended.

    The mark is a name in the kernel, which disappears with the last process that has it open, however that ends. Forks
    inherit it; programs that they start (such as an SSH connection that persists for a minute) do not. It needs no
    folder that would have to be found, and every user of this machine can check it. No data is ever sent there.
    """
    identity = holder_identity()
    if identity in _marks or not boot_id():
        return
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(_mark_of(identity))
    except OSError:
        mark.close()
    else:
        _marks[identity] = mark


def _is_marked(identity: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(_mark_of(identity))
        except ConnectionRefusedError:
            return False
        except OSError:
            # The check is not permitted, so nobody can say that the run is dead.
            return True
    return True


def _mark_of(identity: str) -> str:
    """Name in Linux's abstract socket namespace, which allows some 100 characters."""
    return f"\0karmada-installer/{hashlib.sha256(identity.encode()).hexdigest()}"


def boot_id() -> str:
    """Id of this boot, and of the PID and network namespaces; empty if these are unknown.

    In another container, a pid has no meaning, and the name of ``mark_alive`` is not visible.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return ".".join([boot, *(str(Path(f"/proc/self/ns/{each}").stat().st_ino) for each in ("pid", "net"))])
    except OSError:
        return ""


def _start_time(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None if there is no such process, or only a zombie."""
    try:
        # The second field is the command in parentheses and may contain anything, spaces and parentheses included.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])


def seconds_since_start(pid: int) -> float | None:
    """Age of a process in seconds; None if it cannot be known here."""
    start = _start_time(pid)
    if start is None or not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - start / os.sysconf("SC_CLK_TCK"))


# -- end of processes --------------------------------------------------------------------------------------------------


def end_with_main() -> None:
    """Have the kernel kill this fork when the process of ansible-playbook ends, however it ends.

    The kernel does it when the *thread* that forked ends. Ansible forks in ``StrategyBase._queue_task``, which
    strategies call from ``run``, in the main thread of its process (the other one, ``results_thread_main``, never
    forks), and that thread ends with the process. Does nothing in a process that is not a fork.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        _end_with(parent.pid)


def ends_with_us() -> Callable[[], None]:
    """Return a ``preexec_fn`` for a program that is waited for: the kernel kills the program when this process ends.

    The kernel does it when the thread that starts the program ends, so that thread has to be the one that waits.
    """
    us = os.getpid()
    return lambda: _end_with(us)


def _end_with(parent: int) -> None:
    if _prctl is None:
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # If the parent had ended before, the kernel sends no signal.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def end_forks(seconds: float = 5.0) -> bool:
    """Kill the forks of this process and their programs; returns whether all have ended within that time."""
    deadline = time.monotonic() + seconds
    forks = multiprocessing.active_children()
    # A signal may come between a fork and the line by which multiprocessing notes it.
    children = {each.pid for each in forks if each.pid} | _copies()
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        # Their programs as well: a worker of Ansible soon becomes the leader of a session.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    while any(_start_time(pid) is not None for pid in children) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    for each in forks:
        each.join(max(0.0, deadline - time.monotonic()))
    return not multiprocessing.active_children() and not any(_start_time(pid) is not None for pid in children)


def _copies() -> set[int]:
    """Children that are copies of this process, having started no program; none where there is no ``/proc``."""
    us, found = os.getpid(), set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == us and (folder / "cmdline").read_bytes() == Path("/proc/self/cmdline").read_bytes():
                found.add(int(folder.name))
        except OSError:
            continue
    return found
