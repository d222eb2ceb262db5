# SPDX-License-Identifier: Apache-2.0
"""HAProxy and keepalived for a virtual IP: who, with what configuration, and what a change restarts."""

from __future__ import annotations

import base64
import ipaddress
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import jinja2
import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.hosts import Host
from ansible_collections.karmada.installer.plugins.plugin_utils.components.instance import Instance
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import KARMADA_APISERVER
from ansible_collections.karmada.installer.plugins.plugin_utils.render import load_balancer, unit_text, units
from ansible_collections.karmada.installer.plugins.plugin_utils.run import ssh
from ansible_collections.karmada.installer.tests.unit.support.moments import closed_port
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document
from hypothesis import given
from hypothesis import strategies as st

AUTHORITY = b"-----BEGIN CERTIFICATE-----\nof a test\n-----END CERTIFICATE-----\n"


def host(number: int, *roles: str, family: int = 4) -> dict[str, Any]:
    address = f"192.0.2.{number}" if family == 4 else f"2001:db8::{number:x}"
    return {"name": f"h{number}", "address": address, "roles": list(roles or ("controlPlane", "etcd"))}


STACKED = [host(1), host(2), host(3)]


def instance(hosts: list[dict[str, Any]] | None = None, port: int | None = None, **virtual_ip: Any) -> Instance:
    endpoint = {"type": "VirtualIP", "virtualIP": {"address": "192.0.2.100", **virtual_ip}}
    deployment = document(
        {"mode": "Binary", "hosts": hosts or STACKED, "endpoint": {**endpoint, **({"port": port} if port else {})}}
    )
    return Instance.of(deployment, releases.newest(), OWNER, "10.96.0.0/12")


def first(of: Instance) -> Host:
    return load_balancer.load_balancers(of.spec)[0]


def haproxy(of: Instance) -> str:
    return load_balancer.haproxy_configuration(of, first(of))


def keepalived(of: Instance, number: int = 0) -> str:
    return load_balancer.keepalived_configuration(of, load_balancer.load_balancers(of.spec)[number], "eth0")


def tree(of: Instance, interface: str = "eth0", authority: bytes = AUTHORITY) -> dict[str, Any]:
    return load_balancer.tree(of, first(of), interface, authority)


def unit(of: Instance, program: str) -> list[tuple[str, str]]:
    path = f"/etc/systemd/system/{load_balancer.unit_name(of, program)}"
    text = next(base64.b64decode(file["content"]) for file in tree(of)["files"] if file["path"] == path).decode()
    return [tuple(line.split("=", 1)) for line in text.splitlines() if "=" in line]  # type: ignore[misc]


def names(hosts: tuple[Host, ...]) -> list[str]:
    return [each.name for each in hosts]


class TestWho:
    def test_control_plane_hosts_where_none_has_the_role(self) -> None:
        of = instance([host(1), host(2, "etcd"), host(3), host(4, "controlPlane")])
        assert names(load_balancer.load_balancers(of.spec)) == ["h1", "h3", "h4"]

    def test_those_with_the_role_and_no_other(self) -> None:
        of = instance([host(1), host(2, "loadBalancer"), host(3, "loadBalancer")])
        assert names(load_balancer.load_balancers(of.spec)) == ["h2", "h3"]
        assert "server h1 192.0.2.1:5443 " in haproxy(of)
        assert "server h2 " not in haproxy(of)

    def test_nobody_without_a_virtual_ip(self) -> None:
        deployment = document(
            {"mode": "Binary", "hosts": STACKED, "endpoint": {"type": "External", "host": "k.example"}}
        )
        assert load_balancer.load_balancers(Spec(deployment["spec"])) == ()

    @pytest.mark.parametrize(
        "hosts", [STACKED, [host(1), host(2, "etcd"), host(3, "etcd")], [*STACKED, host(4, "loadBalancer")]]
    )
    def test_the_group_of_the_inventory_has_the_same(self, hosts: list[dict[str, Any]]) -> None:
        spec = instance(hosts).spec
        in_group = [each.name for each in spec.hosts if "loadBalancer" in ssh.roles(spec, each)]
        assert in_group == names(load_balancer.load_balancers(spec))


