# SPDX-License-Identifier: Apache-2.0
"""A watcher across a server that is taken back in time: what it holds is judged, and how it came to that is told."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import watch_across
from faulty_proxy import Upstream
from steady_client import Api
from watch_across import BROKEN_PROMISE


class Server(ThreadingHTTPServer):
    """An API server with ConfigMaps. One that was taken back knows no version below its first one."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects, self.first, self.version = {"kept": "1", "later": "2"}, 0, 2
        self.dark = False
        #: what it tells a watcher, whatever the truth is
        self.tells = True
        self.changed = threading.Condition()

    def taken_back(self):
        with self.changed:
            self.dark, self.objects = True, {"kept": "1", "gone": "1000"}
            self.first = self.version = 1000
            self.changed.notify_all()


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_arguments):
        return

    def answer(self, status, content):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def do_GET(self):
        if self.server.dark:
            self.close_connection = True
            return None
        if "watch=1" not in self.path:
            items = [{"metadata": {"name": each, "resourceVersion": at}} for each, at in self.server.objects.items()]
            return self.answer(200, {"metadata": {"resourceVersion": str(self.server.version)}, "items": items})
        if int(self.path.rsplit("=", 1)[1]) < self.server.first and self.server.tells:
            return self.answer(410, {"message": "too old resource version"})
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        with self.server.changed:
            while not self.server.dark and not self.server._BaseServer__shutdown_request:
                self.server.changed.wait(0.1)
        return None


@pytest.fixture
def server(monkeypatch):
    found = Server()
    monkeypatch.setattr(
        Api,
        "connect",
        lambda self, timeout: watch_across.http.client.HTTPConnection(
            self._server.host, self._server.port, timeout=timeout
        ),
    )
    monkeypatch.setattr(watch_across, "upstream_of", lambda _kubeconfig: Upstream(*found.server_address, None, None))
    monkeypatch.setattr(watch_across, "CATCH_UP", 3.0)
    monkeypatch.setattr(watch_across, "SILENCE", 0.5)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


@pytest.fixture
def across(server, tmp_path, monkeypatch):
    """Watch across what happens to the server, in place of a command; returns exit code and figure."""
    kubeconfig, figures = tmp_path / "kubeconfig", tmp_path / "figures.json"
    kubeconfig.write_text("{}\n")

    def watched(happens):
        def run(command, **_more):
            happens()
            return watch_across.subprocess.CompletedProcess(command, 0)

        monkeypatch.setattr(watch_across.subprocess, "run", run)
        options = [
            "--kubeconfig",
            str(kubeconfig),
            "--namespace",
            "shop",
            "--figures",
            str(figures),
            "--step",
            "restore",
        ]
        code = watch_across.main([*options, "--", sys.executable])
        return code, json.loads(figures.read_text())["restore"]

    return watched


def test_one_that_is_refused_its_version_lists_anew_and_holds_what_there_is(server, across):
    def taken_back():
        server.taken_back()
        threading.Timer(0.5, lambda: setattr(server, "dark", False)).start()

    code, figure = across(taken_back)
    assert code == 0
    assert figure.startswith("a watcher was refused its version and had listed anew ")


def test_one_that_is_not_told_holds_what_is_no_more_and_that_is_an_error(server, across, capsys):
    def taken_back():
        server.tells = False
        server.taken_back()
        threading.Timer(0.5, lambda: setattr(server, "dark", False)).start()

    code, figure = across(taken_back)
    assert code == BROKEN_PROMISE
    assert figure == "a watcher went on without a new list"
    assert "does not hold what the server has" in capsys.readouterr().out


def test_a_server_that_was_never_away_is_told_as_that(across):
    assert across(lambda: None) == (0, "the API was never away")
