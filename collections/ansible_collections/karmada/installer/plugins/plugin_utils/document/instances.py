# SPDX-License-Identifier: Apache-2.0
"""All control planes of a namespace or of a cluster, for an inventory source with ``instances: all``.

Their objects come with one LIST. One that is not valid is told apart and keeps none of the others away; a server that
does not answer is an error, because whoever keeps an inventory deletes what an empty one leaves out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import awx_job
from ..components.spec import Spec
from ..kube.errors import ApiError
from ..kube.shared_clients import SharedClients
from ..problems import Problem, ProblemsError, Reason
from . import inventory_source, kept_verdicts, manifest
from .inventory_source import Source

_SELECTOR = re.compile(r"[-A-Za-z0-9_./!=(), ]*")


@dataclass(frozen=True)
class Instance:
    """One control plane: its document with what the source says, and what its object tells of it."""

    source: Source
    phase: str
    version: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Broken:
    """Object that cannot be worked with, and why."""

    namespace: str
    name: str
    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Instances:
    """Control planes by namespace and name, in this order."""

    found: tuple[Instance, ...]
    broken: tuple[Broken, ...]


def load(path: str, options: Mapping[str, str], clients: SharedClients) -> Instances:
    """Read all objects that the options of a source choose. Raises ProblemsError if they cannot be read.

    ``clients`` has the client of their cluster, for whoever asks that cluster for more.
    """
    file = Path(path)
    if problems := inventory_source.missing_paths(file, options):
        raise ProblemsError(problems)
    found: list[Instance] = []
    broken: list[Broken] = []
    with kept_verdicts.used():
        for each in sorted(_listed(file, options, clients), key=_place):
            namespace, name = _place(each)
            try:
                found.append(_instance(file, options, each))
            except ProblemsError as error:
                broken.append(Broken(namespace, name, tuple(error.problems)))
    return Instances(tuple(found), tuple(broken))


def _place(found: Mapping[str, Any]) -> tuple[str, str]:
    return found["metadata"]["namespace"], found["metadata"]["name"]


def _instance(file: Path, options: Mapping[str, str], found: Mapping[str, Any]) -> Instance:
    namespace, name = _place(found)
    status = found.get("status") or {}
    deployment = manifest.resolve(found, source=f"{manifest.KIND} {namespace}/{name}")
    if problems := inventory_source.without_artifacts(file, options, deployment):
        raise ProblemsError(problems)
    # Two namespaces may have the same name in them.
    beside = file.parent.absolute() / f"{namespace}.{name}"
    return Instance(
        source=inventory_source.source_of(
            file, options, deployment, beside, installed=inventory_source.is_installed(found)
        ),
        phase=str(status.get("phase") or ""),
        version=str(status.get("karmadaVersion") or Spec(deployment["spec"]).version or ""),
        labels=dict(deployment["metadata"].get("labels") or {}),
    )


def _listed(file: Path, options: Mapping[str, str], clients: SharedClients) -> list[dict[str, Any]]:
    namespace, selector = options.get("namespace"), options.get("label_selector")
    where = f"{inventory_source.short(file)}: label_selector"
    if selector is not None and not _SELECTOR.fullmatch(selector):
        raise ProblemsError(_selector(selector, where))
    kubeconfig = inventory_source.absolute(file, options.get("kubeconfig"))
    cluster = clients.of(kubeconfig, options.get("context"), "host cluster")
    try:
        if cluster.resource(manifest.API_VERSION, manifest.KIND) is None:
            what = f"it does not know the kind {manifest.KIND}"
            remedy = "Apply its definition (CRD), or name a kubeconfig of the cluster that has these objects."
            raise ProblemsError(Problem(what, "host cluster", remedy, reason=Reason.DOCUMENT_NOT_FOUND))
        return list(cluster.list(manifest.API_VERSION, manifest.KIND, namespace, selector))
    except ApiError as error:
        if error.status == 400 and selector is not None:
            raise ProblemsError(_selector(selector, where)) from error
        whose = f"of namespace {namespace}" if namespace else "of all namespaces"
        remedy = "" if namespace or error.status != 403 else "Write the namespace that may be read: namespace: …"
        told = Problem(
            f"the objects {manifest.KIND} {whose} cannot be read: {error}",
            "host cluster",
            remedy or _of_awx(error),
            reason=error.problem_reason,
        )
        raise ProblemsError(told) from error


def _selector(given: str, where: str) -> Problem:
    remedy = "Write labels as kubectl takes them with --selector: tier=prod,region in (eu, us)"
    return Problem(f"{given!r} is no selector of labels", where, remedy, reason=Reason.INVALID_INVENTORY_SOURCE)


def _of_awx(error: ApiError) -> str:
    if error.status not in (401, 403) or not (awx_job.artifacts() or os.environ.get("INVENTORY_UPDATE_ID")):
        return ""
    return "In AWX, the credential of the inventory source decides what may be read."
