# SPDX-License-Identifier: Apache-2.0
"""An API server of which some kinds are listed once, for those who would get many of their objects one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from ..api_object import Object
from .cluster import Cluster
from .objects import Ref

#: apiVersion, kind and namespace.
Group = tuple[str, str, str | None]


def listed(cluster: Cluster, groups: Iterable[Group], known: Iterable[Object] = ()) -> Cluster:
    """``cluster``, of which ``groups`` are listed now. ``known`` are all objects of other groups, read already."""
    return cast("Cluster", _Listed(cluster, groups, known))


class _Listed:
    """Reads like ``cluster`` as it was when this was made; everything but reading single objects goes there."""

    def __init__(self, cluster: Cluster, groups: Iterable[Group], known: Iterable[Object] = ()) -> None:
        self._cluster = cluster
        self._found: dict[Group, dict[str, Object]] = {}
        for group in groups:
            self._found[group] = {each["metadata"]["name"]: each for each in cluster.list(*group)}
        for each in known:
            ref = Ref.of(each)
            self._found.setdefault((ref.api_version, ref.kind, ref.namespace), {})[ref.name] = each

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """See ``Cluster.get``."""
        group = self._found.get((api_version, kind, namespace))
        return self._cluster.get(api_version, kind, name, namespace) if group is None else group.get(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)
