# SPDX-License-Identifier: Apache-2.0
"""Where a control plane runs, and all that differs by it: addresses, who serves what, certificates, hosts, the state.

Another way to install is another place. What differs is a method here, and no step asks for the class. Where a step has
two forms as a whole, one that looks at a host cluster and one that looks at hosts (most of them in preflight, report
and uninstall), it takes the form by ``in_pods``.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ..api_object import Object
from ..artifacts.source import Source
from ..components import endpoint, ip_families, releases
from ..components import hosts as component_hosts
from ..components.hosts import ETCD_ROLE
from ..components.instance import Instance
from ..components.state import EtcdState, State
from ..components.table import (
    AGGREGATED_SERVERS,
    ETCD,
    KARMADA_APISERVER,
    KARMADA_CA,
    KARMADA_WEBHOOK,
    wanted_components,
)
from ..components.types import Addresses, Component, agent_hosts, etcd_on_hosts, external_etcd, settings_of
from ..document.references import cluster_from_secret
from ..kube import host_cluster
from ..kube.cluster import Cluster
from ..kube.errors import ApiError
from ..kube.host_cluster import HostCluster
from ..labels import FIELD_MANAGER, INSTANCE_LABEL, MANAGED_BY_LABEL, OWNER_LABEL
from ..pki import certificates
from ..problems import Problem, Reason
from ..render import cluster_layout, etcd_nodes
from . import host_access
from .facts import Facts
from .handover import Handover
from .host_observation import Trouble
from .snapshot import Snapshot
from .store import SecretStore, StateStore

if TYPE_CHECKING:
    from ..render.agent_units import AgentAccess
    from .run import Run

DEFAULT_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"


class Place(ABC):
    """Where the instance of a document runs, or is to run.

    ``hosts`` are the plain hosts of the document, by name, and ``observed`` is what earlier steps have seen of them
    ; both are empty where all of it runs in pods. What this step sees of them goes
    to the next ones through ``handover``.
    """

    #: whether the control plane consists of pods of a host cluster
    in_pods: ClassVar[bool]
    #: whether etcd runs on plain hosts beneath pods, with steps of its own
    etcd_apart: ClassVar[bool] = False

    def __init__(self, facts: Facts, handover: Handover | None = None) -> None:
        self.facts = facts
        self.handover = handover or Handover()
        self.hosts = {host.name: host for host in component_hosts.all_hosts(facts.spec)}
        self.observed = self.handover.all_observed(self.hosts)

    @property
    @abstractmethod
    def where(self) -> str:
        """The place in words."""

    @property
    @abstractmethod
    def host_cluster(self) -> Cluster:
        """The host cluster; one in which nothing is found where there is none."""

    @abstractmethod
    def store(self) -> StateStore:
        """Where the state of the instance is kept."""

    # -- what the instance is to be --------------------------------------------------------------------------------

    @abstractmethod
    def first_state(self) -> State:
        """The state that a first install begins with."""

    @abstractmethod
    def families(self) -> tuple[int, ...]:
        """The versions of IP that the API server has for certain, the preferred one first; empty if that is open."""

    @abstractmethod
    def likely_families(self) -> tuple[int, ...]:
        """Those that it would have, as far as this can be seen while it is open; empty if it cannot."""

    @abstractmethod
    def possible_families(self) -> tuple[int, ...]:
        """Every version of IP that processes of the control plane may have; empty where nothing is to be seen."""

    @abstractmethod
    def member_places(self, state: State) -> Mapping[str, int]:
        """Member → index of the ports of its own components on a host; empty where each is a pod."""

    @abstractmethod
    def member_places_left(self, run: Run) -> Mapping[str, int]:
        """Those that stay on record when a run has come to its end."""

    @abstractmethod
    def addresses(self, seen: Snapshot) -> Addresses:
        """How the control plane's API server finds its helpers, as its own objects have to say it."""

    @abstractmethod
    def estimator_address(self, instance: Instance, component: Component) -> tuple[str, int]:
        """Where schedulers reach the estimator of a member: a name that is in its certificate, and the port."""

    @abstractmethod
    def issued(self, seen: Snapshot) -> certificates.Issued:
        """The certificates that this step deals with, those that have to be made anew included (not yet stored)."""

    @property
    def crd_source(self) -> Source:
        """Where the CRDs come from: on a mirror that has programs for hosts, too, from the folder of Karmada."""
        source = self.facts.artifact_source
        if self.hosts and source.url and source.kind != "GoModules":
            return replace(source, url=f"{source.url.rstrip('/')}/karmada")
        return source

    # -- what is there ---------------------------------------------------------------------------------------------

    @abstractmethod
    def connect(self, seen: Snapshot) -> Cluster:
        """The API server of the instance. Raises ProblemsError if it cannot be reached from here."""

    @abstractmethod
    def control_plane_exists(self, seen: Snapshot) -> bool:
        """Whether the API server of the instance has been deployed; in check mode it may not have been."""

    @abstractmethod
    def pods(self) -> Sequence[Object]:
        """The pods of the instance in the host cluster."""

    @cached_property
    def ingress_controller(self) -> str:
        """Who serves the Ingress, as its IngressClass says; empty where the endpoint is none or there is no class."""
        settings = self.facts.spec["endpoint"]
        if settings["type"] != "Ingress":
            return ""
        found = endpoint.ingress_class(settings, self.host_cluster.list(*endpoint.INGRESS_CLASS))
        return str(found["spec"].get("controller", "")) if found else ""

    def trouble_of(self, host: str) -> Problem | None:
        """What keeps this run from working on a host, if anything does; such a host is only there for members."""
        address, seen = self.hosts[host].address, self.observed[host]
        trouble = seen.trouble or Trouble("", seen.refusal, lost=True)
        if not trouble.reason:
            return None
        if trouble.lost:
            user = self.facts.spec["ssh"].get("user", "")
            return host_access.problem(trouble.reason, host=host, address=address, user=user)
        what = f'it failed in "{trouble.step}": {trouble.reason}'
        return Problem(what, f"host {host} ({address})", "mend that on the host", reason=Reason.HOST_STEP_FAILED)

    def agent_problems(self, entry: Mapping[str, Any]) -> list[Problem]:
        """What is wrong with the hosts that are to run this member's agent; none where it runs in pods."""
        there = [host for host in agent_hosts(entry) if host in self.hosts]
        return [problem for host in there if (problem := self.trouble_of(host))]

    def leave_alone(self, host: str, reason: str) -> None:
        """Have the steps that follow leave this host as it is, because it does not fit."""
        if not self.observed[host].refusal:
            self.handover.note(host, trouble=Trouble("preflight", reason, lost=False))

    # -- what is done on hosts -------------------------------------------------------------------------------------

    @abstractmethod
    def begin(self, run: Run) -> bool:
        """Record what is about to be done on hosts, before it is; returns whether there is anything to do."""

    @abstractmethod
    def has_agents(self, run: Run) -> bool:
        """Whether any host has agents of members, is to have them, or had them."""

    @abstractmethod
    def hand_on_agents(self, run: Run, access: Mapping[str, AgentAccess], *, more: bool) -> None:
        """How agents on hosts get to their members, for the steps there; ``more``: beside those handed on already."""

    @abstractmethod
    def hand_on_members(self, run: Run, access: Mapping[str, bytes], ready: Iterable[str]) -> bool:
        """What hosts need to look at members, for the steps there; returns whether any host lacks something."""


