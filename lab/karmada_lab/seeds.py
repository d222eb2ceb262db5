# SPDX-License-Identifier: Apache-2.0
"""Copies of a containerd folder with images in it, so that only the first cluster with a set of images imports them.

Blobs and layers never change once written (a container writes to a layer of its own), so their files are hard links,
which cost neither time nor space; databases are real copies. Across two disks everything is copied.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_KEPT = 3
"""Seeds kept in the cache; a seed is about 1 GB."""

# Copied for real: containerd writes to these in place.
_WRITTEN_IN_PLACE = {".db", ".lock"}

# Of no use to another containerd: sockets, state of containers, unfinished downloads.
_LEFT_OUT = {"ingest", "io.containerd.runtime.v2.task", "tmpmounts"}


def keep(containerd: Path, seed: Path) -> None:
    """Make the seed from a containerd folder whose containerd is stopped. It appears only when it is whole."""
    unfinished = seed.with_name(f".{seed.name}.{os.getpid()}")
    for abandoned in seed.parent.glob(".*"):
        if abandoned.is_dir() and abandoned.name.startswith(f".{seed.name}."):
            shutil.rmtree(abandoned, ignore_errors=True)
    _copy(containerd, unfinished)
    unfinished.rename(seed)
    _prune(seed.parent)


def use(seed: Path, containerd: Path) -> None:
    """Fill a machine's empty containerd folder from the seed."""
    os.utime(seed)
    _copy(seed, containerd)


def _copy(source: Path, target: Path) -> None:
    """Copy with modes and times; owners need no care, all images of the lab belong to root."""
    shutil.copytree(
        source,
        target,
        symlinks=True,
        dirs_exist_ok=True,
        copy_function=_link_or_copy,
        ignore=lambda _, names: [name for name in names if name in _LEFT_OUT],
    )


def _link_or_copy(source: str, target: str) -> None:
    if Path(source).suffix not in _WRITTEN_IN_PLACE:
        try:
            os.link(source, target, follow_symlinks=False)
            return
        except OSError:
            pass
    shutil.copy2(source, target, follow_symlinks=False)


def _prune(folder: Path) -> None:
    seeds = sorted((path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")),
                   key=lambda path: path.stat().st_mtime)  # fmt: skip
    for old in seeds[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
