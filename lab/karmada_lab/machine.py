# SPDX-License-Identifier: Apache-2.0
"""A machine of the lab: Debian with systemd as its process 1, booted by systemd-nspawn in a network namespace.

Each machine lives in a control group of its own, so that everything that belongs to it can be found and ended even when
no record of it was written. Its overlay is mounted in a mount namespace that dies with it: nothing stays mounted.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from karmada_lab.errors import LabError
from karmada_lab.network import gateway, namespace, plug_in, unplug
from karmada_lab.rootfs import LOGIN, base
from karmada_lab.shell import run, say, wait_for
from karmada_lab.state import Lab, MachineRecord, machine_records, save, write_text

CGROUPS = Path("/sys/fs/cgroup")

_HOSTS_MARK = "# lab"

# Run as the first process of the machine: enter the control group, mount the overlay where nobody else sees it, boot.
_LAUNCH = """
set -eu
cgroup=$1 lower=$2 upper=$3 work=$4 root=$5
shift 5
entered=
for procs in /sys/fs/cgroup/"$cgroup"/cgroup.procs /sys/fs/cgroup/*/"$cgroup"/cgroup.procs; do
  if [ -e "$procs" ]; then
    echo $$ >"$procs"
    entered=yes
  fi
done
# Without its control group (removed by a `lab down` meanwhile) nobody would find this machine again.
[ "$entered" ]
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$upper,workdir=$work" "$root"
exec "$@"
"""


def folder(lab: Lab, name: str) -> Path:
    """Everything of one machine that is on disk."""
    return lab.machines / name


def start(
    lab: Lab, machine: MachineRecord, files: dict[str, str], binds: dict[str, Path], read_only: dict[str, Path]
) -> None:
    """Boot a fresh machine and return when systemd in it answers. An old one of that name is removed first.

    files: text to lay over the base, by path; a path that ends in `!` gets mode 0755. binds and read_only: path in the
    machine -> folder or file of this machine.
    """
    remove(lab, machine)
    home = folder(lab, machine.name)
    upper = home / "upper"
    for path in (upper, home / "work", home / "root"):
        path.mkdir(parents=True)
    save(lab, machine)
    _lay(upper, {**_identity(lab, machine), **files})
    _host_key(lab, machine, upper)
    boot(lab, machine, binds, read_only)


def boot(
    lab: Lab,
    machine: MachineRecord,
    binds: Mapping[str, Path] | None = None,
    read_only: Mapping[str, Path] | None = None,
) -> None:
    """Boot a machine with what it has on its disk, on a fresh cable, and return when systemd in it answers."""
    home = folder(lab, machine.name)
    upper, work, root = home / "upper", home / "work", home / "root"
    for source in (binds or {}).values():
        source.mkdir(parents=True, exist_ok=True)
    plug_in(lab, machine)
    name = namespace(lab, machine.name)
    _make_cgroups(name)
    command = [
        "unshare", "--mount", "sh", "-c", _LAUNCH, "launch", name, str(base(lab)), str(upper), str(work), str(root),
        "systemd-nspawn", "-q", "-D", str(root), "--boot", "--register=no", "--keep-unit",
        f"--network-namespace-path=/run/netns/{name}", f"--machine={machine.name}", "--capability=all",
        "--system-call-filter=@known", "--console=pipe", "--resolv-conf=off", "--timezone=off", "--link-journal=no",
        *[f"--bind={source}:{target}" for target, source in (binds or {}).items()],
        *[f"--bind-ro={source}:{target}" for target, source in (read_only or {}).items()],
    ]  # fmt: skip
    if machine.kind == "node":
        command.append("--bind=/dev/kmsg")
    environment = {**os.environ, "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "yes", "SYSTEMD_NSPAWN_LOCK": "0"}
    with (home / "console.log").open("a") as console:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True, env=environment
        )
    machine.pid, machine.started = process.pid, start_ticks(process.pid)
    save(lab, machine)
    _wait_booted(lab, machine, process)


def _wait_booted(lab: Lab, machine: MachineRecord, process: subprocess.Popen[bytes]) -> None:
    def booted() -> bool:
        if process.poll() is not None:
            console = (folder(lab, machine.name) / "console.log").read_text(errors="replace")
            raise LabError(f"machine {machine.name} ended while it booted:\n{console[-1500:]}")
        answer = execute(machine, ["systemctl", "is-system-running"], check=False)
        return answer.stdout.strip() in ("running", "degraded")

    def addressed() -> bool:
        return not execute(machine, ["ip", "-6", "address", "show", "tentative"]).stdout.strip()

    wait_for(f"systemd in {machine.name}", booted, timeout=120)
    # Until IPv6 has looked for others with its link-local address, that and its route are still to come.
    wait_for(f"the addresses of {machine.name}", addressed, timeout=30)


def execute(
    machine: MachineRecord,
    command: Sequence[str],
    *,
    stdin: str | None = None,
    check: bool = True,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command inside the machine, as root. With check unset, a machine that is not up answers like a failure."""
    leader = find_leader(machine)
    if leader is None:
        if check:
            raise LabError(f"machine {machine.name} is not running")
        return subprocess.CompletedProcess(list(command), 1, "", "not running")
    return run([*enter(leader), *command], stdin=stdin, check=check, timeout=timeout)


def enter(leader: int) -> list[str]:
    """The words before a command that make it run inside the machine whose process 1 is `leader` out here."""
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return [
        "nsenter", "--target", str(leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup",
        "--wdns=/root", "env", "-i", path, "HOME=/root", "LANG=C.UTF-8", "TERM=" + os.environ.get("TERM", "dumb"),
    ]  # fmt: skip


def find_leader(machine: MachineRecord) -> int | None:
    """Process id, out here, of the machine's process 1; None while there is none.

    It is the child of nspawn (the process on record) that is process 1 of a process id namespace.
    """
    if not is_alive(machine):
        return None
    try:
        children = Path(f"/proc/{machine.pid}/task/{machine.pid}/children").read_text().split()
        for child in children:
            for line in Path(f"/proc/{child}/status").read_text().splitlines():
                if line.startswith("NSpid:") and line.split()[-1] == "1" and len(line.split()) > 2:
                    return int(child)
    except OSError:
        return None
    return None


def is_alive(machine: MachineRecord) -> bool:
    """Return whether the process on record still runs: by id and start time, so that a reused id does not count."""
    return machine.pid > 0 and machine.started > 0 and start_ticks(machine.pid) == machine.started


def start_ticks(pid: int) -> int:
    """When the process began, in clock ticks since boot; 0 when there is no such process (or it is a zombie)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = text.rsplit(")", 1)[1].split()
    return 0 if fields[0] == "Z" else int(fields[19])


def remove(lab: Lab, machine: MachineRecord) -> None:
    """End the machine and all that runs in it, and remove what it had: works on any half-made state."""
    name = namespace(lab, machine.name)
    kill_cgroups(name)
    unplug(lab, machine)
    home = folder(lab, machine.name)
    if home.exists():
        _remove_tree(home)


def reusable(machine: MachineRecord) -> bool:
    """Return whether the machine is up and was finished: anything else that has not been switched off is a leftover."""
    return machine.ready and find_leader(machine) is not None


def strays(lab: Lab) -> list[str]:
    """Control groups of this lab for which no machine is on record (the record was lost): they are ended by `down`."""
    known = {namespace(lab, name) for name in machine_records(lab)}
    return sorted(name for name in cgroup_names(lab) if name not in known)


# Control groups ------------------------------------------------------------------------------------------------------


def _hierarchies() -> list[Path]:
    """Roots of all control group hierarchies: several with version 1, one with version 2."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount_point, kind, *_ = line.split()
        if kind in ("cgroup", "cgroup2") and mount_point.startswith(str(CGROUPS)):
            found.append(Path(mount_point))
    return found


def has_cgroups() -> bool:
    """Return whether this machine has control groups at all."""
    return bool(_hierarchies())


def _make_cgroups(name: str) -> None:
    for hierarchy in _hierarchies():
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        if hierarchy.name == "cpuset":
            # A new version 1 cpuset has no processors and refuses processes until it is given some.
            for setting in ("cpuset.cpus", "cpuset.mems"):
                (group / setting).write_text((hierarchy / setting).read_text())
            (group / "cgroup.clone_children").write_text("1")


def cgroup_names(lab: Lab) -> set[str]:
    """Names of this lab's control groups."""
    return {path.name for hierarchy in _hierarchies() for path in hierarchy.glob(f"{lab.id}-*") if path.is_dir()}


def members(name: str) -> set[int]:
    """Processes in the control group or below, in any hierarchy."""
    found: set[int] = set()
    for hierarchy in _hierarchies():
        for group in _groups_below(hierarchy / name):
            try:
                found |= {int(line) for line in (group / "cgroup.procs").read_text().split()}
            except OSError:
                continue
    return {pid for pid in found if pid > 0}


def _groups_below(group: Path) -> list[Path]:
    """The group and all below it, parents first. os.walk, because groups come and go while we look."""
    return [Path(path) for path, _, _ in os.walk(group)]


def kill_cgroups(name: str) -> None:
    """End every process in the control group, then remove it. Raises LabError when something will not end."""
    deadline = time.monotonic() + 20
    while alive := members(name):
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            raise LabError(f"processes {sorted(alive)[:10]} of {name} do not end; look at them with ps")
        time.sleep(0.05)
    for hierarchy in _hierarchies():
        group = hierarchy / name
        for _ in range(50):
            for path in reversed(_groups_below(group)):
                _rmdir(path)
            if _rmdir(group):
                break
            time.sleep(0.05)


def _rmdir(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


# Contents ------------------------------------------------------------------------------------------------------------


def _identity(lab: Lab, machine: MachineRecord) -> dict[str, str]:
    known = machine_records(lab) | {machine.name: machine}
    return {
        "/etc/hostname": f"{machine.name}\n",
        "/etc/machine-id": uuid.uuid4().hex + "\n",
        "/etc/hosts": hosts_file(list(known.values())),
        "/etc/resolv.conf": f"nameserver {gateway(lab, machine.address)}\noptions timeout:1 attempts:1\n",
        f"/home/{LOGIN}/.ssh/authorized_keys": user_key(lab).with_suffix(".pub").read_text(),
        "/root/.ssh/authorized_keys": user_key(lab).with_suffix(".pub").read_text(),
    }


def hosts_file(machines: Sequence[MachineRecord]) -> str:
    """/etc/hosts with every machine of the lab; each line is marked as ours."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    lines += [f"{address} {machine.name}" for machine in machines for address in machine.addresses]
    return "".join(f"{line} {_HOSTS_MARK}\n" for line in lines)


def write_hosts(machine: MachineRecord, text: str) -> None:
    """Replace our lines in the machine's /etc/hosts; lines that somebody else added stay."""
    command = f"{{ cat; grep -v '{_HOSTS_MARK}$' /etc/hosts; }} >/run/hosts; cat /run/hosts >/etc/hosts"
    execute(machine, ["sh", "-c", command], stdin=text, check=False)


def _lay(upper: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = upper / name.rstrip("!").lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text, 0o755 if name.endswith("!") else 0o644)
    for home, owner in ((upper / "home" / LOGIN, 1000), (upper / "root", 0)):
        # A folder that is new in the overlay hides mode and owner of the one below.
        for path in (home, home / ".ssh", home / ".ssh/authorized_keys"):
            os.chown(path, owner, owner)
            path.chmod(0o600 if path.name == "authorized_keys" else 0o700)


def user_key(lab: Lab) -> Path:
    """The private key that opens every machine of the lab; made when missing. Not for several threads at first."""
    key = lab.keys / "id_ed25519"
    if not key.with_suffix(".pub").exists():
        lab.keys.mkdir(parents=True, exist_ok=True)
        lab.keys.chmod(0o700)
        key.unlink(missing_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", lab.id, "-f", key])
    return key


def _host_key(lab: Lab, machine: MachineRecord, upper: Path) -> None:
    key = upper / "etc/ssh/ssh_host_ed25519_key"
    key.parent.mkdir(parents=True, exist_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", machine.name, "-f", key])
    shutil.copy(key.with_suffix(".pub"), folder(lab, machine.name) / "host_key.pub")


def ssh_config(lab: Lab, machines: Sequence[MachineRecord]) -> str:
    """An ssh client configuration for the machines; writes the known_hosts file it names, with their real host keys."""
    known = lab.keys / "known_hosts"
    lines = []
    for machine in machines:
        algorithm, key, *_ = (folder(lab, machine.name) / "host_key.pub").read_text().split()
        lines.append(f"{machine.address},{machine.name} {algorithm} {key}")
    write_text(known, "\n".join(lines) + "\n")
    blocks = [
        f"Host {machine.name}\n  HostName {machine.address}\n  User {LOGIN}\n  IdentityFile {user_key(lab)}\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {known}\n  StrictHostKeyChecking yes\n"
        for machine in machines
    ]
    return "\n".join(blocks)


def _remove_tree(path: Path) -> None:
    """Remove a folder; what cannot be removed is named (an immutable file, a mount)."""
    for attempt in range(5):
        try:
            shutil.rmtree(path)
            return
        except FileNotFoundError:
            continue
        except OSError as error:
            if attempt == 4:
                say(f"    {path} cannot be removed: {error}")
                raise LabError(f"{path} cannot be removed: {error}; look for mounts below it with findmnt") from error
            time.sleep(0.2)
