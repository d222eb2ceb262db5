# SPDX-License-Identifier: Apache-2.0
"""Directories that stand in for Secrets in a run from files. No I/O."""

from __future__ import annotations

import re
from pathlib import Path

from ..problems import Problem, ProblemsError, Reason

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}([.]{_LABEL})*")


def path(secrets: str | Path, name: str, where: str) -> Path:
    """Directory below ``secrets`` that stands in for the Secret of this name; ``where`` is the field that names it.

    Raises ProblemsError if no Secret can have this name: a path would lead elsewhere.
    """
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise ProblemsError(
            Problem(
                f"{name!r} is not a name that a Secret can have",
                where,
                f"name a directory of {secrets}",
                reason=Reason.SECRET_NOT_FOUND,
            )
        )
    return Path(secrets) / name