class TestInTurn:
    SERVES: ClassVar[dict[str, str]] = {"/etc/karmada/prod/keepalived/keepalived.conf": ""}

    def test_those_that_come_begin_when_the_others_know_them(self) -> None:
        observed = {"h1": {}, "h2": self.SERVES, "h3": self.SERVES}
        assert load_balancer.in_turn(instance(), observed) == (["h2", "h3"], ["h1"])

    def test_nobody_serves_before_the_first_install(self) -> None:
        assert load_balancer.in_turn(instance(), {}) == ([], ["h1", "h2", "h3"])
        assert load_balancer.in_turn(instance(), {"h1": {}}) == ([], ["h1", "h2", "h3"])

    def test_those_that_are_none_any_more_do_not_count(self) -> None:
        of = instance([host(1, "controlPlane", "etcd", "loadBalancer"), host(2, "controlPlane")])
        assert load_balancer.in_turn(of, {"h1": {}, "h2": self.SERVES}) == ([], ["h1"])


class TestInterface:
    @pytest.mark.parametrize("interface", ["", "eth0 {", "eth0\nfoo", "x" * 16])
    def test_an_interface_that_was_not_found_or_cannot_be_written(self, interface: str) -> None:
        assert "host h1" in str(load_balancer.interface_problem(first(instance()), interface))
        with pytest.raises(ValueError, match="interface"):
            tree(instance(), interface)

    @pytest.mark.parametrize("interface", ["eth0", "bond0.100", "enp1s0f0np0", "br-lan"])
    def test_interfaces_as_they_are_called(self, interface: str) -> None:
        assert load_balancer.interface_problem(first(instance()), interface) is None
        assert f"    interface {interface}\n" in load_balancer.keepalived_configuration(
            instance(), first(instance()), interface
        )


class TestHaproxy:
    def test_listens_on_the_address_whether_or_not_the_host_has_it(self) -> None:
        assert "    bind 192.0.2.100:5443 transparent\n" in haproxy(instance())
        assert "    bind 192.0.2.100:443 transparent\n" in haproxy(instance(port=443))

    def test_asks_each_api_server_as_itself(self) -> None:
        for number in (1, 2, 3):
            wanted = f"    server h{number} 192.0.2.{number}:5443 tcp-ut 3s check-sni h{number} verifyhost h{number}\n"
            assert wanted in haproxy(instance())
        assert " verify required ca-file /etc/karmada/prod/haproxy/ca.crt\n" in haproxy(instance())
        assert "verify none" not in haproxy(instance())

    def test_asks_what_the_table_says(self) -> None:
        assert re.findall(r"send meth GET uri (\S+)", haproxy(instance())) == [
            KARMADA_APISERVER.health.live,
            KARMADA_APISERVER.health.ready,
        ]

    def test_passes_on_to_whoever_its_questions_are_answered_by(self) -> None:
        text = haproxy(instance())
        for number in (1, 2, 3):
            assert f"    server h{number} 192.0.2.{number}:5443 tcp-ut 3s track health/h{number}\n" in text
        (serves,) = re.findall(r"^backend karmada-apiserver\n(.*?)^\S", text, re.MULTILINE | re.DOTALL)
        assert " on-marked-down shutdown-sessions\n" in serves
        assert "check" not in serves

    def test_sees_a_stop_before_it_is_over_and_waits_longer_for_answers_than_for_kernels(self) -> None:
        def milliseconds(pattern: str) -> int:
            (number, unit) = re.findall(rf"{pattern} (\d+)(ms|s)", haproxy(instance()))[-1]
            return int(number) * (1 if unit == "ms" else 1000)

        delay = units.layout(instance(), first(instance()), KARMADA_APISERVER, "192.0.2.100").shutdown_delay * 1000
        assert milliseconds("check inter") + milliseconds("fastinter") < delay
        # HAProxy takes the shorter one for the handshake
        assert milliseconds("timeout connect") <= milliseconds("check inter")
        assert milliseconds("tcp-ut") <= 3000 < milliseconds("timeout check")

    def test_lets_silent_sessions_live_and_turns_away_soon_from_who_does_not_answer(self) -> None:
        (defaults,) = re.findall(r"^defaults\n(.*?)^\S", haproxy(instance()), re.MULTILINE | re.DOTALL)
        # A kubelet ends a session of kubectl exec after four silent hours (streamingConnectionIdleTimeout).
        assert dict(re.findall(r"^    timeout (\w+) (\S+)$", defaults, re.MULTILINE)) == {
            "connect": "500ms",
            "client": "4h",
            "server": "4h",
        }
        # Vanished machines are found by keepalives instead.
        assert "    option clitcpka\n" in defaults
        assert "    option srvtcpka\n" in defaults

    def test_calls_others_by_the_address_of_its_host(self) -> None:
        second = load_balancer.load_balancers(instance().spec)[1]
        assert "    source 192.0.2.2\n" in load_balancer.haproxy_configuration(instance(), second)

    def test_speaks_both_versions_of_ip(self) -> None:
        of = instance([host(number, family=6) for number in (1, 2, 3)], address="2001:DB8:0::100")
        assert "    bind [2001:db8::100]:5443 transparent\n" in haproxy(of)
        assert "    server h1 [2001:db8::1]:5443 " in haproxy(of)
        assert "    source [2001:db8::1]\n" in haproxy(of)
        assert "        2001:db8::100/128\n" in keepalived(of)


