# SPDX-License-Identifier: Apache-2.0
"""The lists that an API server merges entry by entry, and the fields by which it tells entries apart.

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
    # of pods; of a ServiceAccount, where we set none, it is one value
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
#: Key → what it is where an entry does not say.
DEFAULTS: Mapping[str, str] = {"protocol": "TCP"}


def merge_keys(field: str, entries: Sequence[Any]) -> tuple[str, ...] | None:
    """The keys of a list with this field name; None where it is one value, as all lists inside it are then.

    The entries tell ports of containers from those of Services; both have one field name.
    """
    if field == "ports":
        of_containers = all(isinstance(each, dict) and "containerPort" in each for each in entries)
        return _PORTS_OF_CONTAINERS if of_containers else _PORTS_OF_SERVICES
    return _KEYS.get(field)
