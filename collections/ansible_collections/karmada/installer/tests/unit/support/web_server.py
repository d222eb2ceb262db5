# SPDX-License-Identifier: Apache-2.0
"""A web server with TLS on loopback that does what a test tells it to, and a container registry made of it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import ssl
import tarfile
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
PLAIN_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CONFIG = "application/vnd.oci.image.config.v1+json"


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]


@dataclass
class Response:
    """``announced`` is the Content-Length, if it is not to be the true one; the connection stays open until ``end``."""

    status: int = 200
    content: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    announced: int | None = None
    end: threading.Event | None = None


Answer = Callable[[Request], Response]


@cache
def _authority() -> KeyPair:
    return x509.new_authority(x509.Authority("web", "web"), "ECDSA-P256", datetime.now(UTC))


def authority() -> str:
    """The certificate that has to be trusted."""
    return _authority().certificate.decode()


def certificate() -> KeyPair:
    """A certificate for loopback of this authority."""
    about = x509.Certificate("web", "web", "web", dns_names=("localhost",), ip_addresses=("127.0.0.1",), server=True)
    return x509.issue(about, _authority(), "ECDSA-P256", datetime.now(UTC), timedelta(days=1))


class WebServer:
    """``with WebServer(answer) as server``; ``requests`` is the log. Plain http without ``tls``."""

    def __init__(self, answer: Answer, *, tls: bool = True) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if tls:
            self._tls = context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.present(certificate())
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{'https' if tls else 'http'}://{self.host}"

    def __enter__(self) -> WebServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def present(self, pair: KeyPair) -> None:
        """Show this certificate to whoever connects from now on."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(pair.certificate + pair.key)
            file.flush()
            self._tls.load_cert_chain(file.name)

    @property
    def asked(self) -> list[str]:
        return [f"{each.method} {each.path}" for each in self.requests]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                request = Request(self.command, parts.path, query, dict(self.headers))
                server.requests.append(request)
                response = server.answer(request)
                self.send_response(response.status)
                length = len(response.content) if response.announced is None else response.announced
                for name, value in {"Content-Length": str(length), **response.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(response.content)
                if response.end:
                    response.end.wait(60)

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def files(content: Mapping[str, bytes]) -> Answer:
    """Serves these files, by path."""

    def answer(request: Request) -> Response:
        found = content.get(request.path)
        return Response(404) if found is None else Response(content=found)

    return answer


def tar(*entries: tarfile.TarInfo | tuple[str, bytes], compressed: bool = True) -> bytes:
    """An archive of entries, or of files as name and content."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz" if compressed else "w") as archive:
        for each in entries:
            if isinstance(each, tarfile.TarInfo):
                archive.addfile(each)
            else:
                entry = tarfile.TarInfo(each[0])
                entry.size, entry.mode = len(each[1]), 0o755
                archive.addfile(entry, io.BytesIO(each[1]))
    return packed.getvalue()


def link(name: str, target: str, *, hard: bool = False) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.LNKTYPE if hard else tarfile.SYMTYPE, target
    return entry


def folder(name: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = tarfile.DIRTYPE
    return entry


def program(text: str = "program", machine: int = 62) -> bytes:
    """As much of a program as anyone here looks at."""
    return b"\x7fELF\x02\x01" + bytes(12) + machine.to_bytes(2, "little") + text.encode()


class RegistryFiles:
    """Content of a registry. ``login`` (user:password) is wanted if set, as ``Basic`` or for a token."""

    def __init__(self) -> None:
        self.paths: dict[str, tuple[bytes, str]] = {}
        self.login = ""
        self.tokens = False
        self.tells_digests = True
        self.token_url = ""
        self.changed: Callable[[Request, Response], Response] = lambda _, response: response

    def image(self, repository: str, tag: str, architectures: Mapping[str, list[bytes]], *, index: bool = True) -> str:
        """Put an image there: architecture → layers. Returns the digest of the manifest of the first."""
        manifests = []
        for architecture, layers in architectures.items():
            config = self._blob(repository, json.dumps({"architecture": architecture, "os": "linux"}).encode(), _CONFIG)
            parts = [self._blob(repository, each, LAYER if each[:2] == b"\x1f\x8b" else PLAIN_LAYER) for each in layers]
            document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": parts}
            found = self._manifest(repository, json.dumps(document).encode(), MANIFEST)
            manifests.append({**found, "platform": {"os": "linux", "architecture": architecture}})
        listed = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).encode()
        top = self._manifest(repository, listed, INDEX) if index else manifests[0]
        self.paths[f"/v2/{repository}/manifests/{tag}"] = self.paths[f"/v2/{repository}/manifests/{top['digest']}"]
        return str(manifests[0]["digest"])

    def digest(self, repository: str, tag: str) -> str:
        """What a tag leads to."""
        content, _kind = self.paths[f"/v2/{repository}/manifests/{tag}"]
        return f"sha256:{hashlib.sha256(content).hexdigest()}"

    def _blob(self, repository: str, content: bytes, kind: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.paths[f"/v2/{repository}/blobs/{digest}"] = (content, "application/octet-stream")
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    def _manifest(self, repository: str, content: bytes, kind: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.paths[f"/v2/{repository}/manifests/{digest}"] = (content, kind)
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    def __call__(self, request: Request) -> Response:
        return self.changed(request, self._answer(request))

    def _answer(self, request: Request) -> Response:
        basic = "Basic " + base64.b64encode(self.login.encode()).decode()
        given = request.headers.get("Authorization", "")
        if request.path == "/token":
            if self.login and given != basic:
                return Response(401)
            return Response(content=json.dumps({"token": f"for-{request.query['scope']}"}).encode())
        if self.tokens:
            repository = request.path.removeprefix("/v2/").partition("/manifests/")[0].partition("/blobs/")[0]
            if given != f"Bearer for-repository:{repository}:pull":
                return Response(
                    401, headers={"WWW-Authenticate": f'Bearer realm="{self.token_url}",service="registry"'}
                )
        elif self.login and given != basic:
            return Response(401, headers={"WWW-Authenticate": 'Basic realm="registry"'})
        content, kind = self.paths.get(request.path, (None, ""))
        if content is None:
            return Response(404)
        headers = {"Content-Type": kind}
        if "/manifests/" in request.path and self.tells_digests:
            headers["Docker-Content-Digest"] = f"sha256:{hashlib.sha256(content).hexdigest()}"
        return Response(content=content, headers=headers)


def docker_config(logins: Mapping[str, str]) -> bytes:
    """A login file: place → user:password."""
    auths = {place: {"auth": base64.b64encode(login.encode()).decode()} for place, login in logins.items()}
    return json.dumps({"auths": auths}).encode()
