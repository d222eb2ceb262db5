# SPDX-License-Identifier: Apache-2.0
"""API servers with fewer reads: listed once for some kinds, or known to be empty."""

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
    """``cluster`` with ``groups`` listed now. ``known`` are all objects of other groups, read already."""
    return cast("Cluster", _Listed(cluster, groups, known))


class _Listed:
    """Client that gets listed objects from memory, as of its creation; all else goes to ``cluster``."""

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
    """Client of an empty API server; an apply raises NotFound."""

    def get(self, *_: Any) -> None:
        """See ``Cluster.get``."""

    def list(self, *_: Any, **__: Any) -> list[Object]:
        """See ``Cluster.list``."""
        return []

    def apply(self, obj: Object, **_: Any) -> Applied:
        """See ``Cluster.apply``."""
        raise NotFound("an API server", "PATCH", str(Ref.of(obj)), 404, "NotFound", "it is not there yet")


#: An API server that does not exist yet, or that is known to have nothing relevant.
ABSENT = cast("Cluster", _Absent())
