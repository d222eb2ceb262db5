# SPDX-License-Identifier: Apache-2.0
"""A proxy in front of an API server that answers, breaks and goes dark as a bad day does, drawn from a seed.

    faulty_proxy.py --kubeconfig FILE [--errors 0.1] [--resets 0.05] [--conflicts 0.3] [--dark 20:60] [--seed N]
                    [--report FILE] -- COMMAND...

While the command runs, the kubeconfig leads through the proxy; after it, it is as before. The exit code is that of the
command. TLS ends here, with an authority made for this run; who may use the proxy has a token made for this run.

Errors are 500 and 429 (with Retry-After), before the API server heard of the request. Resets break the connection, half
of them after the API server carried the request out. Conflicts answer writes of whole objects (PATCH, PUT) with 409.
In the dark (from that second on, for so many seconds) connections are accepted, nothing gets an answer, and streams
stand still. Watches and port-forwards pass through; they can fail to open like any other request.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import datetime
import ipaddress
import json
import os
import random
import secrets
import signal
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Headers = list[tuple[str, str]]
LARGEST_HEAD = 1 << 18
CHUNK = 1 << 16


@dataclass(frozen=True)
class Faults:
    """Faults and how often they come; chances between 0 and 1, times in seconds since the proxy began."""

    errors: float = 0.0
    resets: float = 0.0
    conflicts: float = 0.0
    dark_from: float = float("inf")
    dark_for: float = 0.0
    retry_after: int = 1


@dataclass(frozen=True)
class Upstream:
    """The API server, and who we are there."""

    host: str
    port: int
    tls: ssl.SSLContext
    token: str | None


@dataclass
class _Request:
    method: str
    path: str
    headers: Headers
    body: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    @property
    def is_upgrade(self) -> bool:
        return bool(self.header("upgrade"))


@dataclass
class FaultyProxy:
    """One proxy. ``counts`` tells what was done to how many requests: it is the proof that there were faults."""

    upstream: Upstream
    faults: Faults
    seed: int
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)  # noqa: S311 - faults are to be repeatable, not unforeseeable
        self._token = secrets.token_urlsafe(32)
        self._started = time.monotonic()
        self._certificate, self._context = _server_tls()
        self.url = ""

    def kubeconfig(self) -> dict[str, Any]:
        """The way through the proxy, as the same user."""
        authority = base64.b64encode(self._certificate).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "faulty",
            "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "faulty"}}],
            "clusters": [{"name": "faulty", "cluster": {"server": self.url, "certificate-authority-data": authority}}],
            "users": [{"name": "faulty", "user": {"token": self._token}}],
        }

    @contextlib.contextmanager
    def running(self) -> Iterator[FaultyProxy]:
        """Serve on loopback, in a thread, while the block runs."""
        ready, loop, over = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

        async def serve() -> None:
            server = await asyncio.start_server(
                self._serve, "127.0.0.1", 0, ssl=self._context, limit=LARGEST_HEAD, backlog=256
            )
            self.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            self._started = time.monotonic()
            ready.set()
            await over.wait()
            server.close()
            connections = asyncio.all_tasks() - {asyncio.current_task()}
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

        def work() -> None:
            loop.set_exception_handler(lambda _loop, _context: None)  # broken connections are our trade
            loop.run_until_complete(serve())
            loop.close()

        thread = threading.Thread(target=work, name="faulty proxy", daemon=True)
        thread.start()
        if not ready.wait(10):
            raise RuntimeError("the proxy does not start")
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join(5)

    # -- one connection --------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request for each connection: a client finds every answer closed, and no connection goes stale."""
        try:
            request = await _read_request(reader)
            if request is not None:
                await self._answer(request, reader, writer)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            _reset(writer)
        finally:
            writer.close()

    async def _answer(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not secrets.compare_digest(request.header("authorization"), f"Bearer {self._token}"):
            await _say(writer, 401, "Unauthorized", "this proxy is for one test only")
            return
        if self._is_dark():
            self.counts["dark"] += 1
            await self._daylight()
            _reset(writer)
            return
        self.counts["requests"] += 1
        faults, chance = self.faults, self._draw.random()
        if chance < faults.errors:
            await self._refuse(writer)
        elif chance < faults.errors + faults.resets:
            await self._break(request, writer)
        elif request.method in ("PATCH", "PUT") and self._draw.random() < faults.conflicts:
            self.counts["conflicts"] += 1
            await _say(writer, 409, "Conflict", "the object has been modified; please apply your changes (injected)")
        else:
            await self._pass_on(request, reader, writer)

    async def _refuse(self, writer: asyncio.StreamWriter) -> None:
        if self._draw.random() < 0.5:
            self.counts["500"] += 1
            await _say(writer, 500, "InternalError", "etcdserver: request timed out (injected)")
        else:
            self.counts["429"] += 1
            more = [("Retry-After", str(self.faults.retry_after))]
            await _say(writer, 429, "TooManyRequests", "too many requests (injected)", more)

    async def _break(self, request: _Request, writer: asyncio.StreamWriter) -> None:
        if self._draw.random() < 0.5 or request.is_upgrade or "watch=1" in request.path:
            self.counts["reset before"] += 1
        else:
            self.counts["reset after"] += 1
            up_reader, up_writer = await self._send(request)
            await up_reader.read()
            up_writer.close()
        _reset(writer)

    async def _pass_on(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await self._send(request)
        down = asyncio.create_task(self._pump(up_reader, writer))
        # A client sends nothing more, unless it has upgraded; but it may go away from a watch.
        up = asyncio.create_task(self._pump(reader, up_writer))
        try:
            await asyncio.wait([down, up], return_when=asyncio.FIRST_COMPLETED)
            if request.is_upgrade and not down.done():
                await asyncio.wait([down], timeout=1)
        finally:
            for task in (down, up):
                task.cancel()
            await asyncio.gather(down, up, return_exceptions=True)
            up_writer.close()

    async def _send(self, request: _Request) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        upstream = self.upstream
        reader, writer = await asyncio.open_connection(
            upstream.host, upstream.port, ssl=upstream.tls, limit=LARGEST_HEAD
        )
        dropped = {"authorization", "host", "transfer-encoding", "content-length", "expect"}
        dropped |= set() if request.is_upgrade else {"connection"}
        headers = [(key, value) for key, value in request.headers if key.lower() not in dropped]
        headers.append(("Host", f"{upstream.host}:{upstream.port}"))
        if not request.is_upgrade:
            headers.append(("Connection", "close"))
        if request.body or request.method in ("POST", "PUT", "PATCH", "DELETE"):
            headers.append(("Content-Length", str(len(request.body))))
        if upstream.token:
            headers.append(("Authorization", f"Bearer {upstream.token}"))
        writer.write(_head(f"{request.method} {request.path} HTTP/1.1", headers) + request.body)
        await writer.drain()
        return reader, writer

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                if self._is_dark():
                    await self._daylight()
                writer.write(data)
                await writer.drain()

    # -- light -----------------------------------------------------------------------------------------------------

    def _is_dark(self) -> bool:
        since = time.monotonic() - self._started - self.faults.dark_from
        return 0 <= since < self.faults.dark_for

    async def _daylight(self) -> None:
        while self._is_dark():
            await asyncio.sleep(0.1)


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    """The next request with all of its body; None when the client said nothing."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, path, _version = first.split(" ", 2)
    headers = [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]
    request = _Request(method, path, headers, b"")
    if "chunked" in request.header("transfer-encoding").lower():
        while size := int((await reader.readline()).split(b";")[0], 16):
            request.body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    elif length := request.header("content-length"):
        request.body = await reader.readexactly(int(length))
    return request


async def _say(writer: asyncio.StreamWriter, code: int, reason: str, message: str, more: Headers | None = None) -> None:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    body = json.dumps({**status, "reason": reason, "message": message}).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Connection", "close")]
    writer.write(_head(f"HTTP/1.1 {code} {reason}", [*headers, *(more or [])]) + body)
    await writer.drain()


def _head(first: str, headers: Headers) -> bytes:
    return "".join(f"{line}\r\n" for line in [first, *(f"{key}: {value}" for key, value in headers), ""]).encode(
        "latin-1"
    )


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close the connection so that the other side sees it break, not end."""
    with contextlib.suppress(OSError, AttributeError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


# -- TLS and kubeconfigs -----------------------------------------------------------------------------------------------


def _server_tls() -> tuple[bytes, ssl.SSLContext]:
    """A certificate of this run that is its own authority, and a server that shows it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "faulty-proxy")])
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=12))
        .add_extension(here, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, certificate, key_pem)
    return certificate, context


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """``ssl`` reads keys from files only; this one is gone at once."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "pair.pem"
        path.touch(0o600)
        path.write_bytes(certificate + b"\n" + key)
        context.load_cert_chain(path)


def upstream_of(kubeconfig: dict[str, Any]) -> Upstream:
    """The cluster and user of the current context, given as data or as files."""

    def of(kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(each for each in kubeconfig[f"{kind}s"] if each["name"] == name)[kind]
        return found

    def content(entry: dict[str, Any], key: str) -> bytes | None:
        if data := entry.get(f"{key}-data"):
            return base64.b64decode(data)
        return Path(entry[key]).read_bytes() if key in entry else None

    context = of("context", kubeconfig["current-context"])
    cluster, user = of("cluster", context["cluster"]), of("user", context["user"])
    authority = content(cluster, "certificate-authority")
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    certificate, key = content(user, "client-certificate"), content(user, "client-key")
    if certificate and key:
        _load(tls, certificate, key)
    parts = urlsplit(cluster["server"])
    return Upstream(parts.hostname or "", parts.port or 443, tls, user.get("token"))


@contextlib.contextmanager
def in_the_way(path: Path, faults: Faults, seed: int) -> Iterator[FaultyProxy]:
    """While the block runs, this kubeconfig leads through a proxy with these faults."""
    before = path.read_text()
    with FaultyProxy(upstream_of(yaml.safe_load(before)), faults, seed).running() as proxy:
        try:
            path.write_text(yaml.safe_dump(proxy.kubeconfig()))
            yield proxy
        finally:
            path.write_text(before)


def _dark(text: str) -> tuple[float, float]:
    start, _, length = text.partition(":")
    return float(start), float(length)


def main() -> int:
    """Run the command with the proxy in its way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--errors", type=float, default=0.0)
    parser.add_argument("--resets", type=float, default=0.0)
    parser.add_argument("--conflicts", type=float, default=0.0)
    parser.add_argument("--dark", type=_dark, default=(float("inf"), 0.0), metavar="FROM:FOR")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--report", type=Path, help="where to write what was done to how many requests")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    seed = random.randrange(100_000) if options.seed is None else options.seed  # noqa: S311
    faults = Faults(options.errors, options.resets, options.conflicts, *options.dark)
    print(f"faulty proxy: SEED={seed} {faults}", flush=True)
    with in_the_way(options.kubeconfig, faults, seed) as proxy:
        pid = os.posix_spawnp(options.command[0], options.command, os.environ)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda received, _frame: os.kill(pid, received))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        counts = dict(sorted(proxy.counts.items()))
    print(f"faulty proxy: SEED={seed} {json.dumps(counts)}", flush=True)
    if options.report:
        options.report.write_text(json.dumps(counts))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
