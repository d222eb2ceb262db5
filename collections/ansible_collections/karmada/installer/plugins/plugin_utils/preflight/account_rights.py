# SPDX-License-Identifier: Apache-2.0
"""Permissions that the account needs in the host cluster, and those of them that it lacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..components import endpoint
from ..components.spec import Endpoint
from ..kube.errors import Forbidden
from ..problems import Problem, Reason
from ..render import etcd_nodes
from ..run.run import Run

#: Nobody waits for Secrets, ConfigMaps and policies, so they are not watched. What an apply creates needs ``create``,
#: although the request is a patch.
LOOK = ("get", "list")
READ, WRITE = (*LOOK, "watch"), ("create", "patch", "delete")
#: (API group, resource) → verbs that an installation needs in its namespace.
HOST_RIGHTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("", "secrets", (*LOOK, *WRITE)),
    ("", "configmaps", (*LOOK, *WRITE)),
    ("", "services", (*READ, *WRITE)),
    ("", "persistentvolumeclaims", ("get", "list", "watch", "delete")),
    ("", "pods", (*READ, "delete")),
    ("", "pods/log", ("get",)),
    ("", "pods/portforward", ("get", "create")),
    ("", "events", ("list",)),
    ("", "resourcequotas", ("list",)),
    ("", "limitranges", ("list",)),
    ("apps", "deployments", (*READ, *WRITE)),
    ("apps", "statefulsets", (*READ, *WRITE)),
    ("policy", "poddisruptionbudgets", (*LOOK, *WRITE)),
    ("networking.k8s.io", "networkpolicies", (*LOOK, *WRITE)),
    ("coordination.k8s.io", "leases", ("get", "create", "update", "delete")),
)
#: Permission that is used and not required, in the form of ``can_i``: to know the host cluster again by its UID.
IDENTITY: tuple[str | None, ...] = ("get", "", "namespaces", None, None, "kube-system")
#: Verbs needed on persistentvolumes, in addition, where etcd keeps its data in directories of the nodes.
HOST_PATH_RIGHTS = ("get", "list", "create", "patch", "delete")

#: Verbs on pods that a restore needs beside those: pods that make the new data of etcd.
RESTORE_RIGHTS = ("create", "patch")
#: Verbs on pods that a backup in a volume claim needs beside those: its pod. A restore has them, too.
CLAIM_RIGHTS = ("create",)


def problems(run: Run) -> Iterable[Problem]:
    """Permissions that this document needs and the account lacks."""
    wanted = in_namespace(run.namespace)
    if namespace_is_missing(run):
        # Created by server-side apply, and deleted by an uninstall.
        wanted += [
            (verb, "", "namespaces", None if verb == "create" else run.namespace, "", run.namespace) for verb in WRITE
        ]
    wanted.append(("list", "storage.k8s.io", "storageclasses", None))
    wanted.append(("get", "scheduling.k8s.io", "priorityclasses", None))
    wanted += _of_endpoint(run.spec.endpoint, run.namespace)
    if etcd_nodes.is_wanted(run.spec):
        wanted += [(verb, "", "persistentvolumes", None) for verb in HOST_PATH_RIGHTS]
        wanted.append(("list", "", "nodes", None))
    yield from told(run.host_cluster.can_i(wanted))


def in_namespace(namespace: str) -> list[tuple[str | None, ...]]:
    """Permissions in the namespace, in the form of ``can_i``. A Role can grant all, reading the namespace included."""
    inside: list[tuple[str | None, ...]] = [
        (verb, group, *_with_subresource(resource, namespace))
        for group, resource, verbs in HOST_RIGHTS
        for verb in verbs
    ]
    return [*inside, ("get", "", "namespaces", namespace, "", namespace)]


def of_restores(namespace: str) -> list[tuple[str | None, ...]]:
    """Permissions that a restore needs in the namespace beside those."""
    return [(verb, "", "pods", namespace, "") for verb in RESTORE_RIGHTS]


def told(permissions: Sequence[object]) -> Iterable[Problem]:
    """One problem that names all of these permissions; none if there are none."""
    if permissions:
        yield Problem(
            what=f"the account may not: {'; '.join(str(each) for each in permissions)}",
            where="host cluster",
            remedy="grant these rights (docs/reference/rights.md lists them all), or use another account",
            reason=Reason.MISSING_PERMISSION,
        )


def _of_endpoint(settings: Endpoint, namespace: str) -> list[tuple[str | None, ...]]:
    """Permissions that only this type of endpoint needs."""
    kind = settings.type
    if kind == "NodePort":
        return [] if settings.host else [("list", "", "nodes", None)]
    passage = endpoint.PASSAGES.get(kind)
    if not passage:
        return []
    wanted: list[tuple[str | None, ...]] = [
        (verb, passage.group, passage.resource, namespace) for verb in (*READ, *WRITE)
    ]
    if kind == "Ingress":
        wanted.append(("list", passage.group, "ingressclasses", None))
    elif settings.host:
        # OpenShift requires more of accounts that choose the name themselves.
        wanted += [(verb, passage.group, passage.resource, namespace, "custom-host") for verb in ("create", "update")]
    return wanted


def namespace_is_missing(run: Run) -> bool:
    """Return whether the namespace is known not to exist yet."""
    try:
        return run.host_cluster.get("v1", "Namespace", run.namespace) is None
    except Forbidden:
        return False  # reading it is one of the permissions that are checked


def _with_subresource(resource: str, namespace: str) -> tuple[str, str, str]:
    kind, _, subresource = resource.partition("/")
    return kind, namespace, subresource
