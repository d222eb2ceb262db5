# SPDX-License-Identifier: Apache-2.0
"""Looks at the built artifact as Galaxy will: its importer, changelog, documentation, execution environment, sanity.

Runs in the environment of ``requirements-publish.txt``, on the content of the artifact and not on the checkout: what is
not in it is not published. Sanity is that of every release of ansible-core that the collection supports, each in an
environment of ``requirements-sanity.txt`` with a Python of its own; ``ansible-test`` makes more of them from PyPI, one
for each of its tests.
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
#: The end of it, for who asks why it failed.
WHY = BUILD / "diagnostics/publishable/why.txt"
#: Name of the check that ansible-test does.
SANITY = "sanity"
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
#: Release of ansible-core → the Python that requirements-sanity.txt installs it for.
CORES = {"2.19": "3.11", "2.20": "3.12", "2.21": "3.13"}
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


def with_plain_defaults(folder: Path) -> Path:
    """Copy of the content for antsibull-docs, without those defaults of roles that are templates.

    A default that follows from another variable is one, as Ansible has it; antsibull-docs wants a value of the option's
    type, and reads nothing else of a role that has none.
    """
    root = BUILD / "publishable-docs"
    shutil.rmtree(root, ignore_errors=True)
    copy = root / folder.relative_to(BUILD / "publishable")
    # With its own .git: antsibull-docs asks git for files, and the checkout around it ignores all of build/.
    shutil.copytree(folder, copy, symlinks=True)
    for path in copy.glob("roles/*/meta/argument_specs.yml"):
        specs = yaml.safe_load(path.read_text(encoding="utf-8"))
        for each in specs["argument_specs"].values():
            for option in each.get("options", {}).values():
                if "{{" in str(option.get("default", "")):
                    del option["default"]
        path.write_text(yaml.safe_dump(specs, sort_keys=False), encoding="utf-8")
    return copy


def home() -> Path:
    """Home folder for ansible-test, with what it would fetch from elsewhere."""
    folder = BUILD / "publishable-home"
    cache = folder / ".ansible/test/cache"
    cache.mkdir(parents=True, exist_ok=True)
    for version in PIPS:
        (cache / f"get_pip_{version}.py").write_text(GET_PIP, encoding="utf-8")
    return folder


def interpreter(version: str) -> Path | None:
    """A Python of this version that can make environments, of this machine or of pyenv; None if there is none."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable).resolve()
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python{version}"))]
    for each in candidates:
        # A program of that name may be a stand-in of pyenv for a version that is not chosen.
        command = [str(each), "-c", "import ensurepip, sys, venv; print(sys.executable)"]
        if each and not (done := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
            return Path(done.stdout.strip())
    return None


def sanity(folder: Path, core: str, arguments: list[str]) -> bool:
    """Run ansible-test sanity of one release of ansible-core; returns whether it found nothing."""
    version = CORES[core]
    python = interpreter(version)
    if python is None:
        print(
            f"There is no Python {version} here with venv, which ansible-core {core} is looked at with: pyenv install "
            f"{version}, or apt-get install python{version}-venv where that is packaged. --core leaves it out.",
            flush=True,
        )
        return False
    made = {**environment(), "PYTHON": str(python), "REQUIREMENTS": "requirements-sanity.txt"}
    venv = subprocess.run([REPOSITORY / ".ci/venv"], env=made, check=True, stdout=subprocess.PIPE, text=True).stdout
    programs = Path(venv.strip()) / "bin"
    # It finds its own Python by the path.
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    command = [str(programs / "ansible-test"), "sanity", "--requirements", "--color", "no", "--python", version]
    own = {**environment(), "PATH": path, "HOME": str(home()), "VIRTUAL_ENV": venv.strip()}
    return not subprocess.run([*command, *arguments], cwd=folder, env=own, check=False).returncode


def environment() -> dict[str, str]:
    """Environment of every check: nothing of Ansible's settings, and programs of this environment first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")} | {"PATH": path}


def checks(folder: Path) -> Mapping[str, tuple[list[str], Path]]:
    """Name of each check but sanity → its command and where it runs."""
    here = Path(sys.executable).parent
    return {
        "galaxy-importer": ([sys.executable, "-m", "galaxy_importer.main", str(artifact())], BUILD),
        "antsibull-changelog": ([str(here / "antsibull-changelog"), "lint"], folder),
        "changelog.yaml": (
            [str(here / "antsibull-changelog"), "lint-changelog-yaml", "changelogs/changelog.yaml"],
            folder,
        ),
        # Documentation of plugins, modules and roles becomes pages without a complaint, and no reference leads nowhere.
        "antsibull-docs": (
            [
                *(str(here / "antsibull-docs"), "lint-collection-docs", "--plugin-docs"),
                *("--validate-collection-refs", "dependent", "--disallow-unknown-collection-refs"),
                str(with_plain_defaults(folder)),
            ],
            BUILD,
        ),
        "execution environment": ([str(here / "ansible-builder"), "introspect", str(folder.parents[2])], BUILD),
        "ee/execution-environment.yml": (
            [
                *(str(here / "ansible-builder"), "create", "--file", "execution-environment.yml"),
                *("--context", str(BUILD / "ee")),
            ],
            REPOSITORY / "ee",
        ),
    }


def main() -> int:
    """Run every check, also after one has failed; returns 1 if one has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", action="append", help="name of a check; sanity is one")
    parser.add_argument("--core", action="append", choices=CORES, help="release of ansible-core that sanity is run of")
    chosen, more = parser.parse_known_args()
    folder = unpacked(artifact())
    failed = []
    for name, (command, where) in checks(folder).items():
        if chosen.only and name not in chosen.only:
            continue
        print(f"== {name}", flush=True)
        if subprocess.run(command, cwd=where, env=environment(), check=False).returncode:
            failed.append(name)
    for core in chosen.core or CORES:
        if chosen.only and SANITY not in chosen.only:
            continue
        print(f"== {SANITY} of ansible-core {core}", flush=True)
        if not sanity(folder, core, more):
            failed.append(f"{SANITY} of ansible-core {core}")
    if PLACEHOLDER in (REPOSITORY / "collections/ansible_collections/karmada/installer/galaxy.yml").read_text():
        print(f"galaxy.yml has addresses at {PLACEHOLDER}: put yours there before you publish.")
    told = f"Failed: {', '.join(failed)}" if failed else "Nothing failed."
    print(told)
    # Where the record of this run looks for the reason, which is somewhere in half a megabyte of output.
    WHY.parent.mkdir(parents=True, exist_ok=True)
    WHY.write_text(f"{told}\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
