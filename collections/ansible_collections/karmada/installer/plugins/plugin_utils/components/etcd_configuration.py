# SPDX-License-Identifier: Apache-2.0
"""The configuration file of a member of etcd."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .etcd_state import EtcdMemberState
from .ip_families import bracketed
from .spec import Spec
from .table import ETCD, ETCD_PEER_COMMON_NAME
from .types import EtcdMember, Layout, settings_of

#: Bytes that a member's database may have if nothing else is said (``DefaultQuotaBytes`` in server/storage/quota.go).
DEFAULT_QUOTA = 2 * 1024**3
#: A member compares its content with that of the others when it discards revisions; with data also before it serves.
_CHECKS = "CompactHashCheck=true,InitialCorruptCheck=true"
#: Where all start with data at once, none answers the others before it serves, and each waits seven seconds for each of
#: them (etcd 3.6, ``server/embed/etcd.go`` and ``server/etcdserver/corrupt.go``), while nobody is served.
_CHECKS_AT_FIRST = "InitialCorruptCheck=false,CompactHashCheck=true"


def of_member(
    member: EtcdMember,
    layout: Layout,
    *,
    token: str,
    existing: bool,
    generation: int,
    extra: Mapping[str, str],
    record: EtcdMemberState | None = None,
) -> dict[str, Any]:
    """The configuration file of one member. ``record`` is what the state has of it, if it has anything.

    ``existing`` is permanent once the cluster has been healthy. From then on a member whose ID is on record, and which
    can be replaced therefore, names nobody but itself: with its data it reads nothing of that. Without, it finds nobody
    to ask who the others are, and ends. Had it the names of the others it would come back under its ID with an empty
    log, although it has voted and acknowledged writes: two such members of three would be a majority that has forgotten
    what clients were told is kept.

    ``generation`` numbers the data directory, so that a restore can put a new one beside the old. ``extra`` holds
    configuration keys of the document, which win; their values are read as YAML scalars, because the file is typed and
    a command line is not.

    A member that is added has a data directory of its own, and starts with the members that etcd named when it was
    added; the first ones start with one another, and compare nothing then: what they have was made of one snapshot, and
    is compared when all of them answer.
    """
    of_record = record or EtcdMemberState(member.name)
    together = [member] if existing and of_record.id else layout.etcd_members
    names = ",".join(f"{each.name}={each.peer_url}" for each in together)
    ports = ETCD.ports
    listen = bracketed(layout.bind_address)

    def tls(directory: str, client_directory: str) -> dict[str, Any]:
        return {
            "cert-file": layout.path("pki", directory, "tls.crt"),
            "key-file": layout.path("pki", directory, "tls.key"),
            "client-cert-file": layout.path("pki", client_directory, "tls.crt"),
            "client-key-file": layout.path("pki", client_directory, "tls.key"),
            "client-cert-auth": True,
            "trusted-ca-file": layout.path("pki", directory, "ca.crt"),
        }

    configuration: dict[str, Any] = {
        "name": member.name,
        "data-dir": data_folder(layout, generation, of_record),
        "listen-client-urls": f"https://{listen}:{ports['client']}",
        "advertise-client-urls": member.client_url,
        "listen-peer-urls": f"https://{listen}:{ports['peer']}",
        "initial-advertise-peer-urls": member.peer_url,
        # Probes have no client certificate, so health is served on a listener of its own, which serves no keys.
        "listen-metrics-urls": f"http://{bracketed(layout.metrics_address) or listen}:{ports['metrics']}",
        "initial-cluster": of_record.initial_cluster or names,
        "initial-cluster-state": "existing" if existing or of_record.added else "new",
        "initial-cluster-token": token,
        "client-transport-security": tls("server", "server"),
        "peer-transport-security": {**tls("peer", "peer-client"), "allowed-cn": [ETCD_PEER_COMMON_NAME]},
        "feature-gates": _CHECKS if of_record.id else _CHECKS_AT_FIRST,
        "log-level": "info",
    }
    return {**configuration, **{key: _typed(key, value) for key, value in extra.items()}}


def quota(spec: Spec) -> int:
    """Bytes that a member's database may have by the document, or by etcd's default."""
    text = settings_of(ETCD, spec).extra_args.get("quota-backend-bytes", "")
    return int(text) if text.isdecimal() and int(text) else DEFAULT_QUOTA


def data_folder(layout: Layout, generation: int, record: EtcdMemberState) -> str:
    """Path of the data of a member."""
    return f"{layout.data}/{folder_of(generation, record)}"


def folder_of(generation: int, record: EtcdMemberState | None = None) -> str:
    """Name of the folder with the data of a member; of the first ones of a bootstrap or restore by default."""
    return f"gen-{generation}{record.folder if record else ''}"


def read_at_start(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the configuration whose change restarts a member; the end of the bootstrap restarts none."""
    found = {**configuration, "initial-cluster-state": "", "initial-cluster": ""}
    return {**found, "feature-gates": _CHECKS} if found.get("feature-gates") == _CHECKS_AT_FIRST else found


_INTEGER = re.compile(r"-?[0-9]{1,19}")
#: Keys that etcd reads as lists, and those it reads as text though they look like numbers. It checks the types.
_LISTS = frozenset({"cipher-suites", "log-outputs"})
_TEXTS = frozenset({"auto-compaction-retention", "initial-cluster-token", "name"})


def _typed(key: str, value: str) -> bool | int | str | list[str]:
    if key in _LISTS:
        return value.split(",")
    if key in _TEXTS:
        return value
    if value in ("true", "false"):
        return value == "true"
    return int(value) if _INTEGER.fullmatch(value) else value
