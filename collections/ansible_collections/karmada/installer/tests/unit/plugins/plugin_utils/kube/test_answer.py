# SPDX-License-Identifier: Apache-2.0
"""What is taken from an API server has an end, whatever it answers; what is good is taken as ever."""

from __future__ import annotations

import gzip
import json
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.answer import MIB, OF_A_MEMBER, Limits
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, TooMuch, Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.kubeconfig import load_client_certificate
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.port_forward import cluster_behind
from ansible_collections.karmada.installer.tests.unit.support import faulty_answers as faulty
from ansible_collections.karmada.installer.tests.unit.support.faulty_answers import (
    FIRST_ANSWERS,
    chunk,
    head,
    namespace,
    whole,
)
from ansible_collections.karmada.installer.tests.unit.support.proxy_server import ProxyServer
from ansible_collections.karmada.installer.tests.unit.support.simulated_members import DNS_NAME, SimulatedMembers
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi

#: Soon reached, but for those that are times: these are many times what a busy machine needs.
SMALL = Limits(
    answer_bytes=MIB, answer_values=20_000, answer_seconds=300, list_items=5_000, list_bytes=MIB, list_seconds=300
)
#: So short that nobody waits; what trickles takes a hundred times as long.
HURRIED = replace(SMALL, answer_seconds=0.5)
FOREVER = 10**9


@pytest.fixture
def limited(cluster: Cluster) -> Cluster:
    """The API server of ``api``, with limits that are soon reached and no patience."""
    cluster.limits, cluster._read_seconds, cluster.retry_seconds = SMALL, 300, 0
    return cluster


def answers(api: StubApi, pieces: faulty.Pieces, times: int = FOREVER, *, last: bool = False) -> None:
    api.faults.append(Fault("raw", pieces=pieces, times=times, last=last))


WORDS = {
    "gzip-bomb": r"larger than 1 MiB",
    "too-long": r"larger than 1 MiB",
    "many-values": r"larger than 1 MiB",
    "cut-json": r"cut off, or no JSON",
    "nested": r"nested too deep",
    "not-utf8": r"cut off, or no JSON",
    "escapes": r"403 Error",
    "packed-otherwise": r"packed in a way that nobody asked for \(br\)",
}


@pytest.mark.parametrize("way", WORDS)
def test_an_answer_that_is_none_is_an_error_that_says_where_and_why(limited: Cluster, api: StubApi, way: str) -> None:
    answers(api, FIRST_ANSWERS[way], times=1)
    with pytest.raises(ApiError, match=WORDS[way]) as raised:
        limited.get("v1", "Namespace", "kube-system")
    assert str(raised.value).startswith("host cluster: ")
    assert "/api/v1/namespaces/kube-system" in str(raised.value)
    assert str(raised.value).isprintable()
    # The connection with what was left of it is not used again.
    assert limited.get("v1", "Namespace", "ns")


def test_what_is_too_much_is_not_asked_for_again(cluster: Cluster, api: StubApi) -> None:
    cluster.limits = SMALL
    answers(api, faulty.too_long)
    with pytest.raises(TooMuch, match="see what answers at that address"):
        cluster.get("v1", "Namespace", "kube-system")
    assert len(api.requests) == 1


def test_values_are_counted_before_they_take_memory(cluster: Cluster, api: StubApi) -> None:
    cluster.limits = OF_A_MEMBER
    answers(api, faulty.many_values)
    with pytest.raises(TooMuch, match="more than 300000 values"):
        cluster.get("v1", "Namespace", "kube-system")


def slowly(*pieces: bytes) -> faulty.Pieces:
    """These, and then byte after byte of spaces, which mean nothing, for a hundred times as long as there is time."""

    def found(_path: str) -> Iterator[bytes]:
        yield from pieces
        yield from faulty.trickle(b" " * 1000)("")
        yield namespace()

    return found


