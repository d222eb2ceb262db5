# SPDX-License-Identifier: Apache-2.0
"""Lists that an API server merges entry by entry, with the fields that identify an entry.

An API server serves them with its OpenAPI document (``x-kubernetes-list-map-keys``, ``x-kubernetes-patch-merge-key``),
and ``tests/contract/test_merge_keys.py`` compares the table with what a real one serves for the kinds that we make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Field → the keys of server-side apply. The first of them alone is the key of a strategic merge patch.
_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    # of pods; in a ServiceAccount, where we set none, the list is atomic
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "matchConditions": ("name",),
    "ownerReferences": ("uid",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
    "webhooks": ("name",),
}
_PORTS_OF_CONTAINERS = ("containerPort", "protocol")
_PORTS_OF_SERVICES = ("port", "protocol")
#: Key → its value where an entry does not set it.
DEFAULTS: Mapping[str, str] = {"protocol": "TCP"}


def merge_keys(field: str, entries: Sequence[Any]) -> tuple[str, ...] | None:
    """Merge keys of the list in this field; None if the list is atomic, as are all lists inside it.

    The entries tell container ports from Service ports; both fields are called ``ports``.
    """
    if field == "ports":
        of_containers = all(isinstance(each, dict) and "containerPort" in each for each in entries)
        return _PORTS_OF_CONTAINERS if of_containers else _PORTS_OF_SERVICES
    return _KEYS.get(field)
