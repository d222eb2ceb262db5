# SPDX-License-Identifier: Apache-2.0
"""Make the operator's image without a container engine, with what operator/Containerfile puts into it.

    image.py [--artifacts FOLDER] [--etcd VERSION] [--programs] REFERENCE
                                                                prints the archive as nodes of the lab see it
    image.py --base                                             makes what stays in the cache, for one that is made soon

Debian, the virtual environment and the product are a layer each, and the first two stay in the lab's cache. FOLDER has
artifacts that were prepared; it is /opt/artifacts in the image, as in one that a site without internet derives. With a
version of etcd it has the programs by which backups are proved, too. With --programs FOLDER is such a directory
already, and goes there whole: plain hosts get their programs out of it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(PROJECT / "lab"), str(PROJECT / "molecule/release_newest_core")]

import root as newest  # noqa: E402
from karmada_lab import rootfs  # noqa: E402
from karmada_lab.errors import LabError  # noqa: E402
from karmada_lab.state import Lab, exclusive  # noqa: E402

PACKAGES = (*newest.PACKAGES, "openssh-client")
#: What nobody reads in a pod.
LEFT_OUT = (
    "./usr/share/doc",
    "./usr/share/man",
    "./usr/share/locale",
    "./var/cache/apt",
    "./var/lib/apt/lists",
    "./dev",
)
USER = "karmada:x:65532:65532::/nonexistent:/usr/sbin/nologin\n"
IDENTITY, ENTRYPOINT = "65532:65532", ["python", "-m", "karmada_operator"]
SETTINGS = {
    "PATH": f"{newest.VENV}/bin:/usr/bin:/bin",
    "PYTHONPATH": "/opt/karmada/operator:/opt/karmada/collections",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "ANSIBLE_COLLECTIONS_PATH": "/opt/karmada/collections",
    "XDG_CACHE_HOME": "/var/cache/karmada-operator",
    "HOME": "/run/karmada-operator",
    "TMPDIR": "/run/karmada-operator",
    "LANG": "C.UTF-8",
}
CONFIG = {
    "User": IDENTITY,
    "Env": [f"{name}={text}" for name, text in SETTINGS.items()],
    "Entrypoint": ENTRYPOINT,
}
#: Where nodes of the lab have the cache's folder of images.
ON_NODES = Path("/opt/lab/images")


def debian(lab: Lab, packages: Sequence[str] = PACKAGES) -> Path:
    """Root file system with these packages, made if it is not there."""
    digest = hashlib.sha256(repr((newest.SUITE, tuple(packages))).encode()).hexdigest()[:12]
    return rootfs.ensure(
        lab,
        lab.cache / "rootfs" / f"{newest.SUITE}-{digest}",
        f"root file system of our images with debootstrap ({newest.SUITE}), once, 1 to 3 minutes",
        lambda folder: rootfs.debootstrap(lab, newest.SUITE, packages, folder),
    )


def product(lab: Lab, root: Path, folder: Path, artifacts: Path | None, etcd: str, *, programs: bool) -> None:
    """Fill this folder with what of ours is in the image: the built collection, compiled, and the operator."""
    karmada = folder / "opt/karmada"
    collection(folder.with_name("build"), karmada / "collections")
    shutil.copytree(
        PROJECT / "operator/karmada_operator",
        karmada / "operator/karmada_operator",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    words = ["python3", "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash", "/opt/karmada"]
    command = newest.inside(lab, root, words, binds={karmada: Path("/opt/karmada")}, read_only={}, environment={})
    run(command, **newest.UNLOCKED)
    (folder / "etc").mkdir()
    (folder / "etc/passwd").write_text((root / "etc/passwd").read_text() + USER)
    (folder / "etc/group").write_text((root / "etc/group").read_text() + "karmada:x:65532:\n")
    if artifacts is not None and programs:
        shutil.copytree(artifacts, folder / "opt/artifacts", copy_function=_linked)
    elif artifacts is not None:
        published(artifacts, folder)
        sums = []
        for name in ("etcd", "etcdutl") if etcd else ():
            below = Path("etcd", etcd, "bin/linux/amd64", name)
            target = folder / "opt/artifacts" / below
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(artifacts / "etcd" / etcd / "bin" / name, target)
            sums.append(f"{_digest(target).removeprefix('sha256:')}  {below}\n")
        if sums:
            (folder / "opt/artifacts/sha256sums").write_text("".join(sums))


def _linked(source: str, target: str) -> None:
    """Link to a file, or a copy where that is another file system: programs are large."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def collection(build: Path, target: Path) -> Path:
    """Build the collection into one folder and install it below another one; returns its artifact."""
    galaxy = [str(Path(sys.executable).with_name("ansible-galaxy")), "collection"]
    source = PROJECT / "collections/ansible_collections/karmada/installer"
    run([*galaxy, "build", f"--output-path={build}", str(source)])
    (artifact,) = build.glob("*.tar.gz")
    run([*galaxy, "install", "--offline", f"--collections-path={target}", str(artifact)])
    if not (target / "ansible_collections/karmada/installer/MANIFEST.json").is_file():
        raise LabError("ansible-galaxy has not installed the collection")
    return artifact


