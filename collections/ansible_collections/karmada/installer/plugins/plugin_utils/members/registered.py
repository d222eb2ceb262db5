# SPDX-License-Identifier: Apache-2.0
"""Members of a control plane for the inventory: those of the document, or those that are registered.

Registered members are read through the host cluster if the control plane runs in pods, because this reaches its API
server whatever the endpoint is; else with a kubeconfig (``access_on_hosts``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..components.spec import Spec
from ..control_plane.bootstrap import MEMBER_NAMESPACE
from ..document.inventory_source import Source
from ..document.references import Connection
from ..kube.cluster import Cluster
from ..kube.errors import ApiError
from ..kube.objects import claimed_by
from ..kube.shared_clients import SharedClients
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run
from . import access_on_hosts
from . import plan as member_plan
from .registration import CLUSTER_API

#: Time for which an inventory waits for an API server.
PATIENCE_SECONDS = 10.0
_SPEC = "write membership: spec, which asks nobody"
_REMEDY = f"let it answer, or {_SPEC}"
#: Metadata of a Cluster that is of use to people. Annotations may hold whole copies of objects.
_METADATA = ("name", "uid", "labels", "creationTimestamp", "deletionTimestamp")


@dataclass(frozen=True)
class Registered:
    """Registrations of a control plane. ``clusters`` are Cluster objects by name, reduced to fields of use in groups.

    ``recorded`` are the names of members in the installer's state, if that could be read.
    """

    owner: str = ""
    recorded: tuple[str, ...] = ()
    clusters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def plan(self, deployment: Mapping[str, Any]) -> member_plan.MemberPlan:
        """Plan of joins and leaves for this document."""
        listed = Spec(deployment["spec"]).member_by_name
        return member_plan.plan(listed, self.recorded, self.clusters, self.owner)

    def plain(self) -> dict[str, Any]:
        """JSON form, for a cache."""
        return {**asdict(self), "recorded": list(self.recorded)}

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Registered:
        """Registrations from their ``plain`` form."""
        return cls(found["owner"], tuple(found["recorded"]), found["clusters"])


def live_of_all(sources: Sequence[Source], clients: SharedClients, *, at_once: int) -> list[Registered]:
    """Current registrations of several control planes. Raises ProblemsError with all that cannot be told.

    Those in one cluster use one client of it, of ``clients``.
    """
    if len(sources) == 1:
        return [live(sources[0], clients)]
    problems: list[Problem] = []

    def found(source: Source) -> Registered:
        try:
            return live(source, clients)
        except ProblemsError as error:
            metadata = source.deployment["metadata"]
            problems.extend(
                replace(each, where=f"{metadata['namespace']}/{metadata['name']}: {each.where}")
                for each in error.problems
            )
            return Registered()

    with ThreadPoolExecutor(max_workers=at_once) as workers:
        answers = list(workers.map(found, sources))
    if problems:
        raise ProblemsError(problems)
    return answers


def live(source: Source, clients: SharedClients) -> Registered:
    """Current registrations; empty if the control plane is not installed yet. Raises ProblemsError if unknown.

    ``clients`` has that of the cluster to which the source leads. A kubeconfig that the document names in a Secret is
    its own, and nobody else's client comes of it.
    """
    try:
        if Spec(source.deployment["spec"]).mode == "Binary":
            return _on_hosts(source, clients)
        return _through_host_cluster(source, clients)
    except ApiError as error:
        what = f"it cannot be told which members are registered: {error}"
        raise ProblemsError(Problem(what, error.cluster, _REMEDY, reason=error.problem_reason)) from error


def _through_host_cluster(source: Source, clients: SharedClients) -> Registered:
    run = Run(
        source.deployment,
        Connection.of(source.connection),
        operation="inventory",
        holder="",
        check=True,
        say=lambda _message: None,
    )
    run.clients = clients
    try:
        run.host_cluster.version(retry_seconds=PATIENCE_SECONDS)
        if run.stored_state is None:
            return Registered()
        return Registered(run.state.owner, tuple(run.state.members), _clusters(run.control_plane))
    finally:
        run.close()


def _on_hosts(source: Source, clients: SharedClients) -> Registered:
    try:
        control_plane = access_on_hosts.client(source.deployment, Connection.of(source.connection), _SPEC, clients)
    except ProblemsError as error:
        missing = [each.reason for each in error.problems] == [Reason.KUBECONFIG_NOT_FOUND]
        if missing and source.connection.get("object_uid") and not source.installed:
            return Registered()
        raise
    try:
        # The installation created it, so its label names the owner.
        made = control_plane.with_patience(retry_seconds=PATIENCE_SECONDS).get("v1", "Namespace", MEMBER_NAMESPACE)
        return Registered(claimed_by(made)[1] or "" if made else "", (), _clusters(control_plane))
    finally:
        control_plane.close()


def _clusters(control_plane: Cluster) -> dict[str, Mapping[str, Any]]:
    found = control_plane.with_patience(retry_seconds=PATIENCE_SECONDS).list(CLUSTER_API, "Cluster")
    return {each["metadata"]["name"]: _of_use(each) for each in found}


def _of_use(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Cluster without the proxy's credentials and without the long list of API resources of the member."""
    metadata = {key: cluster["metadata"][key] for key in _METADATA if key in cluster["metadata"]}
    spec = {key: value for key, value in (cluster.get("spec") or {}).items() if key != "proxyHeader"}
    status = {key: value for key, value in (cluster.get("status") or {}).items() if key != "apiEnablements"}
    return {"metadata": metadata, "spec": spec, "status": status}
