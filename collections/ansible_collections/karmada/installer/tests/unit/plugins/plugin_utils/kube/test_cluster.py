# SPDX-License-Identifier: Apache-2.0
"""The client against an API server that misbehaves."""

from __future__ import annotations

import gc
import json
import socket
import threading
import time
import weakref
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import errors as api_errors
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import progress, transport
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.kubeconfig import from_parts
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.plugins.plugin_utils.run.said import Kind, Said
from ansible_collections.karmada.installer.tests.unit.support.clusters import cluster_of
from ansible_collections.karmada.installer.tests.unit.support.moments import closed_port
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi
from ansible_collections.karmada.installer.tests.unit.support.web_server import (
    WebServer,
    authority,
    certificate,
    files,
)

TOKEN = "t0ps3cret"


def config_map(name: str = "one", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"}, "data": data}


def test_what_is_applied_can_be_read_and_deleted(cluster: Cluster, api: StubApi) -> None:
    assert cluster.get("v1", "ConfigMap", "one", "ns") is None
    assert cluster.apply(config_map(a="1")).created
    again = cluster.apply(config_map(a="2"))
    assert not again.created
    found = cluster.get("v1", "ConfigMap", "one", "ns")
    assert found is not None
    assert found["data"] == {"a": "2"}
    with pytest.raises(api_errors.Conflict):
        cluster.delete("v1", "ConfigMap", "one", "ns", uid="another")
    assert cluster.delete("v1", "ConfigMap", "one", "ns", uid=found["metadata"]["uid"])
    assert not cluster.delete("v1", "ConfigMap", "one", "ns")
    assert cluster.counts["apply"] == 2
    assert cluster.counts["delete"] == 3
    assert api.headers[-1]["Authorization"] == f"Bearer {TOKEN}"


def test_apply_asks_for_strict_validation_and_our_field_manager(cluster: Cluster, api: StubApi) -> None:
    cluster.apply(config_map(), dry_run=True)
    assert cluster.get("v1", "ConfigMap", "one", "ns") is None
    path = api.requests[0][1]
    for part in ("fieldManager=karmada-installer", "force=true", "fieldValidation=Strict", "dryRun=All"):
        assert part in path


@pytest.mark.parametrize(
    ("answer", "unread"),
    [
        ({"kind": "APIGroupList", "groups": [{"name": "apps"}]}, set()),
        (
            {
                "items": [
                    {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "freshness": "Current"}]},
                    {
                        "metadata": {"name": "a.io"},
                        "versions": [
                            {"version": "v2", "freshness": "Current"},
                            {"version": "v1", "freshness": "Stale"},
                        ],
                    },
                ]
            },
            {"a.io/v1"},
        ),
    ],
)
def test_a_server_says_which_resources_it_has_not_read(answer: dict[str, Any], unread: set[str]) -> None:
    with WebServer(files({"/apis": json.dumps(answer).encode()}), tls=False) as server:
        cluster = Cluster(from_parts(server.url, ca_pem=None, token=TOKEN))
        assert cluster.unread_versions() == unread
        cluster.close()
    assert "as=APIGroupDiscoveryList" in server.requests[-1].headers["Accept"]


def test_who_shows_another_certificate_after_an_answer_is_asked_again() -> None:
    another = x509.new_authority(x509.Authority("another", "another"), "ECDSA-P256", datetime.now(UTC))
    with WebServer(files({"/readyz": b"ok"})) as server:
        access = from_parts(server.url, ca_pem=authority())
        cluster, stranger = Cluster(access), Cluster(access)
        assert cluster.get_raw("/readyz") == "ok"
        server.present(another)
        # Nothing has shown that it leads to the right server at all.
        with pytest.raises(api_errors.Unreachable, match="is not signed by the CA"):
            stranger.get_raw("/readyz")
        assert stranger.counts["retry"] == 0
        told: list[str] = []

        def mended(message: str) -> None:
            told.append(message)
            server.present(certificate())

        cluster.on_trouble = mended
        assert cluster.get_raw("/readyz") == "ok"
        assert "the server's" in told[0]
        server.present(another)
        with pytest.raises(api_errors.Unreachable, match="is not signed by the CA"):
            cluster.get_raw("/readyz", retry_seconds=0)


