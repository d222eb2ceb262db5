# SPDX-License-Identifier: Apache-2.0
"""Programs of a control plane on a plain host: side by side by version, each with its checksum.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).
A program is ``{path, sha256}``; ``arrived`` is the file to which Ansible's connection has copied one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils import host_lock
from ansible_collections.karmada.installer.plugins.module_utils.host_system import (
    UNIT_FOLDER,
    HostError,
    System,
    writing,
)

Program = dict[str, Any]
#: In the folder of a version: program → checksum, and the stat values that prove the file unchanged without reading it.
RECORD = ".checksums.json"
_HALF = re.compile(r"\..+\.new")


def intact(system: System, folder: str) -> dict[str, str]:
    """Programs below a folder that are unchanged since ``install``: path → SHA-256 in hex."""
    found = {}
    for record in sorted(system.path(folder).glob(f"*/{RECORD}")):
        for name, entry in _read(record).items():
            if _stamp(record.parent / name) == entry["stamp"]:
                found[f"/{(record.parent / name).relative_to(system.root)}"] = entry["sha256"]
    return found


def install(system: System, programs: list[Program], arrived: dict[str, str]) -> None:
    """Copy the files that have arrived (sha256 → file) to their places, and verify their checksums there.

    No running program is overwritten: the new file takes its name, and the process keeps the old one until a restart.
    """
    for program in programs:
        # Another control plane may need the same one at the same moment.
        with host_lock.shared(system, alone=True):
            _install_whole(system, program, Path(arrived[program["sha256"]]))


def _install_whole(system: System, program: Program, arrived: Path) -> None:
    target = system.path(program["path"])
    beside, fresh = target.with_name(f".{target.name}.new"), target.with_name(f"{RECORD}.new")
    try:
        with writing(target):
            _install_one(program, arrived, target, beside, fresh)
    finally:
        for half in (beside, fresh):
            half.unlink(missing_ok=True)
        _remove_empty(target.parent, target.parent.parent)


def _install_one(program: Program, arrived: Path, target: Path, beside: Path, fresh: Path) -> None:
    _make_folders(target.parent)
    if _copied(arrived, beside) != program["sha256"]:
        raise HostError(f"what arrived for {program['path']} is damaged: its checksum is not {program['sha256']}")
    beside.chmod(0o755)
    os.chown(beside, 0, 0)
    beside.rename(target)
    record = target.with_name(RECORD)
    entries = {**_read(record), target.name: {"sha256": program["sha256"], "stamp": _stamp(target)}}
    fresh.write_text(json.dumps(entries, indent=2, sort_keys=True) + "\n")
    fresh.chmod(0o644)
    fresh.rename(record)


def remove_unused(system: System, folder: str, instance: str, check: bool = False) -> list[str]:
    """Remove versions that we installed and that no unit of this host names; returns their folders.

    None while a run works on another control plane than ``instance``: its units may be about to name one.
    """
    with host_lock.shared(system, alone=True):
        if host_lock.others_at_work(system, instance):
            return []
        gone = _unused(system, folder)
        if not check:
            for each in gone:
                shutil.rmtree(each)
            if gone:
                _remove_empty(system.path(folder))
    return [f"{folder}/{each.name}" for each in gone]


def _unused(system: System, folder: str) -> list[Path]:
    named = "\n".join(
        unit.read_text(errors="replace") for unit in system.path(UNIT_FOLDER).glob("*.service") if unit.is_file()
    )
    return [
        each
        for each in sorted(system.path(folder).glob("*/"))
        if _is_ours(each) and f"{folder}/{each.name}/" not in named
    ]


def _is_ours(folder: Path) -> bool:
    """Return whether ``install`` made this folder, even if a power failure ended it before the first program."""
    content = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    return RECORD in content or (bool(content) and all(_HALF.fullmatch(name) for name in content))


def _remove_empty(*folders: Path) -> None:
    """Remove folders, as far as they are empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _make_folders(folder: Path) -> None:
    """Create folders that the users of components can read, whatever the umask of this session is."""
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            path.mkdir()
            path.chmod(0o755)


def _copied(source: Path, target: Path) -> str:
    """Copy a file; returns the SHA-256 of the written content."""
    digest = hashlib.sha256()
    with source.open("rb") as reader, target.open("wb") as writer:
        for block in iter(lambda: reader.read(1 << 20), b""):
            digest.update(block)
            writer.write(block)
        writer.flush()
        os.fsync(writer.fileno())
    return digest.hexdigest()


def _read(record: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(record.read_text())
    except (OSError, ValueError):
        return {}
    return found


def _stamp(path: Path) -> list[int]:
    """Values that change whenever a file is written, replaced, or gets other permissions."""
    try:
        found = path.stat()
    except OSError:
        return []
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
