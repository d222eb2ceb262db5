# SPDX-License-Identifier: Apache-2.0
"""Files on the machine that runs Ansible: those that only their owner may read, and the folder for what is kept."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Folder of what runs leave for later ones on this machine, and what they can do without.

    In a container, a user may have neither HOME nor an entry in the list of users: then it is in the folder that
    ansible-runner has for this run alone. Raises RuntimeError if there is none, either.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or _users_cache()) / "karmada-installer"


def _users_cache() -> Path:
    try:
        return Path("~/.cache").expanduser()
    except RuntimeError:
        # <folder of the run>/artifacts/<its name>
        artifacts = Path(os.environ.get("AWX_ISOLATED_DATA_DIR", ""))
        if not artifacts.is_absolute() or artifacts.parent.name != "artifacts":
            raise
        return artifacts.parents[1] / ".cache"


def expanded(path: str | Path) -> Path:
    """Path with the home folder in the place of ``~``.

    In a container, a user may have neither HOME nor an entry in the list of users. As for Ansible, the text stays then.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def write(path: Path, content: str, *, check: bool = False) -> bool:
    """Write a file atomically with mode 0600; returns whether it differed. With ``check``, only compare."""
    if path.is_file() and path.read_bytes() == content.encode() and path.stat().st_mode & 0o777 == 0o600:
        return False
    if not check:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w") as stream:
                stream.write(content)
            Path(scratch).replace(path)
        except OSError:
            Path(scratch).unlink(missing_ok=True)
            raise
    return True
