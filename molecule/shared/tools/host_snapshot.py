# SPDX-License-Identifier: Apache-2.0
"""Snapshot of a plain host, as a file: to see whether a control plane that went has left anything behind.

    host_snapshot.py take                                    (on the host, as root; prints the snapshot)
    host_snapshot.py diff BEFORE AFTER [--but PATTERN]...    (anywhere)
    host_snapshot.py nobody ADDRESS                          (in the network of the hosts)

``take`` reads files (kind, mode, owner, content as a hash, extended attributes), users, mounts, links, addresses,
routes, rules, the packet filter, sysctls, sockets that listen, units (enabled, loaded, running), processes and
packages. What changes by itself is left out by name, each with the reason (``VOLATILE``); what the asking scenario
itself has changed, by ``--but``, a regular expression for the whole of the name that ``diff`` prints. ``nobody`` sees
that no machine answers for an address, not even to refuse a connection. Exit code 1: there are differences, or somebody
has it.

Runs on hosts with what their distribution has: the standard library of Python 3.9, and the programs that it asks.
"""

from __future__ import annotations

import argparse
import errno
import grp
import hashlib
import json
import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

#: Kind and name of a thing → what is to be said of it, in one line.
Snapshot = dict[str, str]

#: Where a product or a package could write, beside what belongs to packages, of which ``packages`` knows.
ROOTS = (
    "/etc", "/home", "/opt", "/root", "/run", "/run/lock", "/srv", "/tmp", "/usr/lib/systemd",  # noqa: S108
    "/usr/local", "/var/cache", "/var/lib", "/var/log", "/var/opt", "/var/spool", "/var/tmp",  # noqa: S108
)  # fmt: skip

#: A pattern for the whole of ``<kind> <name>``, and why it may differ although nobody has left anything.
VOLATILE = {
    # What everyone leaves who has been there over SSH, or what looks.
    r"file /(root|home/[^/]+)/\.ansible(/(tmp|cp))?": "Ansible's own folder for its files, which go; it stays, empty",
    r"file /(root|home/[^/]+)/\.cache": "of the shell of whoever looks",
    r"file /run/systemd/transient(/(session|user)-[^/]+)?": "people who are logged in, or were; no other unit",
    r"file /run/(user|sudo|systemd/(users|sessions|inhibit))(/.*)?": "people who are logged in, or were",
    r"file /var/(lib|db)/sudo(/.*)?": "who has been told the usual lecture",
    r"file /var/log/(wtmp|btmp|lastlog|auth\.log|faillog|sudo-io.*)": "who was here",
    r"file /run/(utmp|sshd\.pid)": "who is here",
    # Logs.
    r"file /(var|run)/log/journal(/.*)?": "the journal",
    r"file /var/log/(syslog|daemon\.log|kern\.log|user\.log|messages|debug)": "logs of the system",
    # systemd's notes of what runs; what of it should not be there is seen among the units.
    r"file /run/systemd/(journal|units|netif|propagate|incoming|ask-password|notify|private|io\..*|resolve)(/.*)?":
        "systemd's records of what runs; `unit` has what runs",
    r"file /run/systemd/(fsck\.progress|cgroups-agent|userdb|machine-id|container|host|show-status|nspawn)(/.*)?":
        "systemd's own sockets, and what the lab's machine tells",
    r"file /run/(hosts|credentials|mount|initctl|initramfs|rpcbind|udev|dbus|motd.*|blkid)(/.*)?":
        "of the system since it booted",
    r"file /run/systemd/unit-root": "where systemd puts together what a unit sees",
    r"unit network-online\.target": "reached when a unit first wants it, and then for as long as the host is up",
    r"file /var/lib/systemd/(timers|random-seed|catalog|linger|timesync|coredump)(/.*)?":
        "systemd's own clocks and seeds",
    r"file (/var)?/tmp/systemd-private-[^/]+(/.*)?": "temporary folders of units that run",
    r"file /tmp/namespace-dev-\w{6}(/dev(/.*)?)?": "systemd was starting a unit when its host died",
    # Work that the distribution does by timers.
    r"file /var/(lib|cache)/(apt|man-db|logrotate)(/.*)?": "the distribution's timers, and its lists of packages",
    r"file /var/lib/dpkg/(lock.*|triggers/Lock)": "locks of the package manager",
    r"file /etc/(passwd|shadow|group|gshadow|subuid|subgid)-": "the copy that useradd makes before it writes",
    r"file /etc/\.pwd\.lock": "the lock of useradd",
    r"unit (apt-daily|apt-daily-upgrade|dpkg-db-backup|e2scrub_all|e2scrub_reap|fstrim|logrotate|man-db|motd-news"
    r"|systemd-tmpfiles-clean|systemd-(fsck|journal-flush|update-utmp)[^ ]*)\.(service|timer)":
        "done at times of the distribution's choice",
    r"unit (session-.*\.scope|user(-runtime-dir)?@.*\.service|user-\d+\.slice|ssh@.*\.service"
    r"|run-(user|credentials)-.*\.mount)":
        "people who are logged in, or were, and units while they start",
    r"unit (.*\.device|systemd-(hostnamed|timedated|localed|udevd)\.service)": "comes when it is asked, and goes",
    r"mount /run/(user|credentials)/.*": "people who are logged in, or were, and units while they start",
    r"process (\(sd-pam\)|sshd|sshd-session|systemd|systemd-(hostnam|timedat|userwor|userdbd|localed|udevd).*)":
        "people who are logged in, or were, and what comes when it is asked",
    r"process (apt|apt-get|apt\.systemd\.dai|dpkg|dpkg-db-backup|fstrim|logrotate|mandb|e2scrub.*|systemd-tmpfile)":
        "done at times of the distribution's choice",
    # The kernel, which the lab's hosts share with each other and with this machine, counts and adapts itself.
    r"sysctl fs\.(dentry-state|file-nr|inode-nr|inode-state|aio-nr|quota\..*|epoll\..*|mqueue\..*|binfmt_misc\..*)":
        "counts",
    r"sysctl kernel\.(random\..*|ns_last_pid|pty\.nr|sched_.*|tainted|hung_task.*|perf_.*|cad_pid)": "counts",
    r"sysctl kernel\.(panic|panic_on_oops|keys\..*)": "of the kernel as a whole; every kubelet sets them",
    r"sysctl net\.netfilter\.nf_conntrack_(count|buckets|max)|sysctl net\.nf_conntrack_max": "counts",
    r"sysctl (vm|user|debug|dev|abi|sunrpc)\..*": "of the kernel as a whole, which other labs set, too",
    r"sysctl net\.(ipv4|ipv6)\.(neigh|conf)\..*\.(stable_secret|base_reachable_time)": "drawn at random",
    r"sysctl net\.ipv4\.(route\..*|tcp_fastopen_key|fib_.*seed)|sysctl net\.ipv6\.route\.flush":
        "counts, and drawn at random",
}  # fmt: skip
_VOLATILE = re.compile("|".join(f"(?:{pattern})" for pattern in VOLATILE))

