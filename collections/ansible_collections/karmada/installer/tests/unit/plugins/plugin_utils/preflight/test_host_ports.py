# SPDX-License-Identifier: Apache-2.0
"""Ports and addresses of components on hosts: what is free, what moves with flags, and who stands in the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME
from ansible_collections.karmada.installer.plugins.plugin_utils.render import sockets
from ansible_collections.karmada.installer.plugins.plugin_utils.render.sockets import Socket
from ansible_collections.karmada.installer.tests.unit.support.host_facts import (
    BEFORE,
    EVERY,
    SOMEBODY,
    Object,
    after,
    found,
    has_unit,
    instance,
    listens,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    MEMBER,
    OPTIONAL,
    RUNNING,
)

# -- ports -----------------------------------------------------------------------------------------------------------


def test_every_port_of_the_table_is_looked_at() -> None:
    everything = instance(
        components=OPTIONAL,
        members=[MEMBER],
    )
    host = component_hosts.all_hosts(everything.spec)[0]
    wanted = {(each.needed_by, each.port) for each in sockets.on_host(everything, host)}
    assert wanted == {(each.name, port) for each in RUNNING for port in each.ports.values()} | {
        ("haproxy", 5443),
        ("haproxy", 5444),
    }


def test_only_what_runs_on_a_host_needs_ports_there() -> None:
    hosts = [
        {"name": "host1", "address": "192.0.2.1", "roles": ["etcd"]},
        {"name": "host2", "address": "192.0.2.2", "roles": ["controlPlane"]},
        {"name": "host3", "address": "192.0.2.3", "roles": ["loadBalancer"]},
    ]
    of = instance(hosts)
    needed = [{each.needed_by for each in sockets.on_host(of, host)} for host in component_hosts.all_hosts(of.spec)]
    assert needed[0] == {"etcd"}
    assert "karmada-apiserver" in needed[1]
    assert not {"etcd", "haproxy"} & needed[1]
    assert needed[2] == {"haproxy"}


@pytest.mark.parametrize(
    ("field", "flags", "socket"),
    [
        ("karmadaScheduler", {"metrics-bind-address": f"{EVERY}:9999"}, Socket("karmada-scheduler", EVERY, 9999)),
        ("karmadaScheduler", {"metrics-bind-address": ":9999"}, Socket("karmada-scheduler", "::", 9999)),
        ("karmadaScheduler", {"metrics-bind-address": "[::1]:9999"}, Socket("karmada-scheduler", "::1", 9999)),
        ("karmadaAPIServer", {"bind-address": EVERY}, Socket("karmada-apiserver", EVERY, 5443)),
        ("karmadaAPIServer", {"secure-port": "6443"}, Socket("karmada-apiserver", "192.0.2.1", 6443)),
    ],
)
def test_flags_of_the_document_move_ports(field: str, flags: Mapping[str, str], socket: Socket) -> None:
    of = instance(components={field: {"extraArgs": flags}})
    assert socket in sockets.on_host(of, component_hosts.all_hosts(of.spec)[0])


def test_settings_of_etcd_move_its_ports() -> None:
    urls = "https://192.0.2.1:2379,https://127.0.0.1:4001"
    of = instance(components={"etcd": {"local": {"extraArgs": {"listen-client-urls": urls}}}})
    wanted = sockets.on_host(of, component_hosts.all_hosts(of.spec)[0])
    assert {Socket("etcd", "192.0.2.1", 2379), Socket("etcd", "127.0.0.1", 4001)} <= set(wanted)


def test_a_listener_that_is_turned_off_needs_no_port() -> None:
    of = instance(components={"karmadaScheduler": {"extraArgs": {"metrics-bind-address": "0"}}})
    ports = {each.port for each in sockets.on_host(of, component_hosts.all_hosts(of.spec)[0])}
    assert BY_NAME["karmada-scheduler"].ports["metrics"] not in ports


def test_the_load_balancer_and_the_api_server_cannot_share_all_addresses() -> None:
    of = instance(components={"karmadaAPIServer": {"extraArgs": {"bind-address": EVERY}}})
    problems = found(of=of)
    assert len(problems) == 3
    assert f"karmada-apiserver and haproxy would both listen on port 5443 ({EVERY}, 192.0.2.100)" in problems[0].what


def test_another_control_plane_on_the_host_is_named() -> None:
    unit = "karmada-test-apiserver.service"
    (problem,) = found(
        has_unit(unit, SOMEBODY, "karmada-apiserver of Karmada control plane test"),
        listens(5443, "192.0.2.1", f"/system.slice/{unit}"),
    )
    assert f"is used by {unit} (karmada-apiserver of Karmada control plane test)" in problem.what
    assert "two control planes need ports of their own" in problem.remedy


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        (EVERY, "192.0.2.1", True),
        (EVERY, "2001:db8::1", False),
        ("::", "192.0.2.1", True),
        ("::", "2001:db8::1", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("localhost", "127.0.0.1", True),
        ("host.example.com", "127.0.0.1", True),
    ],
)
def test_addresses_that_stand_in_each_others_way(first: str, second: str, expected: bool) -> None:
    assert sockets.overlap(first, second) is expected
    assert sockets.overlap(second, first) is expected


# -- facts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "what", "where"),
    [
        (
            {"karmadaScheduler": {"extraArgs": {"health-probe-bind-address": "0"}}},
            "port 10351 of 127.0.0.1",
            "karmadaScheduler",
        ),
        (
            {"karmadaScheduler": {"extraArgs": {"health-probe-bind-address": "192.0.2.1:18080"}}},
            "port 18080 of 127.0.0.1",
            "karmadaScheduler",
        ),
        ({"karmadaWebhook": {"extraArgs": {"bind-address": "192.0.2.1"}}}, "port 8443 of 127.0.0.1", "karmadaWebhook"),
        (
            {"etcd": {"local": {"extraArgs": {"listen-client-urls": "https://127.0.0.1:2379"}}}},
            "port 2379 of 192.0.2.1",
            "etcd.local",
        ),
        (
            {"etcd": {"local": {"extraArgs": {"listen-metrics-urls": "http://192.0.2.1:2381"}}}},
            "port 2381 of 127.0.0.1",
            "etcd.local",
        ),
    ],
)
def test_a_component_listens_where_it_is_looked_for(settings: Object, what: str, where: str) -> None:
    (problem,) = [each for each in found(of=instance(components=settings)) if "looked for" in each.what]
    assert problem.where == f"spec.components.{where}.extraArgs"
    assert what in problem.what


MOVED: list[Object] = [
    {"karmadaScheduler": {"extraArgs": {"health-probe-bind-address": "127.0.0.1:18080"}}},
    {"karmadaScheduler": {"extraArgs": {"health-probe-bind-address": ":18080"}}},
    {"karmadaWebhook": {"extraArgs": {"secure-port": "18443"}}},
    {"karmadaAPIServer": {"extraArgs": {"secure-port": "6443"}}},
    {"etcd": {"local": {"extraArgs": {"listen-client-urls": f"https://{EVERY}:12379"}}}},
    {"etcd": {"local": {"extraArgs": {"listen-metrics-urls": "http://127.0.0.1:12381"}}}},
]


@pytest.mark.parametrize("settings", MOVED)
def test_a_flag_gives_a_component_another_port(settings: Object) -> None:
    assert found(of=instance(components=settings)) == []


def test_a_host_that_is_the_endpoint_listens_where_clients_are_sent() -> None:
    moved = {"components": {"karmadaAPIServer": {"extraArgs": {"secure-port": "6443"}}}}
    direct = {"type": "External", "host": "192.0.2.1"}
    (problem,) = found(of=instance(endpoint=direct, **moved))
    assert problem.where == "spec.endpoint.port"
    assert "port 5443 of 192.0.2.1, and karmada-apiserver listens on port 6443" in problem.what
    assert found(of=instance(endpoint={**direct, "port": 6443}, **moved)) == []
    assert found(of=instance(endpoint={**direct, "host": "karmada.example.com"}, **moved)) == []


def test_ports_that_others_depend_on_stay_after_the_install() -> None:
    before = replace(after(BEFORE), document={"spec": {**instance().spec.plain, "hosts": BEFORE}})
    assert found(before=before) == []
    for settings in MOVED[:3]:
        assert found(of=instance(components=settings), before=before) == []
    (problem,) = found(of=instance(components=MOVED[3]), before=before)
    assert problem.where == "spec.components.karmadaAPIServer.extraArgs.secure-port"
    assert "listens on port 5443 since the install, and the document says 6443" in problem.what
    (problem,) = found(of=instance(components=MOVED[4]), before=before)
    assert problem.where == "spec.components.etcd.local.extraArgs.listen-client-urls"


@pytest.mark.parametrize("metrics", ["0", "127.0.0.1:18080"])
def test_metrics_may_move_or_go(metrics: str) -> None:
    assert found(of=instance(components={"karmadaScheduler": {"extraArgs": {"metrics-bind-address": metrics}}})) == []
