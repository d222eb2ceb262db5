# SPDX-License-Identifier: Apache-2.0
"""Place of a control plane, and all that depends on it: addresses, certificates, hosts, the state.

Another way to install is another place. Differences are methods here, and no step asks for the class. Where a whole
step has two forms, one for a host cluster and one for hosts (mostly in preflight, report and uninstall), ``in_pods``
chooses the form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from ..api_object import Object
from ..artifacts.source import Source
from ..components import endpoint, ip_families, releases
from ..components import hosts as component_hosts
from ..components.etcd_state import EtcdMemberState, EtcdState
from ..components.hosts import ETCD_ROLE
from ..components.instance import Instance
from ..components.spec import MemberEntry, Spec
from ..components.state import State
from ..components.table import (
    AGGREGATED_SERVERS,
    ETCD,
    KARMADA_APISERVER,
    KARMADA_CA,
    KARMADA_WEBHOOK,
    wanted_components,
    wanted_leaf_certificates,
)
from ..components.types import Addresses, Component, etcd_on_hosts, settings_of
from ..document.references import cluster_from_secret
from ..kube import host_cluster
from ..kube.cluster import Cluster
from ..kube.errors import ApiError, Forbidden
from ..kube.host_cluster import HostCluster
from ..kube.kubeconfig import Access, from_parts
from ..labels import FIELD_MANAGER, INSTANCE_LABEL, MANAGED_BY_LABEL, OWNER_LABEL
from ..pki import certificates
from ..problems import Problem, Reason
from ..render import cluster_layout, etcd_nodes, units
from . import host_access
from .facts import Facts
from .handover import Handover
from .host_observation import Trouble
from .snapshot import Snapshot
from .store import SecretStore, StateStore

if TYPE_CHECKING:
    from ..render.agent_units import AgentAccess
    from .run import Run

#: API server of an instance, as messages call it.
CONTROL_PLANE = "control plane"
DEFAULT_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"


class Place(ABC):
    """Place where the instance of a document runs, or is to run.

    ``hosts`` are the plain hosts of the document, by name, and ``observed`` their observations by earlier steps; both
    are empty where everything runs in pods. Observations of this step reach later ones through ``handover``.
    """

    #: whether the control plane consists of pods of a host cluster
    in_pods: ClassVar[bool]
    #: whether etcd runs on plain hosts below pods, with steps of its own
    etcd_apart: ClassVar[bool] = False

    def __init__(self, facts: Facts, handover: Handover | None = None) -> None:
        self.facts = facts
        self.handover = handover or Handover()
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


class InPods(Place):
    """Place of a control plane that runs entirely in pods of the host cluster, which also keeps its state."""

    in_pods = True

    @property
    def where(self) -> str:
        """Place in words."""
        return f"namespace {self.facts.namespace} of the host cluster"

    @cached_property
    def host_cluster(self) -> Cluster:
        """Cluster whose nodes run the control plane."""
        facts, settings = self.facts, self.facts.spec.host_cluster
        if settings.secret:
            where = "spec.hostCluster.secretRef"
            files, folder = facts.secret(settings.secret, where), facts.connection.folder(settings.secret)
            full = facts.full_name(settings.secret)
            found = cluster_from_secret(files, settings.context, "host cluster", where, HostCluster, folder, full)
        else:
            where = "kubeconfig of the host cluster"
            context = settings.context or facts.connection.context
            found = HostCluster.from_kubeconfig(facts.connection.kubeconfig, context, name="host cluster")
        host_cluster.refuse_unverified(found.access, where, allowed=bool(settings.insecure))
        return facts.kept(found)

    @cached_property
    def host_cluster_uid(self) -> str:
        """UID of the namespace kube-system, which is the identity of a cluster everywhere in Karmada."""
        try:
            found = self.host_cluster.get("v1", "Namespace", "kube-system")
        except Forbidden:
            return ""
        return str(found["metadata"]["uid"]) if found else ""

    def store(self) -> StateStore:
        """Secret of the host cluster, with a Lease beside it."""
        return SecretStore(self.facts, lambda: self.host_cluster)

    def first_state(self) -> State:
        """State that a first install begins with."""
        storage = self.etcd_storage()
        state = State(
            owner=self._owner_of_namespace() or self.facts.new_id("owner"),
            version=releases.choose(self.facts.spec.version, None).karmada,
            etcd=EtcdState(
                token=self.facts.new_id("etcd"),
                storage=storage,
                nodes=self._etcd_nodes(storage),
                members=self._first_etcd_members(storage),
            ),
        )
        return certificates.with_new_keys(state, self.facts.spec, self.facts.now)

    def _first_etcd_members(self, storage: str) -> tuple[EtcdMemberState, ...]:
        """Members that begin the cluster, if they are pods; later ones are added to it, whatever the document says."""
        if storage in ("external", "directory"):
            return ()
        count = settings_of(ETCD, self.facts.spec).replicas
        return tuple(EtcdMemberState(f"{self.facts.name}-{ETCD.name}-{ordinal}") for ordinal in range(count))

    def _owner_of_namespace(self) -> str | None:
        """Owner that a run left on the namespace when it was killed between creating that and writing its state."""
        found = self.host_cluster.get("v1", "Namespace", self.facts.namespace)
        labels = (found or {}).get("metadata", {}).get("labels") or {}
        ours = labels.get(MANAGED_BY_LABEL) == FIELD_MANAGER and labels.get(INSTANCE_LABEL) == self.facts.name
        owner: str | None = labels.get(OWNER_LABEL)
        return owner if ours else None

    def etcd_storage(self) -> str:
        """Storage in the document; else a claim if the host cluster has a default class, else the pod's own disk."""
        spec = self.facts.spec
        if spec.external_etcd:
            return "external"
        if etcd_on_hosts(spec):
            return "directory"
        chosen = settings_of(ETCD, spec).volume_data
        if chosen:
            return next(iter(chosen))
        classes = self.host_cluster.list("storage.k8s.io/v1", "StorageClass")
        defaults = (
            (each["metadata"].get("annotations") or {}).get(DEFAULT_CLASS_ANNOTATION) == "true" for each in classes
        )
        return "volumeClaim" if any(defaults) else "emptyDir"

    def _etcd_nodes(self, storage: str) -> Sequence[str]:
        """Nodes that keep etcd's data, if the document wants it in a directory of a node."""
        if storage != "hostPath":
            return ()
        return etcd_nodes.choose(self.host_cluster.list("v1", "Node"), settings_of(ETCD, self.facts.spec))

    def families(self) -> tuple[int, ...]:
        """IP versions of the API server's Service, or those it would have.

        Empty while there is no namespace, and for an account that may not make one there: it may report all the same.
        """
        facts = self.facts
        name, policy = f"{facts.name}-apiserver", facts.spec.endpoint.ip_family_policy
        live = self.host_cluster.get("v1", "Service", name, facts.namespace)
        if live is None and self.host_cluster.get("v1", "Namespace", facts.namespace):
            with suppress(Forbidden):
                live = self.host_cluster.apply(ip_families.probe(name, facts.namespace, policy), dry_run=True).object
        return ip_families.of_service(live)

    def likely_families(self) -> tuple[int, ...]:
        """Preferred IP version, as the host cluster's own API server shows it; never a second one."""
        if not self.host_cluster.can_i([("get", "", "services", "default")]):
            found = ip_families.of_service(self.host_cluster.get("v1", "Service", "kubernetes", "default"))
            if found:
                return found
        own = ip_families.of_api_server(self.host_cluster.api_versions())
        if not own:
            self.facts.say(
                "which versions of IP the host cluster has cannot be seen before its namespace exists: IPv4 is shown"
            )
        return own

    def possible_families(self) -> tuple[int, ...]:
        """Every IP version that pods may have; empty if the account may not look, or nothing shows it."""
        if self.host_cluster.can_i([("list", "", "nodes", None), ("get", "", "services", "default")]):
            return ()
        of_nodes = ip_families.of_nodes(self.host_cluster.list("v1", "Node"))
        first = ip_families.of_service(self.host_cluster.get("v1", "Service", "kubernetes", "default"))
        return tuple(dict.fromkeys([*first, *of_nodes])) if of_nodes else ()

    def member_places(self, state: State) -> Mapping[str, int]:
        """No places: components of members share no ports in pods."""
        del state
        return {}

    def member_places_left(self, run: Run) -> Mapping[str, int]:
        """No places."""
        del run
        return {}

    def addresses(self, seen: Snapshot) -> Addresses:
        """Addresses of the helpers' Services."""
        instance = seen.instance
        return Addresses(
            webhook_url=cluster_layout.service_url(instance, KARMADA_WEBHOOK),
            aggregated={
                each.name: (instance.service_host(each.name), cluster_layout.SERVICE_PORTS[each.name])
                for each in wanted_components(self.facts.spec)
                if each.name in AGGREGATED_SERVERS
            },
            public_url=seen.public_url,
            ca_bundle=seen.state.authorities[KARMADA_CA].certificate,
        )

    def estimator_address(self, instance: Instance, component: Component) -> tuple[str, int]:
        """Address of the estimator's Service."""
        return instance.service_host(component.name), cluster_layout.SERVICE_PORTS[component.row]

    def issued(self, seen: Snapshot) -> certificates.Issued:
        """All certificates of the instance; existing ones are read from Secrets.

        Those of a member's components are made with these, when it is joined, and only kept valid here.
        """
        labels = f"{INSTANCE_LABEL}={self.facts.name},{OWNER_LABEL}={seen.state.owner}"
        is_new = seen.recorded is None
        found = [] if is_new else self.host_cluster.list("v1", "Secret", self.facts.namespace, labels=labels)
        present = certificates.present_leaves(seen.instance, {each["metadata"]["name"]: each for each in found})
        leaves = wanted_leaf_certificates(self.facts.spec, pushed=seen.instance.pushed)
        shared = wanted_leaf_certificates(self.facts.spec, pushed=())
        leaves = tuple(leaf for leaf in leaves if leaf in shared or leaf.name in present)
        return certificates.issue_missing(
            seen.instance, seen.state, seen.layout, present, self.facts.now, self.facts.external_etcd_files, leaves
        )

    def connect(self, seen: Snapshot) -> Cluster:
        """API server, directly if it can be reached, else through the host cluster."""
        if self.facts.spec.endpoint.type != "ClusterIP":
            try:
                return self._answering(seen, seen.public_url)
            except ApiError as error:
                self._note_trouble(seen, error.message)
        from ..kube.port_forward import cluster_behind  # noqa: PLC0415 - a library that few runs need

        instance = seen.instance
        port = KARMADA_APISERVER.listens(self.facts.spec)["https"]
        access = self._access(seen, f"https://{instance.service_host(KARMADA_APISERVER.name)}:{port}")
        pods = instance.pod_selector(KARMADA_APISERVER.name)
        return cluster_behind(self.host_cluster, instance.namespace, pods, port, access, CONTROL_PLANE)

    def control_plane_exists(self, seen: Snapshot) -> bool:
        """Return whether there is a Deployment of the API server."""
        name = seen.instance.object_name(KARMADA_APISERVER.name)
        return bool(self.host_cluster.get("apps/v1", "Deployment", name, self.facts.namespace))

    def pods(self) -> Sequence[Object]:
        """Pods of the instance in the host cluster."""
        return self.host_cluster.list("v1", "Pod", self.facts.namespace, labels=f"{INSTANCE_LABEL}={self.facts.name}")

    def begin(self, run: Run, *, asked: bool = False) -> bool:
        """Nothing to record: there are no hosts."""
        del run, asked
        return False

    def has_agents(self, run: Run) -> bool:
        """No agents on hosts: they run in pods."""
        del run
        return False

    def hand_on_agents(self, run: Run, access: Mapping[str, AgentAccess], *, more: bool) -> None:
        """Nothing to hand on."""

    def hand_on_members(self, run: Run, access: Mapping[str, bytes], ready: Iterable[str]) -> bool:
        """Nothing to hand on."""
        del run, access, ready
        return False


