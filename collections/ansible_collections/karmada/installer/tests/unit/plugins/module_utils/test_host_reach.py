# SPDX-License-Identifier: Apache-2.0
"""What a host says of others that it cannot reach, or that are not who they should be; against real sockets."""

from __future__ import annotations

import errno
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_reach
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.tests.unit.support.moments import closed_port

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
#: Seconds for what comes to its end by itself: much longer than it takes on a busy machine.
ENOUGH = 300
AUTHORITY, OTHER = (
    x509.new_authority(x509.Authority(name, name), "ECDSA-P256", NOW - 9 * DAY) for name in ("one", "other")
)


def certificate(
    authority: KeyPair = AUTHORITY, *, addresses: tuple[str, ...] = ("127.0.0.1",), at: datetime = NOW
) -> KeyPair:
    about = x509.Certificate("s", "s", "127.0.0.1", dns_names=("localhost",), ip_addresses=addresses, server=True)
    return x509.issue(about, authority, "ECDSA-P256", at, DAY)


@contextmanager
def server(pair: KeyPair | None, *, answers: bool = True) -> Iterator[int]:
    """The port of something that accepts connections; with a certificate it speaks TLS, and silent it says nothing."""
    listening = socket.create_server(("127.0.0.1", 0))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if pair:
        with tempfile.NamedTemporaryFile() as file:
            file.write(pair.certificate + pair.key)
            file.flush()
            context.load_cert_chain(file.name)
    kept: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connection = listening.accept()[0]
            except OSError:
                return
            kept.append(connection)
            if not answers:
                continue
            try:
                if pair:
                    kept.append(context.wrap_socket(connection, server_side=True))
                else:
                    connection.sendall(b"SSH-2.0-OpenSSH\r\n")
            except OSError:
                pass

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        # Wakes the thread up, too.
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for each in kept:
            each.close()


def always(*addresses: str) -> Callable[..., Any]:
    """A name service that knows these addresses for every name."""
    resolve = socket.getaddrinfo

    def resolving(host: str, port: int, *more: Any, **how: Any) -> Any:
        if host[0].isdigit():
            return resolve(host, port, *more, **how)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return resolving


def target(port: int, **more: Any) -> dict[str, Any]:
    authority = AUTHORITY.certificate.decode()
    given = {"host": "127.0.0.1", "port": port, "tls": True, "authority": authority, "server_name": "127.0.0.1"}
    return {"name": "m1", **given, **more}


def kind(port: int, **more: Any) -> str:
    return host_reach.look([target(port, **more)], ENOUGH).get("m1", {}).get("fault", "")


def test_one_with_the_right_certificate_is_reached() -> None:
    with server(certificate()) as port:
        assert host_reach.look([target(port)], ENOUGH) == {}
        assert host_reach.look([target(port, host="localhost", server_name="localhost")], ENOUGH) == {}


