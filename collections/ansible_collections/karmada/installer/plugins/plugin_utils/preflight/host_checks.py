# SPDX-License-Identifier: Apache-2.0
"""Checks of plain hosts before the first change. All problems are reported at once.

Pure functions over the observations of the first step: ``observed`` is host name → observation.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from ..artifacts.programs import ARCHITECTURES
from ..components import etcd_configuration
from ..components import hosts as component_hosts
from ..components.hosts import AGENT_ROLE, CONTROL_PLANE_ROLE, ETCD_ROLE, Host
from ..components.instance import Instance
from ..components.state import State
from ..components.table import ETCD
from ..problems import Problem, Reason
from ..render import load_balancer, sockets, units
from ..run import host_access
from ..run.host_observation import HostFacts, HostObservation, Interface
from . import host_list_checks

Observed = Mapping[str, HostObservation]

#: Version with ProtectProc, the newest setting that our units use.
OLDEST_SYSTEMD = 247
#: In seconds. Beyond the first, etcd complains and leases end late; beyond the second, certificates that one side
#: issues may not be valid yet on the other: new ones are backdated by 5 minutes.
NOTICEABLE_SKEW, TOLERABLE_SKEW = 2, 30
MIB = 1024 * 1024
#: Disk space for a program, at most; the largest, kube-apiserver, has 90 MiB.
PROGRAM_BYTES = 110 * MIB
#: Disk space that etcd's data needs at first.
ETCD_BYTES = 1024 * MIB
#: With less memory a host of that role works, but not for long.
MEMORY: Mapping[str, int] = {CONTROL_PLANE_ROLE: 1536 * MIB, ETCD_ROLE: 512 * MIB}


@dataclass(frozen=True)
class _Seen:
    """Host of the document with its facts and observation."""

    host: Host
    facts: HostFacts
    observation: HostObservation

    @property
    def where(self) -> str:
        return f"host {self.host.name} ({self.host.address})"

    @cached_property
    def interface(self) -> Interface | None:
        """Network interface that carries its address; None if none does."""
        return next((each for each in self.facts.interfaces if each.name == self.facts.interface), None)

    @property
    def addresses(self) -> list[ipaddress.IPv4Interface | ipaddress.IPv6Interface]:
        return [ipaddress.ip_interface(each) for one in self.facts.interfaces for each in one.addresses]


def problems(instance: Instance, observed: Observed, state: State | None) -> list[Problem]:
    """Problems of the whole installation. ``state`` is None before the first install."""
    hosts = [host for host in component_hosts.all_hosts(instance.spec) if not host.is_of_members]
    found = [
        *host_list_checks.of_the_document(instance),
        *(host_list_checks.of_the_past(instance, state) if state else ()),
        *(problem for host in hosts for problem in _of_one_host(instance, host, observed)),
        *_of_all_hosts(instance, _seen(hosts, observed)),
    ]
    return list(dict.fromkeys(found))


def of_members(instance: Instance, observed: Observed) -> dict[str, list[Problem]]:
    """Problems of hosts that only members need, by host; they stop nothing else."""
    found, others = {}, [host for host in component_hosts.all_hosts(instance.spec) if not host.is_of_members]
    for host in component_hosts.all_hosts(instance.spec):
        if host.is_of_members:
            known = _of_all_hosts(instance, _seen(others, observed))
            others.append(host)
            with_it = [each for each in _of_all_hosts(instance, _seen(others, observed)) if each not in known]
            found[host.name] = [*_of_one_host(instance, host, observed), *with_it]
    return found


def hints(instance: Instance, observed: Observed) -> list[Problem]:
    """Hints, which stop nothing."""
    seen = _seen(component_hosts.all_hosts(instance.spec), observed)
    return [Problem.hint(text, reason, one.where) for one in seen for text, reason in _hints_of_one(instance, one)] + [
        Problem.hint(f"{text}; let all of them follow the same time servers", Reason.CLOCK_SKEW)
        for text in _skews(seen, NOTICEABLE_SKEW, TOLERABLE_SKEW)
    ]


def _seen(hosts: Iterable[Host], observed: Observed) -> list[_Seen]:
    found = ((host, observed[host.name]) for host in hosts)
    return [_Seen(host, seen.facts, seen) for host, seen in found if seen.facts]


def _of_one_host(instance: Instance, host: Host, observed: Observed) -> Iterator[Problem]:
    """Problems of a single host; if it could not be looked at, only the reason for that."""
    for one in _seen([host], observed):
        for check in _OF_ONE_HOST:
            yield from check(instance, one)
        return
    yield host_access.problem(
        observed[host.name].refusal, host=host.name, address=host.address, user=instance.spec.ssh_user
    )


def _of_all_hosts(instance: Instance, seen: Sequence[_Seen]) -> list[Problem]:
    return [problem for check in _OF_ALL_HOSTS for problem in check(instance, seen)]


# -- one host --------------------------------------------------------------------------------------------------------


def _machine(_instance: Instance, one: _Seen) -> Iterator[Problem]:
    facts = one.facts
    if facts.architecture not in ARCHITECTURES:
        yield Problem(
            f"its architecture is {facts.architecture}, for which there are no programs",
            one.where,
            f"use a host with {' or '.join(ARCHITECTURES)}",
            reason=Reason.UNSUITABLE_HOST,
        )
    if not facts.systemd:
        yield Problem(
            "it is not run by systemd",
            one.where,
            "use a host that is: components are units of systemd",
            reason=Reason.UNSUITABLE_HOST,
        )
    elif facts.systemd < OLDEST_SYSTEMD:
        yield Problem(
            f"its systemd is version {facts.systemd}, and units need {OLDEST_SYSTEMD}",
            one.where,
            "use a newer release of the distribution, such as Debian 11, Ubuntu 22.04 or RHEL 9",
            reason=Reason.UNSUITABLE_HOST,
        )
    if _version(facts.python) < host_access.OLDEST_PYTHON:
        yield host_access.problem(
            f"requires a minimum of Python. Current version: {facts.python}",
            host=one.host.name,
            address=one.host.address,
        )
    # Without systemd there is no systemctl either, and one problem is enough.
    missing = [name for name in facts.missing_programs if facts.systemd or name != "systemctl"]
    if missing:
        yield Problem(
            f"these programs are missing: {', '.join(missing)}",
            one.where,
            "install them; on most distributions useradd and userdel are in the package passwd or shadow-utils",
            reason=Reason.UNSUITABLE_HOST,
        )
    # The address of a host with agents is used for logins only.
    if not facts.has_address and not one.host.is_of_members:
        others = ", ".join(str(each.ip) for each in one.addresses if not each.ip.is_loopback) or "none"
        yield Problem(
            f"{one.host.address} is none of its addresses (it has {others})",
            one.where,
            "write an address that the machine has: components listen on it, so one that is translated does not do",
            reason=Reason.INVALID_ADDRESS,
        )


def _disk(instance: Instance, one: _Seen) -> Iterator[Problem]:
    needed: dict[str, int] = {}
    there = one.observation.programs
    wanted = component_hosts.components_on(instance, one.host)
    programs = {units.program(instance, each) for each in wanted} - set(there)
    needed[units.PROGRAMS] = len(programs) * PROGRAM_BYTES
    if ETCD in wanted and units.unit_name(instance, ETCD) not in one.facts.units:
        needed[units.DATA] = ETCD_BYTES
    # Folders on one file system share its free space.
    by_device: dict[int, list[str]] = {}
    for folder in needed:
        by_device.setdefault(one.facts.devices[folder], []).append(folder)
    for folders in by_device.values():
        amount, free = sum(needed[each] for each in folders), one.facts.free[folders[0]]
        if free < amount:
            yield Problem(
                f"{_mib(free)} are free for {' and '.join(folders)}, and {_mib(amount)} are needed",
                one.where,
                "make room, or mount a larger file system there",
                reason=Reason.INSUFFICIENT_RESOURCES,
            )


def _ports(instance: Instance, one: _Seen) -> Iterator[Problem]:
    wanted = sockets.on_host(instance, one.host)
    for first, second in combinations(wanted, 2):
        if first.port == second.port and sockets.overlap(first.address, second.address):
            yield Problem(
                f"{first.needed_by} and {second.needed_by} would both listen on port {first.port} "
                f"({first.address}, {second.address})",
                one.where,
                "give one of them another port or address",
                reason=Reason.PORT_IN_USE,
            )
    for socket in wanted:
        for used in one.facts.listening:
            if used.port != socket.port or not sockets.overlap(used.address, socket.address):
                continue
            if _is_ours(instance, one, used.group):
                continue
            yield Problem(
                f"port {socket.port} of {socket.address}, which {socket.needed_by} needs, is used by "
                f"{_who(one, used.group)} (on {used.address})",
                one.where,
                _remedy_for_port(one, used.group),
                reason=Reason.PORT_IN_USE,
            )


def _names(instance: Instance, one: _Seen) -> Iterator[Problem]:
    """Units and users under our names that are not ours, which the run would not touch."""
    ours = units.skeleton(instance)
    remedy = (
        "choose another metadata.name; if it is what is left of a control plane that is no more, remove it on the host"
    )
    for unit in (each["name"] for each in ours["units"]):
        found = one.facts.units.get(unit)
        if found and found.owner != instance.owner:
            owner = f"of another control plane (owner {found.owner})" if found.owner else "not of this installer"
            yield Problem(f"there is a unit {unit} already, {owner}", one.where, remedy, reason=Reason.NAME_TAKEN)
    for user in (each["name"] for each in ours["users"]):
        comment = one.facts.users.get(user)
        if comment is not None and instance.owner not in comment:
            yield Problem(
                f"there is a user {user} already, who is not of this control plane",
                one.where,
                remedy,
                reason=Reason.NAME_TAKEN,
            )


_OF_ONE_HOST: tuple[Callable[[Instance, _Seen], Iterable[Problem]], ...] = (_machine, _disk, _ports, _names)


# -- all hosts -------------------------------------------------------------------------------------------------------


def _same_machine(_instance: Instance, seen: Sequence[_Seen]) -> Iterator[Problem]:
    for first, second in combinations(seen, 2):
        if (
            first.facts.is_same_machine(second.facts)
            or _has(first, second.host.address)
            or _has(second, first.host.address)
        ):
            yield Problem(
                f"{first.host.name} ({first.host.address}) and {second.host.name} ({second.host.address}) are the same "
                "machine",
                "spec.hosts",
                "list each machine once, with all of its roles",
                reason=Reason.DUPLICATE_HOST,
            )


def _clocks(_instance: Instance, seen: Sequence[_Seen]) -> Iterator[Problem]:
    for text in _skews(seen, TOLERABLE_SKEW, None):
        yield Problem(
            text,
            "spec.hosts",
            "set the clocks, and let all of them follow the same time servers",
            reason=Reason.CLOCK_SKEW,
        )


def _virtual_ip(instance: Instance, seen: Sequence[_Seen]) -> Iterator[Problem]:
    virtual_ip = instance.spec.endpoint.virtual_ip
    if not virtual_ip:
        return
    address, where = ipaddress.ip_address(virtual_ip), "spec.endpoint.virtualIP.address"
    balancers = [one for one in seen if one.host in load_balancer.load_balancers(instance.spec)]
    for one in balancers:
        networks = [ipaddress.ip_interface(each).network for each in (one.interface.addresses if one.interface else ())]
        if networks and not any(address in network for network in networks):
            yield Problem(
                f"{address} is not in a network of {one.facts.interface} ({', '.join(map(str, networks))}), the "
                "interface that carries the host's address",
                one.where,
                f"choose a virtual IP of that network in {where}; it moves between hosts of one network only",
                reason=Reason.INVALID_ADDRESS,
            )
    serving = any(_runs_keepalived(instance, one) for one in seen)
    for one in seen:
        if _has(one, str(address)) and not (serving and one in balancers):
            yield Problem(
                f"{address} is an address of {one.host.name} already, and not put there by us",
                where,
                "choose an address that nobody has, or take it off that host",
                reason=Reason.ADDRESS_IN_USE,
            )
    macs = {interface.mac for one in seen for interface in one.facts.interfaces}
    strangers = {one.facts.virtual_ip_at for one in seen} - macs - {""}
    # A host of ours that could not be looked at may be the holder.
    needed = sum(not host.is_of_members for host in component_hosts.all_hosts(instance.spec))
    if strangers and not (serving and len(seen) < needed):
        yield Problem(
            f"{address} is used by somebody else in the network (hardware address {', '.join(sorted(strangers))})",
            where,
            "choose an address that nobody has",
            reason=Reason.ADDRESS_IN_USE,
        )


_OF_ALL_HOSTS: tuple[Callable[[Instance, Sequence[_Seen]], Iterable[Problem]], ...] = (
    _same_machine,
    _clocks,
    _virtual_ip,
)


# -- hints -----------------------------------------------------------------------------------------------------------


def _hints_of_one(instance: Instance, one: _Seen) -> Iterator[tuple[str, Reason]]:
    facts, wanted = one.facts, component_hosts.components_on(instance, one.host)
    # No problem: the last of its members may leave before the host does.
    if one.host.is_of_members and not wanted:
        yield f"it has the role {AGENT_ROLE}, and no member names it in its agentHosts", Reason.FIELD_WITHOUT_EFFECT
    needed = sum(amount for role, amount in MEMORY.items() if role in one.host.roles)
    if 0 < facts.memory < needed:
        text = f"it has {_mib(facts.memory)} of memory; with its roles, {_mib(needed)} are little already"
        yield text, Reason.INSUFFICIENT_RESOURCES
    if facts.selinux_enforcing:
        yield (
            (
                f"SELinux is enforcing. Should a unit fail with 203/EXEC, `restorecon -R {units.PROGRAMS}` gives "
                "programs their labels back, and `ausearch -m avc -ts recent` says what was denied"
            ),
            Reason.CONFINED_HOST,
        )
    confined = [name for name in facts.apparmor_profiles if _program_of(name) in _programs(instance, one.host)]
    if confined:
        yield (
            (
                f"AppArmor enforces a profile for {', '.join(confined)}. Should it be denied something, "
                "`journalctl -k -g apparmor` says what"
            ),
            Reason.CONFINED_HOST,
        )
    if ETCD in wanted:
        quota = etcd_configuration.quota(instance.spec)
        free = facts.free[units.DATA]
        if free < quota:
            text = f"etcd may grow to {_mib(quota)}, and {_mib(free)} are free below {units.DATA}"
            yield text, Reason.INSUFFICIENT_RESOURCES


def _unit_of(group: str) -> str:
    """Unit in the path of a control group; empty for a process that is in none."""
    return next((part for part in reversed(group.split("/")) if part.endswith((".service", ".scope", ".socket"))), "")


def _is_ours(instance: Instance, one: _Seen, group: str) -> bool:
    found = one.facts.units.get(_unit_of(group))
    return bool(found and found.owner == instance.owner)


def _who(one: _Seen, group: str) -> str:
    unit = _unit_of(group)
    description = found.description if (found := one.facts.units.get(unit)) else ""
    return f"{unit} ({description})" if description else unit or group or "a process that could not be found"


def _remedy_for_port(one: _Seen, group: str) -> str:
    found = one.facts.units.get(_unit_of(group))
    if found and found.owner:
        return "two control planes need ports of their own on a host; take another host, or uninstall the other one"
    return "stop it, let it listen elsewhere, or take another host"


# -- helpers ---------------------------------------------------------------------------------------------------------


def _skews(seen: Sequence[_Seen], least: float, most: float | None) -> Iterator[str]:
    """Pairs of clocks that certainly differ by more than ``least`` seconds, and by no more than ``most``.

    The delay of an answer is unknown, so the offset of a clock is a range. A host that is far from our clock and from
    another host's is compared with ours only.
    """

    def apart(low: float, high: float) -> float:
        return max(low, -high, 0.0)

    def counts(seconds: float) -> bool:
        return seconds > least and (most is None or seconds <= most)

    ranges = {
        one.host.name: (one.facts.time - one.observation.answered, one.facts.time - one.observation.asked)
        for one in seen
        if one.observation.answered
    }
    wrong = set()
    for name, (low, high) in ranges.items():
        if counts(apart(low, high)):
            wrong.add(name)
            direction = "ahead of" if low > 0 else "behind"
            yield f"the clock of {name} is {apart(low, high):.1f} s {direction} the one of this machine"
    for first, second in combinations(ranges, 2):
        difference = apart(ranges[first][0] - ranges[second][1], ranges[first][1] - ranges[second][0])
        if counts(difference) and not wrong & {first, second}:
            yield f"the clocks of {first} and {second} are {difference:.1f} s apart"


def _runs_keepalived(instance: Instance, one: _Seen) -> bool:
    return any(
        found.owner == instance.owner and load_balancer.KEEPALIVED in unit for unit, found in one.facts.units.items()
    )


def _has(one: _Seen, address: str) -> bool:
    return any(each.ip == ipaddress.ip_address(address) for each in one.addresses)


def _programs(instance: Instance, host: Host) -> set[str]:
    own = {each.binary.rpartition("/")[2] for each in component_hosts.components_on(instance, host)}
    return own | (
        {load_balancer.HAPROXY, load_balancer.KEEPALIVED}
        if host in load_balancer.load_balancers(instance.spec)
        else set()
    )


def _program_of(profile: str) -> str:
    return profile.rpartition("/")[2]


def _mib(size: int) -> str:
    return f"{size // MIB} MiB"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
