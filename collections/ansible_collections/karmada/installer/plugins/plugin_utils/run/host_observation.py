# SPDX-License-Identifier: Apache-2.0
"""Observations of one plain host by the steps of a run, and how far they came there. No I/O.

The ``Handover`` keeps them as JSON whose keys are the names of the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypedDict

from .plain import Record
from .reach import Fault, Target
from .state_on_hosts import Kept


@dataclass(frozen=True)
class Interface(Record):
    """Network interface. ``addresses`` include the prefix length: ``192.0.2.1/24``."""

    name: str
    mac: str
    addresses: tuple[str, ...]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Interface from its plain form."""
        return cls(given["name"], given["mac"], tuple(given["addresses"]))


@dataclass(frozen=True)
class Listener(Record):
    """Listening TCP socket. ``group`` is the control group of a process that has it, empty if unknown."""

    address: str
    port: int
    group: str


@dataclass(frozen=True)
class UnitFile(Record):
    """Unit file: the owner UUID in it, and its description; each empty if there is none."""

    owner: str
    description: str


@dataclass(frozen=True)
class UnitStatus(Record):
    """Status of a unit: the path of the running program, and the reason why it is unhealthy (empty if healthy)."""

    program: str
    reason: str


@dataclass(frozen=True)
class Brought(Record):
    """Program for a host, as a file on this machine; both empty in check mode. ``sha256`` in hex."""

    sha256: str = ""
    file: str = ""


@dataclass(frozen=True)
class Lost(Record):
    """Task during which the host stopped answering, and the reason in the words of ssh or Ansible."""

    step: str
    reason: str


@dataclass(frozen=True)
class Trouble(Record):
    """Reason why later steps skip a host of members: the task, its message, and whether the host stopped answering."""

    step: str
    reason: str
    lost: bool


