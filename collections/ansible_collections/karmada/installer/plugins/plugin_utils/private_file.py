# SPDX-License-Identifier: Apache-2.0
"""Files on the machine that runs Ansible, readable by their owner only."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write(path: Path, content: str, *, check: bool = False) -> bool:
    """Write a file atomically with mode 0600; returns whether it differed. With ``check``, only compare."""
    if path.is_file() and path.read_text() == content and path.stat().st_mode & 0o777 == 0o600:
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
