# SPDX-License-Identifier: Apache-2.0
"""Extraction of one file from the layers of a container image, resolved as in a container.

An archive is treated as a single layer. Nothing is unpacked: the layers become a tree of names in memory, in which
links are followed and cannot leave the root. Only the one file is then read.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import BinaryIO

CHUNK = 1 << 20
#: Unpacked size. Karmada's images have less than 200 MiB, those of a distribution less than 1 GiB.
MOST_BYTES = 4 << 30
MOST_PROGRAM_BYTES = 1 << 30
MOST_ENTRIES = 500_000
#: Links on the way to a file; the limit of the kernel, too.
MOST_LINKS = 40

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


class ImageError(Exception):
    """Reason why the file cannot be extracted from the image, in words for a person."""


@dataclass
class _File:
    layer: BinaryIO
    entry: tarfile.TarInfo


@dataclass
class _Link:
    target: str


@dataclass
class _Folder:
    children: dict[str, _Node] = field(default_factory=dict)


@dataclass
class _Other:
    """A device or a pipe: exists, but has no content."""


_Node = _File | _Link | _Folder | _Other


def decompress(packed: BinaryIO, compression: str, into: BinaryIO, most_bytes: int = MOST_BYTES) -> None:
    """Write an archive as a plain tar file; ``compression`` is ``gzip`` or empty.

    Raises ImageError if it is damaged or larger than ``most_bytes``.
    """
    packed.seek(0)
    size = 0
    # 31: gzip with its own header and checksum.
    machine = zlib.decompressobj(31) if compression else None
    try:
        while chunk := packed.read(CHUNK):
            while chunk:
                content = machine.decompress(chunk, CHUNK) if machine else chunk
                chunk = machine.unconsumed_tail if machine else b""
                size += len(content)
                if size > most_bytes:
                    raise ImageError(f"it unpacks to more than {most_bytes >> 20} MiB")
                into.write(content)
                if machine and machine.eof and machine.unused_data:
                    # gzip allows for several streams in a file.
                    chunk, machine = machine.unused_data, zlib.decompressobj(31)
    except zlib.error as error:
        raise ImageError(f"it cannot be unpacked: {error}") from None
    if machine and not machine.eof:
        raise ImageError("it cannot be unpacked: its end is missing")


def extract(layers: Sequence[BinaryIO], path: str, into: BinaryIO) -> None:
    """Copy the file at this path of the image. ``layers`` are plain tar files, the lowest first.

    Raises ImageError if there is no such file, if a layer is damaged, or if it is too large.
    """
    root = _Folder()
    try:
        for layer in layers:
            _apply(root, layer)
        found = _resolve(root, path)
        if not isinstance(found, _File):
            raise ImageError(f"it has no file {path}")
        _copy(found, path, into)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise ImageError(f"it cannot be read: {error}") from None


def _copy(found: _File, path: str, into: BinaryIO) -> None:
    if found.entry.size > MOST_PROGRAM_BYTES:
        raise ImageError(f"{path} is larger than {MOST_PROGRAM_BYTES >> 20} MiB")
    found.layer.seek(0)
    with tarfile.open(fileobj=found.layer, mode="r:") as tar:
        content = tar.extractfile(found.entry)
        if content is None:
            raise ImageError(f"it has no file {path}")
        left = found.entry.size
        while chunk := content.read(min(CHUNK, left)):
            into.write(chunk)
            left -= len(chunk)
    if left:
        raise ImageError(f"it ends in the middle of {path}")


def _apply(root: _Folder, layer: BinaryIO) -> None:
    """Apply one layer. Its whiteouts hide only entries of lower layers, wherever in the archive they are."""
    layer.seek(0)
    with tarfile.open(fileobj=layer, mode="r:") as tar:
        entries = []
        for entry in tar:
            entries.append((_parts(entry.name), entry))
            if len(entries) > MOST_ENTRIES:
                raise ImageError(f"it has more than {MOST_ENTRIES} files")
    for parts, _ in entries:
        if parts and parts[-1].startswith(_WHITEOUT):
            _remove(root, parts)
    for parts, entry in entries:
        if parts and not parts[-1].startswith(_WHITEOUT):
            _add(root, parts, entry, layer)


def _parts(name: str) -> tuple[str, ...]:
    """Path components from the root of the image; ``..`` cannot go above the root."""
    steps: list[str] = []
    for part in PurePosixPath(name).parts:
        if part == "..":
            del steps[-1:]
        elif part not in ("/", "//", "."):
            steps.append(part)
    return tuple(steps)


def _remove(root: _Folder, parts: tuple[str, ...]) -> None:
    folder = _folder(root, parts[:-1])
    if folder is None:
        return
    if parts[-1] == _OPAQUE:
        folder.children.clear()
    else:
        folder.children.pop(parts[-1].removeprefix(_WHITEOUT), None)


def _add(root: _Folder, parts: tuple[str, ...], entry: tarfile.TarInfo, layer: BinaryIO) -> None:
    folder = _folder(root, parts[:-1], create=True)
    if folder is None:
        raise ImageError(f"it puts {entry.name} below something that is not a folder")
    name = parts[-1]
    if entry.isdir():
        present = folder.children.get(name)
        # A folder keeps an existing folder; it replaces a link to one.
        if not isinstance(present, _Folder):
            folder.children[name] = _Folder()
    elif entry.issym():
        folder.children[name] = _Link(entry.linkname)
    elif entry.islnk():
        target = _parts(entry.linkname)
        beside = _folder(root, target[:-1]) if target else None
        linked = beside.children.get(target[-1]) if beside else None
        if not isinstance(linked, (_File, _Link)):
            raise ImageError(f"{entry.name} is another name of {entry.linkname}, which it does not have")
        folder.children[name] = linked
    else:
        folder.children[name] = _File(layer, entry) if entry.isreg() else _Other()


def _folder(root: _Folder, parts: tuple[str, ...], *, create: bool = False) -> _Folder | None:
    """Folder at this path, through links; created with its parents on demand. None if something else is there."""
    here, todo, links = [root], list(reversed(parts)), 0
    while todo:
        step = todo.pop()
        if step == "..":
            here = here[:-1] or here
            continue
        node = here[-1].children.get(step)
        if node is None and create:
            node = here[-1].children[step] = _Folder()
        if isinstance(node, _Link):
            links += 1
            if links > MOST_LINKS:
                raise ImageError(f"links go in circles at {'/'.join(parts)}")
            here = [root] if node.target.startswith("/") else here
            todo += [part for part in reversed(PurePosixPath(node.target).parts) if part not in ("/", "//", ".")]
        elif isinstance(node, _Folder):
            here.append(node)
        else:
            return None
    return here[-1]


def _resolve(root: _Folder, path: str) -> _Node | None:
    """Node at this path, through links, which cannot lead out of the image: ``..`` stops at its root."""
    folder_parts, name = list(_parts(path)[:-1]), path.rpartition("/")[2]
    for _ in range(MOST_LINKS):
        folder = _folder(root, tuple(folder_parts))
        node = folder.children.get(name) if folder else None
        if not isinstance(node, _Link):
            return node
        target = PurePosixPath(node.target)
        name = target.name
        steps = [part for part in target.parent.parts if part not in ("/", "//", ".")]
        folder_parts = steps if target.is_absolute() else [*folder_parts, *steps]
    raise ImageError(f"links go in circles at {path}")
