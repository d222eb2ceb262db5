# SPDX-License-Identifier: Apache-2.0
"""Karmada's CRDs, fetched from any source and verified.

The lock file holds a hash over the content of the CRD files (names and bytes), not over an archive: the same hash then
covers the release archive, a Go module, a mirror of either and a directory. Files that do not match it are not parsed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from ..problems import Problem, ProblemsError, Reason
from ..yaml_document import SAFE_LOADER
from .https import OTHER_SOURCES, FetchError, Https, allowed
from .source import LOCK_FILE, RELEASE_DOWNLOADS, Source, cache_directory, read_lock

#: Limit in bytes: a CRD archive holds well under 1 MiB, the Go module some 60 MiB.
MOST_BYTES = 256 * 1024 * 1024

_BROKEN = (EOFError, OSError, ValueError, zlib.error)
_MODULE = "github.com/karmada-io/karmada"
_MODULE_FOLDER = "charts/karmada/_crds"


def locked_hash(version: str, lock_file: Path = LOCK_FILE) -> str:
    """Recorded hash of the CRDs of this Karmada version. Raises ProblemsError if none is recorded."""
    found = read_lock(lock_file).get("karmada", {}).get(version, {}).get("crds")
    if not isinstance(found, str):
        raise ProblemsError(
            Problem(
                what=f"no checksum is recorded for the CRDs of Karmada {version}",
                where=str(lock_file),
                remedy=f"compute it from the publisher's files: make lock VERSION={version} WHAT=crds",
                reason=Reason.CHECKSUM_MISSING,
            )
        )
    return found


def content_hash(files: Mapping[str, bytes]) -> str:
    """Hash over names and contents, independent of order, archive format and time stamps."""
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    # JSON, because it separates names and hashes unambiguously.
    return f"sha256:{hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()}"


def crds(version: str, source: Source, cache: Path | None = None) -> list[dict[str, Any]]:
    """CRDs of one Karmada version, verified. Raises ProblemsError if they are not available or have another hash."""
    expected = locked_hash(version)
    kept = (cache or cache_directory()) / f"karmada-{version}-crds-{expected.removeprefix('sha256:')[:16]}"
    files = _read_directory(kept) if kept.is_dir() else {}
    if content_hash(files) != expected:
        files, where = fetch(version, source)
        found = content_hash(files)
        if found != expected:
            raise ProblemsError(
                Problem(
                    what=f"the CRDs of Karmada {version} have the checksum {found}, not {expected}",
                    where=where,
                    remedy="they are damaged, changed or of another version; take them from the publisher again",
                    reason=Reason.CHECKSUM_MISMATCH,
                )
            )
        _keep(files, kept)
    documents = (each for name in sorted(files) for each in yaml.load_all(files[name], Loader=SAFE_LOADER))
    return [each for each in documents if each]


def fetch(version: str, source: Source) -> tuple[dict[str, bytes], str]:
    """Unverified files (name below ``bases/`` → content), and the place where they were found."""
    if source.directory is not None:
        found = _from_directory(version, source.directory)
        if found:
            return found
        if source.kind == "Directory":
            raise ProblemsError(
                Problem(
                    what=f"the directory holds no CRDs of Karmada {version}",
                    where=str(source.directory),
                    remedy=f"put karmada/{version}/crds.tar.gz (or karmada/{version}/crds/bases) into it",
                    reason=Reason.ARTIFACT_NOT_FOUND,
                )
            )
    if source.kind == "Directory":
        raise no_directory()
    if source.kind == "GoModules":
        base = source.url or _module_proxy()
        url = f"{base.rstrip('/')}/{_MODULE}/@v/{version}.zip"
        prefix = f"{_MODULE}@{version}/{_MODULE_FOLDER}/"
        return _bases(_zip_entries(_download(url), url), prefix), url
    url = f"{(source.url or RELEASE_DOWNLOADS).rstrip('/')}/{version}/crds.tar.gz"
    return _bases(_tar_entries(_download(url), url), "crds/"), url


def no_directory() -> ProblemsError:
    """Error for source Directory if no directory is named."""
    return ProblemsError(
        Problem(
            what="artifacts come from a directory, but the inventory source names none",
            where="spec.artifacts.source",
            remedy="add `artifacts: ./artifacts` to the inventory source",
            reason=Reason.INVALID_ARTIFACT_SOURCE,
        )
    )


def _from_directory(version: str, directory: Path) -> tuple[dict[str, bytes], str] | None:
    folder = directory / "karmada" / version
    archive = folder / "crds.tar.gz"
    if (folder / "crds" / "bases").is_dir():
        return _read_directory(folder / "crds"), str(folder / "crds")
    if archive.is_file():
        return _bases(_tar_entries(archive.read_bytes(), str(archive)), "crds/"), str(archive)
    return None


def _read_directory(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / "bases").rglob("*.yaml"))
        if path.is_file() and not path.is_symlink()
    }


def _keep(files: Mapping[str, bytes], folder: Path) -> None:
    """Cache verified files, all or none. A cache that is not writable only costs another download."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            for name, content in files.items():
                target = Path(scratch) / "kept" / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            shutil.rmtree(folder, ignore_errors=True)
            (Path(scratch) / "kept").rename(folder)
    except OSError:
        return


