# SPDX-License-Identifier: Apache-2.0
"""The base root file system that all machines of the lab share: Debian with systemd, sshd and containerd."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from karmada_lab.errors import LabError
from karmada_lab.shell import run, step
from karmada_lab.state import Lab, exclusive

SUITE = "bookworm"

PACKAGES = (
    # what every host has
    "systemd", "systemd-sysv", "dbus", "libpam-systemd", "openssh-server", "python3", "iproute2", "iputils-ping",
    "procps", "ca-certificates", "sudo", "kmod", "ethtool", "socat", "nftables", "iptables", "conntrack", "curl",
    "tar", "gzip", "xz-utils", "zstd", "openssl", "rsync", "less", "acl", "e2fsprogs", "busybox-static",
    # what a cluster node has
    "containerd", "runc", "containernetworking-plugins", "mount", "util-linux",
    # what roles of the installer or the lab's registry start on a host; disabled until then
    "haproxy", "keepalived", "docker-registry", "apache2-utils",
)  # fmt: skip

DISABLED_UNITS = (
    "containerd", "haproxy", "keepalived", "docker-registry", "nftables", "rsync", "apt-daily.timer",
    "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap", "fstrim.timer",
    "systemd-timesyncd", "systemd-networkd", "systemd-resolved", "systemd-pstore", "getty@tty1",
)  # fmt: skip

MASKED_UNITS = ("console-getty.service", "systemd-logind.service", "getty.target", "systemd-udevd.service",
                "systemd-journal-flush.service", "modprobe@.service", "systemd-udev-trigger.service")  # fmt: skip

_REVISION = 2
"""Raised when `_settle` changes, so that a base made by the former one is not used."""

LOGIN = "lab"
"""User of the plain hosts: key only, may become root."""


def base(lab: Lab) -> Path:
    """Folder of the finished base. Its name changes when what goes into it changes."""
    ingredients = repr((SUITE, PACKAGES, DISABLED_UNITS, MASKED_UNITS, LOGIN, _REVISION))
    digest = hashlib.sha256(ingredients.encode()).hexdigest()[:12]
    return lab.cache / "rootfs" / f"{SUITE}-{digest}"


def ensure_base(lab: Lab) -> Path:
    """Build the base if it is not in the cache; takes one to two minutes and 700 MB. Returns its folder."""

    def make(folder: Path) -> None:
        debootstrap(lab, SUITE, PACKAGES, folder)
        _settle(folder)

    return ensure(lab, base(lab), f"base root file system with debootstrap ({SUITE}), once, 1 to 3 minutes", make)


def ensure(lab: Lab, target: Path, what: str, make: Callable[[Path], None]) -> Path:
    """Have `make` fill this folder of the cache if it is not there; it is there only when it is finished."""
    if target.exists():
        return target
    with exclusive(lab.cache / "rootfs.lock", f"the build of the {what}"):
        if target.exists():
            return target
        for abandoned in target.parent.glob("*.unfinished-*"):
            _discard(abandoned)
        # A name of its own: the debootstrap of a killed `lab` may still be running and must not write here.
        unfinished = target.with_name(f"{target.name}.unfinished-{os.getpid()}")
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        with step(what):
            make(unfinished)
        unfinished.rename(target)
    return target


def debootstrap(lab: Lab, suite: str, packages: Sequence[str], folder: Path) -> None:
    """Make a minimal Debian of this suite with these packages. Its log is rootfs.log in the cache."""
    log = lab.cache / "rootfs.log"
    log.unlink(missing_ok=True)
    # Namespaces of its own: when this process is killed, all of debootstrap and its mounts go at once.
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    run(
        [*alone, "debootstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, folder, mirror()],
        log=log,
        die_with_us=True,
        env={"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
    )


def mirror() -> str:
    """The package mirror from which this machine's apt has the base's suite (KARMADA_LAB_MIRROR overrides).

    Raises LabError when apt knows none.
    """
    chosen = os.environ.get("KARMADA_LAB_MIRROR")
    if chosen:
        return chosen
    listing = run(
        ["apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"],
        check=False,
    ).stdout
    for line in listing.splitlines():
        codename, component, address = line.split(" ", 2)
        if codename == SUITE and component == "main":
            return address
    raise LabError(
        f"apt on this machine has no source for Debian {SUITE}, from which the lab's hosts are made.\n"
        "    Name a mirror: KARMADA_LAB_MIRROR=<address> lab prepare"
    )


def _settle(root: Path) -> None:
    """Make the fresh system one that boots fast, alike each time, and has no identity of its own."""
    systemctl = ["systemctl", f"--root={root}"]
    run([*systemctl, "disable", *DISABLED_UNITS], check=False)
    run([*systemctl, "mask", *MASKED_UNITS])
    run([*systemctl, "set-default", "multi-user.target"])
    for key in root.glob("etc/ssh/ssh_host_*"):
        key.unlink()
    # Most of these settings are kernel-wide: a machine of the lab must not change the one it runs on when it boots.
    for settings in (*root.glob("usr/lib/sysctl.d/*.conf"), *root.glob("etc/sysctl.d/*.conf")):
        settings.unlink()
    (root / "etc/machine-id").write_text("")
    (root / "etc/hostname").unlink(missing_ok=True)
    (root / "etc/fstab").write_text("")
    run(["chroot", root, "useradd", "--create-home", "--shell", "/bin/bash", LOGIN])
    sudoers = root / "etc/sudoers.d/lab"
    sudoers.write_text(f"{LOGIN} ALL=(ALL) NOPASSWD: ALL\n")
    sudoers.chmod(0o440)
    (root / "etc/ssh/sshd_config.d").mkdir(exist_ok=True)
    (root / "etc/ssh/sshd_config.d/lab.conf").write_text(
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nUseDNS no\n"
        "HostKey /etc/ssh/ssh_host_ed25519_key\n"
    )
    journald = root / "etc/systemd/journald.conf.d"
    journald.mkdir(parents=True, exist_ok=True)
    (journald / "lab.conf").write_text("[Journal]\nStorage=volatile\nRuntimeMaxUse=64M\nForwardToConsole=no\n")
    shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
    (root / "var/cache/apt/archives/partial").mkdir(parents=True)


def _discard(folder: Path) -> None:
    """Remove what a cut-off debootstrap left: it mounts proc and sys in its target."""
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        mount_point = line.split()[4]
        if mount_point.startswith(f"{folder}/"):
            run(["umount", "--lazy", mount_point], check=False)
    shutil.rmtree(folder, ignore_errors=True)
