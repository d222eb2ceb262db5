# SPDX-License-Identifier: Apache-2.0
"""Files over https: what is tried again, what is not, and where a redirect may lead."""

from __future__ import annotations

import hashlib
import io
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.https import (
    ATTEMPTS,
    FetchError,
    Https,
    StatusError,
)
from ansible_collections.karmada.installer.tests.unit.support.moments import closed_port
from ansible_collections.karmada.installer.tests.unit.support.web_server import (
    Request,
    Response,
    WebServer,
    authority,
    files,
)

CONTENT = b"content" * 1000


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as running:
        yield running


@pytest.fixture
def waited() -> list[float]:
    return []


@pytest.fixture
def https(waited: list[float], monkeypatch: pytest.MonkeyPatch) -> Https:
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    return Https(authority(), pause=waited.append)


def refused(https: Https, url: str, most_bytes: int = 1 << 20) -> FetchError:
    with pytest.raises(FetchError) as error:
        https.read(url, most_bytes)
    return error.value


def test_a_file_and_its_checksum(https: Https, servers: ExitStack) -> None:
    server = servers.enter_context(WebServer(files({"/file": CONTENT})))
    into = io.BytesIO()
    assert https.save(f"{server.url}/file", into, 1 << 20) == hashlib.sha256(CONTENT).hexdigest()
    assert into.getvalue() == CONTENT
    assert https.read(f"{server.url}/file", len(CONTENT)).content == CONTENT


def test_an_authority_that_is_not_trusted_is_not_asked_twice(servers: ExitStack, waited: list[float]) -> None:
    server = servers.enter_context(WebServer(files({"/file": CONTENT})))
    assert "certificate verify failed" in str(refused(Https(pause=waited.append), f"{server.url}/file"))
    assert (server.asked, waited) == ([], [])


def test_what_may_pass_is_tried_again(https: Https, servers: ExitStack, waited: list[float]) -> None:
    answers = [Response(503), Response(content=CONTENT[:100], announced=len(CONTENT)), Response(content=CONTENT)]
    server = servers.enter_context(WebServer(lambda _: answers.pop(0)))
    assert https.read(f"{server.url}/file", 1 << 20).content == CONTENT
    assert waited == [1.0, 2.0]


def test_attempts_are_bounded_and_half_a_file_is_none(https: Https, servers: ExitStack) -> None:
    server = servers.enter_context(WebServer(lambda _: Response(content=CONTENT[:100], announced=len(CONTENT))))
    assert f"cut off after 100 of {len(CONTENT)} bytes" in str(refused(https, f"{server.url}/file"))
    assert len(server.asked) == ATTEMPTS


def test_nobody_there(https: Https, waited: list[float]) -> None:
    with closed_port() as port:
        assert refused(https, f"https://127.0.0.1:{port}").passing
    assert len(waited) == ATTEMPTS - 1


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_plain_no_is_taken_at_once(https: Https, servers: ExitStack, status: int) -> None:
    server = servers.enter_context(WebServer(lambda _: Response(status)))
    error = refused(https, server.url)
    assert isinstance(error, StatusError)
    assert error.status == status
    assert len(server.asked) == 1


def test_more_than_the_limit_is_refused(https: Https, servers: ExitStack) -> None:
    server = servers.enter_context(WebServer(files({"/file": CONTENT})))
    assert "larger than" in str(refused(https, f"{server.url}/file", len(CONTENT) - 1))
    assert len(server.asked) == 1


@pytest.fixture
def trickle(servers: ExitStack) -> Iterator[WebServer]:
    """A server that begins with a file and keeps the connection open."""
    end = threading.Event()
    answer = Response(content=CONTENT, announced=len(CONTENT) + 1, end=end)
    yield servers.enter_context(WebServer(lambda _: answer))
    end.set()


def test_a_server_that_sends_little_by_little_meets_the_limit(
    https: Https, trickle: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte within the limit of silence, and the file never."""
    monkeypatch.setattr("ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.https.LONGEST_SECONDS", 0)
    begun = time.monotonic()
    assert "it did not arrive in 0 minutes" in str(refused(https, f"{trickle.url}/file"))
    assert time.monotonic() - begun < 10


def test_a_download_ends_with_its_run(https: Https, trickle: WebServer) -> None:
    begun = time.monotonic()
    ended = refused(https.until(lambda: bool(trickle.asked)), f"{trickle.url}/file")
    assert str(ended) == "the run has ended before it had arrived"
    assert time.monotonic() - begun < 10
    # The client that it was made of goes on.
    assert len(trickle.asked) == 1
    refused(https.until(lambda: True), f"{trickle.url}/file")
    assert len(trickle.asked) == 1


def test_a_redirect_does_not_lead_out_of_https(https: Https, servers: ExitStack) -> None:
    plain = servers.enter_context(WebServer(files({"/file": CONTENT}), tls=False))
    redirect = Response(302, headers={"Location": f"{plain.url}/file"})
    server = servers.enter_context(WebServer(lambda _: redirect))
    assert "which is not https" in str(refused(https, server.url))
    redirect.headers["Location"] = "file:///etc/passwd"
    refused(https, server.url)
    redirect.headers["Location"] = "http://mirror.example.com/file"
    assert "which is not https" in str(refused(https, server.url))
    assert plain.asked == []


def test_a_redirect_to_another_host_takes_no_credentials_along(https: Https, servers: ExitStack) -> None:
    other = servers.enter_context(WebServer(files({"/file": CONTENT})))

    def answer(request: Request) -> Response:
        places = {"/start": "/again", "/again": f"{other.url}/file"}
        return Response(307, headers={"Location": places[request.path]})

    server = servers.enter_context(WebServer(answer))
    headers = {"Authorization": "Basic c2VjcmV0", "Accept": "this"}
    assert https.read(f"{server.url}/start", 1 << 20, headers).content == CONTENT
    assert [each.headers.get("Authorization") for each in server.requests] == ["Basic c2VjcmV0"] * 2
    assert [each.headers.get("Authorization") for each in other.requests] == [None]
    assert [each.headers.get("Accept") for each in other.requests] == ["this"]


def test_redirects_in_a_circle_end(https: Https, servers: ExitStack) -> None:
    server = servers.enter_context(WebServer(lambda _: Response(302, headers={"Location": "/"})))
    assert isinstance(refused(https, f"{server.url}/"), StatusError)
    assert len(server.asked) < 12


def test_asking_whether_a_file_is_there_does_not_fetch_it(https: Https, servers: ExitStack) -> None:
    server = servers.enter_context(WebServer(files({"/file": CONTENT})))
    https.head(f"{server.url}/file")
    with pytest.raises(StatusError):
        https.head(f"{server.url}/other")
    assert server.asked == ["HEAD /file", "HEAD /other"]


@pytest.mark.parametrize("url", ["http://mirror.example.com/", "ftp://mirror.example.com/", "file:///etc/passwd"])
def test_only_https_is_asked(https: Https, url: str) -> None:
    assert "only https" in str(refused(https, url))
