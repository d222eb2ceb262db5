# SPDX-License-Identifier: Apache-2.0
"""This collection on plain hosts of the benchmark's lab, and what can be seen there without its help."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from karmada_bench.clusters import KARMADA, LAB, ROOT, Clusters
from karmada_bench.command import BenchError, Ran, Runner
from karmada_bench.sides import Ours

INSTANCE = "prod"
HOSTS = ("cp1", "cp2", "cp3")
TOOLS = ROOT / "molecule/shared/tools"
#: Files, users and groups of a host, but for what systemd keeps for itself and copies that useradd makes.
_LISTING = (
    "cat /etc/passwd /etc/group; [ ! -e /run/karmada-installer ] || find /run/karmada-installer;"
    " find /etc /usr/local /opt /var/lib -xdev"
    " -not -path '/var/lib/systemd/*' -not -path '/var/lib/private*' -not -path '/etc/*-'"
)


class OursOnHosts(Ours):
    """Mode Binary, on the first of the lab's hosts or on all of them with a virtual IP."""

    def __init__(self, clusters: Clusters, runner: Runner, folder: Path) -> None:
        super().__init__(clusters, runner, folder)
        self.hosts: tuple[str, ...] = HOSTS

    @property
    def control_plane(self) -> Path:
        """See Contender."""
        return self.folder / f"{INSTANCE}.kubeconfig"

    def begin_on(self, hosts: Sequence[str]) -> None:
        """``begin``, for these hosts."""
        self.hosts = tuple(hosts)
        self.begin()

    def _prepare(self) -> None:
        config = self.clusters.lab("ssh-config")
        for secret, key, option in (
            ("ssh", "ssh-privatekey", "IdentityFile"),
            ("ssh-known-hosts", "known_hosts", "UserKnownHostsFile"),
        ):
            folder = self.folder / "secrets" / secret
            folder.mkdir(mode=0o700, parents=True)
            shutil.copy(_option(config, option), folder / key)
            (folder / key).chmod(0o600)
        # Verified files, as a site has them that prepares its own; not in the folder, which is made anew each time.
        artifacts = self.folder.parent / "artifacts"
        if not (artifacts / "sha256sums").exists():
            self.runner.run(
                "artifacts-directory",
                [sys.executable, str(TOOLS / "artifacts_directory.py"), str(self.clusters.artifacts), str(artifacts)],
            )
        source = {
            "plugin": "karmada.installer.karmada",
            "manifest": "karmada.yaml",
            "secrets": "./secrets",
            "artifacts": str(artifacts),
        }
        self._write("site.karmada.yml", source)
        self.write_hosts_document()

    def write_hosts_document(self, *, scheduler_verbosity: int | None = None) -> None:
        """The document, with a flag of the scheduler or without."""
        config = self.clusters.lab("ssh-config")
        addresses = {name: _option(config, "HostName", of=name) for name in self.hosts}
        spec: dict[str, Any] = {
            "version": KARMADA,
            "mode": "Binary",
            "hosts": [{"name": name, "address": address} for name, address in addresses.items()],
            "ssh": {
                "user": _option(config, "User"),
                "privateKeySecretRef": {"name": "ssh"},
                "knownHostsSecretRef": {"name": "ssh-known-hosts"},
            },
            "artifacts": {"source": "Directory"},
        }
        if len(self.hosts) > 1:
            spec["endpoint"] = {"type": "VirtualIP", "virtualIP": {"address": _virtual_ip(addresses[self.hosts[0]])}}
        if scheduler_verbosity is not None:
            spec["components"] = {"karmadaScheduler": {"extraArgs": {"v": str(scheduler_verbosity)}}}
        document = {
            "apiVersion": "installer.karmada.io/v1alpha1",
            "kind": "KarmadaDeployment",
            "metadata": {"name": INSTANCE, "namespace": "karmada-prod"},
            "spec": spec,
        }
        self._write("karmada.yaml", document)

    def install_while_asking(self, name: str) -> tuple[Ran, int]:
        """Install while somebody asks the API server all the time; with how many requests failed."""
        prefix = [sys.executable, str(TOOLS / "poll.py"), f"--kubeconfig={self.control_plane}", "--"]
        # poll.py ends with 99 when a question was not answered.
        done = self._playbook(name, "install", prefix=prefix, codes=(0, 99))
        return done, failed_requests(done.output)

    def cut_power(self, name: str) -> tuple[str, dict[str, Any]]:
        """Take power from the host with the virtual IP, under a writer and a watcher; which one, and what it cost.

        What it cost is the report of steady_client.py, which judges nothing here.
        """
        chosen, report = self._with_virtual_ip(), self.clusters.work / f"{name}.json"
        client = [sys.executable, str(TOOLS / "steady_client.py"), f"--kubeconfig={self.control_plane}"]
        command = [*client, f"--report={report}", "--", str(LAB), "power", "off", chosen]
        # It ends with 98 when something was lost, which is a figure here.
        self.runner.run(name, command, codes=(0, 98), settings=self.clusters.settings)
        return chosen, json.loads(report.read_text())

    def _with_virtual_ip(self) -> str:
        addresses = self._on_hosts("ip", "-brief", "-4", "address", "show", "dev", "eth0")
        own = addresses[self.hosts[0]].split()[2].partition("/")[0]
        return holder(_virtual_ip(own), addresses)

    def uninstall(self, name: str) -> Ran:
        """See Contender."""
        return self._playbook(name, "uninstall", "-e", f"karmada_confirm={INSTANCE}")

    # -- witnesses -------------------------------------------------------------------------------------------------

    def units(self, _control_plane: Path) -> Iterator[str]:
        """Units that do not run, as the clusters' checks for workloads."""
        states = self._on_hosts("systemctl", "list-units", "--all", "--plain", "--no-legend", f"karmada-{INSTANCE}-*")
        for host, listed in states.items():
            for line in listed.splitlines():
                name, _load, active, sub, *_ = line.split()
                if (active, sub) != ("active", "running"):
                    yield f"{name} on {host} is {active} ({sub})"

    def started(self) -> dict[str, str]:
        """Each unit of each host with the identifier of its present start."""
        shown = self._on_hosts(
            "systemctl", "show", "--property=Id", "--property=InvocationID", f"karmada-{INSTANCE}-*.service"
        )
        return {f"{host} {unit}": start for host, text in shown.items() for unit, start in invocations(text).items()}

    def things(self) -> set[str]:
        """Files, users and groups of the hosts."""
        listed = self._on_hosts("sh", "-c", _LISTING, hosts=HOSTS)
        return {f"{host} {line}" for host, text in listed.items() for line in text.splitlines()}

    def _on_hosts(self, *command: str, hosts: Sequence[str] | None = None) -> dict[str, str]:
        asked = self.hosts if hosts is None else hosts
        with ThreadPoolExecutor(len(asked)) as pool:
            answers = pool.map(lambda host: self.clusters.lab("exec", host, "--", *command), asked)
            return dict(zip(asked, answers, strict=True))


