# SPDX-License-Identifier: Apache-2.0
"""Documents and everything that follows from them, for tests: the engine's own functions over one small document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.instance import Instance
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    AGGREGATED_SERVERS,
    AUTHORITIES,
    COMPONENTS,
    ETCD,
    KARMADA_WEBHOOK,
    pod_components,
    processes,
    wanted_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import (
    Addresses,
    Component,
    KeyPair,
    Layout,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import certificates
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509 as pki
from ansible_collections.karmada.installer.plugins.plugin_utils.pki.files import Material
from ansible_collections.karmada.installer.plugins.plugin_utils.render import cluster_layout
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads as render
from ansible_collections.karmada.installer.tests.unit.support.copies import copied
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Object = dict[str, Any]

MEMBER: Object = {"name": "m1", "secretRef": {"name": "m1"}}
#: The components as they run: of a row that is there for each member, that of the member above.
RUNNING: tuple[Component, ...] = tuple(each for row in COMPONENTS for each in processes(row, [MEMBER["name"]]))
#: What an estimator finds in the place of a kubeconfig.
MEMBER_ACCESS = {MEMBER["name"]: b"a kubeconfig of the member"}

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
OWNER = "7f9f5c1a-6a8b-4a0e-9a53-d4d0f0b8c001"
TOKEN = "0d6c2a35-1111-4222-8333-944455556666"


def document(spec: Mapping[str, Any] | None = None, name: str = "prod", namespace: str = "karmada") -> Object:
    """A document as the inventory plugin hands it on: valid, with all defaults."""
    return copied(_resolved(json.dumps(spec or {}), name, namespace))


@cache
def _resolved(spec: str, name: str, namespace: str) -> Object:
    # Most worlds begin with one of few documents, and it takes 10 ms to evaluate all rules on one.
    return manifest.resolve(
        {
            "apiVersion": manifest.API_VERSION,
            "kind": manifest.KIND,
            "metadata": {"name": name, "namespace": namespace},
            "spec": json.loads(spec),
        }
    )


def spec_of(spec: Mapping[str, Any] | None = None) -> Spec:
    """The spec of such a document."""
    return Spec(document(spec)["spec"])


def service_types() -> list[Object]:
    """CRDs as far as members are concerned: those that they need, and one that they do not."""
    names = {"multicluster.x-k8s.io": ("serviceexports", "serviceimports"), "work.karmada.io": ("works",)}
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}", "annotations": {"example.com/made-by": "a generator"}},
            "spec": {"group": group, "names": {"plural": plural}, "scope": "Namespaced"},
            "status": {"acceptedNames": {"plural": ""}},
        }
        for group, plurals in names.items()
        for plural in plurals
    ]


def etcd(**settings: Any) -> Object:
    """A spec with these settings of etcd."""
    return {"components": {"etcd": {"local": settings}}}


def settings_in(component: Component, **settings: Any) -> Object:
    """These settings as the section of a component has them."""
    return {"local": settings} if component is ETCD else settings


@cache
def authorities() -> dict[str, KeyPair]:
    """Keys are made once for all tests: what they are does not matter to any of them."""
    return {
        name: pki.new_authority(pki.Authority(name, common_name), "ECDSA-P256", NOW)
        for name, common_name in AUTHORITIES.items()
    }


@cache
def service_account_key() -> bytes:
    return pki.new_service_account_key("ECDSA-P256")[0]


ENCRYPTION_KEY = pki.encryption_key()


def state(**fields: Any) -> State:
    """A state after the first steps of an installation."""
    known: dict[str, Any] = {
        "owner": OWNER,
        "version": releases.newest().karmada,
        "etcd": EtcdState(token=TOKEN, storage="volumeClaim"),
        "authorities": authorities(),
        "service_account_key": service_account_key(),
        "encryption_key": ENCRYPTION_KEY,
        "service_subnet": "10.96.0.0/12",
    }
    return State(**{**known, **fields})


@dataclass
class Rendered:
    """All that the engine makes of one document."""

    deployment: Object
    endpoint_host: str = ""
    state: State | None = None
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: when its certificates are issued; for who shows them to real programs it has to be now
    now: datetime = NOW

    @property
    def spec(self) -> Spec:
        return Spec(self.deployment["spec"])

    @cached_property
    def remembered(self) -> State:
        return self.state or state()

    @cached_property
    def instance(self) -> Instance:
        release = releases.choose(self.spec.version, None)
        chosen = self.spec.service_subnet or self.remembered.service_subnet
        restarts = self.remembered.restarts
        return Instance.of(self.deployment, release, self.remembered.owner, chosen, self.config_maps, restarts=restarts)

    @cached_property
    def layout(self) -> Layout:
        return cluster_layout.layout(self.instance, self.endpoint_host)

    @cached_property
    def material(self) -> Material:
        external = EXTERNAL_FILES if self.spec.external_etcd else {}
        issued = certificates.issue_missing(self.instance, self.remembered, self.layout, {}, self.now, external)
        return replace(issued.material, member_access=MEMBER_ACCESS)

    @cached_property
    def secrets(self) -> list[Object]:
        return render.file_set_secrets(self.instance, self.layout, self.material)

    @cached_property
    def workloads(self) -> list[Object]:
        return [
            each
            for component in pod_components(self.spec)
            for each in render.component_objects(
                self.instance, component, self.layout, self.material, self.remembered.etcd
            )
        ]

    @property
    def objects(self) -> list[Object]:
        """What stands in the host cluster."""
        return [*self.secrets, *self.workloads]

    def one(self, kind: str, name: str) -> Object:
        """The object of this kind and name among those of the host cluster."""
        found = [each for each in self.objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
        assert len(found) == 1, f"{kind} {name}: {len(found)}"
        return found[0]

    @property
    def addresses(self) -> Addresses:
        ports = cluster_layout.SERVICE_PORTS
        return Addresses(
            webhook_url=f"https://{self.instance.service_host(KARMADA_WEBHOOK.name)}:{ports[KARMADA_WEBHOOK.name]}",
            aggregated={
                each.name: (self.instance.service_host(each.name), ports[each.name])
                for each in wanted_components(self.spec)
                if each.name in AGGREGATED_SERVERS
            },
            public_url=self.layout.apiserver_url,
            ca_bundle=self.material.authorities["karmada-ca"].certificate,
        )


#: What the Secret of an external etcd holds.
EXTERNAL_FILES = {"ca.crt": b"its authority", "tls.crt": b"our certificate", "tls.key": b"our key"}


def external_etcd(**settings: Any) -> Object:
    """A spec with an external etcd."""
    known = {
        "endpoints": ["https://etcd1.example.com:2379", "https://etcd2.example.com:2379"],
        "keyPrefix": "/karmada/prod",
        "secretRef": {"name": "etcd-client"},
    }
    return {"components": {"etcd": {"external": {**known, **settings}}}}


def rendered(
    spec: Mapping[str, Any] | None = None, *, name: str = "prod", namespace: str = "karmada", **etcd_state: Any
) -> Rendered:
    """Everything that follows from a spec; ``etcd_state`` changes what is remembered of etcd."""
    remembered = state()
    return Rendered(
        document(spec, name, namespace), state=replace(remembered, etcd=replace(remembered.etcd, **etcd_state))
    )


@cache
def _shared_material() -> Material:
    return rendered(FULL_SPEC).material


def quickly_rendered(spec: Mapping[str, Any] | None = None, **where: str) -> Rendered:
    """With certificates of another instance, because making them is what takes time."""
    found = rendered(spec, **where)
    found.material = _shared_material()
    return found


def with_settings(component: Component, **settings: Any) -> Rendered:
    """What is rendered of a document that says this, and no more, about one component."""
    spec = {"components": {component.field: settings_in(component, **settings)}}
    return quickly_rendered({**spec, "members": [MEMBER]} if component.member else spec)


def workload(found: Rendered, component: Component) -> Any:
    """The Deployment or StatefulSet of a component."""
    kind = "StatefulSet" if component is ETCD else "Deployment"
    return found.one(kind, found.instance.object_name(component.name))


def passage(spec: Mapping[str, Any], *, namespace: str = "karmada", controller: str = "") -> Object:
    """The Ingress or Route of a document."""
    (found,) = render.passage(rendered(spec, namespace=namespace).instance, controller)
    return found


def pods(objects: list[Object]) -> dict[str, Object]:
    """Component → pod template."""
    return {
        each["metadata"]["labels"]["app.kubernetes.io/name"]: each["spec"]["template"]
        for each in objects
        if each["kind"] in ("Deployment", "StatefulSet")
    }


def flags(pod: Object) -> dict[str, str]:
    """The command line of a pod's only container, as flag → value."""
    (container,) = pod["spec"]["containers"]
    pairs = [argument.removeprefix("--").split("=", 1) for argument in container["command"][1:]]
    assert len({pair[0] for pair in pairs}) == len(pairs), "a flag is given twice"
    return {pair[0]: pair[1] for pair in pairs}


