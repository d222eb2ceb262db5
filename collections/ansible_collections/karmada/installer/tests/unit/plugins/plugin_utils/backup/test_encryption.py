# SPDX-License-Identifier: Apache-2.0
"""Encryption to public keys of age: what comes back, and that nothing does of what is damaged or not ours."""

from __future__ import annotations

import errno
import hashlib
import io
import sys
from pathlib import Path
from typing import Any

import pyrage
import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import encryption
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from hypothesis import given, settings
from hypothesis import strategies as st

OURS, SECOND, OTHER = (pyrage.x25519.Identity.generate() for _ in range(3))
PUBLIC = [str(OURS.to_public()), str(SECOND.to_public())]
TO = encryption.recipients(PUBLIC, "spec.recipients")
#: Larger than the parts in which age works.
CONTENT = b"0123456789abcdef" * 20_000


def encrypted(content: bytes = CONTENT) -> bytes:
    target = io.BytesIO()
    encryption.encrypt(io.BytesIO(content), target, TO)
    return target.getvalue()


ENCRYPTED = encrypted()


def refusal(content: bytes, *keys: Any) -> str:
    """Message; nothing is left of what had been decrypted before."""
    target = io.BytesIO()
    with pytest.raises(ProblemsError) as caught:
        encryption.decrypt(io.BytesIO(content), target, keys or [OURS], "prod/snapshot.age")
    assert target.getvalue() == b""
    (problem,) = caught.value.problems
    assert problem.reason is Reason.INVALID_BACKUP
    return str(problem)


@pytest.mark.parametrize("key", [OURS, SECOND], ids=["first", "second"])
def test_each_private_key_alone_opens_it(key: Any) -> None:
    target = io.BytesIO()
    stored = encryption.decrypt(io.BytesIO(ENCRYPTED), target, [OTHER, key], "here")
    assert target.getvalue() == CONTENT
    assert (stored.size, stored.sha256) == (len(ENCRYPTED), hashlib.sha256(ENCRYPTED).hexdigest())
    assert (stored.plain_size, stored.plain_sha256) == (len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@given(st.binary(max_size=200_000))
@settings(max_examples=20)
def test_whatever_goes_in_comes_out(content: bytes) -> None:
    sealed, target = io.BytesIO(), io.BytesIO()
    stored = encryption.encrypt(io.BytesIO(content), sealed, TO)
    assert stored.sha256 == hashlib.sha256(sealed.getvalue()).hexdigest()
    sealed.seek(0)
    assert encryption.decrypt(sealed, target, [OURS], "here") == stored
    assert target.getvalue() == content


def test_nothing_of_the_content_is_readable() -> None:
    assert CONTENT[:16] not in ENCRYPTED
    assert encrypted() != ENCRYPTED


def test_the_key_of_somebody_else_opens_nothing() -> None:
    assert "cannot be decrypted: No matching keys found" in refusal(ENCRYPTED, OTHER)


# Tests have the same names in every process, though keys are made anew in each.
@pytest.mark.parametrize(
    "cut", [1, 1000, 4096, len(ENCRYPTED) // 2, len(ENCRYPTED)], ids=["a byte", "1000", "4096", "half", "all"]
)
def test_a_cut_file_is_refused_and_leaves_nothing(cut: int) -> None:
    assert "cannot be decrypted" in refusal(ENCRYPTED[:-cut])


@given(st.integers(0, len(ENCRYPTED) - 1), st.integers(1, 255))
@settings(max_examples=30)
def test_a_changed_byte_is_refused_and_leaves_nothing(place: int, flip: int) -> None:
    changed = bytearray(ENCRYPTED)
    changed[place] ^= flip
    assert "cannot be decrypted" in refusal(bytes(changed))


def test_more_behind_the_end_is_refused() -> None:
    assert "cannot be decrypted" in refusal(ENCRYPTED + b"more")


class Full(io.BytesIO):
    """A disk with no room left after a while."""

    def write(self, content: Any, /) -> int:
        if self.tell() > 100_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(content)


class Lost(io.BytesIO):
    """A disk that goes away."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > 100_000:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(size)


def test_errors_of_files_stay_what_they_are() -> None:
    """And do not turn into errors of the encryption, which would send people to the wrong place."""
    with pytest.raises(OSError, match="No space left"):
        encryption.encrypt(io.BytesIO(CONTENT), Full(), TO)
    with pytest.raises(OSError, match="Input/output"):
        encryption.encrypt(Lost(CONTENT), io.BytesIO(), TO)
    for source, target, part in (
        (io.BytesIO(ENCRYPTED), Full(), "No space left"),
        (Lost(ENCRYPTED), io.BytesIO(), "Input/output"),
    ):
        with pytest.raises(OSError, match=part):
            encryption.decrypt(source, target, [OURS], "here")
        assert target.getvalue() == b""


def test_a_public_key_with_a_wrong_letter_is_named_by_its_place() -> None:
    wrong = PUBLIC[0][:-1] + ("q" if PUBLIC[0][-1] != "q" else "p")
    with pytest.raises(ProblemsError) as caught:
        encryption.recipients([PUBLIC[1], wrong, "age1"], "EtcdBackup nightly: spec.recipients")
    first, second = caught.value.problems
    assert first.where == "EtcdBackup nightly: spec.recipients[1]"
    assert second.where.endswith("[2]")
    assert first.reason is Reason.INVALID_DOCUMENT


def test_private_keys_are_read_as_age_keygen_writes_them() -> None:
    text = f"# created: 2026-11-25\n# public key: {PUBLIC[0]}\n{OURS}\n\n{SECOND}\n"
    found = encryption.identities(text, "keys.txt")
    assert [str(each.to_public()) for each in found] == PUBLIC


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", f"{OURS}x\n", "AGE-SECRET-KEY-1NOTAKEY", PUBLIC[0]],
    ids=["empty", "a comment", "too long", "no key", "a public key"],
)
def test_a_file_without_private_keys_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(ProblemsError) as caught:
        encryption.identities(text, "keys.txt")
    assert str(OURS)[:30] not in str(caught.value)
    assert "NOTAKEY" not in str(caught.value)


def test_files_of_ours_are_for_their_owner_and_new(tmp_path: Path) -> None:
    path = tmp_path / "plain"
    with open(path, "xb", opener=encryption.reader_only) as stream:
        stream.write(b"x")
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for taken in (path, tmp_path / "link"):
        with pytest.raises(FileExistsError), open(taken, "wb", opener=encryption.reader_only):
            pass


def test_a_missing_library_is_told_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyrage", None)
    with pytest.raises(
        ProblemsError, match=r"pyrage \(module pyrage\) is missing; backups need it.*pip install pyrage"
    ):
        encryption.recipients(PUBLIC, "here")
