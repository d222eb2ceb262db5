# SPDX-License-Identifier: Apache-2.0
"""Is this machine fit for a lab, and installing what is missing. Every problem is found before anything is made."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from karmada_lab import machine, products, rootfs
from karmada_lab.artifacts import path_of
from karmada_lab.errors import LabError
from karmada_lab.shell import run, step
from karmada_lab.state import Lab

# program -> Debian package that has it
PROGRAMS = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "nft": "nftables",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "openssl": "openssl",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "chroot": "coreutils",
    "umount": "mount",
}

MEMORY_NEEDED = 4.0
"""GiB available; a one-node cluster with Karmada in it takes about 2."""

_KERNEL_PARTS = ("overlay",)


def check(lab: Lab) -> list[str]:
    """Everything that is wrong with this machine, each as what, where and how to mend. Empty when it is fit."""
    problems = []
    if os.geteuid() != 0:
        problems.append("the lab boots machines and changes the network: run it as root (sudo)")
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        problems.append(f"the lab runs on Linux on x86_64, this is {platform.system()} on {platform.machine()}")
    problems += _disk_problems(lab)
    available = _available_memory()
    if available < MEMORY_NEEDED:
        problems.append(
            f"{available:.1f} GiB of memory are available, the lab needs {MEMORY_NEEDED:.0f}: end other programs, "
            "or use a larger machine"
        )
    problems += _kernel_problems()
    return problems


def missing_packages() -> list[str]:
    """Debian packages whose programs are not on this machine."""
    return sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})


def require(lab: Lab) -> None:
    """Raise LabError with every problem at once, missing packages included."""
    problems = check(lab)
    packages = missing_packages()
    if packages:
        problems.append(f"missing on this machine: {', '.join(packages)}; `lab prepare` installs them")
    if problems:
        raise LabError("this machine is not ready for the lab:\n" + "\n".join(f"  - {problem}" for problem in problems))


def prepare(lab: Lab) -> None:
    """Check, install missing packages, and make the base root file system."""
    problems = check(lab)
    if problems:
        raise LabError("this machine cannot run the lab:\n" + "\n".join(f"  - {problem}" for problem in problems))
    packages = missing_packages()
    if packages:
        if shutil.which("apt-get") is None:
            raise LabError(f"install these first (there is no apt-get here to do it): {', '.join(packages)}")
        with step(f"apt-get install {' '.join(packages)}"):
            environment = {"DEBIAN_FRONTEND": "noninteractive"}
            run(["apt-get", "update", "-q"], env=environment, check=False)
            run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages], env=environment)
    rootfs.ensure_base(lab)


def _disk_problems(lab: Lab) -> list[str]:
    """Free space at the three places that grow, added up where they are on one disk."""
    need: dict[int, tuple[float, Path, list[str]]] = {}
    wanted = [(lab.state, 3.0, "machines")]
    if not rootfs.base(lab).exists():
        wanted.append((lab.cache, 1.0, "base root file system"))
    if not path_of(lab, products.catalogue(), "karmada-webhook").exists():
        wanted.append((lab.cache, 3.0, "binaries and images"))
        if shutil.which("go"):
            wanted.append((_go_cache(), 8.0, "Go modules and build cache"))
    for path, gibibytes, what in wanted:
        there = _existing(path)
        device = there.stat().st_dev
        total, _, names = need.get(device, (0.0, there, []))
        need[device] = (total + gibibytes, there, [*names, f"{what} {gibibytes:.0f} GiB in {path}"])
    problems = []
    for total, there, names in need.values():
        free = shutil.disk_usage(there).free / 2**30
        if free < total:
            problems.append(
                f"the disk of {there} has {free:.1f} GiB free, the lab needs {total:.0f} ({', '.join(names)}): "
                "free some, or move the folders with KARMADA_LAB_STATE and KARMADA_LAB_CACHE"
            )
    return problems


def _go_cache() -> Path:
    return Path(run(["go", "env", "GOCACHE"]).stdout.strip() or "/")


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _available_memory() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 2**20
    return 0.0


def _kernel_problems() -> list[str]:
    problems = []
    known = Path("/proc/filesystems").read_text()
    for part in _KERNEL_PARTS:
        if part not in known:
            run(["modprobe", part], check=False) if shutil.which("modprobe") else None
            known = Path("/proc/filesystems").read_text()
        if part not in known:
            problems.append(f"the kernel has no {part} file system: load the module ({part}), or use another kernel")
    if not machine.has_cgroups():
        problems.append(
            "no control groups are mounted below /sys/fs/cgroup: mount them (package cgroupfs-mount, or systemd)"
        )
    return problems
