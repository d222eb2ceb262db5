# SPDX-License-Identifier: Apache-2.0
"""File in which a run leaves which rules held for what they saw, so that the next one need not evaluate them again.

To evaluate the ten rules that a small document needs takes a sixth of a run that finds nothing to do, nearly all of it
for the parser of CEL. The file has digests only; one that no run of this version and its libraries has written, or
that others may write, counts for nothing. Without it a run takes longer, and decides the same. Each version and each
environment of Python has a file of its own, or those that share a machine would forget what the others know.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from .. import private_file
from . import cel_rules

#: Digests that are kept; a document needs some tens.
_MOST = 2000
#: Files that are kept: those that were written last.
_MOST_FILES = 8


def folder() -> Path:
    """Folder of the files on the machine that runs Ansible."""
    return private_file.cache_folder()


def file() -> Path:
    """Path of the file of this version and its libraries."""
    return folder() / f"rules-{_fingerprint()[:16]}"


@contextmanager
def used() -> Iterator[None]:
    """Know what held in earlier runs, and leave what held now. What goes wrong with the file is no matter."""
    with suppress(OSError, RuntimeError):
        cel_rules.HELD.update(_read(file()))
    known = set(cel_rules.HELD)
    yield
    if new := cel_rules.HELD - known:
        with suppress(OSError, RuntimeError):
            # Of too many, those of the document at hand stay.
            kept = [*sorted(new), *sorted(known)][:_MOST]
            private_file.write(file(), "\n".join([_fingerprint(), *kept]))
            _forget_unused(file())


def _forget_unused(used_now: Path) -> None:
    """Remove the files that no run has written for longest, and the one that earlier versions shared."""
    by_age = sorted(used_now.parent.glob("rules-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in [*by_age[_MOST_FILES:], used_now.parent / "rules"]:
        path.unlink(missing_ok=True)


def _read(path: Path) -> set[str]:
    with path.open(encoding="ascii", errors="replace") as stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            return set()
        lines = stream.read(_MOST * 100).split("\n")
    return set(lines[1:]) if lines[0] == _fingerprint() else set()


@functools.cache
def _fingerprint() -> str:
    """Digest of all that decides what a rule says, beside the rule and what it sees."""
    here = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("c*.py"))]
    library = find_spec("celpy")
    # By its path: the text of what finds it has an address of memory, which is another one in each process.
    # An environment that has two names is one.
    path = Path(library.origin).resolve() if library and library.origin else None
    there = [str(path), str(path.stat().st_mtime_ns)] if path else []
    return hashlib.sha256(b"\0".join([*here, *map(str.encode, there)])).hexdigest()