#: A file larger than this (bytes) is told by its size.
LARGEST = 512 * 1024 * 1024
_SECONDS = 60
#: How the network says that nobody answers for an address.
_NOBODY = (errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.EHOSTDOWN)


def take(root: Path = Path("/")) -> Snapshot:
    """All of it; ``root`` is where files are looked for."""
    found = dict(files(root))
    found |= {f"mount {line.split()[4]}": line.split(" - ")[1].split()[0] for line in _lines_of("/proc/self/mountinfo")}
    found |= network()
    found |= sysctls(Path("/proc/sys"))
    found |= units()
    found |= {f"process {name}": "runs" for name in processes()}
    form = "${Package}:${Architecture} ${Version} ${db:Status-Abbrev}\n"
    packages = (line.split(" ", 1) for line in _output("dpkg-query", "--show", f"--showformat={form}"))
    found |= {f"package {name}": rest for name, rest in packages}
    return without_volatile(found)


def without_volatile(found: Mapping[str, str]) -> Snapshot:
    """A snapshot without what changes by itself."""
    return {name: found[name] for name in sorted(found) if not _VOLATILE.fullmatch(name)}


def files(root: Path, below: Iterable[str] = ROOTS) -> Iterator[tuple[str, str]]:
    """Every file, folder, link and socket below the places where one could be left."""
    for place in below:
        top = root / place.lstrip("/")
        if top.is_symlink() or not top.is_dir():
            continue
        device = top.stat().st_dev
        for folder, inside, names in os.walk(top):
            for name in (*inside, *names):
                path = Path(folder, name)
                shown = "/" + str(path.relative_to(root))
                # What is not compared anyway may be large, or go while it is read.
                if _VOLATILE.fullmatch(f"file {shown}"):
                    continue
                try:
                    yield f"file {shown}", describe(path)
                except FileNotFoundError:
                    continue
            # What is mounted below is another's, apart from those places themselves.
            inside[:] = [name for name in inside if _device(Path(folder, name)) == device]


def _device(path: Path) -> int | None:
    try:
        return path.lstat().st_dev
    except FileNotFoundError:
        return None


def describe(path: Path) -> str:
    """Kind, mode, owner and content; times are not of interest."""
    found = path.lstat()
    owner = _owner(found)
    parts = [stat.filemode(found.st_mode), owner]
    if stat.S_ISLNK(found.st_mode):
        parts = [f"-> {path.readlink()}", owner]
    elif stat.S_ISREG(found.st_mode):
        parts.append(f"{found.st_size} bytes" if found.st_size > LARGEST else _hash(path))
    elif stat.S_ISBLK(found.st_mode) or stat.S_ISCHR(found.st_mode):
        parts.append(f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}")
    if not stat.S_ISLNK(found.st_mode):
        parts += [f"{each}={os.getxattr(path, each).hex()}" for each in sorted(os.listxattr(path))]
    return " ".join(parts)


def _owner(found: os.stat_result) -> str:
    """User and group, by number where nobody has it."""
    try:
        user = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        user = str(found.st_uid)
    try:
        return f"{user}:{grp.getgrgid(found.st_gid).gr_name}"
    except KeyError:
        return f"{user}:{found.st_gid}"


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while piece := content.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()[:16]


