# SPDX-License-Identifier: Apache-2.0
"""What is known of one instance: what its document says, its state and the clusters say, and what follows from that.

Nothing here writes. ``run`` adds that, under the lock.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from ..api_object import Object
from ..artifacts import crd_files
from ..artifacts import source as artifact_source
from ..artifacts.source import Source
from ..components import endpoint, image_pins, ip_families, releases
from ..components.instance import Instance
from ..components.state import EtcdState, State
from ..components.table import (
    AGGREGATED_SERVERS,
    BY_NAME,
    ETCD,
    KARMADA_APISERVER,
    KARMADA_CA,
    KARMADA_WEBHOOK,
    pod_components,
    wanted_components,
)
from ..components.types import Addresses, Component, KeyPair, Layout, etcd_on_hosts, external_etcd, settings_of
from ..document import overlay
from ..document.recorded import read_state
from ..document.references import Connection, References, cluster_from_secret
from ..encoding import files_of
from ..kube import host_cluster
from ..kube.cluster import Cluster
from ..kube.errors import ApiError
from ..kube.host_cluster import HostCluster
from ..labels import FIELD_MANAGER, INSTANCE_LABEL, MANAGED_BY_LABEL, OWNER_LABEL
from ..pki import certificates
from ..pki.files import Material
from ..problems import Problem, ProblemsError
from ..render import cluster_layout, etcd_nodes
from ..render import workloads as render

STEP_LIFETIME = timedelta(hours=12)  # longer than any step works
DEFAULT_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"


#: In the place of an object's version: it must not be there. No object has this one, which is that of an empty etcd.
NOT_STORED: Mapping[str, str] = {"resourceVersion": "1"}


def version_of(live: Object) -> dict[str, str]:
    """Which object this is, and as who last wrote it; an apply that says so is refused when that has changed."""
    return {key: live["metadata"][key] for key in ("uid", "resourceVersion")}


class InstanceFacts(ABC):
    """One instance as it is found, each thing looked at when it is first asked for.

    ``operation`` names what the playbook is doing, for the journal. ``holder`` is the identity under which this
    playbook holds the lock, the same in each of its actions. ``say`` shows a line to the person who waits.
    ``selected`` are the names of the members to work on; empty means all.
    """

    #: Images, by reference, whose tags may lead elsewhere than when they were first used.
    confirmed_images: Collection[str] = frozenset()

    def __init__(
        self,
        deployment: Object,
        connection: Connection,
        *,
        operation: str,
        holder: str,
        check: bool,
        say: Callable[[str], None],
        selected: Collection[str] = (),
    ) -> None:
        self.deployment = deployment
        self.spec: Mapping[str, Any] = deployment["spec"]
        self.connection = connection
        self.operation = operation
        self.holder = holder
        self.check = check
        self.say = say
        #: gets what only who looks for a defect wants to see, such as tracebacks
        self.trace: Callable[[str], None] = lambda _text: None
        self.selected = selected
        self.now = datetime.now(UTC)
        #: why the endpoint could not be used for ``control_plane``; empty if it could, or if there is none
        self.endpoint_trouble = ""
        #: as what object ``stored_state`` was read, where that is one
        self.stored_as: Mapping[str, str] = NOT_STORED
        self._closing = ExitStack()

    # -- clusters --------------------------------------------------------------------------------------------------

    @cached_property
    def host(self) -> Cluster:
        """The cluster whose nodes run the control plane."""
        settings = self.spec["hostCluster"]
        reference = settings.get("secretRef")
        if reference:
            where = "spec.hostCluster.secretRef"
            files, folder = self.secret(reference["name"], where), self.connection.folder(reference["name"])
            found = cluster_from_secret(files, settings.get("context"), "host cluster", where, HostCluster, folder)
        else:
            where = "kubeconfig of the host cluster"
            context = settings.get("context") or self.connection.context
            found = HostCluster.from_kubeconfig(self.connection.kubeconfig, context, name="host cluster")
        host_cluster.refuse_unverified(settings, found.access, where)
        return self._kept(found)

    @cached_property
    def _own_identity(self) -> KeyPair:
        """As whom this step works in the control plane, where there may be no rights yet."""
        return certificates.superuser("system:karmada:installer", self.state, self.spec, self.now, STEP_LIFETIME)

    @cached_property
    def control_plane(self) -> Cluster:
        """The instance's API server: directly where it can be reached, else through the host."""
        own, authority = self._own_identity, self.state.authorities[KARMADA_CA]
        ca_pem, cert_pem, key_pem = (part.decode() for part in (authority.certificate, own.certificate, own.key))
        if self.spec["endpoint"]["type"] != "ClusterIP":
            direct = Cluster.from_parts(self.public_url, ca_pem, cert_pem, key_pem, name="control plane")
            try:
                direct.get_raw("/readyz", retry_seconds=0)
                return self._kept(direct)
            except ApiError as error:
                self.endpoint_trouble = (
                    f"the API server does not answer at {self.public_url} from here: {error.message}"
                )
                direct.close()
        return self._kept(self._forwarded_control_plane(cert_pem, key_pem))

    def _forwarded_control_plane(self, cert_pem: str, key_pem: str) -> Cluster:
        """The instance's API server through the host cluster, as who has this certificate."""
        from ..kube.port_forward import cluster_behind  # noqa: PLC0415 - a library that few runs need

        selector = ",".join(f"{key}={value}" for key, value in self.instance.selector(KARMADA_APISERVER.name).items())
        return cluster_behind(
            self.host,
            self.instance.namespace,
            selector,
            KARMADA_APISERVER.listens(self.spec)["https"],
            ca_pem=self.state.authorities[KARMADA_CA].certificate.decode(),
            cert_pem=cert_pem,
            key_pem=key_pem,
            tls_server_name=self.instance.service_host(KARMADA_APISERVER.name),
            name="control plane",
        )

    def is_host(self, cluster: Cluster) -> bool:
        """Whether this is the host cluster."""
        return cluster is self.host

    @property
    def control_plane_exists(self) -> bool:
        """Whether the API server of the instance has been deployed; in check mode it may not have been."""
        return bool(
            self.host.get(
                "apps/v1", "Deployment", self.instance.object_name(KARMADA_APISERVER.name), self.instance.namespace
            )
        )

    def secret(self, name: str, where: str) -> dict[str, bytes]:
        """A Secret that the document refers to: key → content. Raises ProblemsError when it is not there."""
        return self._references.secret(name, where)

    @cached_property
    def config_maps(self) -> dict[str, dict[str, str]]:
        """The ConfigMaps that the document refers to: name → key → text. One that is not there is left out."""
        return self._references.config_maps()

    @cached_property
    def _references(self) -> References:
        return References(self.deployment, self.connection, lambda: self._home)

    @cached_property
    def _home(self) -> Cluster:
        """The cluster that the document is an object of, or that the inventory source names."""
        return self._kept(
            Cluster.from_kubeconfig(self.connection.kubeconfig, self.connection.context, name="home cluster")
        )

    def _kept(self, cluster: Cluster) -> Cluster:
        self.attend(cluster)
        self._closing.callback(cluster.close)
        return cluster

    def attend(self, cluster: Cluster) -> None:
        """Tell the person about trouble with this cluster, and let nothing be written there that the lock forbids."""
        cluster.on_trouble = self.say
        cluster.before_write = self._require_lock

    @abstractmethod
    def _require_lock(self) -> None:
        """Raise an error if the lock that this run holds was lost; called before each write to a cluster."""

    def close(self) -> None:
        """Close every connection this run opened, the newest first, and what else was to end with it."""
        self._closing.close()

    # -- what is known of the instance -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The instance's name."""
        name: str = self.deployment["metadata"]["name"]
        return name

    @property
    def namespace(self) -> str:
        """The instance's namespace in the host cluster."""
        namespace: str = self.spec["hostCluster"]["namespace"]
        return namespace

    @property
    def place(self) -> str:
        """Where the instance is, in words."""
        return f"namespace {self.namespace} of the host cluster"

    @cached_property
    def stored_state(self) -> State | None:
        """The state as the host cluster has it; None before the first install and after an uninstall."""
        found = self.host.get("v1", "Secret", f"{self.name}-installer-state", self.namespace)
        self.stored_as = version_of(found) if found else NOT_STORED
        if found is None:
            return None
        files = files_of(found.get("data"))
        return read_state(files, f"Secret {self.namespace}/{self.name}-installer-state of the host cluster")

    @cached_property
    def state(self) -> State:
        """The stored state, or the one that a first install would begin with."""
        return self.stored_state or self._first_state()

    def _first_state(self) -> State:
        state = State(
            owner=self._owner_of_namespace() or str(uuid.uuid4()),
            version=releases.choose(self.spec.get("version"), None).karmada,
            etcd=EtcdState(token=str(uuid.uuid4()), storage=self._etcd_storage(), nodes=self._etcd_nodes()),
        )
        return certificates.with_new_keys(state, self.spec, self.now)

    def _owner_of_namespace(self) -> str | None:
        """A run killed between making the namespace and writing its state left the owner on the namespace."""
        found = self.host.get("v1", "Namespace", self.namespace)
        labels = (found or {}).get("metadata", {}).get("labels") or {}
        ours = labels.get(MANAGED_BY_LABEL) == FIELD_MANAGER and labels.get(INSTANCE_LABEL) == self.name
        owner: str | None = labels.get(OWNER_LABEL)
        return owner if ours else None

    def _etcd_storage(self) -> str:
        """What the document says; else a claim where the host cluster has a default class, else the pod's own disk."""
        if external_etcd(self.spec):
            return "external"
        if etcd_on_hosts(self.spec):
            return "directory"
        chosen = settings_of(ETCD, self.spec).get("volumeData") or {}
        if chosen:
            return str(next(iter(chosen)))
        classes = self.host.list("storage.k8s.io/v1", "StorageClass")
        defaults = (
            (each["metadata"].get("annotations") or {}).get(DEFAULT_CLASS_ANNOTATION) == "true" for each in classes
        )
        return "volumeClaim" if any(defaults) else "emptyDir"

    def _etcd_nodes(self) -> Sequence[str]:
        """Those that keep etcd's data, where the document wants it in a directory of theirs."""
        if self._etcd_storage() != "hostPath":
            return ()
        return etcd_nodes.choose(self.host.list("v1", "Node"), settings_of(ETCD, self.spec))

    @cached_property
    def instance(self) -> Instance:
        """The instance as renderers want it."""
        recorded = self.stored_state.version if self.stored_state else None
        # What is to be removed is removed as what it is, whatever version the document has come to ask for.
        removing = self.operation == "uninstall" and recorded is not None
        release = releases.choose(None if removing else self.spec.get("version"), recorded)
        return Instance.of(
            self.deployment,
            release,
            self.state.owner,
            self.service_subnet,
            self.config_maps,
            self.member_places,
            image_pins.of_release(release, artifact_source.read_lock()),
            self.state.restarts,
        )

    def go_on_with(self, state: State) -> None:
        """Take this for the state from now on, and render the instance by it. It is not stored by this."""
        self.__dict__["state"] = state
        self.__dict__.pop("instance", None)

    @property
    def member_places(self) -> Mapping[str, int]:
        """Which of those is a member's that there is one of for each: of no interest where each is a pod."""
        return {}

    @property
    def service_subnet(self) -> str:
        """The ranges for Services of the control plane: the document's, else what the first install has chosen."""
        wanted: str | None = self.spec["components"][KARMADA_APISERVER.field].get("serviceSubnet")
        return wanted or self.state.service_subnet or ip_families.default_service_subnet(self.host_families)

    @property
    def host_families(self) -> tuple[int, ...]:
        """The versions of IP that the API server's Service has or would have, the preferred one first.

        While there is no namespace to ask in, a check run looks at what else it may read, and a run that writes says
        IPv4 until it has made the namespace: nothing is rendered with that.
        """
        return self.seen_families or (self._likely_families if self.check else (ip_families.IPV4,))

    @cached_property
    def _likely_families(self) -> tuple[int, ...]:
        """The preferred family as the Service of the API server shows it, or its own address; not a second one."""
        if not self.host.can_i([("get", "", "services", "default")]):
            found = ip_families.of_service(self.host.get("v1", "Service", "kubernetes", "default"))
            if found:
                return found
        own = ip_families.of_api_server(self.host.api_versions())
        if not own:
            self.say(
                "which versions of IP the host cluster has cannot be seen before its namespace exists: IPv4 is shown"
            )
        return own or (ip_families.IPV4,)

    @cached_property
    def seen_families(self) -> tuple[int, ...]:
        """The same as far as it is certain; empty while there is no namespace."""
        name, policy = f"{self.name}-apiserver", self.spec["endpoint"]["ipFamilyPolicy"]
        live = self.host.get("v1", "Service", name, self.namespace)
        if live is None and self.host.get("v1", "Namespace", self.namespace):
            live = self.host.apply(ip_families.probe(name, self.namespace, policy), dry_run=True).object
        return ip_families.of_service(live)

    @property
    def possible_families(self) -> tuple[int, ...]:
        """Every version of IP that pods may have, for the time before there is a namespace to ask in.

        Empty where the account may not look, or nothing is to be seen.
        """
        if self.host.can_i([("list", "", "nodes", None), ("get", "", "services", "default")]):
            return ()
        of_nodes = ip_families.of_nodes(self.host.list("v1", "Node"))
        first = ip_families.of_service(self.host.get("v1", "Service", "kubernetes", "default"))
        return tuple(dict.fromkeys([*first, *of_nodes])) if of_nodes else ()

    @cached_property
    def overlays(self) -> list[overlay.Overlay]:
        """What the document lays over our objects of the host cluster. Raises ProblemsError if it cannot be read."""
        found, problems = overlay.read(self.spec, self.config_maps)
        if problems:
            raise ProblemsError(problems)
        return found

    def host_objects(self) -> list[Object]:
        """Everything that the instance consists of in the host cluster, before any overlay, but for its state."""
        admin = [render.secret(self.instance, "admin", name, {}) for name in ("admin-cert", "admin-config")]
        workloads = self._rendered(pod_components(self.spec))
        passage = render.passage(self.instance, self.ingress_controller)
        return [*render.file_set_secrets(self.instance, self.layout, self.material), *admin, *workloads, *passage]

    def workloads(self, components: Iterable[str]) -> list[Object]:
        """What these rows of the component table consist of in the host cluster, before any overlay."""
        return self._rendered(BY_NAME[name] for name in components)

    def _rendered(self, components: Iterable[Component]) -> list[Object]:
        return [
            each
            for component in components
            for each in render.component_objects(self.instance, component, self.layout, self.material, self.state.etcd)
        ]

    @cached_property
    def endpoint_host(self) -> str:
        """The name or address at which people outside find the API server; empty where there is none."""
        settings = self.spec["endpoint"]
        # An address of another type leads nowhere any more.
        recorded = self.state.endpoint_host if self.state.endpoint_type in ("", settings["type"]) else ""
        return endpoint.host(settings, recorded, self._node_addresses, self._api_service, self._route)

    @cached_property
    def _node_addresses(self) -> list[list[str]]:
        """The addresses of each node of the host cluster, where they matter for the endpoint."""
        settings = self.spec["endpoint"]
        if settings["type"] != "NodePort" or settings.get("host"):
            return []
        return endpoint.internal_addresses(self.host.list("v1", "Node"))

    @cached_property
    def _api_service(self) -> Object | None:
        """The API server's Service as the host cluster has it, where it matters for the endpoint."""
        if self.spec["endpoint"]["type"] not in ("NodePort", "LoadBalancer"):
            return None
        return self.host.get("v1", "Service", f"{self.name}-apiserver", self.namespace)

    @cached_property
    def _route(self) -> Object | None:
        """The Route to the API server as the host cluster has it, where it says the name."""
        if self.spec["endpoint"]["type"] != "Route" or self.spec["endpoint"].get("host"):
            return None
        kind, name = endpoint.PASSAGES["Route"], self.instance.object_name(KARMADA_APISERVER.name)
        return self.host.get(kind.api_version, kind.kind, name, self.namespace)

    @cached_property
    def ingress_controller(self) -> str:
        """Who serves the Ingress, as its IngressClass says; empty where the endpoint is none or there is no class."""
        if self.spec["endpoint"]["type"] != "Ingress":
            return ""
        found = endpoint.ingress_class(self.spec["endpoint"], self.host.list(*endpoint.INGRESS_CLASS))
        return str(found["spec"].get("controller", "")) if found else ""

    def forget_endpoint(self) -> None:
        """Look at the endpoint again, because the host cluster has just said something new about it."""
        derived = ("_api_service", "_route", "_node_addresses", "endpoint_host", "public_url", "layout", "issued")
        for name in derived:
            self.__dict__.pop(name, None)

    @cached_property
    def layout(self) -> Layout:
        """Where the processes of the instance find each other."""
        settings = self.spec["endpoint"]
        others = endpoint.same_place(settings, self.endpoint_host, self._node_addresses, self._api_service)
        return cluster_layout.layout(self.instance, self.endpoint_host, *others)

    @cached_property
    def issued(self) -> certificates.Issued:
        """All certificates, with those that are missing or not as they should be made anew (not yet stored)."""
        labels = f"{INSTANCE_LABEL}={self.name},{OWNER_LABEL}={self.state.owner}"
        found = self.host.list("v1", "Secret", self.namespace, labels=labels) if self.stored_state else []
        present = certificates.present_leaves(self.instance, {each["metadata"]["name"]: each for each in found})
        return certificates.issue_missing(
            self.instance, self.state, self.layout, present, self.now, self.external_etcd_files
        )

    @cached_property
    def external_etcd_files(self) -> dict[str, bytes]:
        """ca.crt, tls.crt and tls.key of the etcd that the document names; empty where etcd is ours."""
        external = external_etcd(self.spec)
        if external is None:
            return {}
        where = "spec.components.etcd.external.secretRef"
        files, keys = self.secret(external["secretRef"]["name"], where), ("ca.crt", "tls.crt", "tls.key")
        missing = [key for key in keys if not files.get(key)]
        if missing:
            what = f"the Secret {external['secretRef']['name']} has no {', '.join(missing)}"
            raise ProblemsError(Problem(what, where, f"put {', '.join(keys)} there"))
        return {key: files[key] for key in keys}

    @property
    def material(self) -> Material:
        """All keys and certificates of the instance."""
        return self.issued.material

    @cached_property
    def public_url(self) -> str:
        """Where the API server is for those outside; within the host cluster where it has no such address."""
        if not self.endpoint_host:
            return self.layout.apiserver_url
        return endpoint.url(self.endpoint_host, endpoint.port(self.spec["endpoint"], self._api_service))

    @property
    def addresses(self) -> Addresses:
        """How the control plane's API server finds its helpers, as its own objects have to say it."""
        return Addresses(
            webhook_url=cluster_layout.service_url(self.instance, KARMADA_WEBHOOK),
            aggregated={
                each.name: (self.instance.service_host(each.name), cluster_layout.SERVICE_PORTS[each.name])
                for each in wanted_components(self.spec)
                if each.name in AGGREGATED_SERVERS
            },
            public_url=self.public_url,
            ca_bundle=self.state.authorities[KARMADA_CA].certificate,
        )

    def estimator_address(self, component: Component) -> tuple[str, int]:
        """Where schedulers reach the estimator of a member: a DNS name that is in its certificate, and the port."""
        return self.instance.service_host(component.name), cluster_layout.SERVICE_PORTS[component.row]

    def crds(self) -> list[Object]:
        """Karmada's CRDs of the instance's release, verified; none if the document does not want them."""
        return self._crds if self.spec["installCRD"] else []

    @cached_property
    def _crds(self) -> list[Object]:
        return crd_files.crds(self.instance.release.karmada, self.crd_source)

    @property
    def artifact_source(self) -> Source:
        """Where files come from that are not part of the collection."""
        settings, directory = self.spec["artifacts"], self.connection.artifacts
        return Source(settings["source"], settings.get("url"), Path(directory) if directory else None)

    @property
    def crd_source(self) -> Source:
        """The same for the CRDs, whose mirror has nothing else."""
        return self.artifact_source
