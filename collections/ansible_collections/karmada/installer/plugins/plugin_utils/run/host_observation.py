# SPDX-License-Identifier: Apache-2.0
"""What the steps of a run have seen of one plain host, and how far they came there. No I/O.

It is JSON in the ``Handover``, whose keys are the names of the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self, TypedDict

from .reach import Fault, Target
from .state_on_hosts import Kept


@dataclass(frozen=True)
class _Part:
    """A record whose plain form has its fields by name."""

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """From its plain form."""
        return cls(**plain)

    @property
    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class Interface(_Part):
    """A network interface. ``addresses`` have the length of their prefix: ``192.0.2.1/24``."""

    name: str
    mac: str
    addresses: tuple[str, ...]

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """From its plain form."""
        return cls(plain["name"], plain["mac"], tuple(plain["addresses"]))


@dataclass(frozen=True)
class Listener(_Part):
    """A TCP socket that listens. ``group`` is the control group of a process that has it, empty if not known."""

    address: str
    port: int
    group: str


@dataclass(frozen=True)
class UnitFile(_Part):
    """A unit by its file: the owner UUID that it carries, and its description; each empty if there is none."""

    owner: str
    description: str


@dataclass(frozen=True)
class UnitStatus(_Part):
    """A unit that was looked at: the path of the program that runs, and why it is not healthy (empty if it is)."""

    program: str
    reason: str


@dataclass(frozen=True)
class Brought(_Part):
    """A program for a host, in a file of this machine; both empty in check mode. ``sha256`` in hex."""

    sha256: str = ""
    file: str = ""


@dataclass(frozen=True)
class Lost(_Part):
    """The task in which the host did not answer any more, and why, in the words of ssh or Ansible."""

    step: str
    reason: str


@dataclass(frozen=True)
class Trouble(_Part):
    """Why later steps leave a host of members alone: the task, what it said, and whether the host did not answer."""

    step: str
    reason: str
    lost: bool


@dataclass(frozen=True)
class HostFacts(_Part):
    """What preflight wants to know of a machine, as ``module_utils.host_state.facts`` tells it.

    Sizes are in bytes, times in seconds since 1970. A fact that cannot be had is empty.
    """

    #: as ``uname -m`` has it
    architecture: str = ""
    python: str = ""
    #: the number of the version; 0 where systemd is not what runs the machine
    systemd: int = 0
    machine_id: str = ""
    boot_id: str = ""
    boot_time: int = 0
    memory: int = 0
    selinux_enforcing: bool = False
    #: names of those that are enforced
    apparmor_profiles: tuple[str, ...] = ()
    #: whether the address of the document is one of this machine's, and the name of the interface that carries it
    has_address: bool = False
    interface: str = ""
    interfaces: tuple[Interface, ...] = ()
    #: hardware address of who has the virtual IP in a network of this host; empty if nobody, or this host, has it
    virtual_ip_at: str = ""
    listening: tuple[Listener, ...] = ()
    #: folder → what is free there, and the number of the device that it is on
    free: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    #: unit with a name like ours → its file
    units: Mapping[str, UnitFile] = field(default_factory=dict)
    #: user with a name like ours → the comment
    users: Mapping[str, str] = field(default_factory=dict)
    missing_programs: tuple[str, ...] = ()
    #: the clock of the host
    time: float = 0.0

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """From its plain form."""
        return cls(
            **{
                **plain,
                "interfaces": tuple(map(Interface.of, plain.get("interfaces", ()))),
                "listening": tuple(map(Listener.of, plain.get("listening", ()))),
                "units": _each(UnitFile, plain.get("units")),
                **{name: tuple(plain.get(name, ())) for name in ("apparmor_profiles", "missing_programs")},
            }
        )

    def is_same_machine(self, other: HostFacts) -> bool:
        """Both were seen of one machine."""
        # Machine ids are copied with disks, and all containers of a machine share one boot: only both together tell.
        ids = (self.machine_id, self.boot_id)
        return ids == (other.machine_id, other.boot_id) and all(ids)


@dataclass(frozen=True)
class HostObservation:
    """One host. Each field says by which action it is written; all are empty until that has been done."""

    #: why the host could not be looked at, in the words of ssh, sudo or Ansible; ``host_observe``
    refusal: str = ""
    #: when the question left and the answer was here, seconds since 1970 by our clock; ``host_observe``
    asked: float = 0.0
    answered: float = 0.0
    #: the machine; ``host_observe``
    facts: HostFacts | None = None
    #: the files of our components: path → base64; ``host_observe``, ``host_components``
    files: Mapping[str, str] = field(default_factory=dict)
    #: the programs that are as they were installed: path → SHA-256 in hex; ``host_observe``, ``host_programs``
    programs: Mapping[str, str] = field(default_factory=dict)
    #: the state that it keeps; ``host_observe``, ``journal``
    stored: Kept = field(default_factory=Kept)
    #: whether anything there is not as it is to be; ``host_components``
    differs: bool = False
    #: the programs that it needs: path there → file here; ``programs``, ``host_programs``
    lacking: Mapping[str, Brought] = field(default_factory=dict)
    #: what it has to reach; ``reach_targets``
    targets: tuple[Target, ...] = ()
    #: name of a target → why it is not reached from there; ``reach_from_host``
    unreached: Mapping[str, Fault] = field(default_factory=dict)
    #: unit → how it does; ``host_components``, ``host_load_balancer``
    units: Mapping[str, UnitStatus] = field(default_factory=dict)
    #: mark of a member → the newest line of log with it; ``member_log``
    member_log: Mapping[str, str] = field(default_factory=dict)
    #: why a host of members is left alone; any action on hosts, ``place``
    trouble: Trouble | None = None
    #: where the host was lost; any action on hosts
    lost: Lost | None = None
    #: the last task that has changed something there, or found it right; any action on hosts
    done: str = ""
    #: the task that the host itself could not carry out; any action on hosts
    stopped: str = ""
    #: when its lock was renewed last, in seconds of ``host_lock.clock``; any action on hosts
    renewed: float = 0.0

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """From its plain form, of which any part may be missing."""
        given = {name: value for name, value in plain.items() if value is not None}
        return cls(**{name: _PARTS[name](value) if name in _PARTS else value for name, value in given.items()})

    @property
    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: _plain(value) for name, value in vars(self).items()}


class Notes(TypedDict, total=False):
    """The fields of a ``HostObservation``, of which a step writes some."""

    refusal: str
    asked: float
    answered: float
    facts: HostFacts | None
    files: Mapping[str, str]
    programs: Mapping[str, str]
    stored: Kept
    differs: bool
    lacking: Mapping[str, Brought]
    targets: tuple[Target, ...]
    unreached: Mapping[str, Fault]
    units: Mapping[str, UnitStatus]
    member_log: Mapping[str, str]
    trouble: Trouble | None
    lost: Lost | None
    done: str
    stopped: str
    renewed: float


def _each(kind: Any, plain: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: kind.of(each) for name, each in (plain or {}).items()}


#: field → its value from the plain form, where that is another one
_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "facts": HostFacts.of,
    "stored": Kept.of,
    "lacking": lambda plain: _each(Brought, plain),
    "targets": lambda plain: tuple(Target.of(each) for each in plain),
    "unreached": lambda plain: _each(Fault, plain),
    "units": lambda plain: _each(UnitStatus, plain),
    "trouble": Trouble.of,
    "lost": Lost.of,
}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return getattr(value, "plain", value)
