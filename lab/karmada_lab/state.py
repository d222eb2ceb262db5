# SPDX-License-Identifier: Apache-2.0
"""State of the lab: where it keeps things, what it remembers, and the lock that admits one changing command at a time.

The records say what was meant to exist. What runs is decided by control groups and network namespaces (see `machine`
and `network`), because a record can be missing or old after a SIGKILL, and a process id can be somebody else's by then.
"""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from karmada_lab.errors import LabError
from karmada_lab.shell import say

DEFAULT_STATE = Path("/var/lib/karmada-lab")

IPV4, IPV6 = 4, 6
Family = Literal["ipv4", "ipv6", "dual"]
#: What a cluster can be, and the versions of IP it then has, the preferred one first.
FAMILIES: dict[Family, tuple[int, ...]] = {"ipv4": (IPV4,), "ipv6": (IPV6,), "dual": (IPV4, IPV6)}
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Lab:
    """One lab: its folders and the names and addresses that are derived from the state folder.

    Two labs with different state folders share nothing but the cache. id: prefix of every interface, network
    namespace, control group and nftables table of this lab.
    """

    state: Path
    cache: Path
    id: str
    subnet: ipaddress.IPv4Network
    subnet6: ipaddress.IPv6Network

    @classmethod
    def from_environment(cls) -> Lab:
        """The lab that KARMADA_LAB_STATE, KARMADA_LAB_CACHE and KARMADA_LAB_SUBNET (a /16) describe."""
        state = Path(os.environ.get("KARMADA_LAB_STATE") or DEFAULT_STATE).absolute()
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        cache = Path(os.environ.get("KARMADA_LAB_CACHE") or caches / "karmada-lab").absolute()
        digest = hashlib.sha256(str(state).encode()).digest()
        second = 60 if state == DEFAULT_STATE else 61 + digest[0] % 35
        text = os.environ.get("KARMADA_LAB_SUBNET") or f"10.{second}.0.0/16"
        try:
            subnet = ipaddress.IPv4Network(text)
        except ValueError as error:
            raise LabError(f"KARMADA_LAB_SUBNET={text!r} is not an IPv4 network: {error}") from error
        if subnet.prefixlen != 16:
            raise LabError(f"KARMADA_LAB_SUBNET={text!r} must be a /16, like 10.60.0.0/16")
        name = "klab" if state == DEFAULT_STATE else "klab" + digest.hex()[:4]
        # A unique local prefix (RFC 4193): fd and forty bits that no other network is likely to have.
        subnet6 = ipaddress.IPv6Network((b"\xfd" + digest[1:6] + bytes(10), 48))
        return cls(state=state, cache=cache, id=name, subnet=subnet, subnet6=subnet6)

    # Folders -----------------------------------------------------------------------------------------------------

    @property
    def artifacts(self) -> Path:
        """<product>/<version>/bin/<binary>, and karmada/<version>/{crds,charts}."""
        return self.cache / "artifacts"

    @property
    def machines(self) -> Path:
        """A folder for each host and cluster node: record, overlay, logs."""
        return self.state / "machines"

    @property
    def clusters(self) -> Path:
        """A folder for each cluster: record and admin.conf."""
        return self.state / "clusters"

    @property
    def keys(self) -> Path:
        """The key with which one logs in to the lab's hosts, made when first needed."""
        return self.state / "keys"

    # Addresses ---------------------------------------------------------------------------------------------------
    # x.y.0.0/20 machines, x.y.16.0/20 load balancers, x.y.32.0/19 Services, x.y.64.0 and up: pods, a /22 a cluster.
    # IPv6, with the /64 after the lab's prefix: 0 machines and load balancers, 100 and up Services, 1000 and up pods,
    # a /62 a cluster.

    def _part(self, offset: int, prefix: int) -> ipaddress.IPv4Network:
        return ipaddress.IPv4Network((int(self.subnet.network_address) + offset, prefix))

    def _part6(self, subnet: int, prefix: int, offset: int = 0) -> ipaddress.IPv6Network:
        return ipaddress.IPv6Network((int(self.subnet6.network_address) + (subnet << 64) + offset, prefix))

    @property
    def bridge_network(self) -> ipaddress.IPv4Network:
        """Network of the bridge itself: machines and load balancer addresses."""
        return self._part(0, 19)

    @property
    def gateway(self) -> str:
        """The machine's own address on the bridge; also the name server that refuses."""
        return str(self.subnet.network_address + 1)

    @property
    def bridge_network6(self) -> ipaddress.IPv6Network:
        """Network of the bridge itself in IPv6."""
        return self._part6(0, 64)

    @property
    def gateway6(self) -> str:
        """The machine's own IPv6 address on the bridge; also a name server that refuses."""
        return str(self.bridge_network6[1])

    @property
    def pod_network(self) -> ipaddress.IPv4Network:
        """Everything from which the pods of all clusters get their addresses."""
        return self.subnet

    def machine_address(self, index: int) -> str:
        """Address of machine number index (0, 1, ...) on the bridge."""
        return str(self.subnet.network_address + 10 + index)

    def machine_address6(self, index: int) -> str:
        """IPv6 address of machine number index on the bridge."""
        return str(self.bridge_network6[10 + index])

    def machine_addresses(self, index: int, family: Family) -> list[str]:
        """Addresses of machine number index, one for each family, the one that clusters prefer first."""
        found = {IPV4: self.machine_address(index), IPV6: self.machine_address6(index)}
        return [found[each] for each in FAMILIES[family]]

    # Ranges of a cluster. Those of IPv6 are asked for by ``ranges`` only, which makes up their names.

    def load_balancer_range(self, cluster: int) -> ipaddress.IPv4Network:
        """Addresses on the bridge that MetalLB in this cluster hands out: 64."""
        return self._part((16 << 8) + cluster * 64, 26)

    def service_range(self, cluster: int) -> ipaddress.IPv4Network:
        """ClusterIPs of this cluster: 254."""
        return self._part((32 + cluster) << 8, 24)

    def cluster_pod_range(self, cluster: int) -> ipaddress.IPv4Network:
        """Pod addresses of this cluster; one /24 for each of up to four nodes."""
        return self._part((64 + 4 * cluster) << 8, 22)

    def node_pod_range(self, cluster: int, node: int) -> ipaddress.IPv4Network:
        """Pod addresses of one node (0 to 3) of a cluster."""
        return self._part((64 + 4 * cluster + node) << 8, 24)

    def load_balancer_range6(self, cluster: int) -> ipaddress.IPv6Network:
        """IPv6 addresses on the bridge that MetalLB in this cluster hands out: 64."""
        return self._part6(0, 122, 0x10000 + cluster * 64)

    def service_range6(self, cluster: int) -> ipaddress.IPv6Network:
        """IPv6 ClusterIPs of this cluster."""
        return self._part6(0x100 + cluster, 112)

    def cluster_pod_range6(self, cluster: int) -> ipaddress.IPv6Network:
        """IPv6 pod addresses of this cluster; one /64 for each of up to four nodes."""
        return self._part6(0x1000 + 4 * cluster, 62)

    def node_pod_range6(self, cluster: int, node: int) -> ipaddress.IPv6Network:
        """IPv6 pod addresses of one node (0 to 3) of a cluster."""
        return self._part6(0x1000 + 4 * cluster + node, 64)

    def ranges(self, record: ClusterRecord, what: str, *numbers: int) -> list[Network]:
        """The ranges of a cluster, one for each of its families. what: `service`, `cluster_pod`, `node_pod` (and the
        node's number) or `load_balancer`.
        """
        of_family = {IPV4: f"{what}_range", IPV6: f"{what}_range6"}
        return [getattr(self, of_family[family])(record.index, *numbers) for family in FAMILIES[record.family]]


