# SPDX-License-Identifier: Apache-2.0
"""The lock that admits one writing run at a time: a Lease beside the instance.

A holder that stops renewing loses the lock after ``duration_seconds``, measured on our own clock as the time for which
renewTime stands still, because the clocks of two machines need not agree. A holder on this machine loses the lock at
once when none of its processes is left.
"""

from __future__ import annotations

import contextlib
import random
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from ..api_object import Object
from ..labels import FIELD_MANAGER, MANAGED_BY_LABEL
from ..problems import Problem, ProblemsError, Reason
from ..run_process import holder_in_words, holder_is_dead, is_holder
from .cluster import Cluster
from .errors import ApiError, Conflict, NotFound
from .progress import Progress
from .transport import READ_SECONDS

API_VERSION, KIND = "coordination.k8s.io/v1", "Lease"
DURATION_SECONDS = 30
POLL_SECONDS = 2.0
# Periods after its expiry in which we still try to renew: if that succeeds, nobody took it.
REGAIN_PERIODS = 2
# Share of a period before its end in which nothing is written any more: what is on its way by then has arrived when
# somebody else may hold the lock (``transport.DELIVERY_SECONDS``). Renewals come three times a period.
IN_FLIGHT = 1 / 3
CROSSINGS = 10


class LockLost(Exception):  # noqa: N818 - reads as what happened
    """The lock is not ours any more, or that is uncertain: nothing may be written from here on."""

    @property
    def problems(self) -> list[Problem]:
        """This error as data."""
        return [Problem(str(self), reason=Reason.LOCK_LOST)]


