# SPDX-License-Identifier: Apache-2.0
"""Places of a control plane in pods of a host cluster, with etcd in pods as well or on plain hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from ..api_object import Object
from ..components import hosts as component_hosts
from ..components import ip_families, releases
from ..components.etcd_state import EtcdMemberState, EtcdState
from ..components.hosts import ETCD_ROLE
from ..components.instance import Instance
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
from ..kube.causes import Servers
from ..kube.cluster import Cluster
from ..kube.errors import ApiError, Forbidden
from ..kube.host_cluster import HostCluster
from ..kube.objects import Ref
from ..labels import FIELD_MANAGER, INSTANCE_LABEL, MANAGED_BY_LABEL, OWNER_LABEL
from ..pki import certificates
from ..problems import Problem, ProblemsError, Reason
from ..render import cluster_layout, etcd_nodes
from .place import CONTROL_PLANE, Place, etcd_ails, with_hosts
from .snapshot import Snapshot
from .store import SecretStore, StateStore

if TYPE_CHECKING:
    from ..render.agent_units import AgentAccess
    from .run import Run

DEFAULT_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"


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
            found = facts.kept(
                cluster_from_secret(files, settings.context, "host cluster", where, HostCluster, folder, full)
            )
        elif settings.context and facts.connection.object_uid:
            raise ProblemsError(
                Problem(
                    "chooses a context, and no Secret has a kubeconfig for it: that of whoever carries the object out "
                    "is not for its author to choose from",
                    "spec.hostCluster.context",
                    "Name the Secret with the kubeconfig in spec.hostCluster.secretRef, or leave context out.",
                    reason=Reason.INVALID_DOCUMENT,
                )
            )
        else:
            where = "kubeconfig of the host cluster"
            found = facts.opened(HostCluster, settings.context or facts.connection.context, "host cluster")
        host_cluster.refuse_unverified(found.access, where, allowed=bool(settings.insecure))
        return found

    @property
    def host_cluster_is_home(self) -> bool:
        """True if the document names no other cluster: then the kubeconfig of the run leads to the host cluster."""
        settings = self.facts.spec.host_cluster
        return not (settings.secret or settings.context)

    def servers(self, workload: Ref) -> Servers:
        """Pods of this workload."""
        return Servers(self.host_cluster, (workload,))

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


def _etcd_changes(run: Run) -> bool:
    """Return whether members on hosts are to come or to go, are on their way, or have not begun."""
    etcd = run.state.etcd
    wanted = {host.name for host in component_hosts.hosts_of(run.spec, ETCD_ROLE)}
    settled = etcd.bootstrapped and all(each.is_settled for each in etcd.members)
    return not settled or {each.name for each in etcd.members} != wanted
