# SPDX-License-Identifier: Apache-2.0
"""Sources of files that the collection does not contain, recorded checksums, and the cache of fetched files."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """Directory of verified files on the machine that Ansible runs on."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(base) / "karmada-installer" / "artifacts"
