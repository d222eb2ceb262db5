# SPDX-License-Identifier: Apache-2.0
"""etcd in the host cluster: a configuration for each member, data that outlives it, settings of the user."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components import etcd_configuration
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.render import cluster_layout
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    FULL_SPEC,
    TOKEN,
    Rendered,
    etcd,
    flags,
    pods,
    quickly_rendered,
    rendered,
    with_settings,
    workload,
)
from hypothesis import given
from hypothesis import strategies as st


def configurations(found: Rendered) -> dict[str, dict[str, Any]]:
    data = found.one("ConfigMap", "prod-etcd-config")["data"]
    return {name: yaml.safe_load(text) for name, text in data.items()}


@pytest.mark.parametrize("replicas", [1, 3, 5, 7])
def test_each_member_has_a_configuration_of_its_own_with_addresses_of_its_own(replicas: int) -> None:
    found = rendered(etcd(replicas=replicas))
    members = configurations(found)
    stateful_set = found.one("StatefulSet", "prod-etcd")
    assert stateful_set["spec"]["replicas"] == replicas
    # the pods of a StatefulSet are numbered from 0; each mounts the key that is named after it
    assert set(members) == {f"prod-etcd-{ordinal}.yaml" for ordinal in range(replicas)}
    host = "prod-etcd.karmada.svc.cluster.local"
    for ordinal in range(replicas):
        one = members[f"prod-etcd-{ordinal}.yaml"]
        assert one["name"] == f"prod-etcd-{ordinal}"
        assert one["advertise-client-urls"] == f"https://prod-etcd-{ordinal}.{host}:2379"
        assert one["initial-advertise-peer-urls"] == f"https://prod-etcd-{ordinal}.{host}:2380"
        assert one["initial-cluster"].split(",") == [
            f"prod-etcd-{each}=https://prod-etcd-{each}.{host}:2380" for each in range(replicas)
        ]
    servers = flags(pods(found.workloads)["karmada-apiserver"])["etcd-servers"].split(",")
    assert servers == [f"https://prod-etcd-{each}.{host}:2379" for each in range(replicas)]
    assert servers == flags(pods(found.workloads)["karmada-aggregated-apiserver"])["etcd-servers"].split(",")


def test_members_are_in_the_order_of_their_numbers() -> None:
    found = rendered(etcd(replicas=7))
    assert [member.name for member in found.layout.etcd_members] == [f"prod-etcd-{each}" for each in range(7)]


def test_a_cluster_is_founded_once_and_never_again() -> None:
    assert {one["initial-cluster-state"] for one in configurations(rendered(etcd(replicas=3))).values()} == {"new"}
    later = rendered(etcd(replicas=3), bootstrapped=True)
    assert {one["initial-cluster-state"] for one in configurations(later).values()} == {"existing"}


def test_the_token_and_the_generation_are_the_states() -> None:
    (one,) = configurations(rendered(generation=4)).values()
    assert one["initial-cluster-token"] == TOKEN
    assert one["data-dir"].endswith("/gen-4")
    assert one["data-dir"].startswith(cluster_layout.ETCD_DATA + "/")


def test_both_ports_of_etcd_speak_tls_and_ask_for_a_certificate() -> None:
    (one,) = configurations(rendered()).values()
    for key in ("listen-client-urls", "listen-peer-urls", "advertise-client-urls", "initial-advertise-peer-urls"):
        assert all(url.startswith("https://") for url in one[key].split(",")), key
    for transport in ("client-transport-security", "peer-transport-security"):
        security = one[transport]
        assert security["client-cert-auth"] is True
        assert {"cert-file", "key-file", "trusted-ca-file"} <= set(security)
    assert one["peer-transport-security"]["allowed-cn"] == ["system:karmada:etcd-peer"]
    plain = [value for value in one.values() if isinstance(value, str) and value.startswith("http://")]
    assert plain == ["http://0.0.0.0:2381"], "health without keys, for probes"


def test_etcd_has_no_flags_beside_its_file() -> None:
    """etcd ignores every other flag when it is given a configuration file."""
    assert flags(pods(rendered(etcd(extraArgs={"quota-backend-bytes": "8589934592"})).workloads)["etcd"]) == {
        "config-file": "/etc/karmada/etcd.yaml"
    }


def test_no_rollout_replaces_members_of_etcd_and_members_find_each_other_before_they_are_ready() -> None:
    found = rendered(etcd(replicas=3))
    spec = found.one("StatefulSet", "prod-etcd")["spec"]
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert spec["podManagementPolicy"] == "Parallel"
    service = found.one("Service", spec["serviceName"])["spec"]
    assert service["publishNotReadyAddresses"] is True
    assert service["clusterIP"] == "None"
    (mount,) = [
        mount for mount in spec["template"]["spec"]["containers"][0]["volumeMounts"] if mount["name"] == "configuration"
    ]
    assert mount["subPathExpr"] == "$(POD_NAME).yaml"


def test_data_outlives_the_stateful_set() -> None:
    spec = rendered().one("StatefulSet", "prod-etcd")["spec"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
    without = rendered(storage="emptyDir").one("StatefulSet", "prod-etcd")["spec"]
    assert "volumeClaimTemplates" not in without
    assert {"name": "data", "emptyDir": {}} in without["template"]["spec"]["volumes"]


def test_configuration_of_the_user_wins_in_etcd_too() -> None:
    extra = {
        "quota-backend-bytes": "8589934592",
        "log-level": "warn",
        "strict-reconfig-check": "false",
        "auto-compaction-retention": "1",
        "cipher-suites": "A,B",
        "odd": "--5",
    }
    (one,) = configurations(rendered(etcd(extraArgs=extra))).values()
    assert one["quota-backend-bytes"] == 8589934592
    assert one["log-level"] == "warn"
    assert one["strict-reconfig-check"] is False
    assert one["auto-compaction-retention"] == "1", "etcd does not start with a number here"
    assert one["cipher-suites"] == ["A", "B"]
    assert one["odd"] == "--5"


_LAYOUT = quickly_rendered(FULL_SPEC).layout


@given(st.text(max_size=20))
def test_any_text_can_be_a_value_of_etcd(value: str) -> None:
    found = etcd_configuration.of_member(
        _LAYOUT.etcd_members[0],
        _LAYOUT,
        token="t",
        existing=False,
        generation=1,
        extra={"x": value},
    )["x"]
    assert str(found).lower() == value.lower() or int(value) == found


POD_NAME = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


def test_a_member_of_etcd_keeps_the_name_by_which_it_finds_its_configuration() -> None:
    env = workload(with_settings(ETCD, extraEnv=[{"name": "GODEBUG", "value": "x"}]), ETCD)
    assert env["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "GODEBUG", "value": "x"}, POD_NAME]


@pytest.mark.parametrize(
    ("record", "existing", "names"),
    [
        (EtcdMemberState("prod-etcd-1"), False, 3),
        (EtcdMemberState("prod-etcd-1"), True, 3),
        (EtcdMemberState("prod-etcd-1", "a1"), True, 1),
        (
            EtcdMemberState(
                "prod-etcd-1", "a1", added=True, initial_cluster="prod-etcd-0=https://x:2380,prod-etcd-1=y"
            ),
            True,
            2,
        ),
        (None, True, 3),
    ],
    ids=["of the bootstrap", "not known yet", "with a vote", "added", "without a record"],
)
def test_a_member_that_can_be_replaced_starts_with_its_data_only(
    record: EtcdMemberState | None, existing: bool, names: int
) -> None:
    layout = quickly_rendered(etcd(replicas=3)).layout
    found = etcd_configuration.of_member(
        layout.etcd_members[1], layout, token="t", existing=existing, generation=1, extra={}, record=record
    )
    assert len(found["initial-cluster"].split(",")) == names
    if names == 1:
        assert found["initial-cluster"] == f"prod-etcd-1={layout.etcd_members[1].peer_url}"
    # Who is on record starts beside members that serve, and can compare its content with theirs.
    assert ("InitialCorruptCheck=true" in found["feature-gates"]) == bool(record and record.id)