class InPods(Place):
    """All of it runs in pods of the host cluster, where the state is kept, too."""

    in_pods = True

    @property
    def where(self) -> str:
        """The place in words."""
        return f"namespace {self.facts.namespace} of the host cluster"

    @cached_property
    def host_cluster(self) -> Cluster:
        """The cluster whose nodes run the control plane."""
        facts, settings = self.facts, self.facts.spec["hostCluster"]
        reference = settings.get("secretRef")
        if reference:
            where = "spec.hostCluster.secretRef"
            files, folder = facts.secret(reference["name"], where), facts.connection.folder(reference["name"])
            found = cluster_from_secret(files, settings.get("context"), "host cluster", where, HostCluster, folder)
        else:
            where = "kubeconfig of the host cluster"
            context = settings.get("context") or facts.connection.context
            found = HostCluster.from_kubeconfig(facts.connection.kubeconfig, context, name="host cluster")
        host_cluster.refuse_unverified(settings, found.access, where)
        return facts.kept(found)

    def store(self) -> StateStore:
        """A Secret of the host cluster, with a Lease beside it."""
        return SecretStore(self.facts, lambda: self.host_cluster)

    def first_state(self) -> State:
        """The state that a first install begins with."""
        storage = self.etcd_storage()
        state = State(
            owner=self._owner_of_namespace() or str(uuid.uuid4()),
            version=releases.choose(self.facts.spec.get("version"), None).karmada,
            etcd=EtcdState(token=str(uuid.uuid4()), storage=storage, nodes=self._etcd_nodes(storage)),
        )
        return certificates.with_new_keys(state, self.facts.spec, self.facts.now)

    def _owner_of_namespace(self) -> str | None:
        """A run killed between making the namespace and writing its state left the owner on the namespace."""
        found = self.host_cluster.get("v1", "Namespace", self.facts.namespace)
        labels = (found or {}).get("metadata", {}).get("labels") or {}
        ours = labels.get(MANAGED_BY_LABEL) == FIELD_MANAGER and labels.get(INSTANCE_LABEL) == self.facts.name
        owner: str | None = labels.get(OWNER_LABEL)
        return owner if ours else None

    def etcd_storage(self) -> str:
        """What the document says; else a claim where the host cluster has a default class, else the pod's own disk."""
        spec = self.facts.spec
        if external_etcd(spec):
            return "external"
        if etcd_on_hosts(spec):
            return "directory"
        chosen = settings_of(ETCD, spec).get("volumeData") or {}
        if chosen:
            return str(next(iter(chosen)))
        classes = self.host_cluster.list("storage.k8s.io/v1", "StorageClass")
        defaults = (
            (each["metadata"].get("annotations") or {}).get(DEFAULT_CLASS_ANNOTATION) == "true" for each in classes
        )
        return "volumeClaim" if any(defaults) else "emptyDir"

    def _etcd_nodes(self, storage: str) -> Sequence[str]:
        """Those that keep etcd's data, where the document wants it in a directory of theirs."""
        if storage != "hostPath":
            return ()
        return etcd_nodes.choose(self.host_cluster.list("v1", "Node"), settings_of(ETCD, self.facts.spec))

    def families(self) -> tuple[int, ...]:
        """Those of the API server's Service, or that it would have; empty while there is no namespace."""
        facts = self.facts
        name, policy = f"{facts.name}-apiserver", facts.spec["endpoint"]["ipFamilyPolicy"]
        live = self.host_cluster.get("v1", "Service", name, facts.namespace)
        if live is None and self.host_cluster.get("v1", "Namespace", facts.namespace):
            live = self.host_cluster.apply(ip_families.probe(name, facts.namespace, policy), dry_run=True).object
        return ip_families.of_service(live)

    def likely_families(self) -> tuple[int, ...]:
        """The preferred family as the host cluster's own API server shows it; not a second one."""
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
        """Every version of IP that pods may have; empty where the account may not look, or nothing is to be seen."""
        if self.host_cluster.can_i([("list", "", "nodes", None), ("get", "", "services", "default")]):
            return ()
        of_nodes = ip_families.of_nodes(self.host_cluster.list("v1", "Node"))
        first = ip_families.of_service(self.host_cluster.get("v1", "Service", "kubernetes", "default"))
        return tuple(dict.fromkeys([*first, *of_nodes])) if of_nodes else ()

    def member_places(self, state: State) -> Mapping[str, int]:
        """No component of a member shares ports with another one."""
        del state
        return {}

    def member_places_left(self, run: Run) -> Mapping[str, int]:
        """None."""
        del run
        return {}

    def addresses(self, seen: Snapshot) -> Addresses:
        """Each helper has a Service."""
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
        """Its Service."""
        return instance.service_host(component.name), cluster_layout.SERVICE_PORTS[component.row]

    def issued(self, seen: Snapshot) -> certificates.Issued:
        """All certificates of the instance; those that are there are in Secrets."""
        labels = f"{INSTANCE_LABEL}={self.facts.name},{OWNER_LABEL}={seen.state.owner}"
        is_new = seen.recorded is None
        found = [] if is_new else self.host_cluster.list("v1", "Secret", self.facts.namespace, labels=labels)
        present = certificates.present_leaves(seen.instance, {each["metadata"]["name"]: each for each in found})
        return certificates.issue_missing(
            seen.instance, seen.state, seen.layout, present, self.facts.now, self.facts.external_etcd_files
        )

    def connect(self, seen: Snapshot) -> Cluster:
        """The API server: directly where it can be reached, else through the host cluster."""
        from ..kube.port_forward import cluster_behind  # noqa: PLC0415 - a library that few runs need

        own, authority = seen.own_identity, seen.state.authorities[KARMADA_CA]
        ca_pem, cert_pem, key_pem = (part.decode() for part in (authority.certificate, own.certificate, own.key))
        if self.facts.spec["endpoint"]["type"] != "ClusterIP":
            direct = Cluster.from_parts(seen.public_url, ca_pem, cert_pem, key_pem, name="control plane")
            try:
                direct.get_raw("/readyz", retry_seconds=0)
            except ApiError as error:
                self.facts.endpoint_trouble = (
                    f"the API server does not answer at {seen.public_url} from here: {error.message}"
                )
                direct.close()
            else:
                return direct
        instance = seen.instance
        selector = ",".join(f"{key}={value}" for key, value in instance.selector(KARMADA_APISERVER.name).items())
        return cluster_behind(
            self.host_cluster,
            instance.namespace,
            selector,
            KARMADA_APISERVER.listens(self.facts.spec)["https"],
            ca_pem=ca_pem,
            cert_pem=cert_pem,
            key_pem=key_pem,
            tls_server_name=instance.service_host(KARMADA_APISERVER.name),
            name="control plane",
        )

    def control_plane_exists(self, seen: Snapshot) -> bool:
        """Whether there is a Deployment of the API server."""
        name = seen.instance.object_name(KARMADA_APISERVER.name)
        return bool(self.host_cluster.get("apps/v1", "Deployment", name, self.facts.namespace))

    def pods(self) -> Sequence[Object]:
        """The pods of the instance in the host cluster."""
        return self.host_cluster.list("v1", "Pod", self.facts.namespace, labels=f"{INSTANCE_LABEL}={self.facts.name}")

    def begin(self, run: Run) -> bool:
        """There are no hosts."""
        del run
        return False

    def has_agents(self, run: Run) -> bool:
        """Agents of members run in pods."""
        del run
        return False

    def hand_on_agents(self, run: Run, access: Mapping[str, AgentAccess], *, more: bool) -> None:
        """No host needs it."""

    def hand_on_members(self, run: Run, access: Mapping[str, bytes], ready: Iterable[str]) -> bool:
        """No host needs it."""
        del run, access, ready
        return False