SLOW = {
    "before the status": slowly(),
    "in a header": slowly(b"HTTP/1.1 200 OK\r\nX-Long: "),
    "in the content": slowly(head(1000 + len(namespace()))),
    "in a chunk": slowly(head(None) + b"%x\r\n" % (1000 + len(namespace()))),
    "in the size of a chunk": slowly(head(None) + b"1;"),
    "in an answer without an end": slowly(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"),
    "in an error": slowly(head(1000 + len(namespace()), "403 Forbidden")),
    "between answers that go on": lambda _path: (
        time.sleep(0.05) or b"HTTP/1.1 100 Continue\r\n\r\n" for _ in range(1000)
    ),
}


@pytest.mark.parametrize("place", SLOW)
def test_a_request_has_an_end_wherever_it_trickles(limited: Cluster, api: StubApi, place: str) -> None:
    limited.limits = HURRIED
    answers(api, SLOW[place])
    with pytest.raises(ApiError, match=r"does not come to an end|403"):
        limited.get("v1", "Namespace", "kube-system")


@pytest.fixture
def member() -> Iterator[SimulatedMembers]:
    """One that speaks TLS, and trickles."""
    with SimulatedMembers(["m1"]) as found:
        found.members["m1"].faults.append(Fault("raw", pieces=SLOW["in the content"], times=FOREVER))
        yield found


def of(member: SimulatedMembers, folder: Path, **cluster: str) -> Cluster:
    config = member.members["m1"].kubeconfig()
    there = config["clusters"][0]["cluster"]
    there["server"] = f"https://{DNS_NAME}:{urlsplit(there['server']).port}"
    there.update({key.replace("_", "-"): value for key, value in cluster.items()})
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    found = Cluster(kubeconfig.from_file(str(folder / "kubeconfig"), None), "member m1")
    found.limits, found.retry_seconds = HURRIED, 0
    return found


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_one_behind_a_proxy_has_an_end(member: SimulatedMembers, tmp_path: Path, scheme: str) -> None:
    with (
        ProxyServer({DNS_NAME: "127.0.0.1"}) as proxy,
        of(member, tmp_path, proxy_url=f"{scheme}://127.0.0.1:{proxy.port}") as cluster,
        pytest.raises(Unreachable, match="does not come to an end"),
    ):
        cluster.get("v1", "Namespace", "kube-system")


class _TlsProxy(ProxyServer):
    """One that is itself spoken to by TLS, and hands on what comes back a byte at a time."""

    def __init__(self, names: dict[str, str], member: SimulatedMembers) -> None:
        super().__init__(names)
        pair = member._pair
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_client_certificate(self._context, pair.certificate.decode(), pair.key.decode(), "proxy")

    def _serve(self, client: Any) -> None:
        super()._serve(self._context.wrap_socket(client, server_side=True))


def test_one_behind_a_proxy_with_tls_has_an_end(
    member: SimulatedMembers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.crt").write_bytes(member._authority.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
    with (
        _TlsProxy({DNS_NAME: "127.0.0.1"}, member) as proxy,
        of(member, tmp_path, proxy_url=f"https://127.0.0.1:{proxy.port}") as cluster,
        pytest.raises(Unreachable, match="does not come to an end"),
    ):
        cluster.get("v1", "Namespace", "kube-system")


def test_one_behind_a_port_forward_has_an_end(member: SimulatedMembers, cluster: Cluster, api: StubApi) -> None:
    there = member.members["m1"]
    address = urlsplit(there.url)
    api.forward_to = (str(address.hostname), int(address.port or 0))
    conditions = [{"type": "Ready", "status": "True"}]
    meta = {"name": "one", "namespace": "ns", "labels": {"app": "apiserver"}}
    api.put("api/v1/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {"conditions": conditions}})
    access = kubeconfig.from_dict(there.kubeconfig(), None)
    access.tls_server_name = DNS_NAME
    with cluster_behind(cluster, "ns", "app=apiserver", 5443, access, "control plane") as forwarded:
        forwarded.limits, forwarded.retry_seconds = HURRIED, 0
        with pytest.raises(Unreachable, match="does not come to an end"):
            forwarded.get("v1", "Namespace", "kube-system")


# -- lists -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "words"),
    [(faulty.endless_list, "a list of more than 5000 objects"), (faulty.circular_list, "where it has been already")],
)
def test_a_list_has_an_end(limited: Cluster, api: StubApi, pieces: faulty.Pieces, words: str) -> None:
    answers(api, pieces)
    with pytest.raises(TooMuch, match=words):
        limited.list("v1", "ConfigMap", "ns")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(list_bytes=100_000), "a list of more than 0 MiB"),
        (Limits(list_seconds=0), "does not come to an end within 0 s"),
        (Limits(list_items=499), "more than 499 objects"),
    ],
)
def test_each_limit_of_a_list_is_one(cluster: Cluster, api: StubApi, limits: Limits, words: str) -> None:
    cluster.limits = limits
    answers(api, faulty.endless_list)
    with pytest.raises(TooMuch, match=words):
        cluster.list("v1", "ConfigMap", "ns")


