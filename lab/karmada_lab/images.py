# SPDX-License-Identifier: Apache-2.0
"""Container images made from static binaries: OCI archives in the cache, and loading them into clusters.

An image has one layer: the binary at the path where the publisher's image has it, a CA bundle, a few files that every
program expects (/etc/passwd, /tmp), and time zones where the publisher has them. No user is set.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.components.releases import RELEASES, Release

from karmada_lab.errors import LabError
from karmada_lab.products import (
    COREDNS_VERSION,
    ETCD_VERSION,
    KARMADA_VERSION,
    KUBERNETES_VERSION,
    LOCAL_PATH_VERSION,
    METALLB_VERSION,
    TRAEFIK_VERSION,
)
from karmada_lab.state import Lab

PAUSE_IMAGE = "registry.k8s.io/pause:lab"
BUSYBOX_IMAGE = "docker.io/library/busybox:lab"
HTTPD_IMAGE = "docker.io/library/httpd:lab"

_FORMAT = 2
"""Raised when the layout of an image changes, so that archives of the old layout are not used."""


_OUTDATED = 3600.0
"""Seconds after which an archive that was replaced by a newer one is removed."""

_making = threading.Lock()


@dataclass(frozen=True)
class Image:
    """One image. binaries: path in the image -> binary in the artifacts folder, or path of a file when it has a `/`.

    version: of the product whose binaries are in it; '' for the product's usual one.
    """

    reference: str
    binaries: Mapping[str, str]
    version: str = ""
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    timezones: bool = False
    links: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def from_artifacts(self) -> list[str]:
        """Names of the binaries that come out of the artifacts folder."""
        return [name for name in self.binaries.values() if "/" not in name]


def karmada_images(version: str, names: Sequence[str]) -> list[Image]:
    """Images of Karmada components, named like upstream's: /bin/<binary>, started without an entrypoint."""
    return [
        Image(
            reference=f"docker.io/karmada/{name}:{version}",
            binaries={f"/bin/{name}": name},
            version=version,
            command=(f"/bin/{name}",),
            timezones=True,
        )
        for name in names
    ]


def control_plane_images(kubernetes: str, etcd: str, names: Sequence[str]) -> list[Image]:
    """Kubernetes components at /usr/local/bin, and etcd with its tools."""
    images = [
        Image(
            reference=f"registry.k8s.io/{name}:{kubernetes}",
            binaries={f"/usr/local/bin/{name}": name},
            version=kubernetes,
            command=(f"/usr/local/bin/{name}",),
        )
        for name in names
    ]
    tools = {f"/usr/local/bin/{name}": name for name in ("etcd", "etcdctl", "etcdutl")}
    reference, command = f"quay.io/coreos/etcd:{etcd}", ("/usr/local/bin/etcd",)
    images.append(Image(reference=reference, binaries=tools, version=etcd, command=command))
    return images


def workload_images(lab_base: Path) -> list[Image]:
    """Tiny workloads: busybox with all its applets, and a web server on port 8080."""
    busybox = str(lab_base / "usr/bin/busybox")
    if not Path(busybox).exists():
        busybox = str(lab_base / "bin/busybox")
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links = {f"/bin/{name}": "busybox" for name in applets if name != "busybox"}
    page = {"/www/index.html": "karmada lab\n"}
    program = {"/bin/busybox": busybox}
    return [
        Image(reference=BUSYBOX_IMAGE, binaries=program, links=links, texts=page, command=("sh",)),
        Image(
            reference=HTTPD_IMAGE,
            binaries=program,
            links=links,
            texts=page,
            entrypoint=("/bin/httpd", "-f", "-v", "-p", "8080", "-h", "/www"),
        ),
    ]


def cluster_images(lab_base: Path, kubernetes: str, etcd: str) -> list[Image]:
    """Images that a cluster of the lab needs itself, and those of the tiny workloads."""
    return [
        Image(reference=PAUSE_IMAGE, binaries={"/pause": "pause"}, entrypoint=("/pause",)),
        *control_plane_images(kubernetes, etcd, ["kube-apiserver", "kube-controller-manager", "kube-scheduler"]),
        Image(
            reference=f"registry.k8s.io/coredns/coredns:{COREDNS_VERSION}",
            binaries={"/coredns": "coredns"},
            entrypoint=("/coredns",),
        ),
        Image(
            reference=f"docker.io/rancher/local-path-provisioner:{LOCAL_PATH_VERSION}",
            binaries={"/usr/bin/local-path-provisioner": "local-path-provisioner"},
            command=("local-path-provisioner",),
        ),
        *workload_images(lab_base),
    ]


