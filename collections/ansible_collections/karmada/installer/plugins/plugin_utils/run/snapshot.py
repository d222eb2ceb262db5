# SPDX-License-Identifier: Apache-2.0
"""One look at an instance: the facts of its place, and what follows from these and one state. Nothing writes.

A snapshot is immutable: setting anything of it raises. Each fact is determined when it is first asked for, and only
once: to look again, because the lock was taken or the host cluster has new information, make another snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from ..api_object import Object
from ..artifacts import source as artifact_source
from ..components import endpoint, image_pins, ip_families, releases
from ..components.instance import Instance
from ..components.spec import Endpoint
from ..components.state import State
from ..components.types import Addresses, KeyPair, Layout
from ..pki import certificates
from ..pki.files import Material
from ..render import cluster_layout
from .facts import Facts

if TYPE_CHECKING:
    from .place import Place

STEP_LIFETIME = timedelta(hours=12)  # longer than any step works


@dataclass(frozen=True, eq=False, repr=False)
class Live:
    """Facts of the endpoint and of addresses that the place shows at one time, whatever the state is."""

    _facts: Facts
    _place: Place

    @property
    def _settings(self) -> Endpoint:
        return self._facts.spec.endpoint

    @cached_property
    def seen_families(self) -> tuple[int, ...]:
        """IP versions that the API server is certain to have, the preferred one first; empty if that is undecided."""
        return self._place.families()

    @cached_property
    def likely_families(self) -> tuple[int, ...]:
        """IP versions that it has, or would probably have before its namespace exists.

        While there is no namespace to ask in, a check run uses what else it may read. A run that writes assumes IPv4
        until it has created the namespace, and renders nothing with that.
        """
        return self.seen_families or (self._place.likely_families() if self._facts.check else ()) or (ip_families.IPV4,)

    @cached_property
    def node_addresses(self) -> list[list[str]]:
        """Addresses of each node of the host cluster; empty if the endpoint does not depend on them."""
        if self._settings.type != "NodePort" or self._settings.host:
            return []
        return endpoint.internal_addresses(self._place.host_cluster.list("v1", "Node"))

    @cached_property
    def api_service(self) -> Object | None:
        """Live Service of the API server; None if the endpoint does not depend on it."""
        if self._settings.type not in ("NodePort", "LoadBalancer"):
            return None
        return self._place.host_cluster.get("v1", "Service", f"{self._facts.name}-apiserver", self._facts.namespace)

    @cached_property
    def route(self) -> Object | None:
        """Live Route to the API server; None if the endpoint does not get its name from it."""
        if self._settings.type != "Route" or self._settings.host:
            return None
        kind, name = endpoint.PASSAGES["Route"], f"{self._facts.name}-apiserver"
        return self._place.host_cluster.get(kind.api_version, kind.kind, name, self._facts.namespace)


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot:
    """Values that follow from the document, one state and the facts of the place.

    ``read_state`` returns the state, ``read_stored`` the stored one or None; each is called at most once.
    """

    facts: Facts
    place: Place
    live: Live
    read_state: Callable[[], State] = field(kw_only=True)
    read_stored: Callable[[], State | None] = field(kw_only=True)

    @cached_property
    def state(self) -> State:
        """State that all of this follows from."""
        return self.read_state()

    @cached_property
    def recorded(self) -> str | None:
        """Karmada version of the installed instance; None if there is none."""
        stored = self.read_stored()
        return stored.version if stored else None

    @cached_property
    def instance(self) -> Instance:
        """Instance, the input of renderers."""
        # An uninstall removes the installed version, even if the document asks for another one by now.
        removing = self.facts.operation == "uninstall" and self.recorded is not None
        release = releases.choose(None if removing else self.facts.spec.version, self.recorded)
        found = Instance.of(
            self.facts.deployment,
            release,
            self.state.owner,
            self.service_subnet,
            self.facts.config_maps,
            self.place.member_places(self.state),
            image_pins.of_release(release, artifact_source.read_lock()),
            self.state.restarts,
        )
        members = tuple(each for each in self.state.etcd.members if not each.coming)
        pushed = self.state.pushed_members(self.facts.spec)
        return replace(found, pushed=pushed, etcd_members=members, held=self.state.held, claim=str(self.state.claim))

    @property
    def service_subnet(self) -> str:
        """Service CIDRs of the control plane: those of the document, else those that the first install chose."""
        wanted = self.facts.spec.service_subnet
        return wanted or self.state.service_subnet or ip_families.default_service_subnet(self.live.likely_families)

    @cached_property
    def endpoint_host(self) -> str:
        """Name or address of the API server for clients outside the host cluster; empty if there is none."""
        settings, live = self.facts.spec.endpoint, self.live
        # The recorded address is void once the type of the endpoint has changed.
        recorded = self.state.endpoint_host if self.state.endpoint_type in ("", settings.type) else ""
        return endpoint.named(settings) or endpoint.host(
            settings, recorded, live.node_addresses, live.api_service, live.route
        )

    @cached_property
    def public_url(self) -> str:
        """URL of the API server for clients outside; the one within the host cluster if there is no such address."""
        if not self.endpoint_host:
            return self.layout.apiserver_url
        return endpoint.url(self.endpoint_host, endpoint.port(self.facts.spec.endpoint, self.live.api_service))

    @cached_property
    def layout(self) -> Layout:
        """Addresses and URLs by which processes of the instance find each other in the host cluster."""
        settings, live = self.facts.spec.endpoint, self.live
        others = endpoint.same_place(settings, self.endpoint_host, live.node_addresses, live.api_service)
        return cluster_layout.layout(self.instance, self.endpoint_host, *others)

    @cached_property
    def issued(self) -> certificates.Issued:
        """All certificates, with new ones (not yet stored) for those that are missing or invalid."""
        return self.place.issued(self)

    @property
    def material(self) -> Material:
        """All keys and certificates of the instance."""
        return self.issued.material

    @property
    def addresses(self) -> Addresses:
        """Addresses of the API server's helpers, as objects in the control plane name them."""
        return self.place.addresses(self)

    @cached_property
    def own_identity(self) -> KeyPair:
        """Superuser certificate of this step, for a control plane that may have no RBAC objects yet."""
        facts = self.facts
        return certificates.superuser("system:karmada:installer", self.state, facts.spec, facts.now, STEP_LIFETIME)
