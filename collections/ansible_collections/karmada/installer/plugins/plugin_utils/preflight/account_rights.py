# SPDX-License-Identifier: Apache-2.0
"""What an account needs to be allowed to do at the host cluster, and which of it this one may not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..components import endpoint
from ..kube.errors import Forbidden
from ..problems import Problem, Reason
from ..render import etcd_nodes
from ..run.run import Run

READ, WRITE = ("get", "list", "watch"), ("create", "patch", "delete")
#: (API group, resource) → verbs that an installation needs in its namespace.
HOST_RIGHTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("", "secrets", (*READ, *WRITE)),
    ("", "configmaps", (*READ, *WRITE)),
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
    ("policy", "poddisruptionbudgets", (*READ, *WRITE)),
    ("networking.k8s.io", "networkpolicies", (*READ, *WRITE)),
    ("coordination.k8s.io", "leases", ("get", "create", "update", "delete")),
)
#: What is needed beside that where etcd keeps its data in directories of the nodes, on persistentvolumes.
HOST_PATH_RIGHTS = ("get", "list", "create", "patch", "delete")


def problems(run: Run) -> Iterable[Problem]:
    """The rights that this document needs and the account does not have."""
    wanted = in_namespace(run.namespace)
    if namespace_is_missing(run):
        # Made by server-side apply, and removed again by an uninstall.
        wanted += [
            (verb, "", "namespaces", None if verb == "create" else run.namespace, "", run.namespace) for verb in WRITE
        ]
    wanted.append(("list", "storage.k8s.io", "storageclasses", None))
    wanted.append(("get", "scheduling.k8s.io", "priorityclasses", None))
    wanted += _of_endpoint(run.spec["endpoint"], run.namespace)
    if etcd_nodes.is_wanted(run.spec):
        wanted += [(verb, "", "persistentvolumes", None) for verb in HOST_PATH_RIGHTS]
        wanted.append(("list", "", "nodes", None))
    yield from told(run.host_cluster.can_i(wanted))


def in_namespace(namespace: str) -> list[tuple[str | None, ...]]:
    """As can_i takes them. A Role suffices for all of them, for looking at the namespace itself, too."""
    inside: list[tuple[str | None, ...]] = [
        (verb, group, *_with_subresource(resource, namespace))
        for group, resource, verbs in HOST_RIGHTS
        for verb in verbs
    ]
    return [*inside, ("get", "", "namespaces", namespace, "", namespace)]


def told(permissions: Sequence[object]) -> Iterable[Problem]:
    """One problem that names all of them; none where there are none."""
    if permissions:
        yield Problem(
            what=f"the account may not: {'; '.join(str(each) for each in permissions)}",
            where="host cluster",
            remedy="grant these rights (docs/reference/rights.md lists them all), or use another account",
            reason=Reason.MISSING_PERMISSION,
        )


def _of_endpoint(settings: Mapping[str, Any], namespace: str) -> list[tuple[str | None, ...]]:
    """What only this type of endpoint needs."""
    kind = settings["type"]
    if kind == "NodePort":
        return [] if settings.get("host") else [("list", "", "nodes", None)]
    passage = endpoint.PASSAGES.get(kind)
    if not passage:
        return []
    wanted: list[tuple[str | None, ...]] = [
        (verb, passage.group, passage.resource, namespace) for verb in (*READ, *WRITE)
    ]
    if kind == "Ingress":
        wanted.append(("list", passage.group, "ingressclasses", None))
    elif settings.get("host"):
        # OpenShift asks for more from those who choose a name themselves.
        wanted += [(verb, passage.group, passage.resource, namespace, "custom-host") for verb in ("create", "update")]
    return wanted


def namespace_is_missing(run: Run) -> bool:
    """Whether the namespace is known not to exist yet."""
    try:
        return run.host_cluster.get("v1", "Namespace", run.namespace) is None
    except Forbidden:
        return False  # to look is one of the rights that are asked for


def _with_subresource(resource: str, namespace: str) -> tuple[str, str, str]:
    kind, _, subresource = resource.partition("/")
    return kind, namespace, subresource
