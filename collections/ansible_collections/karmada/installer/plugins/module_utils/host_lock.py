# SPDX-License-Identifier: Apache-2.0
"""Lock of an instance on a plain host: one run at a time may change what the instance has there.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).

The lock is a file, ``/run/karmada-installer/<instance>.lock``. Two things matter:

* **Its content** names the run that has the host, from the first step of that run to its last. Between two steps no
  process of the run is on the host, so a dead run is recognised by silence, or by name.
* **A kernel lock on the file** (flock) is held during changes. It makes taking the lock exclusive, and ends with its
  process: a step that outlives its run, because only the connection was cut, is waited for.

A run that finds another name there, or no lock, has lost the lock and changes nothing: another run may have worked on
the host since.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils.host_system import (
    RUN_FOLDER,
    HostError,
    System,
    writing,
)

#: A boot removes the locks, and has ended their holders.
LOCK_FOLDER = RUN_FOLDER
#: Seconds of silence after which a holder is taken for dead.
LOCK_SILENCE = 600
#: Seconds of silence, at most, that a holder may announce beforehand, as while packages are installed.
LONGEST_SILENCE = 3600
#: Seconds to wait for a step whose run is gone. Units of ours are given 60 s to stop.
STEP_SECONDS = 90
_LONGEST_PAUSE = 0.05


class LockedError(HostError):
    """Another run has the host, or has had it since this one. ``holder`` is its name, empty if nobody has the lock."""

    def __init__(self, message: str, holder: str = "") -> None:
        self.holder = holder
        super().__init__(message)


def clock() -> float:
    """Seconds since the boot of this machine, sleep included, whatever its time of day is set to."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def take(system: System, instance: str, holder: str, dead: str = "", now: float | None = None) -> None:
    """Take the lock of this host, or renew it. ``dead`` is a holder that is known to have ended without a release.

    ``now`` is a time of ``clock``; default: the current one. Raises LockedError.
    """
    # A run that will be refused need not wait for a step of the holder.
    _refuse_living(_content(_path(system, instance)), instance, (holder, dead), clock() if now is None else now)
    with _file(system, instance, create=True) as descriptor:
        now = clock() if now is None else now
        _refuse_living(_record(_read(descriptor)), instance, (holder, dead), now)
        _write(descriptor, holder, now)


@contextlib.contextmanager
def working(system: System, instance: str, holder: str, silence: float = LOCK_SILENCE) -> Iterator[None]:
    """Change the host in this context: nobody else can take the lock, however long it lasts, and it is renewed.

    ``silence`` is how many seconds the holder may be silent after that, until its next step here. Raises LockedError
    unless the holder has the lock.
    """
    with _file(system, instance, create=False) as descriptor:
        found = _record(_read(descriptor))
        if not found or found["holder"] != holder:
            raise _lost(instance, found["holder"] if found else "")
        _write(descriptor, holder, clock(), silence)
        try:
            yield
        finally:
            # The silence starts now. If this fails, the time written at the start remains.
            with contextlib.suppress(OSError):
                _write(descriptor, holder, clock(), silence)


def renew(system: System, instance: str, holder: str) -> None:
    """Renew the lock. Raises LockedError unless the holder has it."""
    with working(system, instance, holder):
        pass


def release(system: System, instance: str, holder: str) -> None:
    """Release the lock if this holder has it."""
    path = _path(system, instance)
    with contextlib.suppress(_GoneError), _file(system, instance, create=False) as descriptor:
        found = _record(_read(descriptor))
        if found and found["holder"] == holder:
            path.unlink()
            # Unless locks of other instances are in it.
            with contextlib.suppress(OSError):
                path.parent.rmdir()


