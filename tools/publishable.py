# SPDX-License-Identifier: Apache-2.0
"""Looks at the built artifact as Galaxy will: its importer, the changelog, the execution environment, sanity.

Runs in the environment of ``requirements-publish.txt``, on the content of the artifact and not on the checkout: what is
not in it is not published. ``ansible-test`` makes an environment for each of its tests from PyPI.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
BUILD = REPOSITORY / "build"
#: Address that nobody can have, which galaxy.yml has until the repository has a public one.
PLACEHOLDER = "example.com"
#: ansible-test fetches this program from a server of its own, to put pip into its environments. Python has one.
GET_PIP = """\
import subprocess
import sys

wanted = [each for each in sys.argv[1:] if each not in ("--no-setuptools", "--no-wheel")]
subprocess.run([sys.executable, "-m", "ensurepip", "--upgrade"], check=True, stdout=subprocess.DEVNULL)
subprocess.run([sys.executable, "-m", "pip", "install", *wanted], check=True, stdout=subprocess.DEVNULL)
"""
#: Versions of pip for which the ansible-test of 2.19 to 2.21 looks for it.
PIPS = ("24_2", "25_0", "25_1", "25_2", "25_3")


def artifact() -> Path:
    """Artifact of the version that galaxy.yml has."""
    collection = REPOSITORY / "collections/ansible_collections/karmada/installer/galaxy.yml"
    about = yaml.safe_load(collection.read_text(encoding="utf-8"))
    return BUILD / f"{about['namespace']}-{about['name']}-{about['version']}.tar.gz"


def unpacked(file: Path) -> Path:
    """Folder with the artifact's content, of the name that ansible-test wants, and in git, which it asks for files."""
    root = BUILD / "publishable"
    shutil.rmtree(root, ignore_errors=True)
    folder = root / "ansible_collections/karmada/installer"
    folder.mkdir(parents=True)
    with tarfile.open(file) as archive:
        archive.extractall(folder, filter="data")
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    return folder


def home() -> Path:
    """Home folder for ansible-test, with what it would fetch from elsewhere."""
    folder = BUILD / "publishable-home"
    cache = folder / ".ansible/test/cache"
    cache.mkdir(parents=True, exist_ok=True)
    for version in PIPS:
        (cache / f"get_pip_{version}.py").write_text(GET_PIP, encoding="utf-8")
    return folder


def checks(folder: Path, sanity: list[str]) -> Mapping[str, tuple[list[str], Path]]:
    """Name of each check → its command and where it runs."""
    here = Path(sys.executable).parent
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {
        "galaxy-importer": ([sys.executable, "-m", "galaxy_importer.main", str(artifact())], BUILD),
        "antsibull-changelog": ([str(here / "antsibull-changelog"), "lint"], folder),
        "changelog.yaml": (
            [str(here / "antsibull-changelog"), "lint-changelog-yaml", "changelogs/changelog.yaml"],
            folder,
        ),
        "execution environment": ([str(here / "ansible-builder"), "introspect", str(folder.parents[2])], BUILD),
        "ee/execution-environment.yml": (
            [
                *(str(here / "ansible-builder"), "create", "--file", "execution-environment.yml"),
                *("--context", str(BUILD / "ee")),
            ],
            REPOSITORY / "ee",
        ),
        "ansible-test sanity": (
            [str(here / "ansible-test"), "sanity", "--requirements", "--color", "no", "--python", python, *sanity],
            folder,
        ),
    }


def main() -> int:
    """Run every check, also after one has failed; returns 1 if one has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", action="append", help="name of a check")
    chosen, sanity = parser.parse_known_args()
    folder = unpacked(artifact())
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment = {key: value for key, value in environment.items() if not key.startswith("ANSIBLE_")}
    failed = []
    for name, (command, where) in checks(folder, sanity).items():
        if chosen.only and name not in chosen.only:
            continue
        print(f"== {name}", flush=True)
        own = {"HOME": str(home())} if name == "ansible-test sanity" else {}
        if subprocess.run(command, cwd=where, env={**environment, **own}, check=False).returncode:
            failed.append(name)
    if PLACEHOLDER in (REPOSITORY / "collections/ansible_collections/karmada/installer/galaxy.yml").read_text():
        print(f"galaxy.yml has addresses at {PLACEHOLDER}: put yours there before you publish.")
    print(f"Failed: {', '.join(failed)}" if failed else "Nothing failed.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