class TestKeepalived:
    def test_talks_to_the_other_load_balancers_only(self) -> None:
        peers = [
            re.findall(r"^        (\S+) min_ttl", keepalived(instance(), number), re.MULTILINE) for number in range(3)
        ]
        assert peers == [["192.0.2.2", "192.0.2.3"], ["192.0.2.1", "192.0.2.3"], ["192.0.2.1", "192.0.2.2"]]
        assert "unicast_src_ip 192.0.2.1\n" in keepalived(instance())

    @pytest.mark.parametrize("family", [4, 6])
    def test_sends_what_the_others_accept(self, family: int) -> None:
        address = "192.0.2.100" if family == 4 else "2001:db8::100"
        text = keepalived(instance([host(number, family=family) for number in (1, 2, 3)], address=address))
        (sent,) = re.findall(r"unicast_ttl (\d+)$", text, re.MULTILINE)
        assert set(re.findall(r"min_ttl (\d+) max_ttl (\d+)$", text, re.MULTILINE)) == {(sent, sent)}

    def test_a_single_one_is_not_told_to_talk_to_nobody(self) -> None:
        assert "unicast" not in keepalived(instance([host(1)]))

    def test_has_the_group_and_the_address_of_the_document(self) -> None:
        text = keepalived(instance(virtualRouterID=77))
        assert "    virtual_router_id 77\n" in text
        assert "        192.0.2.100/32\n" in text

    def test_prefers_whoever_comes_first_and_takes_the_address_from_nobody(self) -> None:
        priorities = [int(re.findall(r"priority (\d+)", keepalived(instance(), number))[0]) for number in range(3)]
        assert priorities == [250, 230, 210]
        assert all("    state BACKUP\n    nopreempt\n" in keepalived(instance(), number) for number in range(3))

    @given(st.integers(min_value=1, max_value=64))
    def test_priorities_are_such_as_vrrp_has(self, count: int) -> None:
        hosts = tuple(Host(f"h{number}", f"192.0.2.{number}", ()) for number in range(count))
        found = [load_balancer.priority(hosts, each) for each in hosts]
        assert found == sorted(found, reverse=True)
        assert all(1 <= each <= 254 for each in found)


