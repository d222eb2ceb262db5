# SPDX-License-Identifier: Apache-2.0
"""One control plane, as the document and the installer's state together describe it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..labels import FIELD_MANAGER, INSTANCE_LABEL, MANAGED_BY_LABEL, MEMBER_LABEL, NAME_LABEL, OWNER_LABEL
from . import ip_families
from .etcd_state import EtcdMemberState
from .releases import Release
from .spec import Spec
from .types import pushed_members

#: Longest label of a DNS name.
LONGEST_LABEL = 63


@dataclass(frozen=True)
class Instance:
    """Everything that renderers need to know of a control plane.

    ``owner`` is the UUID that the first install chose; an object is ours only if it carries it. ``service_subnet`` is
    the range for Services of the control plane, or one of each IP family.
    """

    name: str
    namespace: str
    cluster_domain: str
    owner: str
    release: Release
    spec: Spec
    service_subnet: str
    #: The ConfigMaps that the document refers to and that exist: name → key → text.
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: Member → place of its own components on a host (0, 1, …), from which their ports follow.
    member_places: Mapping[str, int] = field(default_factory=dict)
    #: Members that may have an estimator: listed in mode Push, or not yet changed from it. Whether one has, shows the
    #: control plane.
    pushed: tuple[str, ...] = ()
    #: reference of an image without a digest → the digest that it must have, where one is on record
    pins: Mapping[str, str] = field(default_factory=dict)
    #: Component → number of restarts that it needed without a change of its own.
    restarts: Mapping[str, int] = field(default_factory=dict)
    #: Members of etcd in pods that are on record, in their order; empty before the bootstrap: those of the document.
    etcd_members: tuple[EtcdMemberState, ...] = ()
    #: Components that must not run, because a restore holds them, or a hand-over.
    held: frozenset[str] = frozenset()
    #: What this place claims of members, as they have it on record; empty if the control plane was never moved.
    claim: str = ""

    @classmethod
    def of(
        cls,
        deployment: Mapping[str, Any],
        release: Release,
        owner: str,
        service_subnet: str,
        config_maps: Mapping[str, Mapping[str, str]] | None = None,
        member_places: Mapping[str, int] | None = None,
        pins: Mapping[str, str] | None = None,
        restarts: Mapping[str, int] | None = None,
    ) -> Instance:
        """Instance of a document with all defaults filled in (``manifest.resolve``)."""
        spec = Spec(deployment["spec"])
        return cls(
            name=deployment["metadata"]["name"],
            namespace=spec.host_cluster.namespace,
            cluster_domain=spec.host_cluster.domain,
            owner=owner,
            release=release,
            spec=spec,
            service_subnet=service_subnet,
            config_maps=config_maps or {},
            member_places=member_places or {},
            pins=pins or {},
            restarts=restarts or {},
            pushed=pushed_members(spec),
        )

    @property
    def service_networks(self) -> list[ip_families.Network]:
        """Service ranges of the control plane, the preferred one first."""
        return ip_families.networks(self.service_subnet)

    @property
    def full_name(self) -> str:
        """Name that identifies the control plane within its host cluster: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def object_name(self, name: str) -> str:
        """Name of an object of ours: ``karmada-webhook`` of instance ``prod`` is ``prod-webhook``."""
        return f"{self.name}-{name.removeprefix('karmada-')}"

    def labels(self, component: str, member: str = "") -> dict[str, str]:
        """Labels of every object that we create; ``member`` for a per-member component."""
        return {
            **self.selector(component, member),
            MANAGED_BY_LABEL: FIELD_MANAGER,
            "app.kubernetes.io/part-of": "karmada",
            OWNER_LABEL: self.owner,
        }

    def metadata(self, component: str, name: str, member: str = "") -> dict[str, Any]:
        """Metadata of a component's object; ``name`` is the object's full name."""
        return {"name": name, "namespace": self.namespace, "labels": self.labels(component, member)}

    def selector(self, component: str, member: str = "") -> dict[str, str]:
        """Labels that select the pods of one component of one instance; they never change."""
        labels = {NAME_LABEL: component, INSTANCE_LABEL: self.name}
        return {**labels, MEMBER_LABEL: member} if member else labels

    def pod_selector(self, component: str) -> str:
        """Label selector of the pods of a component, as a query takes it."""
        return ",".join(f"{key}={value}" for key, value in self.selector(component).items())

    def service_name(self, component: str) -> str:
        """Name of a component's Service: that of its other objects, cut to the length of a DNS label."""
        return shortened(self.object_name(component), LONGEST_LABEL)

    def service_host(self, component: str) -> str:
        """Full DNS name of a component's Service in the host cluster."""
        return f"{self.service_name(component)}.{self.namespace}.svc.{self.cluster_domain}"


def shortened(name: str, longest: int) -> str:
    """Name cut to ``longest`` characters, with a digest of the whole so that it stays unique."""
    if len(name) <= longest:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    return f"{name[: longest - len(digest) - 1].rstrip('-')}-{digest}"