@dataclass(frozen=True)
class HostFacts(Record):
    """Facts of a machine for preflight, as ``module_utils.host_state.facts`` gives them.

    Sizes are in bytes, times in seconds since 1970. Facts that cannot be determined are empty.
    """

    #: as ``uname -m`` prints it
    architecture: str = ""
    python: str = ""
    #: number of the version; 0 if the machine does not run systemd
    systemd: int = 0
    machine_id: str = ""
    boot_id: str = ""
    boot_time: int = 0
    memory: int = 0
    selinux_enforcing: bool = False
    #: names of the enforced profiles
    apparmor_profiles: tuple[str, ...] = ()
    #: whether this machine has the address of the document, and the name of the interface that carries it
    has_address: bool = False
    interface: str = ""
    interfaces: tuple[Interface, ...] = ()
    #: hardware address of the holder of the virtual IP in a network of this host; empty if nobody or this host has it
    virtual_ip_at: str = ""
    listening: tuple[Listener, ...] = ()
    #: folder → free bytes, and the number of its device
    free: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    #: unit with a name like ours → its file
    units: Mapping[str, UnitFile] = field(default_factory=dict)
    #: user with a name like ours → the comment
    users: Mapping[str, str] = field(default_factory=dict)
    missing_programs: tuple[str, ...] = ()
    #: clock of the host
    time: float = 0.0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Facts from their plain form."""
        return cls(
            **{
                **given,
                "interfaces": tuple(map(Interface.of, given.get("interfaces", ()))),
                "listening": tuple(map(Listener.of, given.get("listening", ()))),
                "units": _each(UnitFile, given.get("units")),
                **{name: tuple(given.get(name, ())) for name in ("apparmor_profiles", "missing_programs")},
            }
        )

    def is_same_machine(self, other: HostFacts) -> bool:
        """Return whether both are facts of one machine."""
        # Disk images duplicate machine ids, and containers of a machine share its boot id: only both together tell.
        ids = (self.machine_id, self.boot_id)
        return ids == (other.machine_id, other.boot_id) and all(ids)


@dataclass(frozen=True)
class HostObservation:
    """Observation of one host. Each field names the actions that write it, and is empty until one has."""

    #: reason why the host could not be looked at, in the words of ssh, sudo or Ansible; ``host_observe``
    refusal: str = ""
    #: our clock when the question was sent and when the answer had arrived, seconds since 1970; ``host_observe``
    asked: float = 0.0
    answered: float = 0.0
    #: facts of the machine; ``host_observe``, of units and users ``host_components``
    facts: HostFacts | None = None
    #: files of our components: path → base64; ``host_observe``, ``host_components``
    files: Mapping[str, str] = field(default_factory=dict)
    #: programs that are unchanged since we installed them: path → SHA-256 in hex; ``host_observe``, ``host_programs``
    programs: Mapping[str, str] = field(default_factory=dict)
    #: state that the host keeps; ``host_observe``, ``host_copy``
    stored: Kept = field(default_factory=Kept)
    #: whether anything there differs from its desired state; ``host_components``
    differs: bool = False
    #: whether it is a load balancer that serves, and of which nothing differs; ``host_components``
    balances: bool = False
    #: programs that it lacks: path there → file here; ``programs``, ``host_programs``
    lacking: Mapping[str, Brought] = field(default_factory=dict)
    #: targets that it has to reach; ``reach_targets``
    targets: tuple[Target, ...] = ()
    #: name of a target → reason why it is not reached from there; ``reach_from_host``
    unreached: Mapping[str, Fault] = field(default_factory=dict)
    #: unit → status; ``host_components``, ``host_load_balancer``
    units: Mapping[str, UnitStatus] = field(default_factory=dict)
    #: mark of a member → the newest log line with it; ``member_log``
    member_log: Mapping[str, str] = field(default_factory=dict)
    #: answer of its member of etcd, in the form of ``etcd_member.look``; ``etcd_member``
    etcd: Mapping[str, Any] = field(default_factory=dict)
    #: what a restore has to know of it: rows of the table that run (``running``), whether the folder of the new data is
    #: ``there``, how its API server answers an agent (``status``), ``hash`` and ``counts`` of its member, and the
    #: generation that was ``made`` there; of old data the ``folders`` with data, and those that are ``gone``;
    #: ``restore_on_host``
    restore: Mapping[str, Any] = field(default_factory=dict)
    #: reason why a host of members is skipped; any action on hosts, ``place``
    trouble: Trouble | None = None
    #: task in which the host was lost; any action on hosts
    lost: Lost | None = None
    #: last task that changed something there or found it right; any action on hosts
    done: str = ""
    #: task that the host itself could not carry out; any action on hosts
    stopped: str = ""
    #: what this run has done to its state and the report says; ``journal``
    told: tuple[str, ...] = ()
    #: last renewal of its lock, in seconds of ``host_lock.clock``; any action on hosts
    renewed: float = 0.0

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Observation from its plain form, of which any part may be missing."""
        given = {name: value for name, value in plain.items() if value is not None}
        return cls(**{name: _PARTS[name](value) if name in _PARTS else value for name, value in given.items()})

    @property
    def is_looked_at(self) -> bool:
        """Return whether a step has looked at the host, or has tried to."""
        return bool(self.refusal or self.answered)

    @property
    def plain(self) -> dict[str, Any]:
        """JSON form."""
        return {name: _plain(value) for name, value in vars(self).items()}

    def after(self, tree: Mapping[str, Any]) -> Notes:
        """Fields that differ once the host has this tree (``module_utils.host_tree``), with what it removes."""
        absent = tree["absent"]
        gone = tuple(f"{folder}/" for folder in absent["folders"])
        left = {path: content for path, content in self.files.items() if not path.startswith(gone)}
        found: Notes = {"files": {**left, **{file["path"]: file["content"] for file in tree["files"]}}}
        if self.facts:
            ended = {part: {each["name"] for each in absent[part]} for part in ("units", "users")}
            units = {name: unit for name, unit in self.facts.units.items() if name not in ended["units"]}
            users = {name: comment for name, comment in self.facts.users.items() if name not in ended["users"]}
            found["facts"] = replace(self.facts, units=units, users=users)
        return found


class Notes(TypedDict, total=False):
    """Fields of a ``HostObservation`` that a step may write."""

    refusal: str
    asked: float
    answered: float
    facts: HostFacts | None
    files: Mapping[str, str]
    programs: Mapping[str, str]
    stored: Kept
    differs: bool
    balances: bool
    lacking: Mapping[str, Brought]
    targets: tuple[Target, ...]
    unreached: Mapping[str, Fault]
    units: Mapping[str, UnitStatus]
    member_log: Mapping[str, str]
    etcd: Mapping[str, Any]
    restore: Mapping[str, Any]
    trouble: Trouble | None
    lost: Lost | None
    done: str
    stopped: str
    told: tuple[str, ...]
    renewed: float


def _each(kind: Any, plain: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: kind.of(each) for name, each in (plain or {}).items()}


#: field → conversion from its plain form, where the two differ
_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "facts": HostFacts.of,
    "stored": Kept.of,
    "lacking": lambda plain: _each(Brought, plain),
    "targets": lambda plain: tuple(Target.of(each) for each in plain),
    "unreached": lambda plain: _each(Fault, plain),
    "units": lambda plain: _each(UnitStatus, plain),
    "told": tuple,
    "trouble": Trouble.of,
    "lost": Lost.of,
}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return getattr(value, "plain", value)
