# SPDX-License-Identifier: Apache-2.0
"""A container registry with TLS on a host of the lab, for tests of mirrors and offline installations."""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from karmada_lab import cluster, machine
from karmada_lab.errors import LabError
from karmada_lab.shell import run, wait_for
from karmada_lab.state import Lab, MachineRecord, machine_records

NAME = "registry"
PORT = 5000
HOST = f"{NAME}:{PORT}"
"""What image references begin with, on every machine of the lab."""

_CONFIGURATION = f"""version: 0.1
storage:
  filesystem:
    rootdirectory: /var/lib/docker-registry
  delete:
    enabled: true
http:
  addr: :{PORT}
  tls:
    certificate: /etc/docker/registry/tls.crt
    key: /etc/docker/registry/tls.key
"""


def ca_file(lab: Lab) -> Path:
    """Certificate of the authority that signed the registry's; made when the registry is."""
    return lab.state / "registry" / "ca.crt"


def start(lab: Lab, host: MachineRecord) -> None:
    """Boot the host, give it a certificate of a new authority, start the registry and wait until it answers."""
    machine.start(lab, host, {"/etc/docker/registry/config.yml": _CONFIGURATION}, {}, {})
    certificate, key = _certificate(lab, host.address)
    for name, text in (("tls.crt", certificate), ("tls.key", key)):
        machine.execute(host, ["sh", "-c", f"umask 027; cat >/etc/docker/registry/{name}"], stdin=text)
    machine.execute(host, ["chgrp", "docker-registry", "/etc/docker/registry/tls.key"])
    machine.execute(host, ["chmod", "0644", "/etc/docker/registry/tls.crt"])
    machine.execute(host, ["systemctl", "enable", "--quiet", "--now", "docker-registry"])

    def answers() -> bool:
        try:
            _ask(lab, host.address, "GET", "/v2/")
        except (OSError, LabError):
            return False
        return True

    wait_for("the registry", answers, timeout=60)


def is_up(lab: Lab) -> bool:
    """Whether this lab has a registry."""
    record = machine_records(lab).get(NAME)
    return record is not None and machine.reusable(record)


def facts(lab: Lab) -> dict[str, str]:
    """Where the registry is and whom to trust, {} while there is none."""
    if not is_up(lab):
        return {}
    address = machine_records(lab)[NAME].address
    return {"host": HOST, "address": f"{address}:{PORT}", "ca": str(ca_file(lab))}


def trust_everywhere(lab: Lab) -> None:
    """Make every node's containerd trust the registry, by its name and by its address."""
    ca = ca_file(lab).read_text()
    records = machine_records(lab)
    for record in records.values():
        if record.kind == "node" and record.ready:
            cluster.trust_registry(record, [HOST, f"{records[NAME].address}:{PORT}"], ca)


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
