# SPDX-License-Identifier: Apache-2.0
"""Flags that each component needs as a part of a control plane, in pods and on hosts.

Facts about flags are those of Karmada v1.18 and Kubernetes v1.35 (the binaries' own ``--help``).
"""

from __future__ import annotations

from collections.abc import Mapping

from . import audit_policy
from .ip_families import bracketed
from .spec import Spec
from .types import MEMBER_NAMESPACE, SYSTEM_NAMESPACE, Layout, etcd_client_urls, has_estimators

#: Directory of the etcd client certificate below that of certificates, the same for all clients of etcd.
ETCD_CLIENT_DIRECTORY = "etcd-client"
#: Prefix of the estimators' Services, followed by the member's name. Karmada's default would leave 35 characters for
#: the name of a member.
ESTIMATOR_SERVICE_PREFIX = "estimator"
#: Secret on a member with its agent's kubeconfig for the control plane, and the key in it: the agent renews its
#: certificate under these names. On a host a file of this name has the same content.
AGENT_IDENTITY = "karmada-kubeconfig"
#: File by which an agent on a host reaches the control plane, without certificate and key.
CONTROL_PLANE_CONFIG = "control-plane.config"
#: Port of an estimator's Service; its target port may differ.
ESTIMATOR_PORT = 10352


def _pki(layout: Layout, directory: str, file: str) -> str:
    return layout.path("pki", directory, file)


def _identity(layout: Layout) -> str:
    return layout.path("config", "karmada.config")


def _member_access(layout: Layout) -> str:
    return layout.path("member", "member.config")


def _delegated_authentication(layout: Layout) -> dict[str, str]:
    """Authentication and authorization of callers, which an extension API server delegates to the API server."""
    return {
        "kubeconfig": _identity(layout),
        "authentication-kubeconfig": _identity(layout),
        "authorization-kubeconfig": _identity(layout),
    }


def _etcd_client(spec: Spec, layout: Layout) -> dict[str, str]:
    arguments = {
        "etcd-servers": ",".join(etcd_client_urls(spec, layout)),
        "etcd-cafile": _pki(layout, ETCD_CLIENT_DIRECTORY, "ca.crt"),
        "etcd-certfile": _pki(layout, ETCD_CLIENT_DIRECTORY, "tls.crt"),
        "etcd-keyfile": _pki(layout, ETCD_CLIENT_DIRECTORY, "tls.key"),
    }
    external = spec.external_etcd
    if external:
        arguments["etcd-prefix"] = external.key_prefix
    return arguments


def _serving(layout: Layout) -> dict[str, str]:
    return {
        "tls-cert-file": _pki(layout, "server", "tls.crt"),
        "tls-private-key-file": _pki(layout, "server", "tls.key"),
        "tls-min-version": "VersionTLS13",
    }


