# SPDX-License-Identifier: Apache-2.0
"""Release downloads, each checked against a SHA-256 sum in the lock file beside this package.

The lock file is computed by `lab artifacts lock` from what the publishers serve; nobody writes a sum into it by hand.
A release that is not in it is refused.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import tarfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from karmada_lab.errors import LabError
from karmada_lab.products import Product
from karmada_lab.shell import say
from karmada_lab.state import read_json, write_json

LOCK_FILE = Path(__file__).resolve().parent.parent / "artifacts.lock.json"

_KUBERNETES = "https://dl.k8s.io/release/{version}/bin/linux/amd64/{name}"
_ETCD = "https://github.com/etcd-io/etcd/releases/download/{version}/etcd-{version}-linux-amd64.tar.gz"
_ETCD_SUMS = "https://github.com/etcd-io/etcd/releases/download/{version}/SHA256SUMS"

_TIMEOUT = 20.0
"""Seconds without an answer after which a download is given up."""


@dataclass(frozen=True)
class Release:
    """A file a publisher serves. member: path of the binary inside it when it is an archive, else ''."""

    address: str
    member: str = ""


def _site(variable: str, template: str) -> str:
    """KARMADA_LAB_<variable> replaces a release site by a mirror of the same layout."""
    return os.environ.get(f"KARMADA_LAB_{variable}") or template


def release(product: Product, name: str) -> Release | None:
    """URL at which the publisher serves a binary; None when it does not."""
    values = {"version": product.version, "name": name}
    if product.name == "kubernetes":
        return Release(_site("KUBERNETES_SITE", _KUBERNETES).format(**values))
    if product.name == "etcd":
        return Release(_site("ETCD_SITE", _ETCD).format(**values), f"etcd-{product.version}-linux-amd64/{name}")
    return None


def publishes(product: Product, names: Sequence[str]) -> bool:
    """Return whether all these binaries can be had as release files."""
    return all(release(product, name) is not None for name in names)


def unusable(product: Product, names: Sequence[str]) -> str | None:
    """Reason why release files cannot be used now, in a few words; None when they can. Takes three seconds at most."""
    locked = _locked()
    found = [item for name in names if (item := release(product, name)) is not None]
    if any(item.address not in locked for item in found):
        return f"no checksums are locked for {product.version} (`lab artifacts lock` computes them)"
    try:
        _open(found[0].address, timeout=3, method="HEAD").close()
    except OSError as error:
        return f"the release site does not answer: {error}"
    return None


def download(product: Product, names: Sequence[str], into: Path, cache: Path) -> None:
    """Get the binaries; each appears only when its checksum was right. Raises LabError otherwise."""
    locked = _locked()
    into.mkdir(parents=True, exist_ok=True)
    for name in names:
        item = release(product, name)
        if item is None:
            raise LabError(f"{product.name} publishes no {name}; use --source go")
        if item.address not in locked:
            raise LabError(
                f"no checksum is locked for {item.address}, so it is not used.\n"
                f"    Compute it from the publisher's files: lab artifacts lock --{product.name} {product.version}\n"
                "    (needs the release site), or build from Go modules: lab artifacts --source go"
            )
        file = _fetch(item.address, locked[item.address], cache)
        _place(file, item, into / name)


def lock(products: Sequence[Product]) -> None:
    """Write the lock file's entries for the products: each file is downloaded, its sum computed, and compared with
    the sum its publisher serves beside it.
    """
    entries: dict[str, str] = dict(_locked())
    for product in products:
        for name in product.packages:
            item = release(product, name)
            if item is None or item.address in entries:
                continue
            sum_computed = hashlib.sha256(_read(item.address)).hexdigest()
            sum_published = _published_sum(product, item)
            if sum_computed != sum_published:
                raise LabError(
                    f"{item.address} has SHA-256 {sum_computed}, its publisher says {sum_published}: not locked.\n"
                    "    Something between here and the publisher changes files, or a release was replaced."
                )
            entries[item.address] = sum_computed
            say(f"ok  {sum_computed}  {item.address}")
            write_json(LOCK_FILE, entries)


def _published_sum(product: Product, item: Release) -> str:
    if product.name == "kubernetes":
        return _read(item.address + ".sha256").decode().split()[0]
    sums = _site("ETCD_SUMS", _ETCD_SUMS).format(version=product.version)
    for line in _read(sums).decode().splitlines():
        words = line.split()
        if len(words) == 2 and words[1] == item.address.rsplit("/", 1)[1]:
            return words[0]
    raise LabError(f"{sums} has no line for {item.address}")


def _locked() -> dict[str, str]:
    return {str(key): str(value) for key, value in read_json(LOCK_FILE).items()}


def _fetch(address: str, expected: str, cache: Path) -> Path:
    target = cache / f"{expected[:16]}-{address.rsplit('/', 1)[1]}"
    if target.exists():
        return target
    content = _read(address)
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise LabError(f"{address} has SHA-256 {found}, the lock file says {expected}: not used, nothing was kept")
    cache.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.rename(target)
    return target


def _place(file: Path, item: Release, target: Path) -> None:
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    if item.member:
        with tarfile.open(file) as archive:
            content = archive.extractfile(item.member)
            if content is None:
                raise LabError(f"{item.address} has no file {item.member}")
            unfinished.write_bytes(content.read())
    else:
        unfinished.write_bytes(file.read_bytes())
    unfinished.chmod(0o755)
    unfinished.rename(target)


def _read(address: str) -> bytes:
    try:
        with _open(address, _TIMEOUT) as answer:
            return answer.read()
    except OSError as error:
        raise LabError(
            f"{address} cannot be had: {error}\n"
            "    Check the network or name a mirror (see README), or build from Go modules: --source go"
        ) from error


def _open(address: str, timeout: float, method: str = "GET") -> http.client.HTTPResponse:
    """Ask the site. Raises OSError when it does not answer, or not with success."""
    if not address.startswith(("https://", "http://")):
        raise LabError(f"{address} is not a web address")
    request = urllib.request.Request(address, method=method)  # noqa: S310 - the scheme was looked at
    answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=timeout)  # noqa: S310 - likewise
    return answer
