# SPDX-License-Identifier: Apache-2.0
"""Clients that many users share, such as an inventory that looks at a hundred control planes in one cluster."""

from __future__ import annotations

import threading
from typing import Self

from .cluster import Cluster
from .host_cluster import HostCluster


class SharedClients:
    """Clients of API servers, one for each kubeconfig and context. Thread-safe.

    A kubeconfig is read once, a program that it names is run once for as long as its credential lasts, and connections
    are used again. All are closed at the end of the context.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: dict[tuple[str | None, str | None], Cluster] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._opened.values():
            each.close()

    def of(self, kubeconfig: str | None, context: str | None, name: str) -> Cluster:
        """Client of the server to which a kubeconfig leads; None means what the environment names.

        ``name``, ``on_trouble`` and ``before_write`` are the caller's own. Connections are shared, so the caller leaves
        it open. Raises ProblemsError if the kubeconfig cannot be used.
        """
        place = (kubeconfig, context)
        with self._lock:
            if place not in self._opened:
                self._opened[place] = HostCluster.from_kubeconfig(*place, name=name)
            opened = self._opened[place]
        found = opened.with_patience(retry_seconds=opened.retry_seconds)
        found.name = name
        return found
