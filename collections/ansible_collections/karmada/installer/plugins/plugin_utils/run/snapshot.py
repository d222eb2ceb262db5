# SPDX-License-Identifier: Apache-2.0
"""One look at an instance: what the place shows of it, and what follows from that and from one state. Nothing writes.

Nothing in a snapshot changes. Each fact is found when it is first asked for, and never again: who wants to look again,
because the lock was taken or the host cluster has said something new, makes another snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from ..api_object import Object
from ..artifacts import source as artifact_source
from ..components import endpoint, image_pins, ip_families, releases
from ..components.instance import Instance
from ..components.state import State
from ..components.table import KARMADA_APISERVER
from ..components.types import Addresses, KeyPair, Layout
from ..pki import certificates
from ..pki.files import Material
from ..render import cluster_layout
from .facts import Facts

if TYPE_CHECKING:
    from .place import Place

STEP_LIFETIME = timedelta(hours=12)  # longer than any step works


class Live:
    """What the place shows of the endpoint and of addresses at one time, whatever the state is."""

    def __init__(self, facts: Facts, place: Place) -> None:
        self._facts, self._place = facts, place
        self._settings: Mapping[str, str] = facts.spec["endpoint"]

    @cached_property
    def seen_families(self) -> tuple[int, ...]:
        """The versions of IP that the API server has for certain, the preferred one first; empty if that is open."""
        return self._place.families()

    @cached_property
    def likely_families(self) -> tuple[int, ...]:
        """Those that it has, or would have as far as this can be seen before its namespace exists.

        Until there is a namespace to ask in, a check run looks at what else it may read, and a run that writes says
        IPv4 until it has made the namespace: nothing is rendered with that.
        """
        return self.seen_families or (self._place.likely_families() if self._facts.check else ()) or (ip_families.IPV4,)

    @cached_property
    def node_addresses(self) -> list[list[str]]:
        """The addresses of each node of the host cluster, where they matter for the endpoint."""
        if self._settings["type"] != "NodePort" or self._settings.get("host"):
            return []
        return endpoint.internal_addresses(self._place.host_cluster.list("v1", "Node"))

    @cached_property
    def api_service(self) -> Object | None:
        """The API server's Service as the host cluster has it, where it matters for the endpoint."""
        if self._settings["type"] not in ("NodePort", "LoadBalancer"):
            return None
        return self._place.host_cluster.get("v1", "Service", f"{self._facts.name}-apiserver", self._facts.namespace)

    @cached_property
    def route(self) -> Object | None:
        """The Route to the API server as the host cluster has it, where it says the name."""
        if self._settings["type"] != "Route" or self._settings.get("host"):
            return None
        kind, name = endpoint.PASSAGES["Route"], f"{self._facts.name}-apiserver"
        return self._place.host_cluster.get(kind.api_version, kind.kind, name, self._facts.namespace)


class Snapshot:
    """What follows from the document, one state and what the place shows.

    ``state`` and ``stored`` give the state, and the one that is kept if there is any; each is asked once, if at all.
    """

    def __init__(
        self,
        facts: Facts,
        place: Place,
        live: Live,
        *,
        state: Callable[[], State],
        stored: Callable[[], State | None],
    ) -> None:
        self.facts, self.place, self.live = facts, place, live
        self._state, self._stored = state, stored

    @cached_property
    def state(self) -> State:
        """The state that all of this follows from."""
        return self._state()

    @cached_property
    def recorded(self) -> str | None:
        """The Karmada version of the instance that is installed; None where there is none."""
        stored = self._stored()
        return stored.version if stored else None

    @cached_property
    def instance(self) -> Instance:
        """The instance as renderers want it."""
        # What is to be removed is removed as what it is, whatever version the document has come to ask for.
        removing = self.facts.operation == "uninstall" and self.recorded is not None
        release = releases.choose(None if removing else self.facts.spec.get("version"), self.recorded)
        return Instance.of(
            self.facts.deployment,
            release,
            self.state.owner,
            self.service_subnet,
            self.facts.config_maps,
            self.place.member_places(self.state),
            image_pins.of_release(release, artifact_source.read_lock()),
            self.state.restarts,
        )

    @property
    def service_subnet(self) -> str:
        """The ranges for Services of the control plane: the document's, else what the first install has chosen."""
        wanted: str | None = self.facts.spec["components"][KARMADA_APISERVER.field].get("serviceSubnet")
        return wanted or self.state.service_subnet or ip_families.default_service_subnet(self.live.likely_families)

    @cached_property
    def endpoint_host(self) -> str:
        """The name or address at which people outside find the API server; empty where there is none."""
        settings, live = self.facts.spec["endpoint"], self.live
        # An address of another type leads nowhere any more.
        recorded = self.state.endpoint_host if self.state.endpoint_type in ("", settings["type"]) else ""
        return endpoint.named(settings) or endpoint.host(
            settings, recorded, live.node_addresses, live.api_service, live.route
        )

    @cached_property
    def public_url(self) -> str:
        """Where the API server is for those outside; within the host cluster where it has no such address."""
        if not self.endpoint_host:
            return self.layout.apiserver_url
        return endpoint.url(self.endpoint_host, endpoint.port(self.facts.spec["endpoint"], self.live.api_service))

    @cached_property
    def layout(self) -> Layout:
        """Where the processes of the instance find each other in the host cluster."""
        settings, live = self.facts.spec["endpoint"], self.live
        others = endpoint.same_place(settings, self.endpoint_host, live.node_addresses, live.api_service)
        return cluster_layout.layout(self.instance, self.endpoint_host, *others)

    @cached_property
    def issued(self) -> certificates.Issued:
        """All certificates, with those that are missing or not as they should be made anew (not yet stored)."""
        return self.place.issued(self)

    @property
    def material(self) -> Material:
        """All keys and certificates of the instance."""
        return self.issued.material

    @property
    def addresses(self) -> Addresses:
        """How the control plane's API server finds its helpers, as its own objects have to say it."""
        return self.place.addresses(self)

    @cached_property
    def own_identity(self) -> KeyPair:
        """As whom this step works in the control plane, where there may be no rights yet."""
        facts = self.facts
        return certificates.superuser("system:karmada:installer", self.state, facts.spec, facts.now, STEP_LIFETIME)