def test_lists_are_paged_and_their_items_complete(cluster: Cluster, api: StubApi) -> None:
    api.page = 2
    for index in range(5):
        cluster.apply(config_map(f"c{index}"))
    before = cluster.counts["list"]
    found = cluster.list("v1", "ConfigMap", "ns")
    assert [one["metadata"]["name"] for one in found] == ["c0", "c1", "c2", "c3", "c4"]
    assert found[0]["kind"] == "ConfigMap"
    assert found[0]["apiVersion"] == "v1"
    assert cluster.counts["list"] - before == 3
    # Who wants some gets what one request brings.
    assert cluster.some("v1", "ConfigMap", 2) == found[:2]
    assert "limit=2" in api.requests[-1][1]
    assert cluster.counts["list"] - before == 4
    assert cluster.some("example.com/v1", "Unknown", 2) == []


def test_a_list_whose_continuation_expired_starts_again_in_one_piece(cluster: Cluster, api: StubApi) -> None:
    for index in range(5):
        cluster.apply(config_map(f"c{index}"))
    api.on_request = lambda _method, path: setattr(api, "page", 2 if "limit=" in path else 100)
    api.faults.append(Fault("status", path="continue=", status=410, times=1000))
    before = cluster.counts["list"]
    assert len(cluster.list("v1", "ConfigMap", "ns")) == 5
    assert cluster.counts["list"] - before == 3


def test_a_resource_type_that_appears_later_is_found(cluster: Cluster, api: StubApi) -> None:
    assert cluster.get("example.com/v1", "Widget", "w", "ns") is None
    assert list(cluster.list("example.com/v1", "Widget", "ns")) == []
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "ns"}}
    api.types["example.com/v1"] = []
    asked: list[str] = []

    def serve_at_the_third_time(_method: str, path: str) -> None:
        asked.append(path)
        if asked.count("/apis/example.com/v1") == 3:
            api.types["example.com/v1"] = [{"name": "widgets", "kind": "Widget", "namespaced": True}]

    api.on_request = serve_at_the_third_time
    assert cluster.apply(widget).created  # waits for the discovery of a CRD that was just established
    before = cluster.counts["discovery"]
    assert cluster.get("example.com/v1", "Widget", "w", "ns")
    assert cluster.counts["discovery"] == before


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", status=429, headers={"Retry-After": "0"}, times=2),
        Fault("status", status=500, times=2),
        Fault("status", status=503, times=2),
        Fault("reset", times=2),
        Fault("reset-after", times=2),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}",
)
def test_passing_trouble_is_outlived(cluster: Cluster, api: StubApi, fault: Fault) -> None:
    api.faults.append(fault)
    cluster.apply(config_map(a="1"))
    assert cluster.counts["retry"] == 2
    assert cluster.get("v1", "ConfigMap", "one", "ns")


def test_a_minute_of_darkness_ends_at_the_deadline_with_the_reason(cluster: Cluster, api: StubApi) -> None:
    api.faults.append(Fault("status", status=503, times=1000))
    cluster.retry_seconds = 0.6
    start = time.monotonic()
    with pytest.raises(api_errors.ApiError, match="injected") as caught:
        cluster.get("v1", "ConfigMap", "one", "ns")
    assert caught.value.status == 503
    assert 0.2 < time.monotonic() - start < 20


