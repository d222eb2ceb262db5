# SPDX-License-Identifier: Apache-2.0
"""A Debian that is newer than the lab's, with a newer Python and the newest ansible-core.

    root.py make                                            prints the folder of what it made, or found in the cache
    root.py run [--bind PATH]... [--bind-ro PATH]... [--home PATH]
                [--set NAME=VALUE]... -- COMMAND...

A command runs in the current folder, which has to be in a bound one, with nothing of the environment out here. It
shares the machine's network. What it writes outside of the bound folders is gone when it ends. pip is the only one that
is told how this machine reaches its packages.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lab"))

from karmada_lab import rootfs, shell  # noqa: E402
from karmada_lab.errors import LabError  # noqa: E402
from karmada_lab.state import Lab  # noqa: E402

SUITE = "trixie"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
VENV = Path("/opt/ansible")
"""Path of the virtual environment for those inside: it is a folder of its own in the cache."""

UNLOCKED = {"SYSTEMD_NSPAWN_LOCK": "0"}
"""Several may run at once: each sees an overlay of its own at the same path."""

PROJECT = Path(__file__).resolve().parents[2]
REQUIREMENTS = PROJECT / "requirements.txt"
"""On a newer Python it names a newer ansible-core."""

# The overlay is mounted where nobody else sees it: it is gone with the command.
_LAUNCH = """
set -eu
lower=$1 mount=$2
shift 2
mount --make-rprivate /
# nspawn's own notes, too
mkdir -p /run/systemd/nspawn
mount -t tmpfs tmpfs /run/systemd/nspawn
mount -t tmpfs tmpfs "$mount"
mkdir "$mount/upper" "$mount/work" "$mount/root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$mount/upper,workdir=$mount/work" "$mount/root"
exec "$@"
"""


def debian(lab: Lab) -> Path:
    """The bare root, made if it is not there."""
    digest = hashlib.sha256(repr((SUITE, PACKAGES)).encode()).hexdigest()[:12]
    return rootfs.ensure(
        lab,
        lab.cache / "rootfs" / f"{SUITE}-{digest}",
        f"root file system with debootstrap ({SUITE}), once, 1 to 3 minutes",
        lambda folder: rootfs.debootstrap(lab, SUITE, PACKAGES, folder),
    )


def venv(lab: Lab) -> Path:
    """The virtual environment with what requirements.txt says, made if it is not there."""
    root = debian(lab)
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]

    def make(folder: Path) -> None:
        folder.mkdir()
        install(lab, root, folder)

    return rootfs.ensure(
        lab, root.with_name(f"{root.name}-ansible-{digest}"), "virtual environment in it, once, 1 minute", make
    )


def install(
    lab: Lab,
    root: Path,
    folder: Path,
    requirements: Path = REQUIREMENTS,
    options: Iterable[str] = ("--require-hashes",),
) -> None:
    """Make a virtual environment with these requirements in this folder; pip is given the options.

    One that pip finds inconsistent is an error.
    """
    shutil.copy(requirements, folder)
    python = f"{VENV}/bin/python"
    pip = [python, "-m", "pip", "--no-input", "--disable-pip-version-check"]
    settings, needed = _settings_of_pip()
    for words in (
        ["python3", "-m", "venv", str(VENV)],
        [*pip, "install", "--no-cache-dir", *options, f"--requirement={VENV}/{requirements.name}"],
        [*pip, "check"],
    ):
        command = inside(lab, root, words, binds={folder: VENV}, read_only=needed, environment=settings)
        shell.run(command, env=UNLOCKED, log=lab.cache / "rootfs.log", die_with_us=True)


def _settings_of_pip() -> tuple[dict[str, str], dict[Path, Path]]:
    """Variables and files by which pip of this machine finds packages."""
    proxies = ("http_proxy", "https_proxy", "no_proxy")
    settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.lower() in proxies}
    files = [Path("/etc/ssl/certs"), Path("/etc/pip.conf"), *map(Path, settings.values())]
    return settings, {path: path for path in files if path.is_absolute() and path.exists()}


def inside(
    lab: Lab,
    root: Path,
    command: Iterable[str],
    *,
    binds: dict[Path, Path],
    read_only: dict[Path, Path],
    environment: dict[str, str],
) -> list[str]:
    """The words that run a command in the root. binds and read_only: path out here -> path inside."""
    mount = lab.cache / "rootfs" / "mount"
    mount.mkdir(parents=True, exist_ok=True)
    settings = {"PATH": f"{VENV}/bin:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/root", **environment}
    return [
        "unshare", "--mount", "sh", "-c", _LAUNCH, "launch", str(root), str(mount),
        "systemd-nspawn", "--quiet", f"--directory={mount}/root", "--as-pid2", "--register=no", "--keep-unit",
        "--machine=newest-core", "--console=pipe", "--resolv-conf=replace-host", "--timezone=off", "--link-journal=no",
        f"--chdir={Path.cwd() if binds.keys() & {Path.cwd(), *Path.cwd().parents} else '/'}",
        # By name where it can be: an argument is seen by everybody, and an index or a proxy may have a password in it.
        *[f"--setenv={name}" if os.environ.get(name) == value else f"--setenv={name}={value}"
          for name, value in settings.items()],
        *[f"--bind={source}:{target}" for source, target in binds.items()],
        *[f"--bind-ro={source}:{target}" for source, target in read_only.items()],
        "--", *command,
    ]  # fmt: skip


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="action", required=True)
    commands.add_parser("make")
    one = commands.add_parser("run")
    one.add_argument("--bind", action="append", type=Path, default=[], metavar="PATH")
    one.add_argument("--bind-ro", action="append", type=Path, default=[], metavar="PATH")
    one.add_argument("--home", type=Path, default=Path("/root"))
    one.add_argument("--set", action="append", type=_pair, default=[], metavar="NAME=VALUE")
    one.add_argument("command", nargs="+")
    options = parser.parse_args()
    lab = Lab.from_environment()
    try:
        if options.action == "make":
            print(venv(lab))
        else:
            command = inside(
                lab,
                debian(lab),
                options.command,
                binds={path: path for path in options.bind},
                read_only={venv(lab): VENV, **{path: path for path in options.bind_ro}},
                environment={"HOME": str(options.home), **dict(options.set)},
            )
            # This process becomes the command: who kills one kills the other.
            os.execvpe(command[0], command, {**os.environ, **UNLOCKED})  # noqa: S606 - no shell is what is wanted
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