def metallb_images() -> list[Image]:
    """Controller and speaker, named and started as MetalLB's own manifest has them."""
    return [
        Image(
            reference=f"quay.io/metallb/{part}:{METALLB_VERSION}",
            binaries={f"/{part}": f"metallb-{part}"},
            entrypoint=(f"/{part}",),
        )
        for part in ("controller", "speaker")
    ]


def metrics_server_image(karmada: str) -> Image:
    """A server of pod metrics, started as its publisher's image is; built with this version of Karmada."""
    return Image(
        reference="registry.k8s.io/metrics-server/metrics-server:lab",
        binaries={"/metrics-server": "metrics-server"},
        version=karmada,
        entrypoint=("/metrics-server",),
    )


def traefik_image() -> Image:
    """An Ingress controller, without its web interface and DNS providers."""
    return Image(
        reference=f"docker.io/library/traefik:{TRAEFIK_VERSION}",
        binaries={"/usr/local/bin/traefik": "traefik"},
        entrypoint=("/usr/local/bin/traefik",),
    )


KARMADA_BASE = ("karmada-aggregated-apiserver", "karmada-controller-manager", "karmada-scheduler", "karmada-webhook")
KARMADA_OPTIONAL = ("karmada-agent", "karmada-descheduler", "karmada-metrics-adapter", "karmada-scheduler-estimator",
                    "karmada-search")  # fmt: skip
_KARMADA_SINGLE = (*KARMADA_BASE, *KARMADA_OPTIONAL, "karmada-operator")


def image_set(name: str, lab_base: Path) -> list[Image]:
    """The images of a set: `karmada[:VERSION]`, `karmada-optional[:VERSION]`, `kubernetes[:VERSION]` (kube-apiserver,
    kube-controller-manager), `etcd[:VERSION]`, `workload`, `metrics-server`, `traefik`, or one component of Karmada:
    `karmada-search[:VERSION]`.

    `karmada` has all that a default control plane needs, kube-apiserver and etcd included, as the collection's release
    table puts them together.
    """
    kind, _, version = name.partition(":")
    version = version or {"kubernetes": KUBERNETES_VERSION, "etcd": ETCD_VERSION}.get(kind, KARMADA_VERSION)
    kubernetes = ["kube-apiserver", "kube-controller-manager"]
    if kind == "karmada":
        usual = Release(version, KUBERNETES_VERSION, ETCD_VERSION)
        release = next((each for each in RELEASES if each.karmada == version), usual)
        return [
            *karmada_images(version, KARMADA_BASE),
            *control_plane_images(release.kubernetes, release.etcd, kubernetes),
            *workload_images(lab_base),
        ]
    if kind == "karmada-optional" or kind in _KARMADA_SINGLE:
        return karmada_images(version, KARMADA_OPTIONAL if kind == "karmada-optional" else [kind])
    if kind == "kubernetes":
        return control_plane_images(version, ETCD_VERSION, kubernetes)[:-1]
    if kind == "etcd":
        return control_plane_images(KUBERNETES_VERSION, version, [])
    if kind == "workload":
        return workload_images(lab_base)
    if kind in ("metrics-server", "traefik"):
        return [metrics_server_image(version) if kind == "metrics-server" else traefik_image()]
    kinds = ("karmada", "karmada-optional", "kubernetes", "etcd", "workload", "metrics-server", "traefik")
    known = ", ".join((*kinds, *_KARMADA_SINGLE))
    raise LabError(f"no image set is called {name!r}; known: {known}, each with `:VERSION` or without")


def archive(lab: Lab, image: Image, lab_base: Path, resolve: Mapping[str, Path]) -> Path:
    """The image's OCI archive in the cache, made when missing. resolve: binary -> its file."""
    sources = {path: resolve[name] if "/" not in name else Path(name) for path, name in image.binaries.items()}
    facts = [(path, str(file), file.stat().st_size, file.stat().st_mtime_ns) for path, file in sorted(sources.items())]
    key = hashlib.sha256(repr((_FORMAT, image, facts)).encode()).hexdigest()[:16]
    name = image.reference.replace("/", "_").replace(":", "_")
    target = lab.cache / "images" / f"{name}-{key}.tar"
    if target.exists():
        return target
    # One at a time: clusters are loaded in parallel and want the same archives.
    with _making:
        if not target.exists():
            _make_archive(target, image, sources, lab_base)
    return target


