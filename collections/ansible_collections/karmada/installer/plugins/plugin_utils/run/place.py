# SPDX-License-Identifier: Apache-2.0
"""Place of a control plane, and all that depends on it: addresses, certificates, hosts, the state.

Another way to install is another place. Differences are methods here, and no step asks for the class. Where a whole
step has two forms, ``in_pods`` chooses one; a test lists these steps, with why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from ..api_object import Object
from ..artifacts.source import Source
from ..components import endpoint
from ..components import hosts as component_hosts
from ..components.etcd_state import EtcdMemberState
from ..components.hosts import ETCD_ROLE
from ..components.instance import Instance
from ..components.spec import MemberEntry, Spec
from ..components.state import State
from ..components.table import (
    ETCD,
    KARMADA_CA,
)
from ..components.types import Addresses, Component
from ..kube.causes import Servers
from ..kube.cluster import Cluster
from ..kube.errors import ApiError
from ..kube.kubeconfig import Access, from_parts
from ..kube.objects import Ref
from ..pki import certificates
from ..problems import Problem, Reason
from ..render import units
from . import host_access
from .facts import Facts
from .handover import Handover
from .host_observation import Trouble
from .snapshot import Snapshot
from .store import StateStore

if TYPE_CHECKING:
    from ..render.agent_units import AgentAccess
    from .run import Run

#: API server of an instance, as messages call it.
CONTROL_PLANE = "control plane"


class Place(ABC):
    """Place where the instance of a document runs, or is to run.

    ``hosts`` are the plain hosts of the document, by name, and ``observed`` their observations by earlier steps; both
    are empty where everything runs in pods. Observations of this step reach later ones through ``handover``.
    """

    #: whether the control plane consists of pods of a host cluster
    in_pods: ClassVar[bool]
    #: whether etcd runs on plain hosts below pods, with steps of its own. Which hosts, rows of the component table say
    #: (``Component.is_on_hosts``); this is for steps that leave etcd to those on hosts, or cannot work on them yet
    etcd_apart: ClassVar[bool] = False

    def __init__(self, facts: Facts, handover: Handover | None = None) -> None:
        self.facts = facts
        self.handover = handover or Handover.of(facts.full_name(facts.name))
        self.hosts = {host.name: host for host in component_hosts.all_hosts(facts.spec)}
        self.observed = self.handover.all_observed(self.hosts)

    @property
    @abstractmethod
    def where(self) -> str:
        """Place in words."""

    @property
    @abstractmethod
    def host_cluster(self) -> Cluster:
        """Host cluster, or ``NoCluster``, in which nothing is found."""

    @property
    def host_cluster_uid(self) -> str:
        """UID by which the host cluster is known again; empty if there is no such cluster, or it cannot be read."""
        return ""

    @property
    def host_cluster_is_home(self) -> bool:
        """True if the kubeconfig of the run leads to the host cluster, so that this has the object of the document."""
        return False

    @abstractmethod
    def servers(self, workload: Ref) -> Servers:
        """Servers of what a component serves, for those who wait for that; none where it consists of units."""

    @abstractmethod
    def store(self) -> StateStore:
        """Store of the instance's state."""

    # -- desired instance ------------------------------------------------------------------------------------------

    @abstractmethod
    def first_state(self) -> State:
        """State that a first install begins with."""

    @abstractmethod
    def families(self) -> tuple[int, ...]:
        """IP versions that the API server is certain to have, the preferred one first; empty if that is undecided."""

    @abstractmethod
    def likely_families(self) -> tuple[int, ...]:
        """IP versions that it would probably have while that is undecided; empty if this cannot be seen."""

    @abstractmethod
    def possible_families(self) -> tuple[int, ...]:
        """Every IP version that processes of the control plane may have; empty if this cannot be seen."""

    @abstractmethod
    def member_places(self, state: State) -> Mapping[str, int]:
        """Member → index of the ports of its own components on a host; empty where each is a pod."""

    @abstractmethod
    def member_places_left(self, run: Run) -> Mapping[str, int]:
        """Places of members that stay on record when a run has finished."""

    @abstractmethod
    def addresses(self, seen: Snapshot) -> Addresses:
        """Addresses of the API server's helpers, as objects in the control plane name them."""

    @abstractmethod
    def estimator_address(self, instance: Instance, component: Component) -> tuple[str, int]:
        """Host and port at which schedulers reach the estimator of a member; the host is in its certificate."""

    @abstractmethod
    def issued(self, seen: Snapshot) -> certificates.Issued:
        """Certificates that this step deals with, including those newly issued and not yet stored."""

    @property
    def crd_source(self) -> Source:
        """Source of the CRDs: on a mirror that also has programs for hosts, its folder ``karmada``."""
        source = self.facts.artifact_source
        if self.hosts and source.url and source.kind != "GoModules":
            return replace(source, url=f"{source.url.rstrip('/')}/karmada")
        return source

    # -- live instance ---------------------------------------------------------------------------------------------

    @abstractmethod
    def connect(self, seen: Snapshot) -> Cluster:
        """API server of the instance. Raises ProblemsError if it cannot be reached from here."""

    @staticmethod
    def _access(seen: Snapshot, url: str) -> Access:
        """Access to the API server at this address, with the identity of this step."""
        own, authority = seen.own_identity, seen.state.authorities[KARMADA_CA]
        ca_pem, cert_pem, key_pem = (part.decode() for part in (authority.certificate, own.certificate, own.key))
        return from_parts(url, ca_pem=ca_pem, cert_pem=cert_pem, key_pem=key_pem)

    def _answering(self, seen: Snapshot, url: str) -> Cluster:
        """API server at this address. Raises ApiError if it does not answer."""
        found = Cluster(self._access(seen, url), CONTROL_PLANE)
        try:
            found.get_raw("/readyz", retry_seconds=0)
        except ApiError:
            found.close()
            raise
        return found

    def _note_trouble(self, seen: Snapshot, message: str) -> None:
        """Note why the endpoint could not be used."""
        self.facts.endpoint_trouble = f"the API server does not answer at {seen.public_url} from here: {message}"

    @abstractmethod
    def control_plane_exists(self, seen: Snapshot) -> bool:
        """Return whether the API server of the instance has been deployed; in check mode it may not have been."""

    @abstractmethod
    def pods(self) -> Sequence[Object]:
        """Pods of the instance in the host cluster."""

    @cached_property
    def ingress_controller(self) -> str:
        """Controller named by the IngressClass; empty if the endpoint is no Ingress or there is no class."""
        settings = self.facts.spec.endpoint
        if settings.type != "Ingress":
            return ""
        found = endpoint.ingress_class(settings, self.host_cluster.list(*endpoint.INGRESS_CLASS))
        return str(found["spec"].get("controller", "")) if found else ""

    def trouble_of(self, host: str) -> Problem | None:
        """Problem that keeps this run from working on a host (then one of members only); None if there is none."""
        address, seen = self.hosts[host].address, self.observed[host]
        trouble = seen.trouble or Trouble("", seen.refusal, lost=True)
        if not trouble.reason:
            return None
        if trouble.lost:
            return host_access.problem(trouble.reason, host=host, address=address, user=self.facts.spec.ssh_user)
        what = f'it failed in "{trouble.step}": {trouble.reason}'
        return Problem(what, f"host {host} ({address})", "mend that on the host", reason=Reason.HOST_STEP_FAILED)

    def agent_problems(self, entry: MemberEntry) -> list[Problem]:
        """Problems of the hosts that are to run this member's agent; none where it runs in pods."""
        there = [host for host in entry.agent_hosts if host in self.hosts]
        return [problem for host in there if (problem := self.trouble_of(host))]

    def leave_alone(self, host: str, reason: str) -> None:
        """Have later steps skip this host, because it does not fit."""
        if not self.observed[host].refusal:
            self.handover.note(host, trouble=Trouble("preflight", reason, lost=False))

    # -- work on hosts ---------------------------------------------------------------------------------------------

    @abstractmethod
    def begin(self, run: Run, *, asked: bool = False) -> bool:
        """Record planned changes of hosts before they are made; returns whether there are any.

        ``asked``: the user has asked for some that nothing that was seen tells.
        """

    @abstractmethod
    def has_agents(self, run: Run) -> bool:
        """Return whether any host has agents of members, is to have them, or had them."""

    @abstractmethod
    def hand_on_agents(self, run: Run, access: Mapping[str, AgentAccess], *, more: bool) -> None:
        """Hand agents' access to members on to the steps on hosts; ``more`` adds to the access handed on already."""

    @abstractmethod
    def hand_on_members(self, run: Run, access: Mapping[str, bytes], ready: Iterable[str]) -> bool:
        """Hand access to members on to the steps on hosts; returns whether any host lacks something of it."""


def etcd_ails(run: Run) -> bool:
    """Return whether a member of etcd was seen not to work, once all have been healthy."""
    unit = units.unit_name(run.instance, ETCD)
    told = [each.units[unit] for each in run.observed.values() if unit in each.units]
    return run.state.etcd.bootstrapped and any(each.reason for each in told)


def with_hosts(state: State, spec: Spec) -> State:
    """State with the hosts of the document, and with those that are members of etcd from now on.

    Saved before anything is put on them, so that no host is forgotten if the run ends early and the document changes. A
    member of etcd that has been started once knows the others from its disk.
    """
    names = tuple(host.name for host in component_hosts.hosts_of(spec, ETCD_ROLE))
    etcd = replace(state.etcd, nodes=state.etcd.nodes or names)
    if names and not etcd.members:
        # Of a control plane that an earlier version of this collection has installed, they were fixed.
        etcd = replace(etcd, members=tuple(EtcdMemberState(name) for name in etcd.nodes))
    return replace(state, hosts={**state.hosts, **{host.name: host.plain for host in spec.hosts}}, etcd=etcd)