def test_without_a_port_the_name_is_looked_up_and_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_reach.socket, "create_connection", None)
    monkeypatch.setattr(host_reach.socket, "getaddrinfo", always("192.0.2.1"))
    assert host_reach.look([target(0, host="karmada.example.com")], ENOUGH) == {}

    def unknown(*_where: Any, **_how: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(host_reach.socket, "getaddrinfo", unknown)
    told = {"fault": host_reach.UNKNOWN_NAME, "detail": "Name or service not known"}
    assert host_reach.look([target(0, host="karmada.example.com")], ENOUGH) == {"m1": told}


def test_a_certificate_for_another_name_or_of_another_authority_is_told() -> None:
    with server(certificate(addresses=())) as port:
        assert kind(port) == host_reach.OTHER_NAME
        assert kind(port, server_name="m1.example.com") == host_reach.OTHER_NAME
        assert kind(port, server_name="localhost") == ""
    with server(certificate(OTHER)) as port:
        assert kind(port) == host_reach.OTHER_AUTHORITY
        assert kind(port, authority=OTHER.certificate.decode()) == ""
        assert kind(port, authority=AUTHORITY.certificate.decode() + OTHER.certificate.decode()) == ""


def test_the_common_name_of_a_certificate_counts_for_nothing() -> None:
    about = x509.Certificate("s", "s", "localhost", ip_addresses=("127.0.0.1",), server=True)
    with server(x509.issue(about, AUTHORITY, "ECDSA-P256", NOW, DAY)) as port:
        assert kind(port, server_name="localhost") == host_reach.OTHER_NAME
        assert kind(port) == ""


def test_a_certificate_that_has_ended_or_not_begun_is_told() -> None:
    with server(certificate(at=NOW - 3 * DAY)) as port:
        assert kind(port) == host_reach.EXPIRED
    with server(certificate(at=NOW + 3 * DAY)) as port:
        assert kind(port) == host_reach.NOT_YET_VALID


def test_a_certificate_itself_may_be_what_is_trusted() -> None:
    pair = certificate()
    with server(pair) as port:
        assert kind(port, authority=pair.certificate.decode()) == ""


def test_without_an_authority_it_only_has_to_be_reached() -> None:
    with server(certificate(OTHER, addresses=())) as port:
        assert kind(port, authority="", server_name="") == ""


def test_of_a_proxy_only_the_port_is_tried() -> None:
    with server(None) as port:
        assert kind(port, tls=False) == ""
        assert kind(port) == host_reach.NOT_TLS


def test_nobody_who_listens_nobody_who_answers_no_such_name_and_no_way_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_port() as port:
        assert kind(port) == host_reach.REFUSED
        assert kind(port, authority="nonsense", host="127.0.0.1") == host_reach.REFUSED
    with server(None, answers=False) as port:
        assert host_reach.look([target(port)], 2)["m1"]["fault"] == host_reach.SILENT

    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", unknown)
        assert kind(1, host="m1.example.com") == host_reach.UNKNOWN_NAME

    def no_route(*_: Any) -> Any:
        raise OSError(errno.EHOSTUNREACH, "No route to host")

    monkeypatch.setattr(socket, "create_connection", no_route)
    assert host_reach.look([target(1)], ENOUGH) == {"m1": {"fault": host_reach.NO_ROUTE, "detail": "No route to host"}}


def test_an_authority_that_cannot_be_read_is_told_as_it_is() -> None:
    with server(certificate()) as port:
        assert kind(port, authority="nonsense") in (host_reach.OTHER, host_reach.NOT_TLS)


def test_many_are_tried_at_once_and_the_time_is_that_of_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_reach, "AT_ONCE", 4)
    with server(None, answers=False) as silent, server(certificate()) as sound:
        targets = [target(silent, name=f"s{number}") for number in range(6)]
        # More of them than are tried at once never answer, and nobody waits for them one after the other.
        found = host_reach.look([target(sound, name="sound"), *targets], 5)
    assert "sound" not in found
    faults = sorted(each["fault"] for each in found.values())
    assert set(faults) == {host_reach.NOT_TRIED, host_reach.SILENT}


def test_a_name_with_several_addresses_is_reached_by_any_and_none_takes_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {("127.0.0.2", "127.0.0.1"): "", ("127.0.0.2",): host_reach.REFUSED, (): host_reach.OTHER}
    with server(certificate()) as port:
        for addresses, expected in found.items():
            with monkeypatch.context() as patched:
                patched.setattr(socket, "getaddrinfo", always(*addresses))
                assert kind(port, host="m1.example.com") == expected


def test_a_name_service_that_never_answers_does_not_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def resolving(*_: Any, **__: Any) -> Any:
        over.wait(600)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure")

    monkeypatch.setattr(socket, "getaddrinfo", resolving)
    begun = time.monotonic()
    found = host_reach.look([target(1, host="m1.example.com")], 2)
    assert time.monotonic() - begun < 300
    over.set()
    assert found["m1"]["fault"] == host_reach.UNKNOWN_NAME


def test_what_nobody_has_thought_of_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(*_: Any) -> Any:
        raise RuntimeError("odd")

    monkeypatch.setattr(host_reach, "_connected", odd)
    assert host_reach.look([target(1)], ENOUGH) == {"m1": {"fault": host_reach.OTHER, "detail": "RuntimeError: odd"}}


def test_nothing_to_try_is_no_trouble() -> None:
    assert host_reach.look([], 1) == {}
