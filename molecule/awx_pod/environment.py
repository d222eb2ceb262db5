# SPDX-License-Identifier: Apache-2.0
"""Make an image that equals the execution environment, without a container engine and a registry.

    environment.py [--artifacts FOLDER] [--figures FILE] REFERENCE
                                                         prints the archive as nodes of the lab see it, and its size

What goes into it is what ansible-builder finds: `create` for ee/execution-environment.yml (versions of ansible-core and
ansible-runner, packages, entry point, working directory, user), `introspect` for the built collection. The base is a
Debian in the place of the base image; that and the packages are a layer each, and stay in the lab's cache. FOLDER has
artifacts that were prepared; it is /opt/artifacts in the image, as in one that a site without internet derives.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [
    str(PROJECT / each)
    for each in ("lab", "molecule/shared/tools", "molecule/release_newest_core", "molecule/operator_in_pods")
]

import image  # noqa: E402
import root as newest  # noqa: E402
from figures import keep_figure  # noqa: E402
from karmada_lab import rootfs  # noqa: E402
from karmada_lab.errors import LabError  # noqa: E402
from karmada_lab.state import Lab  # noqa: E402

DEFINITION = PROJECT / "ee/execution-environment.yml"
COLLECTIONS = "usr/share/ansible/collections"
MIB = 1024 * 1024
#: MiB of all layers together, as they lie on a node.
AT_MOST_MIB = 450


@dataclass(frozen=True)
class Wanted:
    """Packages and files that ansible-builder wants in the image, and the settings that it gives it."""

    packages: Sequence[str]
    python: Sequence[str]
    settings: Mapping[str, Any]
    entrypoint: Path


@cache
def tools() -> Path:
    """Folder of programs of the environment that has ansible-builder."""
    found = image.run([str(PROJECT / ".ci/venv")], REQUIREMENTS="requirements-publish.txt")
    return Path(found.strip()) / "bin"


def wanted(work: Path, collections: Path, artifact: Path) -> Wanted:
    """Find out what goes into the image. ``work`` is for files of ansible-builder, which refer to the artifact."""
    definition = work / "ee" / DEFINITION.name
    definition.parent.mkdir()
    shutil.copy(DEFINITION, definition)
    build = work / "build"
    build.mkdir(exist_ok=True)
    if not (build / artifact.name).exists():
        shutil.copy(artifact, build)
    context, python, system = work / "context", work / "python.txt", work / "system.txt"
    builder = str(tools() / "ansible-builder")
    recipe = context / "Containerfile"
    image.run([builder, "create", f"--file={definition}", f"--context={context}", f"--output-filename={recipe.name}"])
    given = context / "_build/requirements.txt"
    written = [f"--write-pip={python}", f"--write-bindep={system}"]
    image.run([builder, "introspect", f"--user-pip={given}", *written, str(collections)])
    packages = image.run([str(tools() / "bindep"), "--list_all=newline", f"--file={system}"]).split()
    text = recipe.read_text(encoding="utf-8")
    (refs,) = re.findall(r'^ARG ANSIBLE_INSTALL_REFS="(.*)"$', text, re.MULTILINE)
    more = re.findall(r"pip install --no-cache-dir '([^']+)'", text)
    found = (line.partition("#")[0].strip() for line in python.read_text(encoding="utf-8").splitlines())
    last = text.rpartition("\nFROM ")[2]
    words = {name: re.findall(rf"^{name} (.*)$", last, re.MULTILINE)[-1] for name in _SETTINGS}
    settings = {
        "User": words["USER"],
        "WorkingDir": words["WORKDIR"],
        "Entrypoint": json.loads(words["ENTRYPOINT"]),
        "Cmd": json.loads(words["CMD"]),
        "Env": [f"PATH={newest.VENV}/bin:/usr/local/bin:/usr/bin:/bin"],
    }
    lines = [*refs.split(), *more, *(each for each in found if each)]
    return Wanted(packages, lines, settings, context / "_build/scripts/entrypoint")


_SETTINGS = ("USER", "WORKDIR", "ENTRYPOINT", "CMD")


def python_packages(lab: Lab, debian: Path, lines: Sequence[str]) -> Path:
    """Virtual environment with these requirements of pip, made if it is not there."""
    content = "".join(f"{line}\n" for line in lines)
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]

    def make(folder: Path) -> None:
        folder.mkdir()
        with tempfile.TemporaryDirectory() as work:
            file = Path(work) / "requirements.txt"
            file.write_text(content, encoding="utf-8")
            newest.install(lab, debian, folder, file, ["--only-binary=:all:"])

    target = debian.with_name(f"{debian.name}-ee-{digest}")
    return rootfs.ensure(lab, target, "packages of the execution environment, once, 1 minute", make)


def fill(folder: Path, debian: Path, what: Wanted) -> None:
    """Add to a folder with the collection what the last stage of ansible-builder's recipe does."""
    script = folder / what.settings["Entrypoint"][0].lstrip("/")
    script.parent.mkdir(parents=True)
    shutil.copy(what.entrypoint, script)
    script.chmod(0o755)
    runner = folder / what.settings["WorkingDir"].lstrip("/")
    runner.mkdir()
    runner.chmod(0o775)
    (folder / "etc").mkdir()
    shutil.copy(debian / "etc/passwd", folder / "etc/passwd")
    (folder / "etc/passwd").chmod(0o664)


def make(lab: Lab, work: Path, reference: str, artifacts: Path | None) -> tuple[Path, dict[str, int]]:
    """Make the image. Returns its archive, and the bytes of its layers by what is in them."""
    ours, above = work / "product", work / "above"
    artifact = image.collection(work / "build", ours / COLLECTIONS)
    what = wanted(work, ours / COLLECTIONS, artifact)
    packages = (*newest.PACKAGES, *(each for each in what.packages if each not in newest.PACKAGES))
    debian = image.debian(lab, packages)
    fill(ours, debian, what)
    layers = {
        f"Debian {newest.SUITE} with {', '.join(packages)}": image.kept_layer(lab, debian, ""),
        "packages of Python": image.kept_layer(
            lab, python_packages(lab, debian, what.python), str(newest.VENV).lstrip("/")
        ),
        "the collection": work / "product.tar",
    }
    image.layer(ours, "", work / "product.tar")
    if artifacts is not None:
        image.published(artifacts, above)
        image.layer(above, "", work / "above.tar")
        layers["what Karmada has published"] = work / "above.tar"
    target = lab.cache / "images" / f"{reference.replace('/', '_').replace(':', '_')}.tar"
    image.write(target, reference, list(layers.values()), what.settings)
    return target, {name: each.stat().st_size for name, each in layers.items()}


def main() -> int:
    """Make the image."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifacts", type=Path)
    parser.add_argument("--figures", type=Path)
    parser.add_argument("reference")
    options = parser.parse_args()
    lab = Lab.from_environment()
    (lab.cache / "images").mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=lab.cache) as work:
            target, sizes = make(lab, Path(work), options.reference, options.artifacts)
    except (LabError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    together = sum(sizes.values()) / MIB
    for name, size in sizes.items():
        print(f"{size / MIB:6.1f} MiB  {name}")
    print(f"{together:6.1f} MiB  together")
    if options.figures:
        words = ", ".join(f"{name} {size / MIB:.0f}" for name, size in sizes.items())
        keep_figure(options.figures, "size of the image", f"{together:.0f} MiB ({words})")
    print(image.ON_NODES / target.name)
    if together > AT_MOST_MIB:
        print(f"the image is larger than {AT_MOST_MIB} MiB", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
