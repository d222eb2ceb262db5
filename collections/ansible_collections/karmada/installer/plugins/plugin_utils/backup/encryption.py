# SPDX-License-Identifier: Apache-2.0
"""Encryption of backups to public keys of age, and decryption with one of the private keys, both as streams.

The private keys belong to people. A run that takes backups never has one; a run that restores reads them from a file of
the machine that it runs on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ..libraries import missing_library
from ..problems import Problem, ProblemsError, Reason
from .record import StoredFile

_COMMENT = "#"


class Writable(Protocol):
    """Whatever takes bytes."""

    def write(self, content: bytes, /) -> object:
        """Take them."""


class Hashed:
    """Sink that keeps nothing but the size and the SHA-256 (hex) of what is written to it."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        """Hash of everything so far."""
        return self._digest.hexdigest()

    def write(self, content: bytes, /) -> int:
        """Count and forget."""
        self._digest.update(content)
        self.size += len(content)
        return len(content)


class _Counted:
    """Stream that counts and hashes what passes; keeps the error of its file, which pyrage turns into text."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.passed = Hashed()
        self.error: OSError | None = None

    def read(self, size: int = -1) -> bytes:
        try:
            content = self._stream.read(size)
        except OSError as error:
            self.error = error
            raise
        self.passed.write(content)
        return content

    def write(self, content: bytes) -> int:
        try:
            self._stream.write(content)
        except OSError as error:
            self.error = error
            raise
        return self.passed.write(content)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self.error = error
            raise


def recipients(texts: Sequence[str], where: str) -> list[Any]:
    """Public keys that can be encrypted to. ``where`` is the place of the list.

    Raises ProblemsError with each that is none.
    """
    age = _age()
    found, problems = [], []
    for number, text in enumerate(texts):
        try:
            found.append(age.x25519.Recipient.from_str(text))
        except age.RecipientError as error:
            remedy = "write the public key as age-keygen prints it; a letter of this one is wrong"
            place = f"{where}[{number}]"
            problems.append(Problem(f"is no public key of age: {error}", place, remedy, reason=Reason.INVALID_DOCUMENT))
    if problems:
        raise ProblemsError(problems)
    return found


def identities(text: str, where: str) -> list[Any]:
    """Private keys in a file of ``age-keygen``; empty lines and comments are passed over. Raises ProblemsError."""
    age = _age()
    lines = [line.strip() for line in text.splitlines()]
    try:
        found = [age.x25519.Identity.from_str(line) for line in lines if line and not line.startswith(_COMMENT)]
    except age.IdentityError:
        found = []
    if not found:
        # The library's message could quote a key.
        remedy = "name the file that age-keygen wrote: each line a comment, or AGE-SECRET-KEY-1 and so on"
        raise ProblemsError(Problem("has no private keys of age", where, remedy, reason=Reason.INVALID_SECRET))
    return found


def identities_of(path: str) -> list[Any]:
    """Private keys in the file of this path. Raises ProblemsError."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        what = f"cannot be read: {(error.strerror or str(error)).lower()}"
        remedy = "name the file with a private key of a recipient"
        raise ProblemsError(Problem(what, path, remedy, reason=Reason.LOCAL_FILE_UNUSABLE)) from None
    return identities(text, path)


def encrypt(plain: BinaryIO, into: BinaryIO, to: Sequence[Any]) -> StoredFile:
    """Encrypt a file, from where it stands to its end; returns sizes and hashes of both sides.

    Raises OSError if a file cannot be read or written.
    """
    age = _age()
    source, target = _Counted(plain), _Counted(into)
    try:
        age.encrypt_io(source, target, list(to))
        target.flush()
    except age.EncryptError as error:
        raise (source.error or target.error or OSError(str(error))) from None
    return _stored(target.passed, source.passed)


def decrypt(encrypted: BinaryIO, into: BinaryIO, keys: Sequence[Any], where: str) -> StoredFile:
    """Decrypt a file into an empty one; returns sizes and hashes of both sides.

    Raises ProblemsError if no key opens it or it is damaged, OSError if a file cannot be read or written; ``into`` is
    empty then, because what was decrypted before the damage is not to be used.
    """
    age = _age()
    source, target = _Counted(encrypted), _Counted(into)
    try:
        age.decrypt_io(source, target, list(keys))
        target.flush()
    except (age.DecryptError, OSError) as error:
        into.seek(0)
        into.truncate()
        # Damage is an OSError of the library's, too; those of the files are known.
        if lost := source.error or target.error:
            raise lost from None
        remedy = "use a private key of one of its recipients, or another backup"
        raise ProblemsError(
            Problem(f"cannot be decrypted: {error}", where, remedy, reason=Reason.INVALID_BACKUP)
        ) from None
    return _stored(source.passed, target.passed)


def reader_only(path: str, flags: int) -> int:
    """Opener for ``open``: files that only their owner can read, that are new, and that no link stands for."""
    return os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW, 0o600)


def _stored(encrypted: Hashed, plain: Hashed) -> StoredFile:
    return StoredFile(encrypted.size, encrypted.sha256, plain.size, plain.sha256)


def _age() -> Any:
    try:
        import pyrage  # noqa: PLC0415 - only backups need it
    except ImportError:
        raise missing_library("pyrage", "backups") from None
    return pyrage