def test_a_retry_is_told_as_a_wait_and_not_as_a_fact_that_stays(
    cluster: Cluster, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    said: list[str] = []
    cluster.on_trouble = said.append
    api.faults.append(Fault("status", status=503, times=4))
    cluster.get("v1", "ConfigMap", "one", "ns")
    (line,) = said
    assert line.startswith(f"[0/90 s] {cluster.name}: ")
    assert Said.by_step(line).kind is Kind.PROGRESS


def test_retry_after_is_kept(cluster: Cluster, api: StubApi) -> None:
    api.faults.append(Fault("status", status=429, headers={"Retry-After": "1"}))
    start = time.monotonic()
    cluster.version()
    assert time.monotonic() - start >= 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, api_errors.Invalid), (401, api_errors.Unauthorized), (403, api_errors.Forbidden), (422, api_errors.Invalid)],
)
def test_refusals_are_not_tried_again(
    cluster: Cluster, api: StubApi, status: int, kind: type[api_errors.ApiError]
) -> None:
    api.faults.append(Fault("status", status=status, times=5))
    with pytest.raises(kind) as caught:
        cluster.apply(config_map())
    assert len(api.requests) == 1
    assert "host cluster" in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_an_apply_that_meets_the_writes_of_others_is_sent_again(cluster: Cluster, api: StubApi) -> None:
    api.faults.append(Fault("status", method="PATCH", status=409, times=3))
    assert cluster.apply(config_map()).object["metadata"]["name"] == "one"
    assert cluster.counts["retry"] == 3


def test_an_apply_that_always_meets_others_ends_with_the_conflict(
    cluster: Cluster, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONFLICTS", 4)
    api.faults.append(Fault("status", method="PATCH", status=409, times=1000))
    with pytest.raises(api_errors.Conflict):
        cluster.apply(config_map())
    assert len(api.requests) == 4


@pytest.mark.parametrize("versioned", [True, False])
def test_a_conflict_that_means_something_is_not_sent_again(cluster: Cluster, api: StubApi, versioned: bool) -> None:
    api.faults.append(Fault("status", method="PATCH", status=409, times=5))
    wanted = config_map()
    if versioned:
        wanted["metadata"]["resourceVersion"] = "7"
    with pytest.raises(api_errors.Conflict):
        cluster.apply(wanted, force=versioned)
    assert len(api.requests) == 1


def test_a_delete_outlives_conflicts_unless_the_object_is_another_one(cluster: Cluster, api: StubApi) -> None:
    uid = cluster.apply(config_map()).object["metadata"]["uid"]
    api.faults.append(Fault("status", method="DELETE", status=409, times=2))
    assert cluster.delete("v1", "ConfigMap", "one", "ns", uid=uid)
    assert cluster.get("v1", "ConfigMap", "one", "ns") is None
    cluster.apply(config_map())
    api.faults.append(Fault("status", method="DELETE", status=409, times=1))
    with pytest.raises(api_errors.Conflict):
        cluster.delete("v1", "ConfigMap", "one", "ns", uid="another")


def test_no_attempt_of_a_write_is_made_that_is_forbidden_by_then(cluster: Cluster, api: StubApi) -> None:
    allowed = [True, True]

    def before_write() -> None:
        if not allowed:
            raise RuntimeError("the lock is lost")
        allowed.pop()

    cluster.before_write = before_write
    api.faults.append(Fault("status", method="PATCH", status=503, times=1000))
    with pytest.raises(RuntimeError, match="the lock is lost"):
        cluster.apply(config_map())
    assert [method for method, _path in api.requests] == ["PATCH", "PATCH"]
    assert cluster.get("v1", "ConfigMap", "one", "ns") is None, "reading is always allowed"


def test_giving_up_tells_how_often_it_was_tried(cluster: Cluster, api: StubApi) -> None:
    cluster.retry_seconds = 2
    api.faults.append(Fault("status", status=503, times=1000))
    with pytest.raises(api_errors.ApiError, match=r"; tried \d+ times in \d+ s"):
        cluster.get("v1", "ConfigMap", "one", "ns")


def test_a_schema_error_that_calls_itself_internal_is_not_tried_again(cluster: Cluster, api: StubApi) -> None:
    message = "failed to create typed patch object (ns/one; /v1, Kind=ConfigMap): .spec: field not declared in schema"
    api.faults.append(Fault("status", status=500, body={"kind": "Status", "message": message}, times=5))
    with pytest.raises(api_errors.Invalid, match=r"\.spec: field not declared"):
        cluster.apply(config_map())
    assert len(api.requests) == 1


def test_a_server_that_never_answers_is_given_up(cluster: Cluster, api: StubApi) -> None:
    api.faults.append(Fault("hang", times=9))
    with pytest.raises(api_errors.Unreachable, match="no answer in time"):
        cluster.with_patience(retry_seconds=0, read_seconds=0.2).get("v1", "ConfigMap", "one", "ns")


def test_a_refused_connection_names_the_address() -> None:
    with closed_port() as port:
        cluster = Cluster(from_parts(f"https://127.0.0.1:{port}", ca_pem=None, token=TOKEN), "member1")
        with pytest.raises(api_errors.Unreachable, match=f"member1: .*127.0.0.1:{port}.*refused"):
            cluster.version(retry_seconds=0)


def test_a_server_without_tls_is_told_from_one_that_is_away(api: StubApi) -> None:
    cluster = Cluster(from_parts(api.url.replace("http:", "https:"), ca_pem=None, token=TOKEN))
    with pytest.raises(api_errors.Unreachable, match="does not speak TLS"):
        cluster.version()


def test_values_of_secrets_are_not_in_messages(cluster: Cluster, api: StubApi) -> None:
    body = {"kind": "Status", "message": 'Secret "s" is invalid: data[k]: Invalid value: "hunter\\"2": no', "code": 422}
    api.faults.append(Fault("status", status=422, body=body))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}}
    with pytest.raises(api_errors.Invalid) as caught:
        cluster.apply(secret)
    assert "hunter" not in str(caught.value)
    assert "data[k]" in str(caught.value)


