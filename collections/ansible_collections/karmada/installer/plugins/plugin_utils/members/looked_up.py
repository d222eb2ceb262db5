# SPDX-License-Identifier: Apache-2.0
"""Servers that say which members are registered, for the key of a cache: another server's answer is another entry.

Nobody is asked: kubeconfigs are read, and programs that they name are not run. A Secret that is an object is known by
its name and by the server that has it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..components.spec import Spec
from ..document.inventory_source import Source
from ..document.references import Connection, References
from ..kube import kubeconfig
from ..problems import ProblemsError

#: From kubeconfig and context to what tells the server apart.
_Leads = Callable[[str | None, str | None], list[Any]]


def key(options: Mapping[str, str], sources: Iterable[Source]) -> str:
    """Key that tells these options of an inventory source, its control planes and their servers apart.

    It is a digest, of nothing that is secret. A server that cannot be told counts as none: whoever asks it says why.
    """

    # Of hundreds of objects in one cluster, the kubeconfig is read once.
    @cache
    def leads(path: str | None, context: str | None) -> list[Any]:
        return _leading(lambda: kubeconfig.from_file(path, context, prepared=False))

    found = [[*_whose(each), *_of_source(each, leads)] for each in sources]
    return hashlib.sha256(json.dumps([dict(options), found], sort_keys=True).encode()).hexdigest()[:32]


def _whose(source: Source) -> list[Any]:
    metadata = source.deployment["metadata"]
    # Before it was installed, nobody was asked.
    return [metadata["namespace"], metadata["name"], source.installed]


def _of_source(source: Source, leads: _Leads) -> list[Any]:
    spec, connection = Spec(source.deployment["spec"]), Connection.of(source.connection)
    if spec.mode == "Binary":
        given = connection.control_plane_kubeconfig
        if given is None and connection.object_uid:
            return leads(connection.kubeconfig, connection.context)
        return leads(given, None) if Path(given or "").is_file() else []
    settings = spec.host_cluster
    if not settings.secret:
        return leads(connection.kubeconfig, settings.context or connection.context)
    if not connection.secrets:
        return [settings.secret, settings.context, *leads(connection.kubeconfig, connection.context)]
    return _leading(lambda: _of_folder(source.deployment, connection, settings.secret or "", settings.context))


def _of_folder(
    deployment: Mapping[str, Any], connection: Connection, secret: str, context: str | None
) -> kubeconfig.Access:
    """Access that the directory of a Secret has."""
    where = "spec.hostCluster.secretRef"
    files = References(deployment, connection, _nobody).secret(secret, where)
    return kubeconfig.from_secret(files, context, where, connection.folder(secret))


def _nobody() -> Any:
    raise AssertionError("directories stand for Secrets")


def _leading(access: Callable[[], kubeconfig.Access]) -> list[Any]:
    """Server, and what tells it from another one of the same address; nothing of the credential."""
    try:
        found = access()
    except ProblemsError:
        return []
    return [found.server, found.ca_pem, found.tls_server_name, found.proxy, found.insecure, *found.extra_headers]
