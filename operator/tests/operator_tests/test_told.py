# SPDX-License-Identifier: Apache-2.0
"""Events as series, figures, probes, and the Lease of the leader."""

from __future__ import annotations

import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi
from karmada_operator import leader
from karmada_operator.events import EventSender
from karmada_operator.executor import MESSAGE, told
from karmada_operator.kinds import Key
from karmada_operator.metrics import Metrics, Server

from operator_tests.stand_ins import EVENTS, KIND

KEY = Key("Widget", "a", "x")
NO_CREDENTIAL = ProblemsError(Problem("the exec plugin failed", "users[0]", reason=Reason.CREDENTIALS_UNAVAILABLE))
LEASES = "apis/coordination.k8s.io/v1/leases"


def test_equal_events_are_a_series(api: StubApi, cluster: Cluster) -> None:
    clock = [0.0]
    sender = EventSender(cluster, {"Widget": KIND}, "me", lambda: clock[0])
    sender.start()
    for _ in range(3):
        sender.send(KEY, "u", "RunFailed", "no image\ntoken=abcdefgh12345", warning=True)
    sender.send(KEY, "u", "Running", "again")
    until(lambda: len(events(api)) == 2)
    clock[0] = 601.0
    sender.send(KEY, "u", "RunFailed", "no image\ntoken=abcdefgh12345", warning=True)
    sender.stop()
    sender.join(300)
    first, second, third = events(api)
    assert (first["reason"], first["type"], first["series"]["count"]) == ("RunFailed", "Warning", 3)
    assert first["note"] == "no image token=<redacted>"
    assert first["regarding"] == {
        "apiVersion": KIND.api_version,
        "kind": "Widget",
        "namespace": "a",
        "name": "x",
        "uid": "u",
    }
    assert (second["reason"], second["type"]) == ("Running", "Normal")
    assert "series" not in third


@pytest.mark.parametrize("text", ["x", "\u00fc", "\u4e2d", "\U0001f600", "x\u00fc"])
def test_a_long_note_has_as_many_bytes_as_an_api_server_takes(text: str) -> None:
    for length in (100, 341, 342, 1023, 1024, 5000):
        found = told(text * length)
        assert len(found.encode()) <= MESSAGE
        whole = text * length
        assert found == whole or (found.endswith("\u2026") and whole.startswith(found[:-1]))
        assert len(found.encode()) > MESSAGE - 8 or found == whole


def test_an_event_that_somebody_deleted_is_made_anew(api: StubApi, cluster: Cluster) -> None:
    sender = EventSender(cluster, {"Widget": KIND}, "me")
    sender.start()
    sender.send(KEY, "u", "Running", "x")
    until(lambda: len(events(api)) == 1)
    api.faults.append(Fault("status", method="PATCH", status=404))
    sender.send(KEY, "u", "Running", "x")
    until(lambda: len(events(api)) == 2)
    sender.stop()
    sender.join(300)


