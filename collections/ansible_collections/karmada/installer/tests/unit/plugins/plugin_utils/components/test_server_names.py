# SPDX-License-Identifier: Apache-2.0
"""Names of serving certificates: one decision for pods and plain hosts."""

from __future__ import annotations

from ansible_collections.karmada.installer.plugins.plugin_utils.components.server_names import server_names
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    AGGREGATED_SERVERS,
    BY_NAME,
    ETCD,
    KARMADA_APISERVER,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import Names
from ansible_collections.karmada.installer.tests.unit.support.samples import RUNNING, rendered

OWN = Names(dns=("own.example.com",), ips=("192.0.2.9",))


def found(**endpoint: object) -> dict[str, Names]:
    instance = rendered({"endpoint": endpoint} if endpoint else {}).instance
    per_member = [each for each in RUNNING if each.member]
    return server_names(instance, per_member, lambda _component, _leaf: OWN, ["", "outside.example.com"])


def test_every_serving_certificate_has_names_and_no_other_certificate() -> None:
    serving = {leaf.name for component in RUNNING for leaf in component.certificates if leaf.server}
    assert set(found()) == serving
    assert all({*OWN.dns} <= {*names.dns} and {*OWN.ips} <= {*names.ips} for names in found().values())


def test_the_api_server_has_the_names_that_pods_and_clients_outside_use() -> None:
    names = found(type="LoadBalancer", host="k.example.com", extraSANs=["192.0.2.10", "*.example.org"])
    api_server = names[KARMADA_APISERVER.name]
    assert {"kubernetes.default.svc", "outside.example.com", "k.example.com", "*.example.org"} <= {*api_server.dns}
    assert {"192.0.2.10", "10.96.0.1"} <= {*api_server.ips}
    assert "" not in api_server.dns


def test_an_aggregated_server_has_the_name_of_its_api_service() -> None:
    for name in AGGREGATED_SERVERS:
        assert f"{name}.karmada-system.svc" in found()[name].dns


def test_what_the_table_says_of_etcd_is_of_etcd_alone() -> None:
    fields = ("peer_ports", "keeps_data", "settings_file", "read_again", "metrics_apart", "notifies_systemd")
    rows = {name: tuple(getattr(row, field) for field in fields) for name, row in BY_NAME.items()}
    assert rows.pop(ETCD.name) == (["peer"], True, "etcd.yaml", ("tls.crt", "tls.key"), True, True)
    assert all(row == ([], False, "", (), False, False) for row in rows.values())