# -- watches -----------------------------------------------------------------------------------------------------------


def test_a_watch_goes_on_from_a_list_and_ends_by_itself(cluster: Cluster) -> None:
    version = cluster.list("v1", "ConfigMap", "ns").resource_version
    cluster.apply(config_map(a="1"))
    events = list(cluster.watch("v1", "ConfigMap", "ns", resource_version=version, timeout_seconds=1))
    assert [(one["type"], one["object"]["metadata"]["name"]) for one in events] == [("ADDED", "one")]


def test_a_watch_from_too_long_ago_says_so(cluster: Cluster, api: StubApi) -> None:
    api.forget()
    with pytest.raises(api_errors.Expired):
        list(cluster.watch("v1", "ConfigMap", "ns", resource_version="1", timeout_seconds=1))


def test_a_half_open_watch_does_not_hang(cluster: Cluster, api: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Cluster._stream

    def impatient(self: Cluster, verb: str, path: str, query: Any, _seconds: float, **form: Any) -> Any:
        return real(self, verb, path, query, 0.3, **form)

    monkeypatch.setattr(Cluster, "_stream", impatient)
    start = time.monotonic()
    assert list(cluster.watch("v1", "ConfigMap", "ns", resource_version=str(api.version), timeout_seconds=30)) == []
    assert time.monotonic() - start < 20


def test_closing_a_watch_wakes_its_reader(cluster: Cluster, api: StubApi) -> None:
    watch = cluster.watch("v1", "ConfigMap", "ns", resource_version=str(api.version), timeout_seconds=30)
    reader = threading.Thread(target=lambda: list(watch))
    reader.start()
    time.sleep(0.1)
    watch.close()
    reader.join(20)
    assert not reader.is_alive()


def test_what_we_may_not_do_is_listed(cluster: Cluster) -> None:
    denied = cluster.can_i([("get", "", "pods"), ("escalate", "rbac.authorization.k8s.io", "roles", "ns")])
    assert [str(one) for one in denied] == ["escalate roles.rbac.authorization.k8s.io in namespace ns"]


def test_who_asks_for_rights_says_how_many_at_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asking, most = cluster._json, [], []

    def json_of(*request: Any, **more: Any) -> Any:
        asking.append(request)
        most.append(len(asking))
        time.sleep(0.02)
        answer = real(*request, **more)
        asking.remove(request)
        return answer

    monkeypatch.setattr(cluster, "_json", json_of)
    wanted = [("get", "", f"things{number}") for number in range(9)]
    assert cluster.can_i(wanted, workers=2) == []
    assert max(most) == 2


def test_of_an_administrator_one_question_is_enough(cluster: Cluster, api: StubApi) -> None:
    api.administrator = True
    assert cluster.can_i([("get", "", "pods"), ("escalate", "rbac.authorization.k8s.io", "roles", "ns")]) == []
    assert cluster.counts["review"] == 1


# -- clocks ------------------------------------------------------------------------------------------------------------


def test_a_clock_that_agrees_is_not_ahead_however_long_the_answer_took(cluster: Cluster, api: StubApi) -> None:
    assert cluster.clock_ahead() == timedelta(0)
    api.faults.append(Fault("slow", path="version", seconds=1.5))
    assert cluster.clock_ahead() == timedelta(0)


@pytest.mark.parametrize("seconds", [95, -95, 86400])
def test_a_clock_that_is_wrong_is_known_to_the_second(cluster: Cluster, api: StubApi, seconds: int) -> None:
    api.ahead = seconds
    asked = time.monotonic()
    found = cluster.clock_ahead()
    took = time.monotonic() - asked
    # The answer says whole seconds, so up to one is not certain, nor is when it was made; that does not count.
    assert abs(seconds) - 1 - took <= abs(found.total_seconds()) <= abs(seconds)
    assert (found > timedelta(0)) == (seconds > 0)


def test_a_server_that_says_no_time_agrees(cluster: Cluster, api: StubApi) -> None:
    api.ahead = None
    assert cluster.clock_ahead() == timedelta(0)


class DeafServer:
    """A server that takes nothing until it is told to, as when the network is away: the kernels keep what was sent."""

    def __init__(self) -> None:
        self._listening = socket.socket()
        # The smallest that the kernel gives; what is longer waits in the sender's.
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen()
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def all_that_comes(self) -> bytes:
        """Everything that still arrives."""
        connection, _ = self._listening.accept()
        found = b""
        with self._listening, connection:
            connection.settimeout(60)
            try:
                while more := connection.recv(65536):
                    found += more
            except ConnectionResetError:
                pass
        return found


def test_a_write_that_was_given_up_does_not_arrive_later() -> None:
    server, text = DeafServer(), "x" * 64 * 1024
    with Cluster(from_parts(server.url, ca_pem=None)) as cluster:
        impatient = cluster.with_patience(retry_seconds=0, read_seconds=0.5)
        with pytest.raises(api_errors.Unreachable):
            impatient.create(config_map(text=text))
    # By then somebody else may hold the lock.
    assert len(server.all_that_comes()) < len(text)


def test_what_is_sent_arrives_soon_or_not_at_all(cluster: Cluster, api: StubApi) -> None:
    """The kernel would go on for a quarter of an hour, also while the process stands still."""
    connection = cluster._pool._new_conn()
    connection.connect()
    option = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert connection.sock.getsockopt(*option) == transport.DELIVERY_SECONDS * 1000
    connection.close()
    stream = cluster.dial(5)
    assert stream.getsockopt(*option) == 0, "whoever reads a stream may take their time"
    stream.close()


@pytest.mark.parametrize("status", [404, 403])
def test_a_client_that_was_refused_goes_without_a_search_for_garbage(status: int, api: StubApi) -> None:
    """Runs search rarely, and one with thousands of members has a client, with keys, for each of them."""
    api.faults.append(Fault("status", path="configmaps/one", status=status))

    def refused() -> weakref.ref[Cluster]:
        with cluster_of(api.kubeconfig()) as cluster, suppress(api_errors.Forbidden):
            assert cluster.get("v1", "ConfigMap", "one", "ns") is None
        return weakref.ref(cluster)

    gc.disable()
    try:
        assert refused()() is None
    finally:
        gc.enable()
