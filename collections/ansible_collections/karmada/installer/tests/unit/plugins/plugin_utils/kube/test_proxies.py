# SPDX-License-Identifier: Apache-2.0
"""A member whose kubeconfig names a proxy: how its API server is reached, and what is told when it is not."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.proxy_server import ProxyServer
from ansible_collections.karmada.installer.tests.unit.support.simulated_members import DNS_NAME, SimulatedMembers

BOTH = pytest.mark.parametrize(("scheme", "kind"), [("http", "http"), ("socks5", "socks")])


@pytest.fixture
def members() -> Iterator[SimulatedMembers]:
    with SimulatedMembers(["m1"]) as found:
        yield found


@pytest.fixture
def proxy() -> Iterator[ProxyServer]:
    with ProxyServer({DNS_NAME: "127.0.0.1"}) as found:
        yield found


def behind(members: SimulatedMembers, folder: Path, proxy_url: str, host: str = DNS_NAME) -> Cluster:
    """The API server of m1 as somebody has it who knows it by a name, and the proxy."""
    config = members.members["m1"].kubeconfig()
    cluster = config["clusters"][0]["cluster"]
    cluster["server"] = f"https://{host}:{urlsplit(cluster['server']).port}"
    if proxy_url:
        cluster["proxy-url"] = proxy_url
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    found = Cluster(kubeconfig.from_file(str(folder / "kubeconfig"), None), "member m1")
    found.retry_seconds = 0.5
    return found


@BOTH
def test_the_proxy_knows_the_name(
    members: SimulatedMembers, proxy: ProxyServer, tmp_path: Path, scheme: str, kind: str
) -> None:
    with behind(members, tmp_path, f"{scheme}://127.0.0.1:{proxy.port}") as member:
        namespace = member.get("v1", "Namespace", "kube-system")
    assert namespace
    assert namespace["metadata"]["uid"] == "id-of-m1"
    assert proxy.asked == [f"{kind} {DNS_NAME}"]


@BOTH
def test_a_connection_of_its_own_goes_the_same_way(
    members: SimulatedMembers, proxy: ProxyServer, tmp_path: Path, scheme: str, kind: str
) -> None:
    with behind(members, tmp_path, f"{scheme}://127.0.0.1:{proxy.port}") as member, member.dial(10) as connection:
        connection.sendall(b"GET /version HTTP/1.1\r\nHost: m1\r\nAuthorization: Bearer administrator-of-m1\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    assert proxy.asked == [f"{kind} {DNS_NAME}"]


@BOTH
def test_a_proxy_that_does_not_lead_there_is_told_of(
    members: SimulatedMembers, proxy: ProxyServer, tmp_path: Path, scheme: str, kind: str
) -> None:
    address = f"{scheme}://127.0.0.1:{proxy.port}"
    with behind(members, tmp_path, address, "elsewhere.example.com") as member, pytest.raises(ApiError) as raised:
        member.get("v1", "Namespace", "kube-system")
    assert proxy.asked[0] == f"{kind} elsewhere.example.com"
    assert f"the proxy {address}" in str(raised.value)


@BOTH
def test_a_proxy_that_is_not_there_is_told_of(
    members: SimulatedMembers, tmp_path: Path, scheme: str, kind: str
) -> None:
    del kind
    with socket.socket() as nobody:
        # The port belongs to this test, and nobody listens there.
        nobody.bind(("127.0.0.1", 0))
        address = f"{scheme}://127.0.0.1:{nobody.getsockname()[1]}"
        with behind(members, tmp_path, address) as member, pytest.raises(ApiError) as raised:
            member.get("v1", "Namespace", "kube-system")
    assert f"the proxy {address}" in str(raised.value)
    assert "connection refused" in str(raised.value)


@BOTH
def test_a_name_that_does_not_resolve_is_that_of_the_proxy(
    members: SimulatedMembers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, kind: str
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with behind(members, tmp_path, f"{scheme}://{kind}.example.com:3128") as member, pytest.raises(ApiError) as raised:
        member.get("v1", "Namespace", "kube-system")
    assert f"the name {kind}.example.com does not resolve" in str(raised.value)


def test_the_login_at_a_proxy_of_the_environment_is_shown_to_nobody(
    members: SimulatedMembers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://somebody:p4ssw0rd@127.0.0.1:1")
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with behind(members, tmp_path, "") as member, pytest.raises(ApiError) as raised:
        member.get("v1", "Namespace", "kube-system")
    assert "through the proxy http://127.0.0.1:1: " in str(raised.value)
    assert "p4ssw0rd" not in str(raised.value)


def test_without_the_package_it_is_named(
    members: SimulatedMembers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "urllib3.contrib.socks", None)
    with pytest.raises(ProblemsError, match=r"member m1 is behind a SOCKS proxy.*Install the Python package PySocks\."):
        behind(members, tmp_path, "socks5://127.0.0.1:1")
