# SPDX-License-Identifier: Apache-2.0
"""The steady client notices what an API server forgets, keeps from the watcher, refuses, or is late with."""

from __future__ import annotations

import http.client
import json
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import figures
import pytest
import steady_client
from steady_client import Write

WRITES = 30


class Store(ThreadingHTTPServer):
    """As much of an API server as the client needs, over plain HTTP, with faults on demand."""

    daemon_threads = True

    def __init__(self, enough):
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects, self.history, self.version = {}, [], 0
        self.forget, self.conceal = set(), set()
        self.break_watch_at = self.dark_at = float("inf")
        #: how long it refuses everything, in seconds from the first refusal on
        self.dark_for = float("inf")
        self.refused = None
        #: requests to delete everything that come to no end, one status for each; 0 closes the connection
        self.undeleted = []
        #: what a refusal says of when to try again; empty if nothing
        self.retry_after = ""
        #: a file that is there once it got so many writes, or has refused the first
        self.enough, self.enough_at = enough, WRITES
        self.changed = threading.Condition()
        self.metrics = (
            b"# TYPE apiserver_storage_size_bytes gauge\n"
            b'apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 1.2e+07\n'
            b'apiserver_storage_size_bytes{storage_cluster_id="etcd-1"} 1.23e+07\n'
        )

    def put(self, name, data):
        with self.changed:
            self.version += 1
            found = self.objects.setdefault(name, {"metadata": {"name": name}, "data": {}})
            found["data"].update(data)
            found["metadata"]["resourceVersion"] = str(self.version)
            event = json.loads(json.dumps({"type": "MODIFIED", "object": found}))
            if self.version not in self.conceal:
                self.history.append((self.version, event))
            if self.version in self.forget:
                del self.objects[name]
            if self.version == self.enough_at:
                self.enough.touch()
            self.changed.notify_all()
            return event["object"]

    def is_dark(self):
        with self.changed:
            if self.version < self.dark_at:
                return False
            if self.refused is None:
                self.refused = time.monotonic()
                if self.dark_for == float("inf"):
                    self.enough.touch()
            return time.monotonic() - self.refused < self.dark_for


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments):
        return

    def answer(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 503 and self.server.retry_after:
            self.send_header("Retry-After", self.server.retry_after)
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

    def do_POST(self):
        wanted = self.body()
        if self.path == "/api/v1/namespaces":
            return self.answer(201, {})
        if self.server.is_dark():
            return self.answer(503, {"message": "dark"})
        return self.answer(201, self.server.put(wanted["metadata"]["name"], wanted["data"]))

    def do_PATCH(self):
        wanted = self.body()
        if self.server.is_dark():
            return self.answer(503, {"message": "dark"})
        return self.answer(200, self.server.put(self.path.rsplit("/", 1)[1], wanted["data"]))

    def do_DELETE(self):
        if not self.server.undeleted:
            self.server.objects.clear()
            return self.answer(200, {})
        if status := self.server.undeleted.pop(0):
            return self.answer(status, {})
        self.close_connection = True
        return None

    def do_GET(self):
        if self.path == "/metrics":
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.server.metrics)))
            self.end_headers()
            self.wfile.write(self.server.metrics)
            return None
        if "watch=1" not in self.path:
            listed = {"metadata": {"resourceVersion": str(self.server.version)}}
            return self.answer(200, {**listed, "items": list(self.server.objects.values())})
        version = int(self.path.rsplit("=", 1)[1])
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            while True:
                with self.server.changed:
                    self.server.changed.wait(0.2)
                    events = [event for at, event in self.server.history if at > version]
                for event in events:
                    version = int(event["object"]["metadata"]["resourceVersion"])
                    self.wfile.write(json.dumps(event).encode() + b"\n")
                    if version >= self.server.break_watch_at:
                        self.server.break_watch_at = float("inf")
                        return None
                self.wfile.flush()
        except OSError:
            return None


