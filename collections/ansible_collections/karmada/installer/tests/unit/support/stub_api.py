# SPDX-License-Identifier: Apache-2.0
"""An API server in memory that can be told to misbehave: good enough for what the client sends, and no better.

Server-side apply is a merge here, without field ownership: what that does is tested against a real API server.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import shlex
import socket
import ssl
import struct
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ansible_collections.karmada.installer.tests.unit.support.copies import copied

Object = dict[str, Any]

LOGIN = "client.authentication.k8s.io/v1"
KINDS = {
    "clusterrolebindings": "ClusterRoleBinding",
    "clusterroles": "ClusterRole",
    "clusters": "Cluster",
    "configmaps": "ConfigMap",
    "customresourcedefinitions": "CustomResourceDefinition",
    "deployments": "Deployment",
    "events": "Event",
    "jobs": "Job",
    "karmadadeployments": "KarmadaDeployment",
    "leases": "Lease",
    "namespaces": "Namespace",
    "networkpolicies": "NetworkPolicy",
    "nodes": "Node",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "pods": "Pod",
    "secrets": "Secret",
    "serviceaccounts": "ServiceAccount",
    "services": "Service",
    "statefulsets": "StatefulSet",
    "widgets": "Widget",
}


@dataclass
class Fault:
    """What to do to a request whose method and path match, ``times`` times, instead of or before answering it."""

    kind: str  # status, reset, reset-after, hang, slow, raw
    method: str = ""
    path: str = ""
    status: int = 503
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    times: int = 1
    body: Object | str | None = None
    #: of a raw one: what is sent, from the path with its query; see ``faulty_answers``
    pieces: Callable[[str], Iterable[bytes]] = lambda _path: ()
    #: and whether the connection ends behind it
    last: bool = False


class StubApi:
    """``with StubApi() as api``: serves at ``address``; ``requests`` is the log of (method, path with query).

    It speaks TLS if it is given with what.
    """

    def __init__(self, address: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.administrator = False
        self.faults: list[Fault] = []
        #: hears method and path of each request before anything is done about it
        self.on_request: Callable[[str, str], object] = lambda _method, _path: None
        self.events: list[tuple[int, str, Object]] = []
        self.types: dict[str, list[Object]] = {}
        self.oldest = 0
        self.page = 10_000
        self.version = 100
        self.changed = threading.Condition()
        self.over = threading.Event()
        self.forward_to: tuple[str, int] = ("127.0.0.1", 0)
        #: how far its clock is ahead; None: it says no time
        self.ahead: float | None = 0.0
        self.forwarded = 0  # connections open now
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = _Server((address, 0), handler)
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://{address}:{self._server.server_address[1]}"

    def __enter__(self) -> StubApi:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        with self.changed:
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def kubeconfig(self) -> Object:
        return {
            "current-context": "stub",
            "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": "me"}}],
            "clusters": [{"name": "stub", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": {"token": "t0ps3cret"}}],
        }

    def kubeconfig_with_login(self, log: Path) -> Object:
        """Kubeconfig whose identity comes from a program, which leaves a line in a file each time that it runs."""
        answer = {"apiVersion": LOGIN, "kind": "ExecCredential", "status": {"token": "t0ps3cret"}}
        script = f"echo login >> {shlex.quote(str(log))}; echo {shlex.quote(json.dumps(answer))}"
        login = {"apiVersion": LOGIN, "command": "sh", "args": ["-c", script], "interactiveMode": "Never"}
        return {**self.kubeconfig(), "users": [{"name": "me", "user": {"exec": login}}]}

    def writes(self) -> list[tuple[str, str]]:
        """Requests that could have changed something."""
        return [(method, path) for method, path in self.requests if method != "GET" and "dryRun" not in path]

    def put(self, prefix: str, obj: Object, event: str | None = None) -> Object:
        """Store an object as if somebody had written it; ``prefix`` is the path of its collection."""
        with self.changed:
            key = (prefix, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            before = self.objects.get(key)
            self.version += 1
            meta = {
                "uid": str(uuid.uuid4()) if before is None else before["metadata"]["uid"],
                **obj["metadata"],
                "resourceVersion": str(self.version),
            }
            stored = {**obj, "metadata": meta}
            self.objects[key] = stored
            self.events.append((self.version, event or ("ADDED" if before is None else "MODIFIED"), stored))
            self.changed.notify_all()
            return copied(stored)

    def remove(self, prefix: str, namespace: str, name: str) -> None:
        with self.changed:
            gone = self.objects.pop((prefix, namespace, name))
            self.version += 1
            gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
            self.events.append((self.version, "DELETED", gone))
            self.changed.notify_all()

    def forget(self) -> None:
        """Compact: watches from before now are too old."""
        with self.changed:
            self.oldest = self.version
            self.events.clear()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    api: StubApi
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        if self.api.ahead is None:
            return "no time"
        return super().date_time_string((timestamp or time.time()) + self.api.ahead)

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        body = self._body(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        self.api.requests.append((method, self.path))
        # one that was sent more than once has a line for each
        self.api.headers.append({name: "\n".join(self.headers.get_all(name) or ()) for name in self.headers})
        self.api.on_request(method, self.path)
        fault = self._fault(method)
        if fault:
            if fault.kind == "slow":
                time.sleep(fault.seconds)
            elif fault.kind == "hang":
                self.api.over.wait(fault.seconds or 30)
                self.close_connection = True
                return
            elif fault.kind == "reset":
                self._reset()
                return
            elif fault.kind == "raw":
                self.close_connection = fault.last
                with contextlib.suppress(OSError):
                    for piece in fault.pieces(self.path):
                        self.wfile.write(piece)
                        self.wfile.flush()
                return
            elif fault.kind == "reset-after":
                self._answer(method, body, send=False)
                self._reset()
                return
            else:
                self._send(fault.status, fault.body or self._status(fault.status, "injected"), fault.headers)
                return
        if "/portforward" in self.path:
            self._forward()
        else:
            self._answer(method, body)

    def _body(self, data: bytes) -> Any:
        return json.loads(data or b"null")

    def _forward(self) -> None:
        """What a kubelet does with a websocket for one port: copy between it and a TCP connection."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())  # noqa: S324
        self.send_header("Sec-WebSocket-Protocol", self.headers["Sec-WebSocket-Protocol"])
        self.end_headers()
        port = struct.pack("<H", int(self.path.rpartition("ports=")[2]))
        self._frame(b"\0" + port)
        self._frame(b"\1" + port)
        self.close_connection = True
        try:
            target = socket.create_connection(self.api.forward_to, 5)
        except OSError as error:
            self._frame(b"\1" + f"error forwarding port: {error}".encode())
            return
        self.api.forwarded += 1
        back = threading.Thread(target=self._copy_back, args=(target,), daemon=True)
        back.start()
        try:
            while True:
                first, second = self.rfile.read(2)
                size = second & 127
                if size >= 126:
                    size = int.from_bytes(self.rfile.read(2 if size == 126 else 8))
                mask = self.rfile.read(4)
                data = bytes(one ^ mask[index % 4] for index, one in enumerate(self.rfile.read(size)))
                if first & 15 == 8:
                    break
                target.sendall(data[1:])
        except (OSError, ValueError):
            pass
        finally:
            self.api.forwarded -= 1
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)
            back.join(2)
            target.close()

    def _copy_back(self, target: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while data := target.recv(16384):
                self._frame(b"\0" + data)
            self._frame(b"", 8)

    def _frame(self, data: bytes, opcode: int = 2) -> None:
        size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2)
        self.wfile.write(bytes([128 | opcode]) + size + data)
        self.wfile.flush()

    def _fault(self, method: str) -> Fault | None:
        for fault in self.api.faults:
            if fault.times > 0 and fault.method in ("", method) and fault.path in self.path:
                fault.times -= 1
                return fault
        return None

    def _reset(self) -> None:
        # With a linger time of zero, close sends RST.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.rfile.close()
        self.wfile.close()
        self.connection.close()

    def _status(self, code: int, message: str, reason: str = "") -> Object:
        return {"kind": "Status", "apiVersion": "v1", "code": code, "message": message, "reason": reason}

    def _send(self, code: int, body: Object | str, headers: dict[str, str] | None = None) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _answer(self, method: str, body: Any, *, send: bool = True) -> None:
        code, answer = self._work(method, body)
        if send and answer is not None:
            self._send(code, answer)

    def _work(self, method: str, body: Any) -> tuple[int, Object | str | None]:  # noqa: PLR0911
        api, url = self.api, urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        if parts in (["version"], ["readyz"]):
            return 200, {"gitVersion": "v1.35.4"} if parts == ["version"] else "ok"
        root, rest = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
        group_version = "/".join(root[1:])
        if not rest:
            if group_version not in api.types:
                return 404, "404 page not found\n"
            return 200, {"kind": "APIResourceList", "resources": api.types[group_version]}
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        resource, name = rest[0], rest[1] if len(rest) > 1 else ""
        if resource not in KINDS and resource != "selfsubjectaccessreviews":
            return 404, "404 page not found\n"
        prefix = "/".join((*root, resource))
        if resource == "selfsubjectaccessreviews":
            verb = body["spec"]["resourceAttributes"]["verb"]
            allowed = api.administrator or verb not in ("escalate", "*")
            return 201, {**body, "status": {"allowed": allowed}}
        if method == "GET" and not name:
            return self._watch(prefix, namespace, query) if query.get("watch") else self._list(prefix, namespace, query)
        with api.changed:
            if rest[2:] == ["status"] and (prefix, namespace, name) not in api.objects:
                return 404, self._status(404, f'{prefix} "{name}" not found', "NotFound")
            return self._one(method, (prefix, namespace, name or body["metadata"]["name"]), body, query)

    def _one(self, method: str, key: tuple[str, str, str], body: Any, query: dict[str, str]) -> tuple[int, Object]:  # noqa: PLR0911
        api, (prefix, namespace, name) = self.api, key
        live = api.objects.get(key)
        dry = "dryRun" in query or bool((body or {}).get("dryRun"))
        if live is None and (method in ("GET", "DELETE", "PUT") or (method == "PATCH" and "fieldManager" not in query)):
            return 404, self._status(404, f'{prefix} "{name}" not found', "NotFound")
        if method != "GET" and namespace and ("api/v1/namespaces", "", namespace) not in api.objects:
            return 404, self._status(404, f'namespaces "{namespace}" not found', "NotFound")
        if method == "GET":
            return 200, copied(live or {})
        if method == "DELETE":
            assert live is not None
            wanted = (body.get("preconditions") or {}).get("uid")
            if wanted and wanted != live["metadata"]["uid"]:
                return 409, self._status(409, "the UID in the precondition differs", "Conflict")
            if live["metadata"].get("finalizers"):
                live["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            elif not dry:
                api.remove(*key)
            return 200, self._status(200, "")
        if method == "POST" and live is not None:
            return 409, self._status(409, f'"{name}" already exists', "AlreadyExists")
        if method in ("PUT", "PATCH") and is_another(body, live):
            return 409, self._status(409, "the object has been modified", "Conflict")
        after = _merged(live or {}, body) if method == "PATCH" else body
        if (live and {**after, "metadata": _versionless(after)} == {**live, "metadata": _versionless(live)}) or dry:
            found = (
                after if live is None else {**after, "metadata": {**after["metadata"], "uid": live["metadata"]["uid"]}}
            )
            return 200 if live else 201, {**found, "metadata": {"uid": "dry", **found["metadata"]}}
        return 200 if live else 201, api.put(prefix, after)

    def _list(self, prefix: str, namespace: str, query: dict[str, str]) -> tuple[int, Object]:
        api = self.api
        with api.changed:
            found = [
                {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
                for (where, space, _), obj in sorted(api.objects.items())
                if where == prefix and namespace in ("", space) and _selected(obj, query)
            ]
            start, size = int(query.get("continue") or 0), min(api.page, int(query.get("limit") or 10_000))
            meta = {"resourceVersion": str(api.version)}
            if start + size < len(found):
                meta["continue"] = str(start + size)
            items = [self._form(each) for each in found[start : start + size]]
            return 200, {"kind": "List", "metadata": meta, "items": items}

    def _watch(self, prefix: str, namespace: str, query: dict[str, str]) -> tuple[int, None]:
        api = self.api
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        last = int(query.get("resourceVersion") or 0)
        end = time.monotonic() + float(query.get("timeoutSeconds") or 5)
        if last < api.oldest:
            self._chunk({"type": "ERROR", "object": self._status(410, "too old resource version", "Expired")})
        else:
            self.wfile.flush()
            while time.monotonic() < end and not api.over.is_set():
                with api.changed:
                    news = [(version, kind, obj) for version, kind, obj in api.events if version > last]
                    if not news:
                        api.changed.wait(0.1)
                for version, kind, obj in news:
                    last = version
                    same = KINDS[prefix.rpartition("/")[2]] == obj.get("kind")
                    if same and namespace in ("", obj["metadata"].get("namespace", "")) and _selected(obj, query):
                        self._chunk({"type": kind, "object": self._form(obj)})
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
        return 200, None

    def _form(self, obj: Object) -> Object:
        """The object in the form that is asked for."""
        if "as=PartialObjectMetadata" not in (self.headers.get("Accept") or ""):
            return obj
        return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": obj["metadata"]}

    def _chunk(self, event: Object) -> None:
        data = json.dumps(event).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def is_another(obj: Object, live: Object | None) -> bool:
    """Whether an apply of ``obj`` is for another object or version than ``live``, as API servers judge that.

    One that names a version but no UID creates what is not there.
    """
    wanted, known = obj.get("metadata") or {}, live["metadata"] if live else {}
    named = ("uid", "resourceVersion") if live else ("uid",)
    return any(key in wanted and wanted[key] != known.get(key) for key in named)


def _versionless(obj: Object) -> Object:
    return {key: value for key, value in obj["metadata"].items() if key not in ("resourceVersion", "uid")}


def _selected(obj: Object, query: dict[str, str]) -> bool:
    labels = obj["metadata"].get("labels") or {}
    for pair in filter(None, (query.get("labelSelector") or "").split(",")):
        key, _, value = pair.partition("=")
        if labels.get(key) != value:
            return False
    fields = query.get("fieldSelector") or ""
    return not fields.startswith("metadata.name=") or fields == f"metadata.name={obj['metadata']['name']}"


def _merged(live: Any, desired: Any) -> Any:
    if isinstance(live, dict) and isinstance(desired, dict):
        return {**live, **{key: _merged(live.get(key), value) for key, value in desired.items()}}
    return copied(desired)