def kube_apiserver(spec: Spec, layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    arguments = {
        **_etcd_client(spec, layout),
        **_serving(layout),
        "allow-privileged": "true",
        "authorization-mode": "Node,RBAC",
        "bind-address": layout.bind_address,
        "client-ca-file": _pki(layout, "client-ca", "ca.crt"),
        # ServiceAccount admission would require a default account and a token mount in every pod template that passes;
        # StorageObjectInUseProtection adds finalizers that no controller here ever removes.
        "disable-admission-plugins": "ServiceAccount,StorageObjectInUseProtection",
        "enable-admission-plugins": "NodeRestriction",
        "enable-bootstrap-token-auth": "true",
        "max-mutating-requests-inflight": "500",
        "max-requests-inflight": "1500",
        "profiling": "false",
        "proxy-client-cert-file": _pki(layout, "front-proxy-client", "tls.crt"),
        "proxy-client-key-file": _pki(layout, "front-proxy-client", "tls.key"),
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-client-ca-file": _pki(layout, "front-proxy-client", "ca.crt"),
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-username-headers": "X-Remote-User",
        "secure-port": str(ports["https"]),
        "service-account-issuer": layout.service_account_issuer,
        "service-account-key-file": _pki(layout, "service-account", "sa.pub"),
        "service-account-signing-key-file": _pki(layout, "service-account", "sa.key"),
        "service-cluster-ip-range": layout.service_subnet,
        "shutdown-delay-duration": f"{layout.shutdown_delay}s",
        # Without it, the watches of all components delay a shutdown by up to a minute.
        "shutdown-watch-termination-grace-period": "5s",
    }
    if spec.audited:
        arguments["audit-log-path"] = "-"
        arguments["audit-policy-file"] = layout.path("audit", audit_policy.FILE)
    if spec.encryption_provider != "identity":
        arguments["encryption-provider-config"] = layout.path("encryption", "encryption.yaml")
    return arguments


def extension_apiserver(_spec: Spec, layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        **_delegated_authentication(layout),
        **_serving(layout),
        "audit-log-maxage": "0",
        "audit-log-maxbackup": "0",
        "audit-log-path": "-",
        "bind-address": layout.bind_address,
        "secure-port": str(ports["https"]),
    }


def stored_extension_apiserver(spec: Spec, layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {**extension_apiserver(spec, layout, ports), **_etcd_client(spec, layout)}


def kube_controller_manager(_spec: Spec, layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        **_delegated_authentication(layout),
        **_serving(layout),
        "bind-address": layout.bind_address,
        "client-ca-file": _pki(layout, "client-ca", "ca.crt"),
        "cluster-name": "karmada",
        "cluster-signing-cert-file": _pki(layout, "signing", "tls.crt"),
        "cluster-signing-key-file": _pki(layout, "signing", "tls.key"),
        # Workload controllers stay off: a Deployment in this API server is a template and must not create pods.
        "controllers": ",".join(
            (
                "namespace",
                "garbagecollector",
                "serviceaccount-token",
                "ttl-after-finished",
                "bootstrapsigner",
                "tokencleaner",
                "csrcleaner",
                "csrsigning",
                "clusterrole-aggregation",
            )
        ),
        "leader-elect": "true",
        "profiling": "false",
        "root-ca-file": _pki(layout, "server", "ca.crt"),
        "secure-port": str(ports["https"]),
        "service-account-private-key-file": _pki(layout, "service-account", "sa.key"),
        "service-cluster-ip-range": layout.service_subnet,
        "use-service-account-credentials": "true",
    }


def _bind_addresses(layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        "health-probe-bind-address": f"{bracketed(layout.bind_address)}:{ports['health']}",
        "metrics-bind-address": f"{bracketed(layout.bind_address)}:{ports['metrics']}",
    }


def controller_manager(_spec: Spec, layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        **_bind_addresses(layout, ports),
        "cluster-status-update-frequency": "10s",
        "kubeconfig": _identity(layout),
        "leader-elect-resource-namespace": SYSTEM_NAMESPACE,
    }


def _estimator_client(spec: Spec, layout: Layout) -> dict[str, str]:
    """Flags of a client of estimators: it presents its identity and verifies the name that it dials."""
    if not has_estimators(spec):
        return {}
    return {
        "scheduler-estimator-ca-file": layout.path("config", "ca.crt"),
        "scheduler-estimator-cert-file": layout.path("config", "tls.crt"),
        "scheduler-estimator-key-file": layout.path("config", "tls.key"),
        "scheduler-estimator-port": str(ESTIMATOR_PORT),
        "scheduler-estimator-service-namespace": SYSTEM_NAMESPACE,
        "scheduler-estimator-service-prefix": ESTIMATOR_SERVICE_PREFIX,
    }


def scheduler(spec: Spec, layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    arguments = descheduler(spec, layout, ports)
    if has_estimators(spec):
        arguments["enable-scheduler-estimator"] = "true"
        # Pull members have no estimator, and looking for each in vain delays a start by seconds.
        arguments["disable-scheduler-estimator-in-pull-mode"] = "true"
    return arguments


def descheduler(spec: Spec, layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        **_bind_addresses(layout, ports),
        **_estimator_client(spec, layout),
        "kubeconfig": _identity(layout),
        "leader-elect-resource-namespace": SYSTEM_NAMESPACE,
    }


def scheduler_estimator(_spec: Spec, layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    """Flags of an estimator: its listen address is fixed, so callers must have an identity of this control plane."""
    return {
        **_bind_addresses(layout, ports),
        "grpc-auth-cert-file": _pki(layout, "server", "tls.crt"),
        "grpc-auth-key-file": _pki(layout, "server", "tls.key"),
        "grpc-client-ca-file": _pki(layout, "server", "ca.crt"),
        "kubeconfig": _member_access(layout),
        "server-port": str(ports["grpc"]),
    }


def agent(_spec: Spec, layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    """An agent has a service account on its member, and in the control plane a certificate that it renews in a Secret.

    The installer writes the member's settings and credentials into its Cluster, so the agent gets no flags for them and
    needs no permission to change its Cluster.
    """
    return {
        **_bind_addresses(layout, ports),
        "cluster-api-endpoint": layout.member_url,
        "cluster-status-update-frequency": "10s",
        "controllers": "*,certRotation",
        "karmada-kubeconfig": layout.path("kubeconfig", AGENT_IDENTITY),
        "karmada-kubeconfig-namespace": MEMBER_NAMESPACE,
        "leader-elect-resource-namespace": SYSTEM_NAMESPACE,
        "report-secrets": "None",
    }


def agent_on_host(spec: Spec, layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    """Flags of an agent on a host: it gets a kubeconfig of its member, and its certificate and key are fetched from
    there for the kubeconfig that the installer writes.
    """
    return {
        **agent(spec, layout, ports),
        "karmada-kubeconfig": layout.path(CONTROL_PLANE_CONFIG),
        "kubeconfig": _member_access(layout),
    }


def metrics_adapter(spec: Spec, layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        **extension_apiserver(spec, layout, ports),
        "client-ca-file": _pki(layout, "client-ca", "ca.crt"),
        "metrics-bind-address": f"{bracketed(layout.bind_address)}:{ports['metrics']}",
    }


def webhook(_spec: Spec, layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        **_bind_addresses(layout, ports),
        "bind-address": layout.bind_address,
        "cert-dir": layout.path("pki", "server"),
        "kubeconfig": _identity(layout),
        "secure-port": str(ports["https"]),
    }


def etcd(_spec: Spec, _layout: Layout, _ports: Mapping[str, int]) -> dict[str, str]:
    """etcd reads a file for each member (see etcd_configuration): a flag list cannot differ between replicas."""
    return {}
