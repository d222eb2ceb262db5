# SPDX-License-Identifier: Apache-2.0
"""Files of releases: their paths at publishers and in directories of artifacts, and the checksums written there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..problems import Problem, ProblemsError, Reason

#: Base URLs of publishers; ``<version>/<file>`` follows. Karmada publishes no programs of a control plane.
PUBLISHERS: Mapping[str, str] = {
    "kubernetes": "https://dl.k8s.io/release",
    "etcd": "https://github.com/etcd-io/etcd/releases/download",
}
SUMS_FILE = "sha256sums"

_SUM_LINE = re.compile(r"([0-9a-f]{64}) [ *](?:\./)?(.+)")


@dataclass(frozen=True)
class ReleaseFile:
    """A file of a release, below ``<project>/<version>/``; ``member`` is the program inside it if it is an archive."""

    path: str
    member: str = ""


def candidates(project: str, version: str, architecture: str, program: str) -> tuple[ReleaseFile, ...]:
    """Possible paths of this program below ``<project>/<version>/``, that of its publisher first."""
    plain = ReleaseFile(f"bin/linux/{architecture}/{program}")
    if project == "etcd":
        folder = f"etcd-{version}-linux-{architecture}"
        return ReleaseFile(f"{folder}.tar.gz", f"{folder}/{program}"), plain
    return (plain,)


def read_sums(file: Path) -> dict[str, str]:
    """Content of a file of ``sha256sum``: path → hash. Raises ProblemsError if it cannot be read as one."""
    found = {}
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError as error:
        raise unreadable(file, error) from None
    for number, line in enumerate(lines, start=1):
        match = _SUM_LINE.fullmatch(line)
        if not match:
            command = f"find -type f ! -name {SUMS_FILE} -exec sha256sum {{}} + >{SUMS_FILE}"
            remedy = f"write it anew, in that directory: {command}"
            raise ProblemsError(
                Problem(
                    f"line {number} is not a checksum and a path", str(file), remedy, reason=Reason.CHECKSUM_MISSING
                )
            )
        found[match[2]] = match[1]
    return found


def unreadable(path: Path, error: OSError) -> ProblemsError:
    """Error for a file of an artifacts directory that cannot be read."""
    what = f"it cannot be read: {error.strerror or error}"
    return ProblemsError(
        Problem(what, str(path), "make it readable for whoever runs Ansible", reason=Reason.LOCAL_FILE_UNUSABLE)
    )
