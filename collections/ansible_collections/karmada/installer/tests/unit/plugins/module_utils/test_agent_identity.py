# SPDX-License-Identifier: Apache-2.0
"""What a host fetches before an agent starts: certificate and key and nothing else, from its member and nobody else."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.module_utils import agent_identity
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import kubeconfig as pki_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.tests.unit.support import web_server
from ansible_collections.karmada.installer.tests.unit.support.samples import NOW, OWNER, authorities
from ansible_collections.karmada.installer.tests.unit.support.web_server import Request, Response, WebServer
from hypothesis import given
from hypothesis import strategies as st

SERVER, CA = "https://192.0.2.1:5443", b"a CA"


@cache
def pair(algorithm: str = "ECDSA-P256") -> KeyPair:
    wanted = x509.Certificate("agent", "", agent.user("m1"), client=True)
    return x509.issue(wanted, authorities()["client-signing-ca"], algorithm, NOW, x509.parse_duration("8760h"))


def config(of: KeyPair, name: str = "m1", server: str = SERVER) -> bytes:
    """As the installer writes it."""
    secret = agent.identity_secret(name, OWNER, "karmada/prod", agent.Identity(of, server, CA, ""))
    return base64.b64decode(secret["data"]["karmada-kubeconfig"])


def renewed(of: KeyPair, name: str = "m1", server: str = SERVER) -> bytes:
    """As client-go v0.35 writes it: fields in the order of the alphabet, what is empty left out."""
    document = pki_kubeconfig.kubeconfig("karmada-apiserver", server, CA, name, of, context=name)
    return yaml.safe_dump(document).encode()


IDENTITY = config(pair())
#: What an agent has of it.
PEM = pair().certificate + pair().key
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
        self.config, self.output = folder / "member.config", folder / "identity.pem"
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
    assert fetched.output.read_bytes() == PEM
    assert fetched.output.stat().st_mode & 0o777 == 0o600
    (asked,) = member.requests
    assert (asked.method, asked.path, asked.headers["Authorization"]) == ("GET", PATH, f"Bearer {TOKEN}")


def test_a_renewed_one_takes_the_place_of_the_former(tmp_path: Path, member: WebServer) -> None:
    fetched = Fetched(tmp_path, member.url)
    fetched.output.write_bytes(b"the former one")
    assert fetched.run()[0] == 0
    assert fetched.output.read_bytes() == PEM
    assert {path.name for path in tmp_path.iterdir()} == {"member.config", "identity.pem"}


def test_a_member_with_a_certificate_of_somebody_else_gets_no_token(tmp_path: Path, member: WebServer) -> None:
    stranger = x509.new_authority(x509.Authority("web", "web"), "ECDSA-P256", datetime.now(UTC))
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
        (Response(content=b"[" * 100_000), "cannot be read"),
        (secret(karmada_kubeconfig=b"users:"), "it has no apiVersion"),
        (secret(karmada_kubeconfig=IDENTITY + b"exec: /bin/sh\n"), "has exec, which neither the agent nor"),
        (secret(karmada_kubeconfig=config(KeyPair(pair().certificate, pair("RSA-3072").key))), "are no pair"),
        (Response(content=b"{}", status=500, headers={"X": "y" * 70_000}), "does not answer: "),
    ],
    ids=[
        *("no Secret", "forbidden", "elsewhere", "other key", "empty", "no base64", "no JSON", "a list", "deep"),
        *("no identity", "exec", "key of another", "no HTTP"),
    ],
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
    target = tmp_path / "not-there" / "identity.pem"
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


def test_one_that_sends_a_byte_now_and_then_does_not_keep_the_unit_from_saying_so(
    tmp_path: Path, member: WebServer, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The alarm is what ends it: here it comes while the member is asked."""
    fetched = Fetched(tmp_path, member.url)

    def asked(request: Request) -> Response:
        del request
        agent_identity.signal.raise_signal(agent_identity.signal.SIGALRM)
        return Response()

    alarms: list[int] = []
    monkeypatch.setattr(agent_identity.signal, "alarm", alarms.append)
    member.answer = asked
    arguments = [str(fetched.config), "karmada-cluster", "karmada-kubeconfig", str(fetched.output)]
    assert agent_identity.main(arguments) == 1
    assert f"within {agent_identity.LIMIT} seconds" in capsys.readouterr().err
    assert alarms == [agent_identity.LIMIT, 0]