MAX_CLUSTERS = 32
MAX_NODES = 4


@dataclass
class MachineRecord:
    """A host or a cluster node. pid and started (clock ticks since boot) name the nspawn process, 0 before it."""

    name: str
    index: int
    address: str
    kind: str  # "host" or "node"
    cluster: str = ""
    node: int = 0
    #: of the other family, in a cluster that has both
    second_address: str = ""
    pid: int = 0
    started: int = 0
    created: float = field(default_factory=time.time)
    ready: bool = False
    #: switched off by `lab power`: not running, and no leftover
    off: bool = False

    @property
    def addresses(self) -> list[str]:
        """All addresses, the preferred one first."""
        return [address for address in (self.address, self.second_address) if address]


@dataclass
class ClusterRecord:
    """A cluster. ready is set last: one that is not ready when a command starts is a leftover."""

    name: str
    index: int
    nodes: int
    kubernetes: str
    family: Family = "ipv4"
    created: float = field(default_factory=time.time)
    ready: bool = False
    addons: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    audit_log: str = ""


def write_json(path: Path, value: Any) -> None:
    """Replace the file at once, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def write_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace the file at once with this text and mode."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.touch(mode=mode)
    temporary.write_text(text)
    temporary.chmod(mode)
    temporary.rename(path)


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file, {} where there is none or it cannot be read (cut off by a crash)."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def save(lab: Lab, record: MachineRecord | ClusterRecord) -> None:
    """Write a record to its place."""
    folder = lab.machines if isinstance(record, MachineRecord) else lab.clusters
    write_json(folder / record.name / "record.json", vars(record))


def machine_records(lab: Lab) -> dict[str, MachineRecord]:
    """All machines on record, by name, in the order of their addresses."""
    found = [MachineRecord(**value) for value in _records(lab.machines)]
    return {record.name: record for record in sorted(found, key=lambda record: record.index)}


def cluster_records(lab: Lab) -> dict[str, ClusterRecord]:
    """All clusters on record, by name, in the order of their address ranges."""
    found = [ClusterRecord(**value) for value in _records(lab.clusters)]
    return {record.name: record for record in sorted(found, key=lambda record: record.index)}


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*/record.json")):
        value = read_json(path)
        if value:
            yield value


def free_index(taken: set[int], limit: int, what: str) -> int:
    """The smallest number that is not taken. Raises LabError when there are `limit` of them already."""
    for index in range(limit):
        if index not in taken:
            return index
    raise LabError(f"this lab has room for {limit} {what}; take some down with `lab down NAME`")


@contextmanager
def exclusive(lock: Path, what: str) -> Iterator[None]:
    """Hold the lock file; wait while another process does. The kernel releases it when the holder dies.

    The file may be removed by its holder, so after getting the lock we look whether it is still the file at that path.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    spoken = False
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not spoken and time.monotonic() - begin > 2:
                    holder = os.pread(descriptor, 100, 0).decode(errors="replace").strip()
                    say(f"    waiting for {what}: process {holder or '?'} holds {lock}")
                    spoken = True
                time.sleep(0.1)
                continue
            if _same_file(descriptor, lock):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                yield
                return
        finally:
            os.close(descriptor)


def state_lock(lab: Lab) -> Path:
    """Beside the state folder, which comes and goes."""
    return lab.state.with_name(f".{lab.state.name}.lock")


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
