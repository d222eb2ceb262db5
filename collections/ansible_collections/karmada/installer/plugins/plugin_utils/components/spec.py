# SPDX-License-Identifier: Apache-2.0
"""The spec of a KarmadaDeployment, read by names and types instead of by paths of strings.

These are views: they look into the document when they are asked, copy nothing and cannot be written. They check nothing
and know no default, because a document comes out of ``document.manifest.resolve``, valid and with all defaults. So an
accessor is ``Always`` where the schema or ``resolve`` sees to it that its section has the field; the others say what
stands for a field that is not given.

Fragments of the Kubernetes API (tolerations, volumes, security contexts) are handed out as they stand in the document,
since they go into objects as they are. ``View.plain`` is for what takes fields by their names: records, variables of
Ansible, words of ssh, rules over all settings of a kind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Generic, Literal, NoReturn, TypeVar

from ..api_object import Object

T = TypeVar("T")
V = TypeVar("V", bound="View")


class View:
    """One mapping of the document."""

    __slots__ = ("_plain",)

    def __init__(self, plain: Mapping[str, Any]) -> None:
        self._plain = plain

    @property
    def plain(self) -> Mapping[str, Any]:
        """The mapping itself, with the field names of the document."""
        return self._plain

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._plain!r})"

    def _at(self, path: tuple[str, ...]) -> Any:
        """Value of a field, or None where it or anything above it is not given."""
        found: Any = self._plain
        for key in path:
            found = found.get(key)
            if found is None:
                return None
        return found


class _Accessor(Generic[T]):
    """One field, by its path below the view."""

    def __init__(self, *path: str) -> None:
        self._path = path

    def __set__(self, view: View, value: object) -> NoReturn:
        raise AttributeError(f"{'.'.join(self._path)} cannot be set: it is read from the document")


class Always(_Accessor[T]):
    """A field that every resolved document has. Raises KeyError in any other."""

    def __get__(self, view: View, _owner: object = None) -> T:
        found: Any = view._plain
        for key in self._path:
            found = found[key]
        value: T = found
        return value


class Maybe(_Accessor[T]):
    """A field, or None."""

    def __get__(self, view: View, _owner: object = None) -> T | None:
        value: T | None = view._at(self._path)
        return value


class Text(_Accessor[str]):
    """A text; empty where it is not given."""

    def __get__(self, view: View, _owner: object = None) -> str:
        return view._at(self._path) or ""


class Listed(_Accessor[T]):
    """The entries of a list; none where it is not given."""

    def __get__(self, view: View, _owner: object = None) -> tuple[T, ...]:
        return tuple(view._at(self._path) or ())


class Keyed(_Accessor[T]):
    """The entries of a map; none where it is not given."""

    def __get__(self, view: View, _owner: object = None) -> Mapping[str, T]:
        return MappingProxyType(view._at(self._path) or {})


class Section(_Accessor[V]):
    """A section that every resolved document has, as a view. Raises KeyError in any other."""

    def __init__(self, kind: type[V], key: str) -> None:
        super().__init__(key)
        self._kind, self._key = kind, key

    def __get__(self, view: View, _owner: object = None) -> V:
        return self._kind(view._plain[self._key])


class Artifacts(View):
    """``spec.artifacts``; ``source`` depends on whether there are hosts where it is not given."""

    __slots__ = ()
    source = Always[str]("source")
    url = Maybe[str]("url")


class Certificates(View):
    """``spec.certificates``; durations as Go writes them."""

    __slots__ = ()
    validity = Always[str]("validity")
    renew_before = Always[str]("renewBefore")
    key_algorithm = Always[Literal["ECDSA-P256", "RSA-3072"]]("keyAlgorithm")
    administrator_generation = Always[int]("administratorGeneration")


class Endpoint(View):
    """``spec.endpoint``; ``type`` depends on the mode where it is not given."""

    __slots__ = ()
    type = Always[str]("type")
    host = Text("host")
    port = Maybe[int]("port")
    extra_sans = Listed[str]("extraSANs")
    ip_family_policy = Always[str]("ipFamilyPolicy")
    load_balancer_class = Maybe[str]("loadBalancerClass")
    service_annotations = Keyed[str]("serviceAnnotations")
    ingress_class = Maybe[str]("ingress", "className")
    ingress_annotations = Keyed[str]("ingress", "annotations")
    route_annotations = Keyed[str]("route", "annotations")
    route_labels = Keyed[str]("route", "labels")
    virtual_ip = Text("virtualIP", "address")
    virtual_router_id = Always[int]("virtualIP", "virtualRouterID")


class ExternalEtcd(View):
    """``spec.components.etcd.external``."""

    __slots__ = ()
    endpoints = Listed[str]("endpoints")
    key_prefix = Always[str]("keyPrefix")
    secret = Always[str]("secretRef", "name")


class HostCluster(View):
    """``spec.hostCluster``; ``namespace`` is that of the document where it is not given."""

    __slots__ = ()
    namespace = Always[str]("namespace")
    domain = Always[str]("domain")
    secret = Maybe[str]("secretRef", "name")
    context = Maybe[str]("context")
    insecure = Maybe[bool]("insecureSkipTLSVerification")


class HostEntry(View):
    """An entry of ``spec.hosts``, or the record of one that has left."""

    __slots__ = ()
    name = Always[str]("name")
    address = Always[str]("address")
    roles = Listed[str]("roles")
    port = Maybe[int]("port")


class Images(View):
    """``spec.images``; its registries are read by the field that a row of the component table names."""

    __slots__ = ()
    mirror_country = Maybe[str]("mirrorCountry")
    pull_policy = Always[str]("pullPolicy")
    pull_secrets = Listed[Object]("pullSecrets")

    def registry(self, field: str) -> str | None:
        """Registry of one publisher; None where the document leaves it to the defaults."""
        found: str | None = self.plain.get(field)
        return found


class MemberEntry(View):
    """An entry of ``spec.members``, or what is on record of a member (``State.member``).

    An entry has either ``secret`` or ``kubeconfig_from``. Only records have ``former_mode``, and they need not have all
    the rest: of a member that is known by its Cluster alone there is nothing but the name.
    """

    __slots__ = ()
    name = Always[str]("name")
    mode = Always[str]("mode")
    former_mode = Maybe[str]("formerMode")
    agent_hosts = Listed[str]("agentHosts")
    secret = Always[str]("secretRef", "name")
    kubeconfig_from = Maybe[Mapping[str, Any]]("kubeconfigFrom")
    context = Maybe[str]("context")
    insecure = Maybe[bool]("insecureSkipTLSVerification")
    scoped_rights = Listed[Object]("scopedRights")
    labels = Keyed[str]("labels")
    taints = Listed[Object]("taints")
    on_leave = Maybe[str]("onLeave")

    @property
    def pulls(self) -> bool:
        """True in mode Pull: an agent on the member, or on hosts, connects to the control plane."""
        return bool(self._plain.get("mode") == "Pull")


class Settings(View):
    """Settings of a component, which all have in common but for a few; empty where the document has none."""

    __slots__ = ()
    replicas = Always[int]("replicas")
    image_repository = Maybe[str]("imageRepository")
    image_tag = Text("imageTag")
    image_pull_policy = Maybe[str]("imagePullPolicy")
    image_pull_secrets = Maybe[list[Object]]("imagePullSecrets")
    extra_args = Keyed[str]("extraArgs")
    feature_gates = Keyed[bool]("featureGates")
    extra_env = Listed[Object]("extraEnv")
    extra_volumes = Listed[Object]("extraVolumes")
    extra_volume_mounts = Listed[Object]("extraVolumeMounts")
    resources = Keyed[Object]("resources")
    labels = Keyed[str]("labels")
    annotations = Keyed[str]("annotations")
    node_selector = Keyed[str]("nodeSelector")
    tolerations = Listed[Object]("tolerations")
    affinity = Keyed[Object]("affinity")
    topology_spread_constraints = Listed[Object]("topologySpreadConstraints")
    priority_class = Always[str]("priorityClassName")
    disruption_budget = Maybe[Object]("podDisruptionBudgetConfig")
    security_context = Keyed[Any]("securityContext")
    volume_data = Keyed[Object]("volumeData")
    claim_size = Maybe[str]("volumeData", "volumeClaim", "size")
    storage_class = Maybe[str]("volumeData", "volumeClaim", "storageClassName")
    host_path = Maybe[str]("volumeData", "hostPath", "path")
    #: size of a database, and share of free space in it, from which on maintenance defragments it
    maintenance_size = Maybe[str]("maintenance", "minimumSize")
    maintenance_free_percent = Maybe[int]("maintenance", "freePercent")


class Spec(View):
    """``spec`` of a resolved document."""

    __slots__ = ("_members",)

    def __init__(self, plain: Mapping[str, Any]) -> None:
        super().__init__(plain)
        self._members: Mapping[str, MemberEntry] | None = None

    mode = Always[str]("mode")
    version = Maybe[str]("version")
    host_cluster = Section(HostCluster, "hostCluster")
    endpoint = Section(Endpoint, "endpoint")
    images = Section(Images, "images")
    artifacts = Section(Artifacts, "artifacts")
    certificates = Section(Certificates, "certificates")
    ssh_user = Text("ssh", "user")
    ssh = Always[Mapping[str, Any]]("ssh")
    deletion_policy = Always[str]("deletion", "policy")
    encryption_provider = Always[str]("encryption", "provider")
    audited = Always[bool]("audit", "enabled")
    audit_policy = Maybe[str]("audit", "configMapRef", "name")
    overlay = Maybe[str]("overlay", "configMapRef", "name")
    network_policies_enabled = Always[bool]("networkPolicies", "enabled")
    metrics_from = Listed[Object]("networkPolicies", "metricsFrom")
    karmadactl_registers = Always[bool]("registration", "karmadactl")
    installs_crd = Always[bool]("installCRD")
    service_subnet = Maybe[str]("components", "karmadaAPIServer", "serviceSubnet")

    @property
    def hosts(self) -> tuple[HostEntry, ...]:
        """The entries of ``hosts``, in their order; none where everything runs in pods."""
        return tuple(map(HostEntry, self._plain.get("hosts") or ()))

    @property
    def members(self) -> Collection[MemberEntry]:
        """The entries of ``members``, in their order."""
        return self.member_by_name.values()

    @property
    def member_by_name(self) -> Mapping[str, MemberEntry]:
        """The entries of ``members`` by their names. There may be thousands, so each is looked at once."""
        if self._members is None:
            entries = map(MemberEntry, self._plain.get("members") or ())
            self._members = MappingProxyType({entry.name: entry for entry in entries})
        return self._members

    @property
    def external_etcd(self) -> ExternalEtcd | None:
        """Settings of an external etcd; None where etcd is a component of ours."""
        found = self._at(("components", "etcd", "external"))
        return None if found is None else ExternalEtcd(found)

    def component(self, field: str) -> Settings | None:
        """Settings of a component by its key in ``spec.components``, of etcd the local ones; None without any."""
        found = self._at(("components", field, "local") if field == "etcd" else ("components", field))
        return None if found is None else Settings(found)