def _make_archive(target: Path, image: Image, sources: Mapping[str, Path], lab_base: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=target.parent) as work:
        layer, unfinished = Path(work) / "layer.tar", Path(work) / "archive.tar"
        _write_layer(layer, image, sources, lab_base)
        _write_archive(unfinished, layer, image)
        unfinished.rename(target)
    for other in target.parent.glob(f"{target.name.rsplit('-', 1)[0]}-{'?' * 16}.tar"):
        # Of former binaries or a former layout. A young one may be on its way into a cluster.
        if other.stat().st_mtime < time.time() - _OUTDATED:
            other.unlink()


def _write_layer(path: Path, image: Image, sources: Mapping[str, Path], lab_base: Path) -> None:
    """The layer: the same bytes for the same inputs (fixed times, owner root)."""
    texts = {
        "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnonroot:x:65532:65532:nonroot:/home/nonroot:/bin/false\n",
        "/etc/group": "root:x:0:\nnonroot:x:65532:\n",
        "/etc/nsswitch.conf": "hosts: files dns\n",
        **image.texts,
    }
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as layer:
        folders: set[str] = set()
        _add_folder(layer, folders, "/tmp", 0o1777)  # noqa: S108 - a folder in the image
        for name, text in sorted(texts.items()):
            _add_parents(layer, folders, name)
            _add_bytes(layer, name, text.encode(), 0o644)
        bundle = (lab_base / "etc/ssl/certs/ca-certificates.crt").read_bytes()
        _add_parents(layer, folders, "/etc/ssl/certs/ca-certificates.crt")
        _add_bytes(layer, "/etc/ssl/certs/ca-certificates.crt", bundle, 0o644)
        for name, source in sorted(sources.items()):
            _add_parents(layer, folders, name)
            entry = _entry(name, 0o755)
            entry.size = source.stat().st_size
            with source.open("rb") as content:
                layer.addfile(entry, content)
        for name, target in sorted(image.links.items()):
            _add_parents(layer, folders, name)
            entry = _entry(name, 0o777)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            layer.addfile(entry)
        if image.timezones:
            _add_timezones(layer, folders, lab_base / "usr/share/zoneinfo")


def _add_timezones(layer: tarfile.TarFile, folders: set[str], zones: Path) -> None:
    for path in sorted(zones.rglob("*")):
        relative = path.relative_to(zones)
        if relative.parts[0] in ("posix", "right") or path.is_dir():
            continue
        name = f"/usr/share/zoneinfo/{relative}"
        _add_parents(layer, folders, name)
        _add_bytes(layer, name, path.resolve().read_bytes(), 0o644)


def _entry(name: str, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.mode = mode
    return entry


def _add_bytes(layer: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = _entry(name, mode)
    entry.size = len(content)
    layer.addfile(entry, io.BytesIO(content))


def _add_parents(layer: tarfile.TarFile, folders: set[str], name: str) -> None:
    for parent in reversed(Path(name).parents):
        if str(parent) != "/":
            _add_folder(layer, folders, str(parent), 0o755)


def _add_folder(layer: tarfile.TarFile, folders: set[str], name: str, mode: int) -> None:
    if name not in folders:
        folders.add(name)
        entry = _entry(name, mode)
        entry.type = tarfile.DIRTYPE
        layer.addfile(entry)


def _write_archive(path: Path, layer: Path, image: Image) -> None:
    """An OCI image layout in a tar, whose index names the image the way containerd looks for it."""
    layer_digest = _sha256(layer)
    settings: dict[str, Any] = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
    if image.entrypoint:
        settings["Entrypoint"] = list(image.entrypoint)
    if image.command:
        settings["Cmd"] = list(image.command)
    config = _json({
        "architecture": "amd64", "os": "linux", "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_digest}"]},
    })  # fmt: skip
    manifest = _json({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _descriptor("config.v1+json", config),
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": f"sha256:{layer_digest}",
                    "size": layer.stat().st_size}],
    })  # fmt: skip
    entry = _descriptor("manifest.v1+json", manifest)
    entry["annotations"] = {
        "io.containerd.image.name": image.reference,
        "org.opencontainers.image.ref.name": image.reference.rsplit(":", 1)[1],
    }
    index = _json({"schemaVersion": 2, "manifests": [entry]})
    with tarfile.open(path, "w") as output:
        _add_bytes(output, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}), 0o644)
        _add_bytes(output, "index.json", index, 0o644)
        for blob in (config, manifest):
            _add_bytes(output, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob, 0o644)
        output.add(layer, f"blobs/sha256/{layer_digest}", filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime, entry.mode = 0, 0o644
    return entry


def _descriptor(kind: str, blob: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(blob).hexdigest()
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(blob)}


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
