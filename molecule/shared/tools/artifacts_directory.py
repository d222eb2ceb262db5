# SPDX-License-Identifier: Apache-2.0
"""The artifacts of a lab as the directory that a site without a network prepares for artifacts.source Directory.

    artifacts_directory.py LAB_ARTIFACTS DIRECTORY

The layout is ``<project>/<version>/bin/linux/<architecture>/<program>``; ``sha256sums`` is written last.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROJECTS = ("karmada", "kubernetes", "etcd")
ARCHITECTURE = "amd64"


def sha256_of(path: Path) -> str:
    """The checksum of a file, in hex."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def link(program: Path, target: Path) -> None:
    """Link to a file under another name; a copy where that is another file system."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(program, target)
    except OSError:
        shutil.copy2(program, target)


def main() -> None:
    """See the module's text."""
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    shutil.rmtree(target, ignore_errors=True)
    made = []
    for program in sorted(path for project in PROJECTS for path in source.glob(f"{project}/*/bin/*")):
        project, version, _bin, name = program.relative_to(source).parts
        made.append(target / project / version / "bin" / "linux" / ARCHITECTURE / name)
        link(program, made[-1])
    for crds in source.glob("karmada/*/crds"):
        shutil.copytree(crds, target / crds.relative_to(source))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        lines = [
            f"{digest}  {path.relative_to(target)}\n"
            for digest, path in zip(pool.map(sha256_of, made), made, strict=True)
        ]
    (target / "sha256sums").write_text("".join(lines))


if __name__ == "__main__":
    main()