@pytest.mark.parametrize("error", [NO_CREDENTIAL, KeyError("uid")], ids=["credential", "defect"])
def test_an_event_that_cannot_be_sent_keeps_no_other_from_that(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    real, left = Cluster.create, [error]

    def create(self: Cluster, obj: dict[str, object]) -> object:
        if left:
            raise left.pop()
        return real(self, obj)

    monkeypatch.setattr(Cluster, "create", create)
    sender = EventSender(cluster, {"Widget": KIND}, "me")
    sender.start()
    for reason in ("One", "Two"):
        sender.send(KEY, "u", reason, "x")
    sender.stop()
    sender.join(300)
    assert [each["reason"] for each in events(api)] == ["Two"]


def events(api: StubApi) -> list[dict]:
    found = [obj for (prefix, _, _), obj in api.objects.items() if prefix == EVENTS]
    return sorted(found, key=lambda obj: obj["eventTime"])


def page(server: Server, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=300) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_figures_and_probes() -> None:
    metrics, trouble = Metrics(), [""]
    server = Server(("127.0.0.1", 0), metrics, healthy=lambda: trouble[0], ready=lambda: "watch Widget")
    server.start()
    try:
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "certificates": [{"notAfter": "1970-01-02T00:00:00Z"}, {"notAfter": "1970-01-01T00:01:00Z"}],
        }
        metrics.on_status(KEY, status)
        code, text = page(server, "/metrics")
        assert code == 200
        assert 'karmada_instance_ready{kind="Widget",name="x",namespace="a"} 1.0' in text
        assert (
            'karmada_instance_certificate_expiry_timestamp_seconds{kind="Widget",name="x",namespace="a"} 60.0' in text
        )
        metrics.forget(KEY)
        assert 'name="x"' not in page(server, "/metrics")[1]
        assert page(server, "/healthz") == (200, "ok\n")
        trouble[0] = "stuck"
        assert page(server, "/healthz") == (503, "stuck\n")
        assert page(server, "/readyz") == (503, "watch Widget\n")
        assert page(server, "/else")[0] == 404
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("status", "counts"),
    [
        ({"membersReady": "1098/1100", "members": [{"ready": False}, *[{"ready": True}] * 999]}, (1098, 2)),
        ({"membersReady": "0/2", "members": [{"ready": False}]}, (0, 2)),
        ({"members": [{"ready": False}, {"ready": True}]}, (1, 1)),
        ({"membersReady": "many", "members": []}, (0, 0)),
        ({}, (0, 0)),
    ],
    ids=["more-than-the-list-has", "one-that-was-never-listed", "an-older-status", "none-that-counts", "none"],
)
def test_all_members_are_counted(status: dict[str, object], counts: tuple[int, int]) -> None:
    metrics = Metrics()
    metrics.on_status(KEY, status)
    where = dict(zip(("kind", "namespace", "name"), KEY, strict=True))
    sample = metrics.registry.get_sample_value
    found = tuple(sample("karmada_instance_members", {**where, "ready": ready}) for ready in ("true", "false"))
    assert found == counts


def test_who_does_not_wait_for_a_page_is_no_news(capsys: pytest.CaptureFixture[str]) -> None:
    asked, gone, others = threading.Event(), threading.Event(), set(threading.enumerate())

    def healthy() -> str:
        asked.set()
        gone.wait(300)
        return ""

    def answering() -> bool:
        return any("process_request_thread" in each.name for each in set(threading.enumerate()) - others)

    server = Server(("127.0.0.1", 0), Metrics(), healthy=healthy, ready=lambda: "")
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            # Closed, it is refused at once, as by a kubelet whose probe has timed out.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            until(asked.is_set)
        gone.set()
        until(lambda: not answering())
        assert capsys.readouterr().err == "", "the log has lines of JSON and nothing else"
        assert page(server, "/healthz") == (200, "ok\n")
    finally:
        server.stop()


class Candidate:
    """One operator that would lead."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.stopping, self.leads, self.kept = threading.Event(), threading.Event(), []
        # Of another machine: whether its process lives cannot be known.
        identity = f"{name}/boot/1/1"
        self.thread = threading.Thread(
            target=lambda: self.kept.append(leader.lead(cluster, "a", identity, self._work, self.stopping, duration=3))
        )
        self.thread.start()

    def _work(self, may_go_on: Callable[[], bool], leads: Callable[[], None]) -> None:
        leads()
        self.leads.set()
        until(lambda: not may_go_on())
        self.leads.clear()

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(300)


def test_one_leads_and_another_follows_when_it_ends(api: StubApi, cluster: Cluster) -> None:
    first = Candidate(cluster, "one")
    until(first.leads.is_set)
    second = Candidate(cluster, "two")
    first.stop()
    assert first.kept == [True]
    until(second.leads.is_set)
    second.stop()
    assert api.objects[LEASES, "a", leader.LEASE]["spec"]["leaseTransitions"] >= 1


def test_who_loses_the_lease_ends_its_work(api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = Candidate(cluster, "one")
    until(candidate.leads.is_set)
    with api.changed:
        lease = api.objects[LEASES, "a", leader.LEASE]
        api.put(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "another/boot/1/1"}})
    until(lambda: not candidate.leads.is_set())
    candidate.thread.join(300)
    assert candidate.kept == [False]


def test_who_waits_for_the_lease_can_be_ended(api: StubApi, cluster: Cluster) -> None:
    first, second = Candidate(cluster, "one"), Candidate(cluster, "two")
    until(lambda: first.leads.is_set() or second.leads.is_set())
    waiting = second if first.leads.is_set() else first
    waiting.stop()
    assert waiting.kept == [True]
    first.stop()
    second.stop()