class PodsAboveHosts(InPods):
    """Place of a control plane that runs in pods, with its etcd on plain hosts.

    There is one state, the Secret of every control plane in pods, and its Lease admits one writing run. Hosts keep what
    they run and a lock of their own, which keeps out runs for another control plane of the same name.
    """

    etcd_apart = True

    def begin(self, run: Run, *, asked: bool = False) -> bool:
        """Take the lock and open the journal if there is anything to do on hosts; returns whether there is."""
        differs = any(each.differs or each.lacking for each in self.observed.values())
        due = differs or asked or bool(run.leaving) or etcd_ails(run) or _etcd_changes(run)
        if due and not run.check:
            # The state is on record before the first change of a host.
            with run.writing("etcd on hosts"):
                run.save(with_hosts(run.state, run.spec))
        return due


def etcd_ails(run: Run) -> bool:
    """Return whether a member of etcd was seen not to work, once all have been healthy."""
    unit = units.unit_name(run.instance, ETCD)
    told = [each.units[unit] for each in run.observed.values() if unit in each.units]
    return run.state.etcd.bootstrapped and any(each.reason for each in told)


def _etcd_changes(run: Run) -> bool:
    """Return whether members on hosts are to come or to go, are on their way, or have not begun."""
    etcd = run.state.etcd
    wanted = {host.name for host in component_hosts.hosts_of(run.spec, ETCD_ROLE)}
    settled = etcd.bootstrapped and all(each.is_settled for each in etcd.members)
    return not settled or {each.name for each in etcd.members} != wanted


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