def _bases(entries: Iterator[tuple[str, bytes]], prefix: str) -> dict[str, bytes]:
    """CRDs among the entries of an archive. Their names are compared only and never used as paths."""
    found = {}
    for name, content in entries:
        path = PurePosixPath(name)
        if ".." in path.parts or path.is_absolute() or not name.startswith(f"{prefix}bases/"):
            continue
        if path.suffix == ".yaml":
            found[name.removeprefix(prefix)] = content
    return found


def _tar_entries(archive: bytes, where: str) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            size = 0
            for member in tar:
                size += member.size
                if size > MOST_BYTES:
                    raise _unreadable(where, f"it unpacks to more than {MOST_BYTES >> 20} MiB")
                stream = tar.extractfile(member) if member.isreg() else None
                if stream:
                    yield member.name.removeprefix("./"), stream.read()
    except (tarfile.TarError, *_BROKEN) as error:
        raise _unreadable(where, str(error)) from None


def _zip_entries(archive: bytes, where: str) -> Iterator[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            size = 0
            for entry in packed.infolist():
                if f"/{_MODULE_FOLDER}/" not in entry.filename:
                    continue
                size += entry.file_size
                if size > MOST_BYTES:
                    raise _unreadable(where, f"it unpacks to more than {MOST_BYTES >> 20} MiB")
                yield entry.filename, packed.read(entry)
    # RuntimeError: it is encrypted or compressed in a way that Python does not support.
    except (zipfile.BadZipFile, RuntimeError, *_BROKEN) as error:
        raise _unreadable(where, str(error)) from None


def _unreadable(where: str, reason: str) -> ProblemsError:
    return ProblemsError(
        Problem(
            what=f"the archive cannot be read: {reason}",
            where=where,
            remedy="fetch it again; it may be cut off",
            reason=Reason.INVALID_ARTIFACT,
        )
    )


def _download(url: str) -> bytes:
    if not allowed(url):
        raise ProblemsError(
            Problem(
                what="artifacts are fetched over https only",
                where=url,
                remedy="set spec.artifacts.url to an https address",
                reason=Reason.INVALID_ARTIFACT_SOURCE,
            )
        )
    try:
        return Https().read(url, MOST_BYTES).content
    except FetchError as error:
        raise ProblemsError(
            Problem(
                what=f"the CRDs of Karmada cannot be fetched: {error}",
                where=url,
                remedy="make the address reachable (proxies are taken from the environment), or take "
                f"them from elsewhere: {OTHER_SOURCES}",
                reason=Reason.ARTIFACT_NOT_AVAILABLE,
            )
        ) from None


def _module_proxy() -> str:
    """Go module proxy of this machine, from the configuration of its go command."""
    configured = os.environ.get("GOPROXY", "")
    go = shutil.which("go")
    if not configured and go:
        configured = subprocess.run([go, "env", "GOPROXY"], capture_output=True, text=True, check=False).stdout.strip()
    for candidate in configured.replace("|", ",").split(","):
        if allowed(candidate):
            return candidate
    raise ProblemsError(
        Problem(
            what="no Go module proxy is configured on this machine",
            where="spec.artifacts.source",
            remedy="set spec.artifacts.url or the environment variable GOPROXY to one",
            reason=Reason.INVALID_ARTIFACT_SOURCE,
        )
    )