def test_words_of_a_member_are_one_line_without_commands_for_a_terminal() -> None:
    told = agent_identity._words("\x1b]0;owned\x07\r" + "x" * 1000)
    assert told.isprintable()
    assert len(told) == 200


# -- what is taken of a kubeconfig -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [config, renewed], ids=["installer", "agent"])
@pytest.mark.parametrize("algorithm", ["ECDSA-P256", "RSA-3072"])
@pytest.mark.parametrize("name", ["m1", "123", "true", "a.b-c"])
@pytest.mark.parametrize("server", [SERVER, "https://[2001:db8::1]:5443", "https://karmada.example.com/x/y"])
def test_what_the_installer_and_the_agent_write_is_taken(
    form: Callable[..., bytes], algorithm: str, name: str, server: str
) -> None:
    known = pair(algorithm)
    expected = agent_identity.Parts(server, CA, known.certificate, known.key)
    assert agent_identity.read(form(known, name, server)) == expected


def test_what_older_agents_write_and_what_others_sign_for_them_is_taken() -> None:
    chain = pair().certificate + authorities()["client-signing-ca"].certificate
    of_go = KeyPair(chain, pair().key.replace(b"PRIVATE", b"EC PRIVATE"))
    assert agent_identity.read(renewed(of_go) + b"preferences: {}\n")[2:] == (of_go.certificate, of_go.key)


@pytest.mark.parametrize("name", ["12e4", "12e-4", "0o17", "1e3"])
def test_a_name_that_go_takes_for_a_number_is_quoted(name: str) -> None:
    assert f"current-context: '{name}'\n".encode() in config(pair(), name)


def hostile(change: Callable[[Any], None]) -> bytes:
    document = yaml.safe_load(IDENTITY)
    change(document)
    return yaml.safe_dump(document).encode()


def user(**fields: Any) -> bytes:
    more = {name.replace("_", "-"): value for name, value in fields.items()}
    return hostile(lambda document: document["users"][0]["user"].update(more))


def cluster(**fields: Any) -> bytes:
    more = {name.replace("_", "-"): value for name, value in fields.items()}
    return hostile(lambda document: document["clusters"][0]["cluster"].update(more))


HOSTILE = {
    "exec": (user(exec={"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh"}), "exec"),
    "auth provider": (user(auth_provider={"name": "oidc"}), "auth-provider"),
    "token": (user(token="t"), "token"),
    "token file": (user(tokenFile="/etc/shadow"), "tokenFile"),
    "password": (user(username="a", password="b"), "password"),
    "certificate of a file": (user(client_certificate="/etc/shadow"), "client-certificate"),
    "key of a file": (user(client_key="/etc/shadow"), "client-key"),
    "impersonation": (user(**{"as": "system:admin"}), "as"),
    "CA of a file": (cluster(certificate_authority="/etc/shadow"), "certificate-authority"),
    "no verification": (cluster(insecure_skip_tls_verify=True), "insecure-skip-tls-verify"),
    "proxy": (cluster(proxy_url="http://192.0.2.66"), "proxy-url"),
    "other name": (cluster(tls_server_name="evil"), "tls-server-name"),
    "no TLS": (cluster(server="http://192.0.2.66"), "server"),
    "extension": (hostile(lambda document: document.update(extensions=[])), "extensions"),
    "namespace": (hostile(lambda document: document["contexts"][0]["context"].update(namespace="x")), "namespace"),
    "a second user": (hostile(lambda document: document["users"].append({"user": {}, "name": "a"})), "has name, which"),
    "two of a field": (IDENTITY + b"kind: Config\n", "kind once more"),
    "JSON": (json.dumps(yaml.safe_load(IDENTITY)).encode(), "line 1 "),
    "a comment": (b"# client-certificate-data\n" + IDENTITY, "line 1 "),
    "an anchor": (IDENTITY.replace(b"users:", b"users: &a"), "users"),
    "a second document": (IDENTITY + b"---\n" + IDENTITY, "line "),
    "a block": (IDENTITY.replace(b"kind: Config", b"kind: |\n  Config"), "kind"),
    "a list of flow": (b"users:\n- user: {client-certificate-data: Yw==, client-key-data: aw==}\n", "user"),
    "CR": (IDENTITY.replace(b"kind: Config", b"kind: Config\rexec: x"), "line "),
    "long": (b"a" * (1024 * 1024), "it is longer"),
    "nothing": (b"", "line 1 "),
    "no base64": (user(client_key_data="AAAAA"), "client-key-data is not base64"),
    "no certificate": (config(KeyPair(b"x", pair().key)), "client-certificate-data is not certificates in PEM"),
    "certificate with words": (config(KeyPair(b"x\n" + pair().certificate, pair().key)), "is not certificates in PEM"),
    "key behind it": (config(KeyPair(pair().certificate + pair().key, pair().key)), "is not certificates in PEM"),
    "two keys": (config(KeyPair(pair().certificate, pair().key * 2)), "is not one key"),
    "key with a password": (
        config(KeyPair(pair().certificate, pair().key.replace(b"PRIVATE", b"ENCRYPTED PRIVATE"))),
        "is not one key without a password",
    ),
    "certificate as a key": (config(KeyPair(pair().certificate, pair().certificate)), "is not one key"),
    "many certificates": (config(KeyPair(pair().certificate * 9, pair().key)), "is not certificates in PEM"),
}


