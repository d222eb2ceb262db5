# SPDX-License-Identifier: Apache-2.0
"""References of a document by name: Secrets and ConfigMaps, as objects of its cluster or as directories."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .. import awx_job, private_file
from ..encoding import files_of
from ..kube import kubeconfig
from ..kube.cluster import Cluster
from ..problems import Problem, ProblemsError, Reason
from . import manifest, secret_folder
from .inventory_source import PATHS

#: Variable of the environment with the kubeconfig of a control plane on plain hosts.
CONTROL_PLANE_VARIABLE = "KARMADA_KUBECONFIG"
#: How a kubeconfig is named that is not found.
NAME_IT = (
    "name it in the inventory source (kubeconfig_output: …) or in the environment "
    f"({CONTROL_PLANE_VARIABLE}, in AWX by a credential)"
)


@dataclass(frozen=True)
class Connection:
    """Settings of the inventory source besides the document. Paths are absolute or None.

    ``object_uid`` is the UID of the object that the document was read from; None if it came from a file. What is None
    is looked for when it is used: a kubeconfig, for one, in the environment of whoever uses it.
    """

    kubeconfig: str | None = None
    context: str | None = None
    secrets: str | None = None
    config_maps: str | None = None
    artifacts: str | None = None
    kubeconfig_output: str | None = None
    report_output: str | None = None
    object_uid: str | None = None
    backups: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Connection:
        """Connection from the form that the inventory keeps, which may have been read elsewhere and long ago.

        Its relative paths are relative to the working directory. ``beside`` is where files of a run are that have no
        place of their own; a job of AWX leaves no kubeconfig, and its report among its artifacts. Other keys are not
        read.
        """
        known = {each.name for each in fields(cls)}
        found = {key: value for key, value in given.items() if key in known and value is not None}
        beside = given.get("beside")
        if beside and (folder := awx_job.artifacts(environment)):
            found.setdefault("report_output", f"{folder}/report.json")
        elif beside:
            found.setdefault("report_output", f"{beside}.report.json")
            if not found.get("object_uid"):
                # Whoever reads an object has the Secret beside it; nobody may want a file on this machine.
                found.setdefault("kubeconfig_output", f"{beside}.kubeconfig")
        for key in found.keys() & set(PATHS):
            found[key] = str(private_file.expanded(found[key]).absolute())
        return cls(**found)

    @property
    def control_plane_kubeconfig(self) -> str | None:
        """Kubeconfig of a control plane on plain hosts: that of the environment, or what an installation has left.

        A credential of AWX has a file of another name in each job. An object has a Secret beside it, and the
        environment may know of another control plane.
        """
        given = None if self.object_uid else os.environ.get(CONTROL_PLANE_VARIABLE)
        return str(private_file.expanded(given).absolute()) if given else self.kubeconfig_output

    @property
    def page_output(self) -> str | None:
        """File for the report as a page, beside the one as JSON."""
        return f"{self.report_output.removesuffix('.json')}.html" if self.report_output else None

    def folder(self, secret: str) -> Path | None:
        """Directory that stands in for a Secret; None if Secrets are objects of a cluster."""
        return secret_folder.path(self.secrets, secret, "Secret") if self.secrets else None


class References:
    """Secrets and ConfigMaps of one document. ``home`` gives the cluster that has them, and is called only if needed.

    A run from files has directories in their place, laid out like mounted Secrets.
    """

    def __init__(self, deployment: Mapping[str, Any], connection: Connection, home: Callable[[], Cluster]) -> None:
        self._deployment, self._connection, self._home = deployment, connection, home

    def secret(self, name: str, where: str) -> dict[str, bytes]:
        """Secret to which the document refers: key → content. Raises ProblemsError if it does not exist."""
        if self._connection.secrets:
            return _secret_directory(Path(self._connection.secrets), name, where)
        namespace = self._deployment["metadata"]["namespace"]
        found = self._home().get("v1", "Secret", name, namespace)
        if found is None:
            raise ProblemsError(
                Problem(
                    what=f"there is no Secret {namespace}/{name}",
                    where=where,
                    remedy="create it, or name a directory in the inventory source: secrets: ./secrets",
                    reason=Reason.SECRET_NOT_FOUND,
                )
            )
        return files_of(found.get("data"))

    def config_maps(self) -> dict[str, dict[str, str]]:
        """ConfigMaps to which the document refers: name → key → text. Missing ones are left out."""
        found = {name: self._config_map(name) for name in manifest.config_map_references(self._deployment).values()}
        return {name: data for name, data in found.items() if data is not None}

    def _config_map(self, name: str) -> dict[str, str] | None:
        if self._connection.config_maps:
            folder = Path(self._connection.config_maps) / name
            return (
                {path.name: path.read_text("utf-8", "replace") for path in sorted(folder.iterdir()) if path.is_file()}
                if folder.is_dir()
                else None
            )
        found = self._home().get("v1", "ConfigMap", name, self._deployment["metadata"]["namespace"])
        return None if found is None else dict(found.get("data") or {})


def cluster_from_secret(
    files: Mapping[str, bytes],
    context: str | None,
    name: str,
    where: str,
    kind: type[Cluster] | None = None,
    folder: Path | None = None,
    secret: str = "",
) -> Cluster:
    """Client of a cluster described by a Secret: key ``kubeconfig``, or ``server``, ``token`` and ``ca.crt``.

    ``folder`` is the directory that stands in for the Secret (``Connection.folder``), if there is one; ``secret`` its
    namespace and name.
    """
    return (kind or Cluster)(kubeconfig.from_secret(files, context, where, folder, secret), name)


def _secret_directory(secrets: Path, name: str, where: str) -> dict[str, bytes]:
    folder = secret_folder.path(secrets, name, where)
    if not folder.is_dir():
        raise ProblemsError(
            Problem(
                what=f"there is no directory {name} among the secrets of this run",
                where=f"{where} ({secrets})",
                remedy=f"create {folder} with one file per key, such as {folder}/kubeconfig",
                reason=Reason.SECRET_NOT_FOUND,
            )
        )
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
