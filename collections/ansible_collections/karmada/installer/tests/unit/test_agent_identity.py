# SPDX-License-Identifier: Apache-2.0
"""What a host fetches before an agent starts: the Secret of its member, from nobody but its member."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import agent_identity
from ansible_collections.karmada.installer.plugins.plugin_utils import pki
from ansible_collections.karmada.installer.tests.unit import web_server
from ansible_collections.karmada.installer.tests.unit.web_server import Request, Response, WebServer

IDENTITY = b"users:\n- user: {client-certificate-data: Yw==, client-key-data: aw==}\n"
PATH = "/api/v1/namespaces/karmada-cluster/secrets/karmada-kubeconfig"
TOKEN = "a-token-of-the-account"


def secret(**data: bytes) -> Response:
    encoded = {name.replace("_", "-"): base64.b64encode(content).decode() for name, content in data.items()}
    return Response(content=json.dumps({"kind": "Secret", "data": encoded}).encode())


@pytest.fixture
def member() -> Iterator[WebServer]:
    with WebServer(lambda _request: secret(karmada_kubeconfig=IDENTITY)) as server:
        yield server


class Fetched:
    """One start of an agent's unit, with this authority for the member's API server."""

    def __init__(self, folder: Path, server: str, authority: str = "") -> None:
        self.config, self.output = folder / "member.config", folder / "karmada-kubeconfig"
        trusted = base64.b64encode((authority or web_server.authority()).encode()).decode()
        cluster = {"server": server, "certificate-authority-data": trusted}
        known = {"clusters": [{"cluster": cluster}], "users": [{"user": {"token": TOKEN}}]}
        self.config.write_text(json.dumps(known))

    def run(self) -> tuple[int, str]:
        """As the unit does: the file alone, with Python's own library and no environment."""
        arguments = [str(self.config), "karmada-cluster", "karmada-kubeconfig", str(self.output)]
        done = subprocess.run(
            [sys.executable, "-I", "-B", agent_identity.__file__, *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={"https_proxy": "http://192.0.2.1:1"},
        )
        assert done.stdout == ""
        assert TOKEN not in done.stderr
        return done.returncode, done.stderr


def test_the_identity_is_written_for_the_user_alone(tmp_path: Path, member: WebServer) -> None:
    fetched = Fetched(tmp_path, member.url)
    assert fetched.run() == (0, "")
    assert fetched.output.read_bytes() == IDENTITY
    assert fetched.output.stat().st_mode & 0o777 == 0o600
    (asked,) = member.requests
    assert (asked.method, asked.path, asked.headers["Authorization"]) == ("GET", PATH, f"Bearer {TOKEN}")


def test_a_renewed_one_takes_the_place_of_the_former(tmp_path: Path, member: WebServer) -> None:
    fetched = Fetched(tmp_path, member.url)
    fetched.output.write_bytes(b"the former one")
    assert fetched.run()[0] == 0
    assert fetched.output.read_bytes() == IDENTITY
    assert {path.name for path in tmp_path.iterdir()} == {"member.config", "karmada-kubeconfig"}


def test_a_member_with_a_certificate_of_somebody_else_gets_no_token(tmp_path: Path, member: WebServer) -> None:
    stranger = pki.new_authority(pki.Authority("web", "web"), "ECDSA-P256", datetime.now(UTC))
    fetched = Fetched(tmp_path, member.url, stranger.certificate.decode())
    code, told = fetched.run()
    assert (code, member.requests) == (1, [])
    assert "certificate verify failed" in told
    assert not fetched.output.exists()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Response(404, b"not found"), "answers 404"),
        (Response(403, b"{}"), "answers 403"),
        (Response(302, b"", {"Location": "https://192.0.2.1/elsewhere"}), "answers 302"),
        (secret(other=b"x"), "has no karmada-kubeconfig"),
        (Response(content=b'{"data": null}'), "has no karmada-kubeconfig"),
        (Response(content=b'{"data": {"karmada-kubeconfig": "?"}}'), "cannot be read"),
        (Response(content=b"<html>"), "cannot be read"),
        (Response(content=b"[]"), "has no karmada-kubeconfig"),
        (secret(karmada_kubeconfig=b"users: []"), "has no client certificate in it"),
    ],
    ids=["no Secret", "forbidden", "elsewhere", "other key", "empty", "no base64", "no JSON", "a list", "no identity"],
)
def test_without_an_identity_the_former_one_stays_and_the_agent_does_not_start(
    answer: Response, told: str, tmp_path: Path
) -> None:
    with WebServer(lambda _request: answer) as server:
        fetched = Fetched(tmp_path, server.url)
        fetched.output.write_bytes(b"the former one")
        code, said = fetched.run()
    assert code == 1
    assert told in said
    assert said.count("\n") == 1
    assert fetched.output.read_bytes() == b"the former one"


def test_one_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with WebServer(lambda _request: Response()) as server:
        url = server.url
    code, told = Fetched(tmp_path, url).run()
    assert code == 1
    assert f"{url} does not answer: " in told


def test_a_config_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    fetched = Fetched(tmp_path, "http://192.0.2.1")
    code, told = fetched.run()
    assert (code, "http://192.0.2.1 is not https, and its token is for nobody else" in told) == (1, True)
    fetched.config.write_text("{}")
    assert "member.config cannot be used" in fetched.run()[1]
    assert agent_identity.main(["too", "few"]) == 2


def test_a_folder_that_is_not_there_is_told(tmp_path: Path, member: WebServer, capsys: Any) -> None:
    config = Fetched(tmp_path, member.url).config
    target = tmp_path / "not-there" / "karmada-kubeconfig"
    assert agent_identity.main([str(config), "karmada-cluster", "karmada-kubeconfig", str(target)]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_nobody_is_asked_who_is_not_meant(tmp_path: Path) -> None:
    """An answer that leads elsewhere would take the token along."""
    asked: list[Request] = []

    def elsewhere(request: Request) -> Response:
        asked.append(request)
        return Response(307, b"", {"Location": "/again"})

    with WebServer(elsewhere) as server:
        assert Fetched(tmp_path, server.url).run()[0] == 1
    assert [each.path for each in asked] == [PATH]