def _without_tls(api, timeout):
    return http.client.HTTPConnection(api._server.host, api._server.port, timeout=timeout)


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setattr(steady_client, "CATCH_UP", 60)
    monkeypatch.setattr(steady_client, "LONGEST_SILENCE", 0.4)
    monkeypatch.setattr(steady_client.Api, "connect", _without_tls)
    store = Store(tmp_path / "enough")
    threading.Thread(target=store.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield store
    store.shutdown()
    store.server_close()


def _during(store, command="true"):
    """Findings while a command waited for enough writes and then did this."""
    upstream = SimpleNamespace(host="127.0.0.1", port=store.server_address[1], tls=None)
    wait = f"until test -e {store.enough}; do sleep 0.05; done"
    return steady_client.during(upstream, ["sh", "-c", f"{wait}; {command}"], rate=50, before=0, after=0)


def test_nothing_is_lost_by_a_server_that_keeps_its_word(server):
    found = _during(server)
    assert found["acknowledged"] >= WRITES
    assert steady_client.broken(found, 60, no_failures=True) == []
    assert {key for each in server.objects.values() for key in each["data"]} == {"created", "changed"}


def test_a_write_that_is_forgotten_is_lost(server):
    server.forget = {6}
    assert steady_client.broken(_during(server), None, no_failures=False)[0].endswith("acknowledged writes are lost")


def test_an_event_that_is_kept_back_is_missing(server, monkeypatch):
    monkeypatch.setattr(steady_client, "CATCH_UP", 5)
    server.conceal = {6, 9}
    assert steady_client.broken(_during(server), None, no_failures=False) == ["the watcher was not told of 2 writes"]


def test_a_watch_that_breaks_goes_on_where_it_was(server):
    server.break_watch_at = 8
    found = _during(server)
    assert found["missing"] == []
    assert [each for each in found["watches"] if each.endswith("from 8")]


def test_a_time_without_answers_is_measured_and_the_refusals_are_counted(server):
    server.dark_at, server.dark_for = 10, 1.0
    found = _during(server)
    assert found["pause"] > 0.5
    assert list(found["reasons"]) == ["503 dark"]
    told = steady_client.broken(found, 0.3, no_failures=True)
    assert [each.split(" ", 1)[1] for each in told[1:]] == ["requests failed"]
    assert "no request was answered" in told[0]


def test_what_is_refused_with_the_word_when_to_try_again_is_sent_again(server):
    server.dark_at, server.dark_for, server.retry_after = 10, 1.0, "1"
    found = _during(server)
    assert found["sent_again"] > 0
    assert steady_client.broken(found, None, no_failures=True) == []


def test_what_takes_longer_to_delete_than_a_request_may_take_is_deleted_by_several(server):
    server.objects["left"] = {"metadata": {"name": "left"}, "data": {}}
    server.undeleted = [0, 504, 0]
    found = _during(server)
    assert server.undeleted == []
    assert "left" not in server.objects
    assert steady_client.broken(found, None, no_failures=True) == []


def test_a_server_that_never_answers_again_is_noticed(server):
    server.dark_at = 10
    assert _during(server, "sleep 1")["pause"] > 0.5


def test_the_code_of_the_command_is_kept(server):
    assert _during(server, "exit 3")["code"] == 3


def test_a_write_counts_by_its_key_and_an_event_by_its_version():
    written = [Write("a", "created", "1"), Write("a", "changed", "2")]
    assert steady_client.lost(written, [{"metadata": {"name": "a"}, "data": {"created": "0"}}]) == written[1:]
    assert steady_client.missing(written, [("a", "2"), ("b", "1")]) == written[:1]


def test_figures_of_steps_are_kept_beside_each_other(tmp_path):
    found = {"acknowledged": 9, "failed": 1, "lost": [], "pause": 0.25, "command": {"from": 3.2, "to": 65.3}}
    found["database"] = None
    file = tmp_path / "figures" / "one.json"
    for step in ("to 3", "to 5", "to 3"):
        figures.keep_figure(file, step, steady_client.figure_of(found))
    figure = "9 writes, 1 failed, 0 lost, longest pause 0.25 s; the run 62 s"
    assert json.loads(file.read_text()) == {"to 3": figure, "to 5": figure}


def test_a_figure_has_the_size_of_the_database(server):
    found = _during(server)
    assert found["database"] == 12_300_000
    assert steady_client.figure_of(found).endswith(" s, at 12 MB")
    server.metrics = b""
    upstream = SimpleNamespace(host="127.0.0.1", port=server.server_address[1], tls=None)
    assert steady_client.Api(upstream, steady_client.Record()).database_size() is None


DROPPED = "500 raft proposal dropped"
PASSED_ON = "500 etcdserver: request timed out"
PASSED_ON_BY_THE_NEXT = f"{PASSED_ON}, possibly due to previous leader failure"
TAKEN_OVER_AT_5 = [5.0]


def _judged(*failures, taken_over=TAKEN_OVER_AT_5):
    """What is told of writes that failed: when each began and ended, and its reason."""
    names = ("began", "ended", "reason")
    found = {"acknowledged": 1, "lost": [], "missing": [], "failed": len(failures)}
    found["failures"] = [dict(zip(names, failure, strict=True)) for failure in failures]
    return steady_client.broken(found, None, no_failures=True, lead_taken_over=taken_over)


@pytest.mark.parametrize(
    "failures",
    [
        [],
        [(4.9, 4.91, DROPPED)],
        [(4.9, 11.9, PASSED_ON)],
        [(4.9, 11.9, PASSED_ON_BY_THE_NEXT)],
        [(4.9, 4.91, DROPPED), (4.95, 11.95, PASSED_ON)],
    ],
    ids=["none", "dropped by the leader", "passed on to it", "passed on to it by the one that leads then", "two"],
)
def test_writes_that_were_under_way_when_the_lead_was_handed_over_are_pardoned(failures):
    assert _judged(*failures) == []


@pytest.mark.parametrize(
    ("failures", "taken_over"),
    [
        ([(4.9, 4.91, DROPPED)] * 3, TAKEN_OVER_AT_5),
        ([(4.9, 4.91, DROPPED)], []),
        ([(3.0, 3.9, DROPPED)], TAKEN_OVER_AT_5),
        ([(6.1, 13.1, PASSED_ON)], TAKEN_OVER_AT_5),
        ([(3.9, 10.9, PASSED_ON)], TAKEN_OVER_AT_5),
        ([(4.9, 11.9, f"{PASSED_ON}, possibly due to connection lost")], TAKEN_OVER_AT_5),
        ([(4.9, 4.91, DROPPED), (4.9, 5.0, "503 dark")], TAKEN_OVER_AT_5),
    ],
    ids=["three", "nobody took it over", "before", "after", "after it began", "another reason", "one of them"],
)
def test_no_other_failure_is_pardoned(failures, taken_over):
    assert [each.split(" requests")[0] for each in _judged(*failures, taken_over=taken_over)] == [str(len(failures))]


def test_who_took_the_lead_over_is_in_the_log_of_that_member():
    told = [
        "fd42 [term 2] received MsgTimeoutNow from 8211 and starts an election to get leadership.",
        "fd42 is starting a new election at term 3",
        "raft.node: fd42 lost leader 8211 at term 3",
    ]
    lines = [json.dumps({"ts": f"2026-01-01T02:00:0{at}.250000Z", "msg": each}) for at, each in enumerate(told, 1)]
    began_at = datetime(2026, 1, 1, 2, tzinfo=UTC).timestamp()
    assert steady_client.lead_taken_over("\n".join(["Started etcd.", *lines]), began_at) == [1.25]


def test_a_pause_is_between_two_answers():
    assert steady_client.longest_pause([0.0, 3.5, 1.0, 3.0]) == (2.0, 1.0)
    assert steady_client.longest_pause([]) == (0.0, 0.0)
