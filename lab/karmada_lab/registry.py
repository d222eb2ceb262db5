# SPDX-License-Identifier: Apache-2.0
"""A container registry with TLS on a host of the lab, for tests of mirrors and offline installations.

What is in it can be had at two ports: from one by everybody, from the other by those who log in.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import secrets
import ssl
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from karmada_lab import cluster, machine
from karmada_lab.errors import LabError
from karmada_lab.shell import run, wait_for
from karmada_lab.state import Lab, MachineRecord, machine_records, write_text

NAME = "registry"
PORT, LOGIN_PORT = 5000, 5001
HOST = f"{NAME}:{PORT}"
"""Beginning of image references, on every machine of the lab."""
LOGIN_HOST = f"{NAME}:{LOGIN_PORT}"
"""Beginning of references that lead to the port which asks for a login."""

_USER = "lab"
_FOLDER = "/etc/docker/registry"
_CONFIGURATION = """version: 0.1
storage:
  filesystem:
    rootdirectory: /var/lib/docker-registry
  delete:
    enabled: true
http:
  addr: :{port}
  tls:
    certificate: {folder}/tls.crt
    key: {folder}/tls.key
"""
_LOGIN = """auth:
  htpasswd:
    realm: lab
    path: {folder}/htpasswd
"""
_SERVICES = {"docker-registry": PORT, "docker-registry-login": LOGIN_PORT}
_LOGIN_UNIT = f"""[Service]
User=docker-registry
ExecStart=/usr/bin/docker-registry serve {_FOLDER}/login.yml
"""


def ca_file(lab: Lab) -> Path:
    """Certificate of the authority that signed the registry's; made when the registry is."""
    return lab.state / "registry" / "ca.crt"


def login_file(lab: Lab) -> Path:
    """Login at the port that asks for one, as a file of kind kubernetes.io/dockerconfigjson."""
    return lab.state / "registry" / "login.json"


def start(lab: Lab, host: MachineRecord) -> None:
    """Boot the host, give it a certificate of a new authority, start the registry and wait until it answers."""
    files = {
        f"{_FOLDER}/config.yml": _CONFIGURATION.format(port=PORT, folder=_FOLDER),
        f"{_FOLDER}/login.yml": (_CONFIGURATION + _LOGIN).format(port=LOGIN_PORT, folder=_FOLDER),
        "/etc/systemd/system/docker-registry-login.service": _LOGIN_UNIT,
    }
    machine.start(lab, host, files, {}, {})
    certificate, key = _certificate(lab, host.address)
    for name, text in (("tls.crt", certificate), ("tls.key", key)):
        machine.execute(host, ["sh", "-c", f"umask 027; cat >{_FOLDER}/{name}"], stdin=text)
    machine.execute(host, ["htpasswd", "-B", "-i", "-c", f"{_FOLDER}/htpasswd", _USER], stdin=_new_password(lab))
    machine.execute(host, ["chgrp", "docker-registry", f"{_FOLDER}/tls.key", f"{_FOLDER}/htpasswd"])
    machine.execute(host, ["chmod", "0640", f"{_FOLDER}/htpasswd"])
    machine.execute(host, ["chmod", "0644", f"{_FOLDER}/tls.crt"])
    machine.execute(host, ["systemctl", "start", *_SERVICES])

    def answers() -> bool:
        try:
            return all(_status(lab, host.address, port) for port in _SERVICES.values())
        except OSError:
            return False

    wait_for("the registry", answers, timeout=60)


def _new_password(lab: Lab) -> str:
    """Make one, and write the login down for whoever is to use it."""
    password = secrets.token_hex(16)
    auth = base64.b64encode(f"{_USER}:{password}".encode()).decode()
    login = {"auths": {LOGIN_HOST: {"username": _USER, "password": password, "auth": auth}}}
    write_text(login_file(lab), json.dumps(login), 0o600)
    return password


def _status(lab: Lab, address: str, port: int) -> int:
    """The status of the first answer of a registry; raises OSError while there is none."""
    context = ssl.create_default_context(cafile=str(ca_file(lab)))
    connection = http.client.HTTPSConnection(address, port, timeout=60, context=context)
    connection.request("GET", "/v2/")
    return connection.getresponse().status


def is_up(lab: Lab) -> bool:
    """Return whether this lab has a registry."""
    record = machine_records(lab).get(NAME)
    return record is not None and machine.reusable(record)