def network() -> Snapshot:
    """Links, addresses, routes, rules, what listens, and the packet filter."""
    found = {}
    for link in json.loads("\n".join(_output("ip", "-json", "address", "show"))):
        found[f"link {link['ifname']}"] = " ".join(sorted(set(link["flags"]) - {"LOWER_UP"}))
        for each in link["addr_info"]:
            found[f"address {each['local']}/{each['prefixlen']}"] = f"{link['ifname']} {each['scope']}"
    for family in ("-4", "-6"):
        for line in _output("ip", family, "route", "show", "table", "all"):
            found[f"route {re.sub(r' (expires|hoplimit|error) -?[0-9a-z]+', '', line).strip()}"] = "there"
        for line in _output("ip", family, "rule", "show"):
            found[f"rule {family} {line.strip()}"] = "there"
    for line in _output("ss", "-Hlntu"):
        protocol, _state, _received, _sent, local = line.split()[:5]
        found[f"socket {protocol} {local}"] = "listens"
    if shutil.which("nft"):
        rules = _output("nft", "--stateless", "list", "ruleset")
        found["packet filter"] = f"{len(rules)} lines {hashlib.sha256(repr(rules).encode()).hexdigest()[:16]}"
    return found


def sysctls(top: Path) -> Snapshot:
    """Every setting of the kernel that can be read."""
    found = {}
    for path in top.glob("**/*"):
        name = f"sysctl {'.'.join(path.relative_to(top).parts)}"
        # What is not compared is not read either: a few do something when they are.
        if not _VOLATILE.fullmatch(name) and path.is_file() and path.stat().st_mode & stat.S_IRUSR:
            try:
                found[name] = " ".join(path.read_text(errors="replace").split())
            except OSError:
                continue  # of hardware that is not there
    return found


def units() -> Snapshot:
    """Units of systemd: which unit files there are and whether they are enabled, and what runs or has failed."""
    found = {}
    for line in _output("systemctl", "list-unit-files", "--no-legend", "--no-pager", "--plain"):
        name, enabled = line.split()[:2]
        found[f"unit file {name}"] = enabled
    for line in _output("systemctl", "list-units", "--all", "--no-legend", "--no-pager", "--plain"):
        name, loaded, active, sub = line.split()[:4]
        # One that did its work once and one that was not asked yet differ by when it was looked.
        if active in {"active", "failed"} or loaded not in {"loaded", "not-found"}:
            found[f"unit {name}"] = f"{loaded} {active} {sub}"
    return found


def processes() -> set[str]:
    """The names (15 characters of them) of programs that run, apart from this one and those that have started it."""
    names, parents = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # Threads of the kernel have no command.
            if (folder / "cmdline").read_bytes():
                name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
                names[folder.name], parents[folder.name] = name, rest.split()[1]
        except OSError:
            continue  # it has ended
    asking = str(os.getpid())
    while asking in names and asking != "1":
        del names[asking]
        asking = parents[asking]
    return set(names.values())


def _lines_of(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _output(*command: str) -> list[str]:
    # A user's language would change what is read here.
    environment = {**os.environ, "LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=_SECONDS, env=environment,
    )  # fmt: skip
    return done.stdout.splitlines()


def differences(before: Mapping[str, str], after: Mapping[str, str], but: Iterable[str] = ()) -> Iterator[str]:
    """Differences: what came (+), went (-) and changed (~), apart from what the scenario did itself."""
    own = [re.compile(pattern) for pattern in but]
    for name in sorted({*before, *after}):
        if before.get(name) == after.get(name) or any(pattern.fullmatch(name) for pattern in own):
            continue
        if name not in before:
            yield f"+ {name}: {after[name]}"
        elif name not in after:
            yield f"- {name}"
        else:
            yield f"~ {name}: {before[name]} -> {after[name]}"


def who_has(address: str, port: int = 9) -> str:
    """Sign that a machine has this address, or nothing. One that refuses a connection has it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(10)
        try:
            client.connect((address, port))
        except ConnectionRefusedError:
            return f"{address} refuses connections: somebody has it"
        except OSError as error:  # TimeoutError as well
            if isinstance(error, TimeoutError) or error.errno in _NOBODY:
                return ""
            raise
    return f"{address} accepts connections: somebody has it"


def main() -> int:
    """Take, or compare, or look for somebody."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("take")
    diff = commands.add_parser("diff")
    diff.add_argument("before", type=Path)
    diff.add_argument("after", type=Path)
    diff.add_argument("--but", action="append", default=[], metavar="PATTERN")
    commands.add_parser("nobody").add_argument("address")
    options = parser.parse_args()
    if options.command == "take":
        print(json.dumps(take(), indent=1))
        return 0
    if options.command == "nobody":
        found = [line] if (line := who_has(options.address)) else []
    else:
        before, after = (json.loads(each.read_text()) for each in (options.before, options.after))
        found = list(differences(before, after, options.but))
    print("\n".join(found) if found else "No difference.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
