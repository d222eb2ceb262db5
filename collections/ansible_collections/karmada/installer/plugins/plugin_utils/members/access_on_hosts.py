# SPDX-License-Identifier: Apache-2.0
"""Access to a control plane on plain hosts from where a run or an inventory stands, which logs in to no host for it.

Beside an object is the Secret ``<name>-admin-config``, wherever the control plane is. For a document from a file it is
a kubeconfig: of the environment, which a credential of AWX gives, or the one that an installation has left. Where
neither is there, as in a job of AWX, a run may look at the hosts, whose state has the administrator's authority.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..document.inventory_source import short
from ..document.references import NAME_IT, Connection
from ..encoding import files_of
from ..kube import kubeconfig
from ..kube.cluster import Cluster
from ..kube.shared_clients import SharedClients
from ..problems import Problem, ProblemsError, Reason


def is_given(connection: Connection) -> bool:
    """Return whether somebody has said how the control plane is reached, be it right or not."""
    if connection.object_uid or connection.control_plane_kubeconfig != connection.kubeconfig_output:
        return True
    return Path(connection.kubeconfig_output or "").is_file()


def client(
    deployment: Mapping[str, Any], connection: Connection, otherwise: str, clients: SharedClients | None = None
) -> Cluster:
    """Client of the control plane. ``otherwise`` is what else can be done if its kubeconfig is not there.

    ``clients`` are shared by whoever asks many control planes.
    Raises ProblemsError, with the reason KUBECONFIG_NOT_FOUND if there is none, and ApiError.
    """
    given = connection.control_plane_kubeconfig
    if given is None and connection.object_uid:
        if clients is not None:
            return _beside_object(deployment, connection, clients, otherwise)
        with SharedClients() as own:
            return _beside_object(deployment, connection, own, otherwise)
    if not Path(given or "").is_file():
        where = f"{f'{short(given)}: ' if given else ''}kubeconfig of the control plane"
        raise _not_there(where, f"{NAME_IT}, or {otherwise}")
    return Cluster.from_kubeconfig(given, name="control plane")


def _beside_object(
    deployment: Mapping[str, Any], connection: Connection, clients: SharedClients, otherwise: str
) -> Cluster:
    home = clients.of(connection.kubeconfig, connection.context, "host cluster")
    namespace, name = deployment["metadata"]["namespace"], f"{deployment['metadata']['name']}-admin-config"
    found = home.get("v1", "Secret", name, namespace)
    where = f"Secret {namespace}/{name}"
    if found is None:
        raise _not_there(where, f"run karmada.installer.install, which makes it, or {otherwise}")
    access = kubeconfig.from_secret(files_of(found.get("data")), None, where, secret=f"{namespace}/{name}")
    return Cluster(access, "control plane")


def _not_there(where: str, remedy: str) -> ProblemsError:
    what = "it is not there, and says how the control plane is reached"
    return ProblemsError(Problem(what, where, remedy, reason=Reason.KUBECONFIG_NOT_FOUND))
