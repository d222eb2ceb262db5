# SPDX-License-Identifier: Apache-2.0
"""Any number of member clusters in one process, as far as joining meets them: each an API server on a port of its own.

They speak TLS, know one token each, have a node and the namespace whose UID tells them apart, and fill token Secrets of
accounts that they know. One thread accepts for all of them. ``BROKEN`` names ways in which one can be broken.
"""

from __future__ import annotations

import base64
import selectors
import socket
import ssl
import threading
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.kubeconfig import load_client_certificate
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import kubeconfig as pki_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.tests.unit.support import faulty_answers, stub_api
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, Object, StubApi

NAMESPACES, SECRETS, ACCOUNTS = "api/v1/namespaces", "api/v1/secrets", "api/v1/serviceaccounts"
RBAC = "apis/rbac.authorization.k8s.io/v1"
#: How one that is broken meets whoever comes.
BROKEN = ("refuses", "is-silent", "other-authority", "other-token", "no-kubernetes")
#: How one answers what no API server should: at its first answer, at its lists, in what it fills into Secrets.
FAULTY = (
    *(*faulty_answers.FIRST_ANSWERS, *faulty_answers.NO_ANSWERS, *faulty_answers.LISTS),
    *("token-not-text", "identity-not-text", "uids-not-text"),
)
#: What a run says of each of them.
WORDS = {
    "gzip-bomb": "larger than 16 MiB",
    "too-long": "larger than 16 MiB",
    "many-values": "more than 300000 values",
    "trickle": "does not come to an end",
    "cut-json": "cut off, or no JSON",
    "nested": "nested too deep",
    "not-utf8": "cut off, or no JSON",
    "escapes": "403 Error",
    "other-types": "AttributeError",
    "packed-otherwise": "packed in a way that nobody asked for",
    "garbage": "BadStatusLine",
    "dates-for-names": "cut off, or no JSON",
    "endless-list": "a list of more than 50000 objects",
    "circular-list": "goes on where it has been already",
    "token-not-text": "holds no token",
    "identity-not-text": "no namespace kube-system with a UID",
    "uids-not-text": "a UID that is none",
}
ACCOUNT_OF_SECRET = "kubernetes.io/service-account.name"
FOREVER = 10**9
#: A name of all of them besides their address, which nobody but a proxy knows.
DNS_NAME = "member.example.com"
#: What messages of the other form that Kubernetes speaks begin with.
PROTOBUF = b"k8s\0"


class Member(StubApi):
    """One member; ``objects`` is what was put on it, ``connections`` how often somebody has connected."""

    def __init__(self, name: str, authority: bytes, address: str) -> None:
        super().__init__(address)
        self.name, self.authority, self.token = name, authority, f"administrator-of-{name}"
        self.connections = 0
        #: in the place of the token of an account
        self.filled: bytes | None = None
        #: in the place of the UIDs of what others put there
        self.uid: str | None = None
        handler = type("Handler", (_Handler,), {"api": self})
        self._server.RequestHandlerClass = handler
        self.listener = self._server.socket
        self.url = f"https://{address}:{self._server.server_address[1]}"
        for each, uid in (("kube-system", f"id-of-{name}"), ("default", f"default-of-{name}")):
            self.put(NAMESPACES, _object("v1", "Namespace", {"name": each, "uid": uid}))
        self.put("api/v1/nodes", _object("v1", "Node", {"name": f"{name}-node"}))

    def put(self, prefix: str, obj: Object, event: str | None = None) -> Object:
        """See StubApi; the token of an account is filled in."""
        if self.uid is not None:
            obj = {**obj, "metadata": {**obj["metadata"], "uid": self.uid}}
        annotations = obj["metadata"].get("annotations") or {}
        account = annotations.get(ACCOUNT_OF_SECRET)
        if prefix == SECRETS and account:
            if (ACCOUNTS, obj["metadata"]["namespace"], account) not in self.objects:
                # A real one deletes such a Secret soon after.
                return super().put(prefix, obj, event)
            token = f"token-of-{account}-on-{self.name}".encode() if self.filled is None else self.filled
            data = {"token": token, "ca.crt": self.authority}
            encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
            obj = {**obj, "data": {**encoded, **(obj.get("data") or {})}}
        return super().put(prefix, obj, event)

    def kubeconfig(self) -> Object:
        """That of its administrator."""
        return pki_kubeconfig.kubeconfig(self.name, self.url, self.authority, "administrator", self.token, self.name)

    def names(self) -> set[str]:
        """What is there beside what every cluster has: ``kind namespace/name``."""
        return {
            f"{prefix.rpartition('/')[2]} {namespace}/{name}" if namespace else f"{prefix.rpartition('/')[2]} {name}"
            for prefix, namespace, name in self.objects
            if name not in ("kube-system", "default", f"{self.name}-node")
        }

    def serve(self, connection: socket.socket, address: Any) -> None:
        """Answer one connection until it ends."""
        self.connections += 1
        with suppress(OSError, ValueError):
            self._server.finish_request(connection, address)
        with suppress(OSError):
            connection.close()

    def close(self) -> None:
        """Stop to listen."""
        self.over.set()
        self._server.server_close()


