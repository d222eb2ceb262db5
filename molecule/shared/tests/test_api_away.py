# SPDX-License-Identifier: Apache-2.0
"""How long an API server was away is told as it was, also if it does not come back."""

from __future__ import annotations

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import api_away
import pytest
from faulty_proxy import Upstream


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_arguments):
        return

    def do_GET(self):
        self.send_response(200 if self.server.serves(time.monotonic()) else 503)
        self.end_headers()


@pytest.fixture
def server(monkeypatch):
    """An API server over plain HTTP; a test says when it serves."""
    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.daemon_threads = True
    monkeypatch.setattr(
        api_away.http.client,
        "HTTPSConnection",
        lambda host, port, timeout, **_tls: api_away.http.client.HTTPConnection(host, port, timeout=timeout),
    )
    monkeypatch.setattr(api_away, "upstream_of", lambda _kubeconfig: Upstream(*found.server_address, None, None))
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


@pytest.fixture
def run(tmp_path):
    """Measure a command that sleeps for so many seconds and exits with this code."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}\n")
    figures = tmp_path / "figures.json"

    def measured(seconds, code=0):
        command = [sys.executable, "-c", f"import time; time.sleep({seconds}); raise SystemExit({code})"]
        found = api_away.main(
            ["--kubeconfig", str(kubeconfig), "--figures", str(figures), "--step", "restore", "--", *command]
        )
        return found, json.loads(figures.read_text()) if figures.exists() else {}

    return measured


def seconds_of(figures):
    return float(figures["restore"].removeprefix("the API was away for ").removesuffix(" s"))


def test_the_longest_time_without_an_answer_is_told(server, run):
    began = time.monotonic()
    server.serves = lambda now: not 1 < now - began < 2.5
    code, figures = run(4)
    assert code == 0
    assert seconds_of(figures) >= 1.5


def test_what_never_comes_back_is_away_to_the_end(server, run):
    began = time.monotonic()
    server.serves = lambda now: now - began < 1
    _code, figures = run(4)
    assert seconds_of(figures) >= 2.5


def test_the_code_of_the_command_is_kept(server, run):
    server.serves = lambda _now: True
    assert run(1, code=3)[0] == 3


def test_who_never_answers_is_no_figure(server, run):
    server.serves = lambda _now: False
    assert run(1) == (api_away.BROKEN_PROMISE, {})