def test_a_page_of_large_objects_is_asked_for_in_parts(limited: Cluster, api: StubApi) -> None:
    for number in range(20):
        meta = {"name": f"c{number:02}", "namespace": "ns"}
        api.put("api/v1/configmaps", {"kind": "ConfigMap", "metadata": meta, "data": {"a": "x" * 100_000}})
    limited.limits = replace(SMALL, list_bytes=10 * MIB)
    found = limited.list("v1", "ConfigMap", "ns")
    assert [each["metadata"]["name"] for each in found] == [f"c{number:02}" for number in range(20)]
    assert [path.split("limit=")[1] for _, path in api.requests][:3] == ["500", "50", "5"]


# -- watches -----------------------------------------------------------------------------------------------------------


def watched(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, seconds: float = 60.0) -> list[Any]:
    real: Callable[..., Any] = Cluster._stream
    monkeypatch.setattr(
        Cluster,
        "_stream",
        lambda self, verb, path, query, _seconds, **form: real(self, verb, path, query, seconds, **form),
    )
    return list(cluster.watch("v1", "ConfigMap", "ns", resource_version="1"))


BOOKMARK = json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "5"}}}).encode() + b"\n"


def test_a_watch_that_never_falls_silent_has_an_end(
    limited: Cluster, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bookmarks(_path: str) -> Iterator[bytes]:
        yield head(None)
        for _ in range(1000):
            time.sleep(0.05)
            yield chunk(BOOKMARK)

    answers(api, bookmarks)
    assert len(watched(limited, monkeypatch, 0.5)) < 1000


@pytest.mark.parametrize(
    "end",
    [b" " * (2 * MIB), b"[" * faulty.BRACKETS + b"\n", b"3\n", b"{}\n", b'{"type": "AD', faulty.NOT_UTF8 + b"\n"],
    ids=["too-long", "nested", "no-event", "empty-event", "cut", "not-utf8"],
)
def test_what_is_no_event_ends_a_watch(
    limited: Cluster, api: StubApi, monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    answers(api, lambda _path: iter([head(None), chunk(BOOKMARK), chunk(end), chunk(BOOKMARK), b"0\r\n\r\n"]))
    assert len(watched(limited, monkeypatch)) == 1


# -- what is good ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pieces",
    [
        whole(gzip.compress(namespace(label="x" * 300_000)), Content_Encoding="gzip"),
        lambda _path: iter([head(None), *(chunk(bytes([each])) for each in namespace()), b"0\r\n\r\n"]),
        lambda _path: iter([b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", namespace()]),
    ],
    ids=["packed by what is in between", "in chunks of a byte", "until the connection ends"],
)
def test_what_is_good_is_taken(limited: Cluster, api: StubApi, pieces: faulty.Pieces) -> None:
    answers(api, pieces, times=1, last=True)
    found = limited.get("v1", "Namespace", "kube-system")
    assert found
    assert found["metadata"]["uid"] == "id-of-it"


def test_an_error_says_no_more_than_a_line_of_what_answers(limited: Cluster, api: StubApi) -> None:
    answers(api, FIRST_ANSWERS["escapes"])
    with pytest.raises(ApiError) as raised:
        limited.get("v1", "Namespace", "kube-system")
    assert raised.value.message == "red back line�right�"
    api.faults.clear()
    answers(api, whole(json.dumps({"message": "x" * 500_000, "reason": "y\n" * 5000}).encode(), "403 Forbidden"))
    with pytest.raises(ApiError) as raised:
        limited.get("v1", "Namespace", "kube-system")
    assert len(str(raised.value)) < 3000