class TestTemplates:
    def test_a_value_that_nobody_gives_is_no_empty_text(self) -> None:
        with pytest.raises(jinja2.UndefinedError):
            load_balancer._templates().from_string("bind {{ address }}").render()

    def test_what_a_document_says_is_a_value_and_no_template(self) -> None:
        of = instance()
        of.spec.plain["hosts"][1]["address"] = "{{ folder }} & <"
        assert "        {{ folder }} & < min_ttl 255" in keepalived(of)

    def test_every_line_ends_and_none_is_left_of_the_template(self) -> None:
        of = instance()
        texts = (haproxy(of), keepalived(of), load_balancer.check_script())
        assert [text[-1:] for text in texts] == ["\n"] * 3
        assert not re.findall(r"\{[%#{]|SPDX", "".join(texts))
        assert load_balancer.check_script().startswith("#!/bin/bash\n")


class TestTree:
    def test_is_the_same_each_time_and_does_not_touch_the_units_of_the_distribution(self) -> None:
        assert tree(instance()) == tree(instance())
        assert [each["name"] for each in tree(instance())["units"]] == [
            "karmada-prod-haproxy.service",
            "karmada-prod-keepalived.service",
        ]
        assert all(
            file["path"].startswith(("/etc/karmada/prod/", "/etc/systemd/system/karmada-prod-"))
            for file in tree(instance())["files"]
        )

    def test_the_address_goes_before_what_serves_it(self) -> None:
        after = dict(unit(instance(), "keepalived"))["After"].split()
        assert "karmada-prod-haproxy.service" in after
        # A host whose etcd does not come up would have no load balancer.
        assert not [each for each in after if "apiserver" in each or "etcd" in each]

    def test_has_no_secret(self) -> None:
        assert not any(file["secret"] for file in tree(instance())["files"])

    def test_gives_to_root_what_keepalived_runs(self) -> None:
        rights = {
            entry["path"]: (entry["user"], entry.get("group"), entry["mode"])
            for part in ("files", "directories")
            for entry in tree(instance())[part]
        }
        assert rights["/etc/karmada/prod/keepalived"] == ("root", None, 0o755)
        assert rights["/etc/karmada/prod/keepalived/check"] == ("root", None, 0o755)
        assert rights["/etc/karmada/prod/haproxy/haproxy.cfg"] == ("root", "karmada-prod-haproxy", 0o640)

    def test_says_where_health_is(self) -> None:
        one, other = tree(instance(port=6443))["units"]
        assert one["health"] == {"url": "http://127.0.0.1:5444/readyz", "authority": ""}
        assert other["health"] == {
            "url": "https://192.0.2.100:6443/readyz",
            "authority": "/etc/karmada/prod/haproxy/ca.crt",
        }
        assert other["health"]["authority"] in {file["path"] for file in tree(instance())["files"]}

    def test_haproxy_may_no_more_than_a_component(self) -> None:
        assert dict(unit(instance(), "haproxy")).items() >= unit_text.HARDENING.items()

    def test_haproxy_may_listen_below_1024_if_it_has_to_and_nothing_else(self) -> None:
        settings = dict(unit(instance(port=443), "haproxy"))
        assert settings["CapabilityBoundingSet"] == settings["AmbientCapabilities"] == "CAP_NET_BIND_SERVICE"
        assert settings["PrivateUsers"] == "no"

    def test_keepalived_may_do_with_the_network_what_it_has_to(self) -> None:
        settings = dict(unit(instance(), "keepalived"))
        differs = {key for key, value in unit_text.HARDENING.items() if settings[key] != value}
        assert differs == {"AmbientCapabilities", "CapabilityBoundingSet", "PrivateUsers", "RestrictAddressFamilies"}
        assert settings["User"] != "root"

    @pytest.mark.parametrize(
        ("changed", "restarted"),
        [
            (lambda: tree(instance(), authority=b"another"), {"haproxy"}),
            (lambda: tree(instance(), "eth1"), {"keepalived"}),
            (lambda: tree(instance(virtualRouterID=7)), {"keepalived"}),
            (lambda: tree(instance(port=6443)), {"haproxy"}),
            (lambda: tree(instance([*STACKED, host(4, "controlPlane")])), {"haproxy", "keepalived"}),
            (lambda: tree(instance([*STACKED, host(4, "etcd"), host(5, "etcd")])), set()),
        ],
    )
    def test_a_change_is_for_those_that_it_is_about(self, changed: Any, restarted: set[str]) -> None:
        before, after = (
            {each["name"]: each["hash"] for each in found["units"]} for found in (tree(instance()), changed())
        )
        assert {
            name.split("-")[-1].removesuffix(".service") for name in before if before[name] != after[name]
        } == restarted

    def test_settings_come_by_a_reload_and_rights_by_a_restart(self) -> None:
        def parts(of: Instance) -> list[list[str]]:
            return [each["hash"].split("-") for each in tree(of)["units"]]

        (before, _), (moved, _), (privileged, _) = (parts(instance(port=port)) for port in (5443, 6443, 443))
        assert (before[0] == moved[0], before[1] == moved[1]) == (True, False)
        assert before[0] != privileged[0]
        for program in (load_balancer.HAPROXY, load_balancer.KEEPALIVED):
            assert "ExecReload" in dict(unit(instance(), program))

    def test_what_leaves_a_host_ends_with_the_address_first(self) -> None:
        gone = load_balancer.absent(instance())
        assert [each["name"] for each in gone["absent"]["units"]] == [
            "karmada-prod-keepalived.service",
            "karmada-prod-haproxy.service",
        ]
        assert gone["units"] == gone["files"] == []

    def test_an_uninstall_knows_all_that_was_made(self) -> None:
        made, known = tree(instance()), load_balancer.skeleton(instance())
        for part in ("users", "units"):
            assert {each["name"] for each in made[part]} == {each["name"] for each in known[part]}
        assert set(made["folders"]) == set(known["folders"])