def published(artifacts: Path, folder: Path) -> None:
    """Put what Karmada has published below opt/artifacts; no programs, because pods take theirs out of images."""
    shutil.copytree(artifacts / "karmada", folder / "opt/artifacts/karmada", ignore=shutil.ignore_patterns("bin"))


def run(words: Sequence[str], **more: str) -> str:
    """Output of a program that has nothing of Ansible's settings. Raises LabError with what it said if it fails."""
    # With the settings of the checkout, in the environment or in its folder, ansible-galaxy would find the collection
    # installed there.
    environment = {name: text for name, text in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        words,
        env={**environment, **more},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise LabError(f"{words[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def kept_layer(lab: Lab, folder: Path, prefix: str) -> Path:
    """Layer of a folder that does not change, made if it is not in the cache."""
    target = lab.cache / "images" / f"operator-layer-{folder.name}.tar"
    with exclusive(lab.cache / "operator-layers.lock", "another build of the operator's image"):
        if not target.exists():
            unfinished = target.with_suffix(".unfinished")
            layer(folder, prefix, unfinished)
            unfinished.rename(target)
    return target


def layer(folder: Path, prefix: str, target: Path) -> None:
    """Layer with a folder's content below ``prefix``, owned by root."""
    below = [f"--transform=flags=rh;s,^\\.,./{prefix},"] if prefix else []
    out = [f"--exclude={each}" for each in LEFT_OUT]
    owner = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=pax"]
    # Times of access and change would make the same content another layer.
    times = ["--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"]
    run(["tar", "--create", f"--file={target}", *owner, *times, *out, *below, f"--directory={folder}", "."])


def write(target: Path, reference: str, layers: Sequence[Path], settings: Mapping[str, Any]) -> None:
    """OCI image layout of these layers in a tar, whose index names the image the way containerd looks for it.

    ``settings`` are the ``config`` of the image: user, environment, entry point.
    """
    digests = [_digest(each) for each in layers]
    config = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": dict(settings),
            "rootfs": {"type": "layers", "diff_ids": digests},
        }
    )
    kind = "application/vnd.oci.image"
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": _described(f"{kind}.config.v1+json", config),
            "layers": [
                {"mediaType": f"{kind}.layer.v1.tar", "digest": digest, "size": each.stat().st_size}
                for each, digest in zip(layers, digests, strict=True)
            ],
        }
    )
    entry = _described(f"{kind}.manifest.v1+json", manifest)
    entry["annotations"] = {
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
    }
    unfinished = target.with_suffix(".unfinished")
    with tarfile.open(unfinished, "w") as archive:
        blobs = {f"blobs/sha256/{hashlib.sha256(each).hexdigest()}": each for each in (config, manifest)}
        texts = {
            "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
            "index.json": _json({"schemaVersion": 2, "manifests": [entry]}),
        }
        for name, content in {**texts, **blobs}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for each, digest in zip(layers, digests, strict=True):
            archive.add(each, f"blobs/{digest.replace(':', '/')}")
    unfinished.rename(target)


def _described(kind: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}", "size": len(blob)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def main() -> int:
    """Make the image."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifacts", type=Path)
    parser.add_argument("--etcd", default="")
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--base", action="store_true")
    parser.add_argument("reference", nargs="?")
    options = parser.parse_args()
    if options.base == bool(options.reference):
        parser.error("either --base or a reference")
    lab = Lab.from_environment()
    try:
        (lab.cache / "images").mkdir(parents=True, exist_ok=True)
        root, venv = debian(lab), newest.venv(lab)
        below = [kept_layer(lab, root, ""), kept_layer(lab, venv, str(newest.VENV).lstrip("/"))]
        if options.base:
            return 0
        with tempfile.TemporaryDirectory(dir=lab.cache) as work:
            folder, top = Path(work) / "product", Path(work) / "product.tar"
            folder.mkdir()
            product(lab, root, folder, options.artifacts, options.etcd, programs=options.programs)
            layer(folder, "", top)
            name = f"{options.reference.replace('/', '_').replace(':', '_')}.tar"
            write(lab.cache / "images" / name, options.reference, [*below, top], CONFIG)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    print(ON_NODES / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
