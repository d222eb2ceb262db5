# SPDX-License-Identifier: Apache-2.0
"""Files that components read, from key material.

A file set becomes one Secret of the instance's namespace, or one directory of a host: its content is defined here,
once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import yaml

from ..components.table import CLIENT_SIGNING_CA, COMPONENTS, KARMADA_CA, leaf_certificates
from ..components.types import FileSet, Holds, KeyPair, Layout, LeafCertificate, Names, of_member
from . import kubeconfig as pki_kubeconfig
from . import x509

CLUSTER_NAME = "karmada-apiserver"
#: File of Holds.MEMBER_ACCESS.
MEMBER_CONFIG = "member.config"
_NO_NAMES = Names()


@dataclass(frozen=True, repr=False)
class Material:
    """All keys and certificates of an instance. Never printed: it has no repr."""

    authorities: Mapping[str, KeyPair]
    leaves: Mapping[str, KeyPair]
    service_account_key: bytes
    encryption_key: str
    #: Client certificate for an external etcd, as in the document's Secret: file name → content.
    external_etcd: Mapping[str, bytes] = field(default_factory=dict)
    #: Member → kubeconfig that can read its nodes and pods; only members that have joined.
    member_access: Mapping[str, bytes] = field(default_factory=dict)
    #: Whether the API server refuses certificates that kube-controller-manager has signed: those of agents.
    closed_to_agents: bool = False


def wanted(leaf: LeafCertificate, layout: Layout) -> x509.Certificate:
    """Certificate that a row of the table asks for in this layout."""
    names = layout.server_names.get(leaf.name, _NO_NAMES) if leaf.server else _NO_NAMES
    return x509.Certificate(
        name=leaf.name,
        authority=leaf.authority,
        common_name=leaf.common_name,
        organizations=leaf.organizations,
        dns_names=names.dns,
        ip_addresses=names.ips,
        server=leaf.server,
        client=leaf.client,
    )


AUTHORITY_OF: Mapping[str, str] = {leaf.name: leaf.authority for leaf in leaf_certificates(COMPONENTS)}


def contents(files: FileSet, material: Material, layout: Layout) -> dict[str, bytes]:
    """File name → content of one file set."""
    if files.holds in (Holds.CERTIFICATE, Holds.IDENTITY):
        found = certificate_files(files.certificate, material, files.member)
        if files.holds is Holds.IDENTITY:
            user = files.certificate.removesuffix("-identity")
            paths = [layout.path(files.directory, name) for name in ("ca.crt", "tls.crt", "tls.key")]
            found["karmada.config"] = _identity_kubeconfig(layout.apiserver_url, user, *paths)
        return found
    if files.holds is Holds.MEMBER_ACCESS:
        access = material.member_access.get(files.member)
        return {} if access is None else {MEMBER_CONFIG: access}
    return _CONTENTS[files.holds](material)


#: Certificate with which the API server, and this installer, connect to etcd.
ETCD_CLIENT_CERTIFICATE = "karmada-apiserver-etcd-client"


def certificate_files(name: str, material: Material, member: str = "") -> dict[str, bytes]:
    """Leaf and the authority that issued it, under the file names that every component uses."""
    leaf = material.leaves[of_member(name, member)]
    authority = material.authorities[AUTHORITY_OF[name]]
    return {"ca.crt": authority.certificate, "tls.crt": leaf.certificate, "tls.key": leaf.key}


def client_authorities(material: Material) -> bytes:
    """Authorities whose client certificates the API server accepts: our own, and that of kube-controller-manager."""
    authorities = material.authorities
    if material.closed_to_agents:
        return authorities[KARMADA_CA].certificate
    return x509.bundle(authorities[KARMADA_CA].certificate, authorities[CLIENT_SIGNING_CA].certificate)


def _signing_authority(material: Material) -> dict[str, bytes]:
    authority = material.authorities[CLIENT_SIGNING_CA]
    return {"tls.crt": authority.certificate, "tls.key": authority.key}


def _service_account_pair(material: Material) -> dict[str, bytes]:
    return {"sa.key": material.service_account_key, "sa.pub": x509.public_key_of(material.service_account_key)}


def admin_kubeconfig(material: Material, server: str, tls_server_name: str | None = None) -> str:
    """Administrator's kubeconfig with embedded credentials, as YAML."""
    authority = material.authorities[KARMADA_CA].certificate
    return kubeconfig_of(material.leaves["admin"], authority, server, "karmada-admin", tls_server_name)


def kubeconfig_of(who: KeyPair, authority: bytes, server: str, user: str, tls_server_name: str | None = None) -> str:
    """Kubeconfig with embedded credentials, as YAML; ``user`` is the name in the file for the holder of this key."""
    config = pki_kubeconfig.kubeconfig(
        CLUSTER_NAME, server, authority, user, who, context="karmada-apiserver", tls_server_name=tls_server_name
    )
    return yaml.safe_dump(config, sort_keys=False)


@lru_cache  # a run asks for each several times, and writing YAML takes milliseconds
def _identity_kubeconfig(server: str, user: str, authority: str, certificate: str, key: str) -> bytes:
    """Kubeconfig of a component. It refers to the files beside it, so that a renewed certificate is picked up."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": CLUSTER_NAME,
                "cluster": {
                    "server": server,
                    "certificate-authority": authority,
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate": certificate,
                    "client-key": key,
                },
            }
        ],
        "contexts": [{"name": user, "context": {"cluster": CLUSTER_NAME, "user": user}}],
        "current-context": user,
    }
    return yaml.safe_dump(config, sort_keys=False).encode()


def encryption_configuration(key: str) -> str:
    """Configuration that encrypts Secrets on write; those written before encryption was on can still be read."""
    config = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [
            {
                "resources": ["secrets"],
                "providers": [{"secretbox": {"keys": [{"name": "key1", "secret": key}]}}, {"identity": {}}],
            }
        ],
    }
    return json.dumps(config, indent=1)


#: Content of file sets that do not belong to a leaf certificate.
_CONTENTS: Mapping[Holds, Callable[[Material], dict[str, bytes]]] = {
    Holds.CLIENT_AUTHORITIES: lambda material: {"ca.crt": client_authorities(material)},
    Holds.SIGNING_AUTHORITY: _signing_authority,
    Holds.SERVICE_ACCOUNT_KEY: lambda material: {"sa.key": material.service_account_key},
    Holds.SERVICE_ACCOUNT_PAIR: _service_account_pair,
    Holds.ENCRYPTION: lambda material: {"encryption.yaml": encryption_configuration(material.encryption_key).encode()},
    Holds.EXTERNAL_ETCD: lambda material: dict(material.external_etcd),
}