@pytest.fixture
def monitor() -> Iterator[ThreadingHTTPServer]:
    class Answers(BaseHTTPRequestHandler):
        status = 200

        def do_GET(self) -> None:
            self.send_response(type(self).status if self.path == load_balancer.MONITOR_PATH else 404)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


class TestCheck:
    def passes(self, tmp_path: Path, port: int, *, seconds: int = 300) -> bool:
        script, text = tmp_path / "check", load_balancer.check_script()
        assert " -t 1 " in text
        text = text.replace(str(load_balancer.MONITOR_PORT), str(port)).replace(" -t 1 ", f" -t {seconds} ")
        script.write_text(text)
        script.chmod(0o700)
        return subprocess.run([script], check=False, capture_output=True, timeout=300).returncode == 0

    def test_passes_while_haproxy_would_serve(self, tmp_path: Path, monitor: ThreadingHTTPServer) -> None:
        assert self.passes(tmp_path, monitor.server_port)

    def test_fails_when_haproxy_has_nobody_to_pass_connections_on_to(
        self, tmp_path: Path, monitor: ThreadingHTTPServer
    ) -> None:
        monitor.RequestHandlerClass.status = 503  # type: ignore[attr-defined]
        assert not self.passes(tmp_path, monitor.server_port)

    def test_fails_when_haproxy_is_gone_or_hangs(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            assert not self.passes(tmp_path, silent.getsockname()[1], seconds=1)
        with closed_port() as port:
            assert not self.passes(tmp_path, port)


@given(st.sampled_from([4, 6]), st.integers(min_value=1, max_value=9), st.integers(min_value=1, max_value=255))
def test_every_document_gives_a_line_of_its_own_for_each_host(family: int, count: int, router: int) -> None:
    address = "192.0.2.100" if family == 4 else "2001:db8::100"
    of = instance(
        [host(1, family=family), *(host(number, "controlPlane", family=family) for number in range(2, count + 1))],
        address=address,
        virtualRouterID=router,
    )
    servers = re.findall(r"^    server (\S+) (\S+):5443 .*check-sni (\S+) verifyhost (\S+)$", haproxy(of), re.MULTILINE)
    assert len(servers) == count
    for server, (name, address, *names_) in zip(component_hosts.all_hosts(of.spec), servers, strict=True):
        assert [server.name] * 3 == [name, *names_]
        assert ipaddress.ip_address(address.strip("[]")) == ipaddress.ip_address(server.address)
    assert haproxy(of).isascii()
    assert keepalived(of).isascii()
