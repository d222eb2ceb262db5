# SPDX-License-Identifier: Apache-2.0
"""Sources of files that the collection does not contain, recorded checksums, and the cache of fetched files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import private_file
from ..problems import Problem, ProblemsError, Reason

RELEASE_DOWNLOADS = "https://github.com/karmada-io/karmada/releases/download"
LOCK_FILE = Path(__file__).parents[3] / "schemas" / "artifacts.lock.json"


@dataclass(frozen=True)
class Source:
    """Source of files. ``kind`` and ``url`` are the document's; ``directory`` is that of the inventory source."""

    kind: str
    url: str | None = None
    directory: Path | None = None


def read_lock(lock_file: Path = LOCK_FILE) -> dict[str, Any]:
    """Recorded checksums: project → version → ``crds`` (see content_hash), ``files`` (path below the project's and
    version's folder → hash) or ``images`` (name → digest of the index, which is one for all architectures).
    """
    lock: dict[str, Any] = json.loads(lock_file.read_text())
    return lock


def cache_directory() -> Path:
    """Directory of verified files on the machine that Ansible runs on. Raises ProblemsError if there is no place."""
    try:
        return private_file.cache_folder() / "artifacts"
    except RuntimeError:
        what = "this user has no home folder: HOME is not set, and the list of users has no entry with one"
        remedy = "set HOME or XDG_CACHE_HOME to a folder that can be written"
        raise ProblemsError(Problem(what, "~/.cache", remedy, reason=Reason.LOCAL_FILE_UNUSABLE)) from None
