# SPDX-License-Identifier: Apache-2.0
"""Secrets and ConfigMaps that a document names: which, whether they have changed, and whether they are gone.

They are looked at by name, without their content, now and then. So none of their data comes into the operator's
memory, and the right to list and watch Secrets, which it has so that it notices at once that one of a control plane is
deleted, is not needed for them. Where there are thousands, as of members, that is done less often.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, Forbidden

#: Seconds between two looks, and at least for each of those that are looked at: ten requests in a second.
EVERY, EACH = 60.0, 0.1
#: Part of that time for which a look holds. A turn that finds a run, and that of the run itself, share one, as do those
#: which follow each other because workloads change.
HOLDS = 1 / 12
#: (kind, name)
Reference = tuple[str, str]
_ENDINGS = {"secretref": "Secret", "configmapref": "ConfigMap"}
_LOG = logging.getLogger(__name__)


def pause(named: Sized) -> float:
    """Seconds between two looks at so many of them."""
    return max(EVERY, EACH * len(named))


def references(spec: Any) -> tuple[Reference, ...]:
    """Secrets and ConfigMaps that a document names: its fields ``secretRef``, ``configMapRef`` and the like."""
    return tuple(sorted(set(_references(spec))))


def _references(value: Any) -> Iterator[Reference]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            kind = next((kind for ending, kind in _ENDINGS.items() if str(key).lower().endswith(ending)), None)
            if kind and isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
                yield kind, inner["name"]
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def access(spec: Any) -> tuple[frozenset[str], tuple[tuple[str, str], ...]]:
    """Secrets without which nothing of a control plane can be reached, and (member, Secret) of its members."""
    found = spec if isinstance(spec, Mapping) else {}
    places = _secrets([found.get("hostCluster"), found.get("ssh")])
    members = [each for each in found.get("members") or () if isinstance(each, Mapping)]
    return places, tuple(sorted((str(each.get("name")), name) for each in members for name in _secrets(each)))


def _secrets(value: Any) -> frozenset[str]:
    return frozenset(name for kind, name in _references(value) if kind == "Secret")


def is_going(cluster: Cluster, namespace: str) -> bool:
    """Return whether a namespace is being deleted; False if that may not be seen."""
    try:
        return "deletionTimestamp" in (cluster.metadata("v1", "Namespace", namespace) or {})
    except ApiError:
        return False


def lost(cluster: Cluster, namespace: str, named: Iterable[str], *, going: bool) -> frozenset[str]:
    """Secrets, of these, that are gone. In a namespace that is going, so are the rights to see them."""
    found = set()
    for name in named:
        try:
            if cluster.metadata("v1", "Secret", name, namespace) is None:
                found.add(name)
        except Forbidden:
            if going:
                found.add(name)
    return frozenset(found)


def digest(cluster: Cluster, namespace: str, named: Iterable[Reference], before: str = "") -> str:
    """Digest that changes with any of these objects; empty for none. ``before`` if they cannot be looked at."""
    found = []
    try:
        for kind, name in named:
            metadata = cluster.metadata("v1", kind, name, namespace) or {}
            found.append(f"{kind}/{name}/{metadata.get('uid')}/{metadata.get('resourceVersion')}")
    except ApiError as error:
        _LOG.warning("cannot see whether what a document names has changed: %s", error)
        return before
    return hashlib.sha256("\n".join(found).encode()).hexdigest() if found else ""