@contextlib.contextmanager
def shared(system: System, *, alone: bool = False) -> Iterator[None]:
    """Look at what all control planes of the host share, such as programs; ``alone``: change it, and nobody looks.

    Whoever has a lock on the host waits here for others that have one. Nobody does before the first lock since a boot.
    """
    try:
        descriptor = os.open(system.path(LOCK_FOLDER), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def others_at_work(system: System, instance: str) -> list[str]:
    """Control planes but this one that a living run has the lock of, on this host."""
    paths = sorted(system.path(LOCK_FOLDER).glob("*.lock"))
    now, found = clock(), {path.stem: _content(path) for path in paths}
    return [name for name, record in found.items() if name != instance and _is_living(record, now)]


class _GoneError(LockedError):
    """There is no lock."""


def _lost(instance: str, holder: str) -> LockedError:
    begins = f"this run has lost the lock of {instance} on this host, and changes nothing more there"
    if holder:
        return LockedError(f"{begins}: {holder} has it; when that run has ended, run again", holder)
    return _GoneError(f"{begins}: the host was booted, or another run has been there meanwhile; run again")


def _is_living(found: dict[str, Any] | None, now: float) -> bool:
    """Return whether the lock has a holder that is not silent for too long.

    A time far in the future is not of this boot's clock; a lock that only it could renew would never become free.
    """
    return found is not None and abs(now - found["renewed"]) < found["silence"]


def _refuse_living(found: dict[str, Any] | None, instance: str, known: tuple[str, str], now: float) -> None:
    """Raise LockedError if the lock has a holder that is not ``known`` and lives."""
    if found and found["holder"] not in known and _is_living(found, now):
        silent = max(now - found["renewed"], 0)
        raise LockedError(
            f"{found['holder']} is working on {instance} "
            f"(last seen {silent:.0f} s ago, free after {found['silence'] - silent:.0f} s more of silence)",
            found["holder"],
        )


def _path(system: System, instance: str) -> Path:
    return system.path(f"{LOCK_FOLDER}/{instance}.lock")


@contextlib.contextmanager
def _file(system: System, instance: str, *, create: bool) -> Iterator[int]:
    """Descriptor of the lock file, locked exclusively. Without ``create``, raises LockedError if there is none."""
    path = _path(system, instance)
    deadline, pause = time.monotonic() + STEP_SECONDS, 0.001
    while True:
        try:
            with writing(path):
                descriptor = _opened(path, create)
        except _MissingError:
            if not create:
                raise _lost(instance, "") from None
            continue  # the folder was removed with its last lock between the check and the open
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file may have been released meanwhile, and another one be under its name.
            if _is_at(path, descriptor):
                break
        except BlockingIOError:
            if time.monotonic() > deadline:
                found = _record(_read(descriptor)) or {"holder": "somebody"}
                os.close(descriptor)
                raise LockedError(
                    f"{found['holder']} has a step at work on {instance} here, and it does not end",
                    found["holder"],
                ) from None
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _MissingError(Exception):
    pass


def _opened(path: Path, create: bool) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    if create:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return os.open(path, flags | (os.O_CREAT if create else 0), 0o600)
    except FileNotFoundError as error:
        raise _MissingError from error


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read(descriptor: int) -> bytes:
    return os.pread(descriptor, 1 << 16, 0)


def _write(descriptor: int, holder: str, now: float, silence: float = LOCK_SILENCE) -> None:
    content = json.dumps({"holder": holder, "renewed": now, "silence": silence}).encode()
    os.pwrite(descriptor, content, 0)
    os.ftruncate(descriptor, len(content))


def _content(path: Path) -> dict[str, Any] | None:
    try:
        return _record(path.read_bytes())
    except FileNotFoundError:
        return None


def _record(content: bytes) -> dict[str, Any] | None:
    """Holder of the lock, time of its last renewal, and seconds that it may be silent after that.

    None for a partial record, whose run ended while it wrote.
    """
    try:
        found = json.loads(content)
        # Earlier versions of this collection do not write the silence.
        silence = min(max(LOCK_SILENCE, float(found.get("silence", LOCK_SILENCE))), LONGEST_SILENCE)
        return {"holder": str(found["holder"]), "renewed": float(found["renewed"]), "silence": silence}
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
