# SPDX-License-Identifier: Apache-2.0
"""Parts of AWX that packages have: its collection awx.awx, and how its credentials reach a job.

They are fetched once and kept in the project's cache: the collection out of the community's package ``ansible``, the
package ``awx_plugins`` out of awx-plugins-core and what that needs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[3] / "requirements-awx.txt"
_WANTED = ("ansible_collections/awx/awx/", "awx_plugins/")


def folder() -> Path:
    """Folder to name in ANSIBLE_COLLECTIONS_PATH or sys.path. Raises CalledProcessError if a package cannot be fetched.

    pip refuses a package of another hash than the pinned one; of each only what is named here is kept.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "karmada-installer"
    cache.mkdir(parents=True, exist_ok=True)
    found = cache / f"awx-{hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]}"
    with (cache / "awx.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as work:
                _fetch(Path(work))
                shutil.move(Path(work) / "content", found)
    return found


def _fetch(work: Path) -> None:
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"),
            *("--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", str(REQUIREMENTS)),
            *("--dest", str(work)),
        ],
        check=True,
    )
    for package in work.glob("*.whl"):
        with zipfile.ZipFile(package) as archive:
            wanted = [name for name in archive.namelist() if name.startswith(_WANTED)]
            archive.extractall(work / "content", wanted)