#: Settings that any component takes, none of which keeps a pod from a restricted namespace.
SETTINGS: Object = {
    "imagePullPolicy": "Always",
    "labels": {"team": "platform"},
    "annotations": {"example.com/note": "any text"},
    "nodeSelector": {"example.com/pool": "control"},
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"team": "platform"}}},
                }
            ]
        }
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"team": "platform"}},
        }
    ],
    "podDisruptionBudgetConfig": {"minAvailable": "50%"},
    "extraEnv": [
        {"name": "NO_PROXY", "value": ".svc"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ],
    "extraVolumes": [{"name": "scratch", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    "securityContext": {"runAsUser": 1000, "supplementalGroups": [2000]},
}
#: One document that uses everything that changes what is rendered.
FULL_SPEC: Object = {
    "version": "v1.18.1",
    "hostCluster": {"domain": "cluster.example"},
    "endpoint": {
        "type": "NodePort",
        "host": "karmada.example.com",
        "port": 32443,
        "extraSANs": ["*.lb.example.com", "192.0.2.10", "2001:db8::1"],
    },
    "images": {"pullSecrets": [{"name": "mirror"}], "karmadaRegistry": "registry.example.com:5000/karmada"},
    "encryption": {"provider": "secretbox"},
    "components": {
        "etcd": {"local": {"replicas": 3, "volumeData": {"volumeClaim": {"size": "10Gi", "storageClassName": "fast"}}}},
        "karmadaAPIServer": {"replicas": 2, "serviceSubnet": "10.112.0.0/16", "resources": {"requests": {"cpu": "1"}}},
        "karmadaControllerManager": {"featureGates": {"Failover": True, "PropagateDeps": False}},
        "karmadaWebhook": {"replicas": 2, "extraArgs": {"v": "4"}},
        "karmadaDescheduler": {},
        "karmadaSearch": {"replicas": 2},
        "karmadaMetricsAdapter": {},
        "karmadaSchedulerEstimator": {},
    },
    "members": [MEMBER],
}
#: What turns the optional components on.
OPTIONAL: Object = {component.field: {} for component in COMPONENTS if component.optional}
#: The same, with a member for those that there is one of for each.
EVERYTHING: Object = {"components": OPTIONAL, "members": [MEMBER]}
#: Documents that every rule about rendered objects is checked with.
SPECS: dict[str, Object] = {
    "empty": {},
    "full": FULL_SPEC,
    "settings": {
        "members": [MEMBER],
        "components": {
            "etcd": {"local": {"replicas": 3, **SETTINGS}},
            **{component.field: copied(SETTINGS) for component in COMPONENTS if component.field != "etcd"},
        },
    },
    "external": {
        "components": {**external_etcd()["components"], **{each.field: {} for each in COMPONENTS if each.optional}},
        "members": [MEMBER],
    },
    "plain": {
        "encryption": {"provider": "identity"},
        "components": {"etcd": {"local": {"volumeData": {"emptyDir": {}}}}},
    },
}


def client_pair(days: float = 1) -> tuple[str, str]:
    """A client certificate that signed itself and is valid for so many days, and its key, as PEM texts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "me")])
    now = datetime.now(UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return cert.public_bytes(serialization.Encoding.PEM).decode(), private.decode()