def holder(address: str, shown: Mapping[str, str]) -> str:
    """Host that has the address, from what ``ip address`` prints on each. Raises BenchError unless it is one."""
    held = [host for host, text in shown.items() if address in (word.partition("/")[0] for word in text.split())]
    if len(held) != 1:
        raise BenchError(f"{address} is held by {', '.join(held) or 'no host'}")
    return held[0]


def invocations(shown: str) -> dict[str, str]:
    """Unit → InvocationID, from what ``systemctl show`` prints of several units."""
    found = {}
    for block in shown.strip().split("\n\n"):
        properties = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in properties:
            found[properties["Id"]] = properties.get("InvocationID", "")
    return found


def failed_requests(output: str) -> int:
    """Answer of poll.py at its end. Raises BenchError when it says nothing, or has asked nothing."""
    found = re.search(r"^poll: (\d+) answers, (\d+) failures", output, re.MULTILINE)
    if not found or not int(found[1]) + int(found[2]):
        raise BenchError("nobody asked the API server while the flag was changed")
    return int(found[2])


def _option(config: str, option: str, of: str = "") -> str:
    """The value of an option in what ``lab ssh-config`` prints: of a host, or the first."""
    _before, _host, after = config.partition(f"Host {of}\n") if of else ("", "", config)
    found = re.search(rf"^\s*{option} (\S+)", after, re.MULTILINE)
    if not found:
        raise BenchError(f"the lab's SSH configuration has no {option}{of and f' for {of}'}")
    return found[1]


def _virtual_ip(neighbour: str) -> str:
    """An address of the lab's network that nobody has: 10.0.x.y becomes 10.0.0.200."""
    return ".".join([*neighbour.split(".")[:2], "0", "200"])