class Lock:
    """The lock of one instance; ``name`` is that of the Lease (``<instance>-installer``).

    ``dead`` names a holder, or its run, that somebody has seen end: the lock is taken from it at once.

    Not thread-safe, apart from ``renew``, which runs in the background inside ``held``.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        holder: str,
        duration_seconds: int = DURATION_SECONDS,
        *,
        dead: str = "",
    ) -> None:
        self.cluster, self.namespace, self.name, self.holder = cluster, namespace, name, holder
        self.duration_seconds, self._dead = duration_seconds, dead
        self.lost = threading.Event()
        self.released = False
        self._own = _unguarded(cluster, cluster.retry_seconds)
        # A renewal that is still being retried when the lock expires is useless.
        self._quick = _unguarded(cluster, duration_seconds / 6, duration_seconds / 6)
        self._kept = False  # whether a thread renews the lock
        self._lease: Object | None = None  # as we last wrote it
        self._expires = 0.0  # on our own clock, see _clock
        self._guard = threading.Lock()

    def acquire(self, wait_seconds: float = 0.0, progress: Callable[[str], None] | None = None) -> None:
        """Take the lock, waiting for another holder at most ``wait_seconds``.

        Raises ProblemsError naming the holder when the lock is still held then, NotFound when the namespace is missing.
        Taking a lock that we hold already renews it.
        """
        began = _clock()
        deadline, told = began + wait_seconds, Progress(progress, began, wait_seconds, quiet=0.0)
        seen: tuple[str, str] | None = None  # (holder, renewTime) and since when it stands still
        since = 0.0
        crossed = 0
        while True:
            lease = self._read()
            if lease is None or self._is_free(lease):
                if self._take(lease):
                    return
                crossed = self._crossed(crossed)
                continue
            spec, now = lease["spec"], _clock()
            current = (spec["holderIdentity"], str(spec.get("renewTime")))
            if current != seen:
                seen, since = current, now
            if now - since >= (spec.get("leaseDurationSeconds") or self.duration_seconds):
                if self._take(lease):
                    return
                crossed = self._crossed(crossed)
                continue
            if now >= deadline:
                called_dead = shlex.quote(f"karmada_confirm_dead={current[0]}")
                raise ProblemsError(
                    Problem(
                        f"another run is writing: {holder_in_words(current[0])}, last heard of at {current[1]}",
                        f"{KIND} {self.namespace}/{self.name} in {self.cluster.name}",
                        "Wait until it has finished. If it has died, its lock is free "
                        f"{spec.get('leaseDurationSeconds') or self.duration_seconds} s after that. If it is certain "
                        f"that it is dead, run again with its name: -e {called_dead}",
                        reason=Reason.LOCKED,
                    )
                )
            # Whose it is comes first: a line is as long as a terminal is wide.
            told.tell(f"waiting for {holder_in_words(current[0])}: lock {self.namespace}/{self.name}", now)
            silent_at = since + (spec.get("leaseDurationSeconds") or self.duration_seconds)
            time.sleep(min(POLL_SECONDS, max(0.05, deadline - now), max(0.05, silent_at - now)))

    def is_ours(self) -> bool:
        """Return whether the Lease names us as its holder; costs one read."""
        lease = self._read()
        return bool(lease) and (lease or {}).get("spec", {}).get("holderIdentity") == self.holder

    def renew(self) -> None:
        """Renew the lock, unless it was released or retired meanwhile.

        Raises LockLost when the lock is not ours any more, ApiError when there was no answer, ProblemsError when there
        is no credential to ask with.
        """
        with self._guard:
            for _ in range(0 if self.released else 3):
                if self._lease is None or (self._lease.get("spec") or {}).get("holderIdentity") != self.holder:
                    raise self._lost("somebody else took it" if self._lease else "the Lease is gone")
                started = _clock()
                try:
                    self._lease = self._quick.replace(
                        {**self._lease, "spec": {**self._lease["spec"], **self._claim(_now())}}
                    )
                except Conflict:
                    # Somebody took the lock, or an earlier attempt of this call succeeded and its answer was lost.
                    self._lease = self._quick.get(API_VERSION, KIND, self.name, self.namespace)
                except NotFound:
                    self._lease = None
                else:
                    self._expires = started + self.duration_seconds
                    return

    def check(self) -> None:
        """Raise LockLost unless we hold the lock now and what is written still arrives in time; costs no request.

        Call it before each write. When renewals go unanswered for nearly as long as the lock lasts, somebody else may
        hold it by then: wait until a renewal shows that nobody took it, or until the lock is given up.
        """
        while not self.lost.is_set() and _clock() >= self._expires - self.duration_seconds * IN_FLIGHT:
            if not self._kept:
                raise self._lost("it could not be renewed in time")
            self.lost.wait(0.05)
        if self.lost.is_set():
            raise self._lost("it could not be renewed in time, or somebody else took it")

    def retire(self) -> None:
        """Hold the lock without renewing it, because the Lease itself is about to be deleted."""
        # A renewal under way would not find the Lease, or would set a new expiry.
        with self._guard:
            self.released = True
            self._expires = float("inf")

    @contextlib.contextmanager
    def held(self, *, release: bool = True) -> Iterator[Lock]:
        """Renew in the background while the block runs, and release at its end.

        Without ``release`` the lock stays ours until it expires or is released, for the next step of the same run.
        ``lost`` is set as soon as the lock is lost; a block that ends then raises LockLost.
        """
        over = threading.Event()
        self._kept = True
        thread = threading.Thread(target=self._keep, args=(over,), name=f"lock {self.name}", daemon=True)
        thread.start()
        try:
            yield self
            if not self.released:
                self.check()
        finally:
            over.set()
            thread.join(self.duration_seconds)
            self._kept = False
            if release and not self.lost.is_set() and not self.released:
                self.release()

    def release(self) -> None:
        """Release the lock if it is still ours. Does not raise if it is not."""
        with self._guard:
            self._expires = 0.0
            self.released = True
            for _ in range(3):
                lease = self._read()
                if lease is None or lease["spec"].get("holderIdentity") != self.holder:
                    return
                lease["spec"]["holderIdentity"] = ""
                lease["spec"]["renewTime"] = _now()
                try:
                    self._own.replace(lease)
                except Conflict:
                    continue
                except NotFound:
                    pass
                return

    # -- inside ----------------------------------------------------------------------------------------------------

    def _read(self) -> Object | None:
        return self._own.get(API_VERSION, KIND, self.name, self.namespace)

    def _is_free(self, lease: Object) -> bool:
        holder = (lease.get("spec") or {}).get("holderIdentity") or ""
        return holder in ("", self.holder) or is_holder(holder, self._dead) or holder_is_dead(holder)

    def _take(self, lease: Object | None) -> bool:
        """Write our name into the Lease as it was read; returns False when somebody was faster."""
        started, now = _clock(), _now()
        try:
            if lease is None:
                lease = {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "metadata": {
                        "name": self.name,
                        "namespace": self.namespace,
                        "labels": {MANAGED_BY_LABEL: FIELD_MANAGER},
                    },
                    "spec": {**self._claim(now), "acquireTime": now, "leaseTransitions": 0},
                }
                self._lease = self._own.create(lease)
            else:
                old = lease.get("spec") or {}
                spec = {**old, **self._claim(now)}
                if old.get("holderIdentity") != self.holder:
                    spec["acquireTime"] = now
                    spec["leaseTransitions"] = (old.get("leaseTransitions") or 0) + 1
                # Its resourceVersion makes a second taker fail.
                self._lease = self._own.replace({**lease, "spec": spec})
        except Conflict:
            return False
        self._expires = started + self.duration_seconds
        self.released = False
        self.lost.clear()
        return True

    def _claim(self, now: str) -> Object:
        return {"holderIdentity": self.holder, "leaseDurationSeconds": self.duration_seconds, "renewTime": now}

    def _keep(self, over: threading.Event) -> None:
        """Renew three times per period, more often after a failure; give up some time after expiry.

        However it ends before that is asked for, the lock counts as lost: ``check`` waits for nobody.
        """
        try:
            self._keep_until(over)
        except BaseException:
            self.lost.set()
            raise

    def _keep_until(self, over: threading.Event) -> None:
        pause = self.duration_seconds / 3
        while not over.wait(pause):
            if self.released:
                return
            pause = self.duration_seconds / 3
            try:
                self.renew()
            except LockLost:
                return
            except (ApiError, ProblemsError):
                # The server is unreachable, or a program or file gives no credential now: a later attempt may succeed
                # and so prove that nobody took the lock.
                pause = self.duration_seconds / 12
            if _clock() >= self._expires + REGAIN_PERIODS * self.duration_seconds:
                if not self.released:
                    self.lost.set()
                return

    def _crossed(self, times: int) -> int:
        """Pause after a concurrent write, before looking again. Raises ProblemsError after too many."""
        if times >= CROSSINGS:
            raise ProblemsError(
                Problem(
                    f"each of {times} attempts to write it met the write of somebody else",
                    f"{KIND} {self.namespace}/{self.name} in {self.cluster.name}",
                    "Find out what keeps writing it, then run again.",
                    reason=Reason.WRITE_CONFLICT,
                )
            )
        time.sleep(min(2.0, 0.05 * 2**times) * random.uniform(0.5, 1))  # noqa: S311
        return times + 1

    def _lost(self, why: str) -> LockLost:
        self.lost.set()
        return LockLost(f"lost the lock {self.namespace}/{self.name} in {self.cluster.name}: {why}")


def _unguarded(cluster: Cluster, retry_seconds: float, read_seconds: float = READ_SECONDS) -> Cluster:
    """Client for the lock's own writes, which the lock does not guard."""
    own = cluster.with_patience(retry_seconds=retry_seconds, read_seconds=read_seconds)
    own.before_write = None
    return own


def _clock() -> float:
    """Seconds of a clock that also counts while this machine is suspended, as the clocks of others do.

    Falls back to ``time.monotonic``, which stands still then.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
