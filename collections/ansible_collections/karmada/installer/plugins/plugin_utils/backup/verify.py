# SPDX-License-Identifier: Apache-2.0
"""Verification of a backup that lies in a target: fetched, compared with its record and, with a private key, restored.

Without a private key it is proved that what lies there is what was stored: then it had been restored on trial. With
one, it is decrypted and restored on trial again, as before a restore. What is decrypted goes with the step.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..components.state import State
from ..document.recorded import read_state
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run
from . import encryption, take, verification, workplace
from .encryption import Hashed
from .record import KEYS, SNAPSHOT, Level, Record, StoredFile
from .targets import Target
from .trial import Programs

#: A state is at most as large as a Secret, and its files are in base64.
_MOST_KEYS = 16 << 20


def verify(run: Run, target: Target, found: Record, keys: Sequence[Any]) -> list[str]:
    """Verify a backup; returns the proofs that it has passed now. Raises ProblemsError if it is of no use.

    ``keys`` are private keys of recipients; empty if there are none here.
    """
    where = place(target, found)
    if not keys:
        for file, expected in found.files.items():
            sink = Hashed()
            target.get(found.name, file, sink)
            _compare((sink.size, sink.sha256), (expected.size, expected.sha256), f"{where}/{file}")
        return ["stored"]
    try:
        with workplace.opened() as folder:
            return ["stored", "decrypted", *_restored(run, target, found, keys, folder, where)]
    except OSError as error:
        raise workplace.unusable(error) from None


def _restored(run: Run, target: Target, found: Record, keys: Sequence[Any], folder: Path, where: str) -> list[str]:
    plain = opened(run, target, found, keys, folder)
    status = verification.status(plain.snapshot, plain.programs, where)
    content = verification.restored(plain.snapshot, status, plain.programs, plain.folder, where)
    verification.require_objects(content, where)
    told = (status.revision, status.keys, content.hash.value, dict(content.counts))
    expected = (found.revision, found.total_keys, found.hash, dict(found.counts))
    if told != expected:
        raise refused(f"what it holds is not what its record says: {told}, and not {expected}", where)
    return [Level.TRAILER, Level.STATUS, Level.RESTORED]


@dataclass(frozen=True)
class Plain:
    """Backup that was fetched and decrypted; ``folder`` is empty, for its owner only, and has room for its data."""

    state: State
    snapshot: Path
    programs: Programs
    folder: Path


def opened(run: Run, target: Target, found: Record, keys: Sequence[Any], folder: Path) -> Plain:
    """Fetch and decrypt a backup into a folder. Raises ProblemsError if it is of no use, and OSError."""
    where = place(target, found)
    workplace.require_room(folder, sum(each.size + 2 * each.plain_size for each in found.files.values()))
    state = state_of(decrypted(target, found, KEYS, keys, folder, where), f"{where}/{KEYS}")
    snapshot = decrypted(target, found, SNAPSHOT, keys, folder, where)
    tools = take.runnable(take.programs(run), folder)
    _require_minor(run, found, where)
    verification.check(snapshot, where)
    trial = folder / "trial"
    trial.mkdir(mode=0o700)
    return Plain(state, snapshot, tools, trial)


def place(target: Target, found: Record) -> str:
    """Place of a backup, for messages."""
    return f"{target.where.rstrip('/')}/{found.name}"


def state_of(path: Path, where: str) -> State:
    """State in the decrypted file of keys. Raises ProblemsError if it cannot be used."""
    try:
        text = path.read_bytes()
        if len(text) > _MOST_KEYS:
            raise ValueError("it is too large")
        plain = json.loads(text)
        files = {str(name): base64.b64decode(content, validate=True) for name, content in plain["state"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error):
        raise refused("its keys are not in the form that this collection writes", where) from None
    return read_state(files, where)


def decrypted(target: Target, found: Record, file: str, keys: Sequence[Any], folder: Path, where: str) -> Path:
    """Plain file of a backup, compared with its record on both sides of the encryption. Raises ProblemsError."""
    expected = found.files.get(file)
    if expected is None:
        raise refused(f"it has no {file}", where)
    encrypted, plain = folder / file, folder / file.removesuffix(".age")
    with open(encrypted, "xb", opener=encryption.reader_only) as sink:
        target.get(found.name, file, sink)
    with encrypted.open("rb") as source, open(plain, "xb", opener=encryption.reader_only) as sink:
        got = encryption.decrypt(source, sink, keys, f"{where}/{file}")
    encrypted.unlink()
    _compare(_both(got), _both(expected), f"{where}/{file}")
    return plain


def _both(stored: StoredFile) -> tuple[object, ...]:
    return stored.size, stored.sha256, stored.plain_size, stored.plain_sha256


def _compare(got: tuple[object, ...], expected: tuple[object, ...], where: str) -> None:
    if got != expected:
        raise refused("it is not what was stored, by its size and hash", where)


def _require_minor(run: Run, found: Record, where: str) -> None:
    """Snapshots are judged and restored by programs of the minor that wrote them."""
    here = run.instance.release.etcd
    if here.split(".")[:2] != found.versions.etcd.split(".")[:2]:
        raise refused(f"it is of etcd {found.versions.etcd}, and the control plane has {here}", where)


def refused(what: str, where: str) -> ProblemsError:
    """Error for a backup that cannot be used."""
    remedy = "use another backup, and look after the store"
    return ProblemsError(Problem(what, where, remedy, reason=Reason.INVALID_BACKUP))