class SimulatedMembers:
    """``with SimulatedMembers(names) as members``: all of them, served by this process; ``broken`` maps name → way.

    ``address`` is one of this machine.
    """

    def __init__(self, names: Iterable[str], broken: dict[str, str] | None = None, address: str = "127.0.0.1") -> None:
        now = datetime.now(UTC) - timedelta(minutes=5)
        self._authority = x509.new_authority(x509.Authority("members", "members"), "ECDSA-P256", now)
        wanted = x509.Certificate(
            "member", "members", "member", dns_names=(DNS_NAME,), ip_addresses=(address,), server=True
        )
        self._pair = x509.issue(wanted, self._authority, "ECDSA-P256", now, timedelta(days=2))
        self._now, self._over = now, threading.Event()
        self.broken = broken or {}
        self.members = {name: Member(name, self._authority.certificate, address) for name in (*names, *self.broken)}
        self._accepting = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        for name, way in self.broken.items():
            member = self.members[name]
            if way == "refuses":
                member.close()
            elif way == "no-kubernetes":
                member.faults.append(Fault("status", status=200, body="<html>Welcome</html>", times=FOREVER))
            elif pieces := (faulty_answers.FIRST_ANSWERS | faulty_answers.NO_ANSWERS).get(way):
                member.faults.append(Fault("raw", path="/namespaces/kube-system", pieces=pieces, times=FOREVER))
            elif way in faulty_answers.LISTS:
                pieces = faulty_answers.LISTS[way]
                member.faults.append(Fault("raw", path="/secrets?", pieces=pieces, times=FOREVER))
            elif way == "token-not-text":
                member.filled = faulty_answers.NOT_UTF8
            elif way == "identity-not-text":
                member.put(
                    NAMESPACES, _object("v1", "Namespace", {"name": "kube-system", "uid": faulty_answers.ESCAPES})
                )
            elif way == "uids-not-text":
                member.uid = faulty_answers.ESCAPES
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._accepting.join()
        for member in self.members.values():
            member.close()

    def write_secrets(self, folder: Path) -> None:
        """A directory for each, as a run from files has them."""
        for name, member in self.members.items():
            content = member.kubeconfig()
            if self.broken.get(name) == "other-authority":
                other = x509.new_authority(x509.Authority("others", "others"), "ECDSA-P256", self._now)
                content = pki_kubeconfig.kubeconfig(
                    name, member.url, other.certificate, "administrator", member.token, name
                )
            elif self.broken.get(name) == "other-token":
                content = pki_kubeconfig.kubeconfig(
                    name, member.url, member.authority, "administrator", "of-nobody", name
                )
            (folder / name).mkdir(parents=True)
            (folder / name / "kubeconfig").write_text(yaml.safe_dump(content))

    def _accept(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_client_certificate(context, self._pair.certificate.decode(), self._pair.key.decode(), "members")
        silent: list[socket.socket] = []
        with selectors.DefaultSelector() as selector:
            for name, member in self.members.items():
                if self.broken.get(name) != "refuses":
                    selector.register(member.listener, selectors.EVENT_READ, member)
            while not self._over.is_set():
                for key, _ in selector.select(0.1):
                    connection, address = key.data.listener.accept()
                    if self.broken.get(key.data.name) == "is-silent":
                        silent.append(connection)
                        continue
                    wrapped = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                    threading.Thread(target=key.data.serve, args=(wrapped, address), daemon=True).start()
        for connection in silent:
            connection.close()


class _Handler(stub_api._Handler):
    """Lets in whoever has the token of this member, or of an account that it gave one."""

    api: Member

    def _fault(self, method: str) -> Fault | None:
        found = super()._fault(method)
        if found:
            return found
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token == self.api.token or token.startswith("token-of-"):
            return None
        return Fault("status", status=401, body=self._status(401, "Unauthorized", "Unauthorized"))

    def _body(self, data: bytes) -> Any:
        return _from_protobuf(data) if data.startswith(PROTOBUF) else super()._body(data)

    def _work(self, method: str, body: Any) -> tuple[int, Object | str | None]:
        if self.path == "/version":
            return 200, {"gitVersion": "v1.35.4", "major": "1", "minor": "35"}
        return super()._work(method, body)


def _from_protobuf(data: bytes) -> Object:
    """Of an object as karmadactl sends it: apiVersion, kind and metadata, and the type of a Secret."""
    envelope = _fields(data.removeprefix(PROTOBUF))
    about, content = _fields(envelope[1][0]), _fields(envelope[2][0])
    meta = _fields(content[1][0])
    metadata: Object = {"name": meta[1][0].decode()}
    if meta.get(3, [b""])[0]:
        metadata["namespace"] = meta[3][0].decode()
    for number, name in ((11, "labels"), (12, "annotations")):
        pairs = [_fields(each) for each in meta.get(number, ())]
        metadata[name] = {each[1][0].decode(): each[2][0].decode() for each in pairs}
    found = _object(about[1][0].decode(), about[2][0].decode(), metadata)
    return {**found, "type": content[3][0].decode()} if found["kind"] == "Secret" else found


def _fields(data: bytes) -> dict[int, list[bytes]]:
    """The fields of a message that are bytes, by number; numbers that are not of interest are passed over."""
    found: dict[int, list[bytes]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if not data[at - 1] & 128:
                return value

    while at < len(data):
        field, kind = divmod(number(), 8)
        if kind == 2:
            size = number()
            found.setdefault(field, []).append(data[at : at + size])
            at += size
        else:
            number()
    return found


def _object(api_version: str, kind: str, metadata: Object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
