# SPDX-License-Identifier: Apache-2.0
"""API servers that are read less: of one some kinds are listed once, and one that is not there yet has nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from ..api_object import Object
from .cluster import Applied, Cluster
from .errors import NotFound
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


class _Absent:
    """Reads like an API server that is empty; an object that is to be tried there finds no home."""

    def get(self, *_: Any) -> None:
        """See ``Cluster.get``."""

    def list(self, *_: Any, **__: Any) -> list[Object]:
        """See ``Cluster.list``."""
        return []

    def apply(self, obj: Object, **_: Any) -> Applied:
        """See ``Cluster.apply``."""
        raise NotFound("an API server", "PATCH", str(Ref.of(obj)), 404, "NotFound", "it is not there yet")


#: An API server that is still to come, or of which is known that nothing that matters is there.
ABSENT = cast("Cluster", _Absent())
