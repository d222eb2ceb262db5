# SPDX-License-Identifier: Apache-2.0
"""Which processes a run consists of, whether any of them lives, and that none outlives the first.

A run is the process of ansible-playbook, the forks of it that actions work in, and the programs that these start. Each
fork makes a session of its own, so that no signal to the terminal, to a job or to a group of processes reaches it.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
#: Resolved before anything is forked: what happens between fork and exec has to be little.
_prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None
_marks: dict[str, socket.socket] = {}


def main_pid() -> int:
    """The process of ansible-playbook, of which this is a fork or which this is."""
    parent = multiprocessing.parent_process()
    return os.getpid() if parent is None or parent.pid is None else parent.pid


# -- who lives ---------------------------------------------------------------------------------------------------------


def holder_identity(pid: int | None = None) -> str:
    """``<hostname>/<boot id>/<pid>/<start time>`` of a process (default: this one), unique over time and machines.

    A run is known by that of its first process: see ``main_pid``.
    """
    pid = os.getpid() if pid is None else pid
    host = socket.gethostname().replace("/", "_")
    return f"{host}/{boot_id()}/{pid}/{_start_time(pid) or 0}"


def holder_is_dead(identity: str) -> bool:
    """Whether this was a run on this machine of which nothing lives. False when that cannot be known from here."""
    parts = identity.split("/")
    boot = boot_id()
    if len(parts) < 4 or not boot or not parts[2].isdigit() or parts[3] in ("", "0"):
        return False
    if parts[0] != socket.gethostname().replace("/", "_") or parts[1] != boot:
        return False
    return _start_time(int(parts[2])) != int(parts[3]) and not _is_marked(identity)


def mark_alive() -> None:
    """Show that something of this run lives, until the last of its processes has ended.

    What shows it is a name in the kernel, which goes with the last process that has it open, however that ends. Forks
    inherit it; programs that they start (a connection of SSH that stays for a minute) do not. It needs no folder that
    would have to be found, and everybody on this machine may ask for it. Nothing is ever sent there.
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
            # It may not be asked, so nobody can say that it is dead.
            return True
    return True


def _mark_of(identity: str) -> str:
    """A name in Linux's abstract namespace, which holds some 100 characters."""
    return f"\0karmada-installer/{hashlib.sha256(identity.encode()).hexdigest()}"


def boot_id() -> str:
    """The boot of this kernel, and the namespaces in it of processes and of names; empty where these are not known.

    A pid means nothing in another container, and the name that ``mark_alive`` makes is not seen there.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return ".".join([boot, *(str(Path(f"/proc/self/ns/{each}").stat().st_ino) for each in ("pid", "net"))])
    except OSError:
        return ""


def _start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is no such process (a zombie is none)."""
    try:
        # The second field is the command in parentheses and may hold anything, spaces and parentheses included.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])


# -- who ends with whom ------------------------------------------------------------------------------------------------


def end_with_main() -> None:
    """Have the kernel kill this fork when the process of ansible-playbook ends, however it ends.

    The kernel does it when the *thread* that forked ends. Ansible forks in ``StrategyBase._queue_task``, which
    strategies call from ``run``, in the main thread of its process (the other one, ``results_thread_main``, forks
    nothing), and that thread ends with the process. In a process that is no fork this does nothing.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        _end_with(parent.pid)


def ends_with_us() -> Callable[[], None]:
    """For ``preexec_fn`` of a program that is waited for: the kernel kills it when we end.

    The kernel does it when the thread that starts the program ends, so that thread has to be the one that waits.
    """
    us = os.getpid()
    return lambda: _end_with(us)


def _end_with(parent: int) -> None:
    if _prctl is None:
        return
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # It may have ended before, and nobody would tell.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def end_forks(seconds: float = 5.0) -> bool:
    """Kill the forks of this process and what they have started; returns whether all have ended within that time."""
    forks = multiprocessing.active_children()
    for pid in [each.pid for each in forks if each.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        # And what it has started: a worker of Ansible leads a session of its own, from soon after its beginning.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    for each in forks:
        each.join(seconds)
    return not multiprocessing.active_children()
