# SPDX-License-Identifier: Apache-2.0
"""Programs of a control plane on a plain host: side by side by version, each known by its checksum.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).
A program is ``{path, sha256}``; ``arrived`` is where Ansible's connection has put a file that belongs to one of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils.host_tree import HostError, System

Program = dict[str, Any]


def missing(system: System, programs: list[Program]) -> list[Program]:
    """Those that are not there, or not as they should be."""
    return [program for program in programs if _sha256(system.path(program["path"])) != program["sha256"]]


def install(system: System, programs: list[Program], arrived: dict[str, str]) -> None:
    """Move what has arrived (sha256 → file) to its place, after another look at it.

    Never over a program that runs: the new file takes the name, and the process keeps the old one until it is restarted.
    """
    for program in programs:
        source, target = Path(arrived[program["sha256"]]), system.path(program["path"])
        if _sha256(source) != program["sha256"]:
            raise HostError(f"what arrived for {program['path']} is damaged: its checksum is not {program['sha256']}")
        _make_folders(target.parent)
        beside = target.with_name(f".{target.name}.new")
        shutil.copyfile(source, beside)
        beside.chmod(0o755)
        os.chown(beside, 0, 0)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        beside.rename(target)


def remove(system: System, folder: str, kept: list[str], check: bool = False) -> list[str]:
    """Take away the versions below ``folder`` that are not named in ``kept``; returns them."""
    base = system.path(folder)
    if not base.is_dir():
        return []
    gone = sorted(path.name for path in base.iterdir() if path.name not in kept)
    if not check:
        for name in gone:
            shutil.rmtree(base / name)
        if not any(base.iterdir()):
            base.rmdir()
    return gone


def _make_folders(folder: Path) -> None:
    """Readable for the users of the components whatever the umask of this session is."""
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            path.mkdir()
            path.chmod(0o755)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except FileNotFoundError:
        return ""
    return digest.hexdigest()