@pytest.mark.parametrize(("content", "told"), HOSTILE.values(), ids=HOSTILE)
def test_anything_else_is_refused_in_words_without_its_values(content: bytes, told: str, tmp_path: Path) -> None:
    with WebServer(lambda _request: secret(karmada_kubeconfig=content)) as server:
        config = Fetched(tmp_path, server.url).config
        with pytest.raises(agent_identity.FetchError) as refused:
            agent_identity.fetch(config, "karmada-cluster", "karmada-kubeconfig")
    said = str(refused.value)
    assert said.isprintable()
    assert told in said
    assert "/etc/shadow" not in said
    assert said.startswith(f"Secret karmada-cluster/karmada-kubeconfig of {server.url} is not used: ")
    assert "karmada.installer.members" in said


FIELDS = sorted(
    {name for path in agent_identity._SHAPE for name in path} | {"exec", "token", "tokenFile", "as", "command"}
)
VALUES = st.sampled_from(
    ["x", "v1", "Config", "{}", "https://192.0.2.66", "/bin/sh", '"', "|", ">", "*a", "&a x", "!!b x"]
)
#: Lines of a document: those of ours at any place, and those that somebody else might think of.
LINES = st.one_of(
    st.sampled_from(IDENTITY.decode().splitlines()),
    st.builds(
        "{}{}:{}".format,
        st.sampled_from(["", "- ", "  ", "    ", "  - ", "      "]),
        st.sampled_from(FIELDS),
        st.one_of(st.just(""), VALUES.map(" {}".format)),
    ),
    st.text(max_size=20),
)


@st.composite
def documents(draw: Any) -> bytes:
    lines = IDENTITY.decode().splitlines()
    for place, line, take in draw(
        st.lists(st.tuples(st.integers(0, len(lines)), LINES, st.integers(0, 2)), min_size=0, max_size=4)
    ):
        lines[place : place + take] = [line]
    return "\n".join(lines).encode()


def leaves(found: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(found, dict) and found:
        for name, value in found.items():
            yield from leaves(value, (*path, name))
    elif isinstance(found, list):
        assert len(found) == 1
        yield from leaves(found[0], path)
    else:
        yield path, found


@given(st.one_of(documents(), st.binary(max_size=200)))
def test_whatever_stands_there_a_host_takes_one_certificate_and_one_key_or_nothing(content: bytes) -> None:
    try:
        found = agent_identity.read(content)
    except ValueError:
        return
    assert found.certificate + found.key == PEM
    # Who reads it as YAML finds no more in it.
    said = dict(leaves(yaml.safe_load(content)))
    assert set(said) <= set(agent_identity._SHAPE)
    assert said["users", "user", "client-key-data"] == base64.b64encode(found.key).decode()


@given(st.text(alphabet="A=+/ \n-BEGINDCRTFKYPV", max_size=300), st.booleans())
def test_what_is_written_is_pem_to_the_last_byte(text: str, behind: bool) -> None:
    certificate = pair().certificate.decode()
    given_one = (certificate + text if behind else text + certificate).encode()
    try:
        found = agent_identity.read(config(KeyPair(given_one, pair().key)))
    except ValueError:
        return
    assert ssl.PEM_cert_to_DER_cert(found.certificate.decode())
    assert found.certificate.split(b"\n")[0] == b"-----BEGIN CERTIFICATE-----"
    assert set(b"".join(found.certificate.split(b"-----")[2::4])) <= set(certificate.encode())
