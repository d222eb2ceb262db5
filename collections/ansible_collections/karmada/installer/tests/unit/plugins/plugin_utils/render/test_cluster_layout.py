# SPDX-License-Identifier: Apache-2.0
"""The names by which clients call a server, and those in its certificate."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import etcd_client_urls
from ansible_collections.karmada.installer.tests.unit.support.samples import FULL_SPEC, SPECS, Rendered, etcd, rendered
from cryptography import x509


def certificate(found: Rendered, leaf: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(found.material.leaves[leaf].certificate)


def covers(certificate: x509.Certificate, host: str) -> bool:
    """As Go verifies it: a wildcard stands for exactly one label, the first."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if host in [str(address) for address in names.get_values_for_type(x509.IPAddress)]:
        return True
    for name in names.get_values_for_type(x509.DNSName):
        if name == host or (name.startswith("*.") and host.partition(".")[2] == name[2:] and host.partition(".")[0]):
            return True
    return False


def host_of(url: str) -> str:
    return re.sub(r"^https://|:\d+(/.*)?$", "", url)


@pytest.mark.parametrize("spec", list(SPECS.values()), ids=list(SPECS))
def test_every_name_by_which_a_server_is_called_is_in_its_certificate(spec: dict[str, Any]) -> None:
    found = rendered(spec)
    found.endpoint_host = "198.51.100.7"
    addresses, domain = found.addresses, found.instance.cluster_domain
    called: dict[str, list[str]] = {
        "karmada-apiserver": [
            host_of(found.layout.apiserver_url),
            "localhost",
            "127.0.0.1",
            "kubernetes.default.svc",
            host_of(found.layout.service_account_issuer),
            "198.51.100.7",
            *(["karmada.example.com", "x.lb.example.com", "192.0.2.10", "2001:db8::1"] if spec is FULL_SPEC else []),
        ],
        "karmada-webhook": [host_of(addresses.webhook_url)],
        "karmada-aggregated-apiserver": [
            "karmada-aggregated-apiserver.karmada-system.svc",  # what kube-aggregator verifies
            addresses.aggregated["karmada-aggregated-apiserver"][0],
        ],
        **{
            name: [f"{name}.karmada-system.svc", host]
            for name, (host, _port) in addresses.aggregated.items()
            if name != "karmada-aggregated-apiserver"
        },
    }
    if found.layout.etcd_members:
        called["etcd-server"] = [host_of(url) for url in etcd_client_urls(found.spec, found.layout)]
        called["etcd-peer"] = [host_of(member.peer_url) for member in found.layout.etcd_members]
    for leaf, hosts in called.items():
        missing = [host for host in hosts if not covers(certificate(found, leaf), host)]
        assert not missing, (leaf, missing)
    assert host_of(found.layout.apiserver_url).endswith(f".svc.{domain}")
    assert covers(certificate(found, "karmada-apiserver"), "10.112.0.1" if spec is FULL_SPEC else "10.96.0.1")


def test_a_wildcard_stands_for_one_label_only() -> None:
    found = rendered(etcd(replicas=3))
    server = certificate(found, "etcd-server")
    assert covers(server, "prod-etcd-2.prod-etcd.karmada.svc.cluster.local")
    assert not covers(server, "a.b.prod-etcd.karmada.svc.cluster.local")
    assert not covers(server, "other-etcd-0.other-etcd.karmada.svc.cluster.local")


def test_a_certificate_says_nothing_of_names_that_are_not_its_own() -> None:
    found = rendered(FULL_SPEC)
    assert not covers(certificate(found, "karmada-webhook"), "karmada.example.com")
    assert not covers(certificate(found, "karmada-webhook"), host_of(found.layout.apiserver_url))


def test_a_new_etcd_member_needs_no_new_certificate() -> None:
    one, five = rendered(etcd(replicas=1)), rendered(etcd(replicas=5))
    assert one.layout.server_names == five.layout.server_names