def facts(lab: Lab) -> dict[str, str]:
    """Address of the registry and the authority to trust, {} while there is none."""
    if not is_up(lab):
        return {}
    address = machine_records(lab)[NAME].address
    return {
        "host": HOST,
        "address": f"{address}:{PORT}",
        "ca": str(ca_file(lab)),
        "host_with_login": LOGIN_HOST,
        "login": str(login_file(lab)),
    }


def trust_everywhere(lab: Lab) -> None:
    """Make every node's containerd trust the registry, by its name and by its address."""
    ca = ca_file(lab).read_text()
    records = machine_records(lab)
    names = [f"{name}:{port}" for name in (NAME, records[NAME].address) for port in _SERVICES.values()]
    for record in records.values():
        if record.kind == "node" and record.ready:
            cluster.trust_registry(record, names, ca)


def push(lab: Lab, reference: str, archive: Path) -> str:
    """Push an OCI archive of ours under its name without the publisher's host. Returns the reference to pull."""
    if not is_up(lab):
        raise LabError("the lab has no registry: `lab up --registry` makes one")
    address = machine_records(lab)[NAME].address
    repository, tag = reference.split("/", 1)[1].rsplit(":", 1)
    with tarfile.open(archive) as layout:
        index = json.loads(_member(layout, "index.json"))
        manifest = _member(layout, _blob(index["manifests"][0]["digest"]))
        parsed: dict[str, Any] = json.loads(manifest)
        for item in [parsed["config"], *parsed["layers"]]:
            _push_blob(lab, address, repository, _member(layout, _blob(item["digest"])))
    headers = {"Content-Type": "application/vnd.oci.image.manifest.v1+json"}
    _ask(lab, address, "PUT", f"/v2/{repository}/manifests/{tag}", manifest, headers)
    return f"{HOST}/{repository}:{tag}"


def _push_blob(lab: Lab, address: str, repository: str, content: bytes) -> None:
    location = _ask(lab, address, "POST", f"/v2/{repository}/blobs/uploads/", b"")["Location"]
    parts = urlsplit(location)
    digest = hashlib.sha256(content).hexdigest()
    path = (
        f"{parts.path}?{parts.query}&digest=sha256:{digest}" if parts.query else f"{parts.path}?digest=sha256:{digest}"
    )
    _ask(lab, address, "PUT", path, content, {"Content-Type": "application/octet-stream"})


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _member(layout: tarfile.TarFile, name: str) -> bytes:
    content = layout.extractfile(name)
    if content is None:
        raise LabError(f"the archive {layout.name!r} has no {name}")
    return content.read()


def _ask(
    lab: Lab, address: str, method: str, path: str, content: bytes | None = None, headers: dict[str, str] | None = None
) -> dict[str, str]:
    """One request to the registry; returns the answer's headers. Raises OSError or LabError."""
    context = ssl.create_default_context(cafile=str(ca_file(lab)))
    connection = http.client.HTTPSConnection(address, PORT, timeout=60, context=context)
    connection.request(method, path, body=content, headers=headers or {})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status >= http.HTTPStatus.BAD_REQUEST:
        raise LabError(
            f"the registry answers {method} {path} with {answer.status}: {text.decode(errors='replace')[:300]}"
        )
    return dict(answer.headers.items())


def _certificate(lab: Lab, address: str) -> tuple[str, str]:
    """A new authority (its key is not kept) and a certificate of it for the registry, as PEM: certificate and key."""
    folder = ca_file(lab).parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca_key, key, request, certificate = (folder / name for name in ("ca.key", "tls.key", "tls.csr", "tls.crt"))
    names = f"subjectAltName=DNS:{NAME},IP:{address}"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    run(["openssl", "req", "-x509", *curve, "-days", "30", "-subj", "/CN=lab registry CA", "-keyout", ca_key,
         "-out", ca_file(lab), "-addext", "keyUsage=critical,keyCertSign"])  # fmt: skip
    run(["openssl", "req", *curve, "-subj", f"/CN={NAME}", "-addext", names, "-keyout", key, "-out", request])
    run(["openssl", "x509", "-req", "-in", request, "-CA", ca_file(lab), "-CAkey", ca_key, "-CAcreateserial",
         "-days", "30", "-copy_extensions", "copy", "-out", certificate])  # fmt: skip
    pair = certificate.read_text(), key.read_text()
    for path in (ca_key, key, request):
        path.unlink()
    return pair