class PodsAboveHosts(InPods):
    """The control plane runs in pods, and its etcd on plain hosts.

    There is one state, the Secret that every control plane in pods has, and the Lease beside it admits one writing run.
    The hosts keep what they run and a lock of their own, which keeps out a run for another control plane of the same
    name.
    """

    etcd_apart = True

    def begin(self, run: Run) -> bool:
        """Take the lock and open the journal if there is anything to do on hosts; returns whether there is."""
        differs = any(each.differs or each.lacking for each in self.observed.values())
        due = differs or not run.state.etcd.bootstrapped
        if due and not run.check:
            # The state is on record before the first change of a host.
            with run.writing("etcd on hosts"):
                run.save(with_hosts(run.state, run.spec))
        return due


def with_hosts(state: State, spec: Mapping[str, Any]) -> State:
    """The state with the hosts of the document, and with those that are members of etcd from now on.

    Before anything is put there: a run that ends early, and a document that changes after it, forget no host. A member
    that has been started once knows the others by what it has on its disk.
    """
    members = tuple(host.name for host in component_hosts.hosts_of(spec, ETCD_ROLE))
    return replace(
        state,
        hosts={**state.hosts, **{host["name"]: host for host in spec["hosts"]}},
        etcd=replace(state.etcd, nodes=state.etcd.nodes or members),
    )
