# SPDX-License-Identifier: Apache-2.0
"""Content-addressed cache of program files on the machine that Ansible runs on.

A file ``sha256/<hash>`` is hashed again before every use, and not used if it differs. ``found/<key>`` records the hash
of the program from a source whose own checksum is of something larger (an image, an archive, a set of sources).

Files appear complete or not at all, so any number of runs can share a cache; two that fetch the same file both put the
same content in place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from ..problems import Problem, ProblemsError, Reason

CHUNK = 1 << 20
_UNFINISHED = ".unfinished-"
#: Seconds between two looks at whether a wait is to end.
_LOOK_SECONDS = 0.5
#: Age from which an unfinished file belongs to a run that was killed.
_ABANDONED_SECONDS = 86400


@dataclass(frozen=True)
class Kept:
    """File of the cache: its path, its SHA-256 in hex, its size in bytes."""

    path: Path
    sha256: str
    size: int


class ProgramCache:
    """Folder of verified files. Raises ProblemsError if it cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files, self._found = folder / "sha256", folder / "found"
        try:
            # For the owner only: a program from here is trusted by what ``found`` says.
            for each in (folder, self._files, self._found):
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._forget_abandoned()
        except OSError as error:
            raise self._problem(error) from None

    def get(self, sha256: str) -> Kept | None:
        """File with this hash, verified now; None if there is none. A damaged one is removed."""
        path = self._files / sha256
        try:
            with path.open("rb") as content:
                size = os.fstat(content.fileno()).st_size
                if hashlib.file_digest(content, "sha256").hexdigest() == sha256:
                    return Kept(path, sha256, size)
            path.unlink(missing_ok=True)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._problem(error) from None
        return None

    def has(self, sha256: str) -> bool:
        """Return whether a file exists under this hash; it is not verified."""
        return (self._files / sha256).is_file()

    def put(self, content: BinaryIO) -> Kept:
        """Store this content, from its beginning, under the hash computed while it is written."""
        try:
            content.seek(0)
            with self._whole(self._files) as (scratch, stream):
                digest, size = hashlib.sha256(), 0
                while chunk := content.read(CHUNK):
                    digest.update(chunk)
                    stream.write(chunk)
                    size += len(chunk)
                stream.flush()
                # A power cut must not leave a name without its content.
                os.fsync(stream.fileno())
                path = self._files / digest.hexdigest()
                scratch.replace(path)
            return Kept(path, digest.hexdigest(), size)
        except OSError as error:
            raise self._problem(error) from None

    def recall(self, source: Mapping[str, str]) -> str | None:
        """Recorded hash of the program from exactly this source; None if it was never fetched."""
        try:
            found = json.loads(self._note(source).read_text())
        except (OSError, ValueError):
            return None
        # The note contains its source, so that a note under a wrong name is ignored.
        sha256 = found.get("sha256") if isinstance(found, dict) and found.get("source") == dict(source) else None
        return sha256 if isinstance(sha256, str) else None

    def remember(self, source: Mapping[str, str], sha256: str) -> None:
        """Record the hash of the program from this source."""
        try:
            with self._whole(self._found) as (scratch, stream):
                stream.write(json.dumps({"source": dict(source), "sha256": sha256}).encode())
                stream.flush()
                scratch.replace(self._note(source))
        except OSError as error:
            raise self._problem(error) from None

    @contextlib.contextmanager
    def scratch(self) -> Iterator[BinaryIO]:
        """Nameless file on the cache's disk; it disappears with the process, however that ends."""
        try:
            with tempfile.TemporaryFile(dir=self.folder) as stream:
                yield stream
        except OSError as error:
            raise self._problem(error) from None

    @contextlib.contextmanager
    def alone(self, name: str, stopped: Callable[[], bool] = lambda: False) -> Iterator[Path]:
        """Empty folder for work that only one run may do at a time; others wait. It is deleted afterwards.

        The wait ends with a ProblemsError soon after ``stopped`` returns True.
        """
        folder = self.folder / name
        try:
            with folder.with_suffix(".lock").open("a") as stream:
                _wait_for(stream, stopped)
                # A killed run could not clean up.
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(mode=0o700)
                yield folder
                shutil.rmtree(folder, ignore_errors=True)
        except OSError as error:
            raise self._problem(error) from None

    def _note(self, source: Mapping[str, str]) -> Path:
        key = json.dumps(dict(source), sort_keys=True).encode()
        return self._found / f"{hashlib.sha256(key).hexdigest()}.json"

    @contextlib.contextmanager
    def _whole(self, folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=_UNFINISHED)
        with os.fdopen(descriptor, "wb") as stream:
            try:
                yield Path(name), stream
            finally:
                Path(name).unlink(missing_ok=True)

    def _forget_abandoned(self) -> None:
        for path in (*self._files.glob(f"{_UNFINISHED}*"), *self._found.glob(f"{_UNFINISHED}*")):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
                    path.unlink()

    def _problem(self, error: OSError) -> ProblemsError:
        what = f"program files cannot be kept: {error.strerror or error}"
        remedy = "free space there or make it writable; XDG_CACHE_HOME in the environment names another place"
        return ProblemsError(Problem(what, str(self.folder), remedy, reason=Reason.LOCAL_FILE_UNUSABLE))


def _wait_for(stream: IO[str], stopped: Callable[[], bool]) -> None:
    """Lock a file exclusively. Raises InterruptedError if ``stopped`` returns True while another process has it."""
    while True:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if stopped():
                raise InterruptedError(errno.EINTR, "the run has ended while it waited for another one") from None
            time.sleep(_LOOK_SECONDS)
        else:
            return
