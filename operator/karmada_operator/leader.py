# SPDX-License-Identifier: Apache-2.0
"""Leader, who starts runs: the holder of a Lease. Instances are fenced by locks of their own, whoever leads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.lease import Lock, LockLost
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError

LEASE = "karmada-operator"
DURATION_SECONDS = 15
#: Seconds between attempts after trouble, and between looks whether the Lease is still ours.
AGAIN, LOOK = 2.0, 0.2
_LOG = logging.getLogger(__name__)


def lead(
    cluster: Cluster,
    namespace: str,
    identity: str,
    work: Callable[[Callable[[], bool], Callable[[], None]], None],
    stopping: threading.Event,
    *,
    name: str = LEASE,
    duration: int = DURATION_SECONDS,
) -> bool:
    """Wait for the Lease, and call ``work`` while it is ours; returns whether it was ours to the end.

    ``work`` gets a function that returns whether it may go on, which it asks often and before each run it starts, and
    one that raises LockLost once another one may lead, to be asked before what only the leader may write. Ends early,
    and then returns True, when ``stopping`` is set.
    """
    lock = Lock(cluster, namespace, name, identity, duration)
    acquired = threading.Event()
    # Waiting for another holder cannot be interrupted, and ends with the process.
    threading.Thread(target=_acquire, args=(lock, acquired, stopping), name="leader", daemon=True).start()
    while not acquired.wait(LOOK):
        if stopping.is_set():
            return True
    _LOG.info("leading: %s holds Lease %s/%s", identity, namespace, name)
    with suppress(LockLost), lock.held():
        work(lambda: not stopping.is_set() and not lock.lost.is_set(), lock.check)
    if lock.lost.is_set():
        _LOG.error("lost Lease %s/%s", namespace, name)
    return not lock.lost.is_set()


def _acquire(lock: Lock, acquired: threading.Event, stopping: threading.Event) -> None:
    while not stopping.is_set():
        try:
            lock.acquire(float("inf"), _LOG.info)
        except (ApiError, ProblemsError) as error:
            _LOG.warning("cannot take Lease %s/%s: %s", lock.namespace, lock.name, error)
            stopping.wait(AGAIN)
        else:
            acquired.set()
            return
