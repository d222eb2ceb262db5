# SPDX-License-Identifier: Apache-2.0
"""Rules of the table itself: who has which certificate, who may do what, and that no two of them meet."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components import etcd_configuration, table, types
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    ADMIN,
    AUTHORITIES,
    BY_NAME,
    COMPONENTS,
    ETCD,
    ETCD_CA,
    FRONT_PROXY_CA,
    KARMADA_CA,
    PROGRAMS,
    leaf_certificates,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import Holds
from ansible_collections.karmada.installer.plugins.plugin_utils.document.manifest import schema
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    EVERYTHING,
    MEMBER,
    RUNNING,
    flags,
    pods,
    quickly_rendered,
    rendered,
)

SETTINGS = schema()["properties"]["spec"]["properties"]["components"]["properties"]


def test_every_component_has_settings_in_the_document_and_the_other_way_round() -> None:
    assert {component.field for component in PROGRAMS} == set(SETTINGS)
    assert list(BY_NAME) == [component.name for component in COMPONENTS]


def test_no_two_components_of_one_host_want_the_same_port() -> None:
    ports = Counter(port for component in PROGRAMS for port in component.ports.values())
    assert max(ports.values()) == 1


def test_health_and_service_name_ports_that_exist() -> None:
    for component in COMPONENTS:
        assert component.health.port in component.ports
        assert component.served_port in ("", *component.ports)


def test_each_leaf_is_in_one_file_set_of_the_component_that_owns_it() -> None:
    holders = {
        leaf.name: [
            (component.name, files.name)
            for component in COMPONENTS
            for files in component.file_sets
            if files.certificate == leaf.name
        ]
        for leaf in leaf_certificates()
        if leaf is not ADMIN
    }
    owners = {leaf.name: component.name for component in COMPONENTS for leaf in component.certificates}
    for name, found in holders.items():
        assert len(found) == 1, (name, found)
        assert found[0][0] == owners[name]


def test_no_two_leaves_share_a_name() -> None:
    leaves = [leaf.name for component in COMPONENTS for leaf in component.certificates]
    assert len(leaves) == len(set(leaves))
    assert "admin" not in leaves


def test_file_sets_have_one_name_and_one_place_each() -> None:
    contents: dict[str, object] = {}
    for component in COMPONENTS:
        directories = [files.directory for files in component.file_sets]
        assert len(directories) == len(set(directories))
        for files in component.file_sets:
            assert contents.setdefault(files.name, files) == files, "two file sets of one name"
    shared = Counter(files.name for component in COMPONENTS for files in component.file_sets)
    # what is shared holds nothing secret
    assert {name for name, times in shared.items() if times > 1} == {"client-ca"}


def test_one_identity_for_each_component() -> None:
    """Two leaves of one authority with the same name are one person to whoever trusts that authority."""
    by_identity: dict[tuple[str, str], set[str]] = {}
    for component in COMPONENTS:
        for leaf in component.certificates:
            by_identity.setdefault((leaf.authority, leaf.common_name), set()).add(component.name)
    by_identity.setdefault((ADMIN.authority, ADMIN.common_name), set()).add("admin")
    assert {identity: owners for identity, owners in by_identity.items() if len(owners) > 1} == {}
    clients = Counter((leaf.authority, leaf.common_name) for leaf in leaf_certificates() if leaf.client)
    assert max(clients.values()) == 1


def test_nobody_is_above_all_rights() -> None:
    """What RBAC gives can be taken away; what the API server itself gives to a group of a certificate cannot."""
    assert [leaf.name for leaf in leaf_certificates() if "system:masters" in leaf.organizations] == []
    assert (ADMIN.common_name, ADMIN.organizations) == ("system:admin", ("system:karmada:administrators",))


def test_no_serving_certificate_is_an_identity() -> None:
    """A stolen server key must not open the API server."""
    for leaf in leaf_certificates():
        if leaf.server and leaf.authority == KARMADA_CA:
            assert not leaf.client
            assert leaf.organizations == ()


def test_each_authority_is_for_one_thing() -> None:
    users = {authority: set() for authority in AUTHORITIES}
    for leaf in leaf_certificates():
        users[leaf.authority].add(leaf.name)
    assert users[FRONT_PROXY_CA] == {"front-proxy-client"}
    assert users["client-signing-ca"] == set(), "kube-controller-manager issues these, not we"
    assert all("etcd" in name for name in users[ETCD_CA])
    assert not any("etcd" in name for name in users[KARMADA_CA])


def test_only_etcd_itself_may_be_a_peer() -> None:
    peers = {leaf.name for leaf in leaf_certificates() if leaf.common_name == table.ETCD_PEER_COMMON_NAME}
    assert peers == {"etcd-peer", "etcd-peer-client"}
    assert peers <= {leaf.name for leaf in ETCD.certificates}


def test_only_who_needs_the_store_can_reach_it() -> None:
    clients = {
        component.name
        for component in COMPONENTS
        for leaf in component.certificates
        if leaf.authority == ETCD_CA and leaf.client
    }
    assert clients == {"etcd", "karmada-apiserver", "karmada-aggregated-apiserver", "karmada-search"}


def test_only_the_api_server_and_its_controller_hold_the_service_account_key() -> None:
    holders = {
        component.name: files.holds
        for component in COMPONENTS
        for files in component.file_sets
        if files.holds in (Holds.SERVICE_ACCOUNT_KEY, Holds.SERVICE_ACCOUNT_PAIR, Holds.SIGNING_AUTHORITY)
    }
    assert set(holders) == {"karmada-apiserver", "kube-controller-manager"}


@pytest.mark.parametrize("component", [each for each in COMPONENTS if each is not ETCD], ids=lambda each: each.name)
def test_no_value_on_a_command_line_is_secret(component: types.Component) -> None:
    found = rendered()
    line = " ".join(component.flags(found.spec, found.layout))
    assert found.material.encryption_key not in line
    assert "PRIVATE" not in line
    assert "token=" not in line


def test_pods_of_users_never_run_in_the_control_plane() -> None:
    """Workload controllers would start what is only a template here."""
    found = rendered()
    line = " ".join(BY_NAME["kube-controller-manager"].flags(found.spec, found.layout))
    controllers = line.split("--controllers=")[1].split(" ")[0].split(",")
    assert not {"*", "deployment", "replicaset", "job", "cronjob", "daemonset", "statefulset"} & set(controllers)
    # what members that register themselves depend on
    assert {"bootstrapsigner", "tokencleaner", "csrsigning"} <= set(controllers)


def test_gates_are_fields_of_those_components_that_take_them() -> None:
    assert {component.field for component in PROGRAMS if component.takes_feature_gates} == {
        field
        for field, each in SETTINGS.items()
        if "featureGates" in (each["properties"].get("local") or each)["properties"]
    }


@pytest.mark.parametrize(
    "component", [each for each in COMPONENTS if each.takes_feature_gates], ids=lambda each: each.name
)
def test_gates_are_one_flag_in_the_order_of_their_names(component: types.Component) -> None:
    gates = {"B": False, "A": True}
    found = rendered({"components": {component.field: {"featureGates": gates}}})
    assert "--feature-gates=A=true,B=false" in component.flags(found.spec, found.layout)
    empty = rendered({"components": {component.field: {"featureGates": {}}}})
    assert not [flag for flag in component.flags(empty.spec, empty.layout) if flag.startswith("--feature-gates")]


@pytest.mark.parametrize("component", [each for each in COMPONENTS if each.optional], ids=lambda each: each.name)
def test_an_optional_component_is_wanted_when_it_is_named(component: types.Component) -> None:
    assert not component.is_wanted(rendered().spec)
    named = rendered({"components": {component.field: {}}, "members": [MEMBER]}).spec
    assert component.is_wanted(named)
    plain = [each for each in COMPONENTS if not each.optional]
    assert table.wanted_components(named) == (*plain, *table.processes(component, ["m1"]))


def test_leases_are_in_a_namespace_that_is_created() -> None:
    found = rendered()
    for name in ("karmada-controller-manager", "karmada-scheduler", "karmada-descheduler"):
        assert f"--leader-elect-resource-namespace={types.SYSTEM_NAMESPACE}" in BY_NAME[name].flags(
            found.spec, found.layout
        )


def test_addresses_of_ipv6_are_bracketed_where_a_url_needs_it() -> None:
    found = rendered()
    layout = type(found.layout)(**{**vars(found.layout), "bind_address": "::"})
    one = etcd_configuration.of_member(layout.etcd_members[0], layout, token="t", existing=True, generation=1, extra={})
    assert one["listen-client-urls"] == "https://[::]:2379"
    assert one["listen-metrics-urls"] == "http://[::]:2381"
    assert "--metrics-bind-address=[::]:10361" in BY_NAME["karmada-scheduler"].flags(found.spec, layout)
    assert "--bind-address=::" in BY_NAME["karmada-webhook"].flags(found.spec, layout)


# -- ports that a flag moves -----------------------------------------------------------------------------------------


def test_every_port_belongs_to_a_flag() -> None:
    """Else it could not be moved, and nobody who looks for the component would know."""
    found = pods(quickly_rendered(EVERYTHING).workloads)
    for component in RUNNING:
        known = {component.port_flags[name] for name in component.ports}
        assert component is ETCD or known <= flags(found[component.row]).keys(), component.name


def test_whoever_looks_for_a_component_in_pods_follows_its_flags() -> None:
    def numbers(settings: dict[str, Any]) -> Counter[int]:
        components = {**EVERYTHING["components"], **settings}
        result = quickly_rendered({**EVERYTHING, "components": components, "networkPolicies": {"enabled": True}})
        text = json.dumps([each for each in result.workloads if each["kind"] != "ConfigMap"])
        return Counter(int(each) for each in re.findall(r'"(?:port|containerPort|targetPort)": ([0-9]+)', text))

    moved = numbers({"karmadaWebhook": {"extraArgs": {"secure-port": "18443", "metrics-bind-address": ":18001"}}})
    assert moved == Counter({{8443: 18443, 8001: 18001}.get(port, port): n for port, n in numbers({}).items()})
    assert moved[18443] > 2, "its port, its probes, its Service"


@pytest.mark.parametrize(
    ("value", "port"),
    [
        ("18080", 18080),
        (":18080", 18080),
        ("127.0.0.1:18080", 18080),
        ("[::1]:18080", 18080),
        ("0", 10351),
        ("", 10351),
        ("127.0.0.1", 10351),
        ("scheduler", 10351),
    ],
)
def test_a_flag_moves_a_port_and_one_that_turns_it_off_does_not(value: str, port: int) -> None:
    spec = {"components": {"karmadaScheduler": {"extraArgs": {"health-probe-bind-address": value}}}}
    assert BY_NAME["karmada-scheduler"].listens(Spec(spec)) == {"health": port, "metrics": 10361}


@pytest.mark.parametrize(
    ("urls", "port"), [("https://0.0.0.0:12379", 12379), ("https://192.0.2.1:12379,https://127.0.0.1:4001", 12379)]
)
def test_of_several_addresses_of_etcd_the_first_is_where_it_is_found(urls: str, port: int) -> None:
    spec = {"components": {"etcd": {"local": {"extraArgs": {"listen-client-urls": urls}}}}}
    assert ETCD.listens(Spec(spec)) == {"client": port, "peer": 2380, "metrics": 2381}


# -- one for each member -------------------------------------------------------------------------------------------

ESTIMATOR = BY_NAME["karmada-scheduler-estimator"]


def of_members(*names: str) -> dict[str, object]:
    members = [{"name": name, "secretRef": {"name": name}} for name in names]
    return {"components": {ESTIMATOR.field: {}}, "members": members}


def test_each_member_has_an_estimator_with_names_of_its_own() -> None:
    found = rendered(of_members("m1", "m2"))
    one, other = (each for each in table.wanted_components(found.spec) if each.member)
    assert (one.name, other.name) == ("karmada-scheduler-estimator-m1", "karmada-scheduler-estimator-m2")
    assert one.row == other.row == ESTIMATOR.name
    assert not {files.name for files in one.file_sets} & {files.name for files in other.file_sets}
    assert [leaf.name for leaf in one.certificates] == [files.leaf for files in one.file_sets if files.certificate]
    assert "--cluster-name=m1" in one.flags(found.spec, found.layout)


def test_a_place_on_hosts_is_kept_for_ever_and_given_anew_when_it_is_free() -> None:
    def places(recorded: dict[str, int], *names: str) -> dict[str, int]:
        return table.member_places(rendered(of_members(*names)).spec, recorded)

    first = places({}, "m1", "m2", "m3")
    assert first == {"m1": 0, "m2": 1, "m3": 2}
    # what has left is on record until it is gone from the hosts
    assert places(first, "m1", "m3") == first
    assert places({"m1": 0, "m3": 2}, "m1", "m3", "m4") == {"m1": 0, "m3": 2, "m4": 1}
    assert table.member_places(rendered({"members": [MEMBER]}).spec, {}) == {}
    assert table.member_places(rendered({"members": [MEMBER]}).spec, {"m1": 4}) == {"m1": 4}


def test_estimators_of_one_host_share_no_port_with_anything() -> None:
    spec = rendered(of_members(*(f"m{number}" for number in range(50)))).spec
    wanted = table.wanted_components(spec, table.member_places(spec, {}))
    ports = Counter(port for component in wanted for port in component.ports.values())
    assert max(ports.values()) == 1
    assert wanted[-50].ports == ESTIMATOR.ports


def test_who_asks_estimators_proves_itself_and_verifies_them() -> None:
    found = rendered(of_members("m1"))
    for name in ("karmada-scheduler", "karmada-descheduler"):
        flags = BY_NAME[name].flags(found.spec, found.layout)
        for part, file in (("ca", "ca.crt"), ("cert", "tls.crt"), ("key", "tls.key")):
            assert f"--scheduler-estimator-{part}-file=/etc/karmada/config/{file}" in flags
        assert not [flag for flag in flags if "insecure" in flag]
        plain = BY_NAME[name].flags(rendered().spec, found.layout)
        assert not [flag for flag in plain if "estimator" in flag]
    served = dict(flag.split("=", 1) for flag in ESTIMATOR.flags(found.spec, found.layout))
    assert served["--grpc-client-ca-file"] == "/etc/karmada/pki/server/ca.crt"
    assert not [flag for flag in served if "insecure" in flag]
