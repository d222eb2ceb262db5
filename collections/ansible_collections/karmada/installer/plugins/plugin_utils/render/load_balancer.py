# SPDX-License-Identifier: Apache-2.0
"""An endpoint of type VirtualIP: HAProxy and keepalived on plain hosts, as users, files and systemd units.
No I/O, but that it reads its templates.

keepalived keeps the address on one of the load balancers; HAProxy runs on all of them, listens on the address whether
or not the host has it at the moment, and passes connections on to a kube-apiserver that is ready. TLS is not ended on
the way, because clients prove who they are in it. kube-apiserver listens on the address of its host only, so both can
have the same port.

**What is known of a backend** comes from two questions, asked again and again over TLS that is verified:

* ``/livez`` without an answer of 200: the process is gone, or it has lost etcd. It gets no connections, and those that
  it has are cut, so that a client does not wait on them for minutes.
* ``/livez`` content and ``/readyz`` not: it is starting, or it is told to stop and finishes what it has begun. It gets
  no new connections and keeps those that it has: cutting them would make requests fail in each rolling restart.

**Slow is not gone.** Where every API server has too much to do, to take them out one after the other would leave no
address at all. So an answer may take long, and a host without power is not recognised by that: its kernel does not
acknowledge what is sent to it, which that of a busy host always does. The connections that lead there end by it.

**Other settings**, such as another backend, come by a reload: HAProxy begins a worker that takes over the sockets, and
keepalived keeps the address. Only what a unit itself says is changed by a restart.

A connection that a backend does not take within half a second goes to another one, so clients see little of the time
until the checks have found out.

**Who has the address gives it away first**: keepalived stops before HAProxy, in a shutdown and where a host is a load
balancer no longer. Such a host ends before the others stop sending to it: one that hears nobody takes the address.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.karmada.installer.plugins.module_utils.host_system import HASH_VARIABLE, UNIT_FOLDER
from ansible_collections.karmada.installer.plugins.module_utils.host_tree import OWNER_KEY

from ..components import endpoint
from ..components.hosts import CONTROL_PLANE_ROLE, Host, hosts_of
from ..components.instance import Instance
from ..components.ip_families import bracketed
from ..components.table import KARMADA_APISERVER
from ..problems import Problem, Reason
from .unit_text import HARDENING, SYSTEM_CALLS, environment, unit_file
from .units import (
    CONFIGURATION,
    LOOPBACK,
    Tree,
    configuration_directory,
    configuration_file,
    configuration_folder,
    file_entry,
    merged,
    user_named,
)

if TYPE_CHECKING:
    import jinja2

VIRTUAL_IP = "VirtualIP"
ROLE = "loadBalancer"
HAPROXY, KEEPALIVED = "haproxy", "keepalived"
#: Where the packages of distributions have the programs.
PROGRAMS: Mapping[str, str] = {HAPROXY: "/usr/sbin/haproxy", KEEPALIVED: "/usr/sbin/keepalived"}
#: Where HAProxy tells, on loopback, whether it has a backend to pass connections on to.
MONITOR_PORT = 5444
MONITOR_PATH = "/readyz"

_TEMPLATES = Path(__file__).parent / "templates"
#: Steps far enough from each other that two backups do not both take over when the holder is gone: the wait of one with
#: a lower priority is longer by 1/256 of the advert interval for each.
_HIGHEST_PRIORITY, _PRIORITY_STEP, _LOWEST_PRIORITY = 250, 20, 10
#: Ports below need a capability.
_FIRST_UNPRIVILEGED_PORT = 1024
_KEEPALIVED_FILE = "keepalived.conf"
_INTERFACE = re.compile(r"[A-Za-z0-9_.:-]{1,15}")


def is_wanted(spec: Mapping[str, Any]) -> bool:
    """Whether the document asks for a virtual IP."""
    return bool(spec["endpoint"].get("type") == VIRTUAL_IP)


def load_balancers(spec: Mapping[str, Any]) -> tuple[Host, ...]:
    """The hosts that hold the address in turn, in the order of the document; none without a virtual IP."""
    if not is_wanted(spec):
        return ()
    return hosts_of(spec, ROLE) or hosts_of(spec, CONTROL_PLANE_ROLE)


def in_turn(instance: Instance, files: Mapping[str, Mapping[str, str]]) -> tuple[list[str], list[str]]:
    """The names of those that are load balancers already, and of those that come. They are changed in this order.

    A new one that was first would not hear the others, which do not know it yet, and take the address from them.
    ``files`` is host name → the files that are there, path → base64.
    """
    configuration = f"{configuration_folder(instance, KEEPALIVED)}/{_KEEPALIVED_FILE}"
    names = [host.name for host in load_balancers(instance.spec)]
    serving = [name for name in names if configuration in files.get(name, ())]
    return serving, [name for name in names if name not in serving]


def virtual_ip(spec: Mapping[str, Any]) -> str:
    """The address, in the one form that is compared and written."""
    return str(ipaddress.ip_address(spec["endpoint"]["virtualIP"]["address"]))


def interface_problem(host: Host, interface: str) -> Problem | None:
    """Why the address cannot be put on this host. ``interface`` is what the host told, empty for none."""
    if _INTERFACE.fullmatch(interface):
        return None
    return Problem(
        what=f"no network interface with the address {host.address} was found"
        if not interface
        else f"the network interface with the address {host.address} has the name {interface!r}",
        where=f"host {host.name}",
        remedy="spec.hosts has to give an address that the host itself has, on an interface named as Linux names them",
        reason=Reason.INVALID_ADDRESS,
    )


def unit_name(instance: Instance, program: str) -> str:
    """``karmada-prod-haproxy.service``: not the distribution's own, which may serve something else."""
    return f"karmada-{instance.object_name(program)}.service"


def tree(instance: Instance, host: Host, interface: str, authority: bytes) -> Tree:
    """What a load balancer is on its host (see ``module_utils.host_tree`` for the form).

    ``interface`` is the one that has the host's address, ``authority`` the certificate (PEM) of the authority that the
    certificates of kube-apiserver come from. Raises ValueError for an interface that ``interface_problem`` names.
    """
    parts = [_haproxy_tree(instance, host, authority), _keepalived_tree(instance, host, interface)]
    return {**merged(parts, instance.owner), "held": _held(instance)}


def packages(instance: Instance) -> Tree:
    """What there is of a load balancer before the packages are: their units, which must not start."""
    return {**merged([], instance.owner), "held": _held(instance)}


def _held(instance: Instance) -> list[dict[str, str]]:
    """The units of the packages (see ``module_utils.held_units``)."""
    ours = unit_name(instance, "packages").removesuffix(".service")
    return [
        {"unit": f"{program}.service", "drop_in": f"{UNIT_FOLDER}/{program}.service.d/{ours}.conf"}
        for program in PROGRAMS
    ]


def absent(instance: Instance) -> Tree:
    """A host that is a load balancer no longer."""
    return {**packages(instance), "absent": skeleton(instance)}


def skeleton(instance: Instance) -> Tree:
    """Everything of a load balancer without its content. The address goes with keepalived, so that unit ends first."""
    programs = (KEEPALIVED, HAPROXY)
    return {
        **packages(instance),
        "users": [{"name": user_named(instance, program)} for program in programs],
        "units": [{"name": unit_name(instance, program)} for program in programs],
        "folders": [configuration_folder(instance, program) for program in programs],
    }


def haproxy_configuration(instance: Instance, host: Host) -> str:
    """The configuration of HAProxy on this host."""
    spec = instance.spec
    port = KARMADA_APISERVER.listens(spec)["https"]
    return _rendered(
        "haproxy.cfg.j2",
        source=bracketed(host.address),
        bind=f"{bracketed(virtual_ip(spec))}:{endpoint.port(spec['endpoint'], None)}",
        servers=[
            {"name": each.name, "address": f"{bracketed(each.address)}:{port}"}
            for each in hosts_of(spec, CONTROL_PLANE_ROLE)
        ],
        health=KARMADA_APISERVER.health,
        folder=configuration_folder(instance, HAPROXY),
        monitor={"address": f"{LOOPBACK}:{MONITOR_PORT}", "path": MONITOR_PATH},
    )


def keepalived_configuration(instance: Instance, host: Host, interface: str) -> str:
    """The configuration of keepalived on this host.

    There is no password: VRRP version 3 has none, and what version 2 has goes over the network as it is. Instead only
    adverts of the other load balancers count that come from the same network.
    """
    spec = instance.spec
    balancers = load_balancers(spec)
    address = ipaddress.ip_address(virtual_ip(spec))
    return _rendered(
        "keepalived.conf.j2",
        host=host,
        user=user_named(instance, KEEPALIVED),
        folder=configuration_folder(instance, KEEPALIVED),
        vrrp_instance=unit_name(instance, "virtual-ip").removesuffix(".service"),
        interface=_checked(host, interface),
        router=spec["endpoint"]["virtualIP"]["virtualRouterID"],
        priority=priority(balancers, host),
        peers=[each.address for each in balancers if each != host],
        virtual_ip=f"{address}/{address.max_prefixlen}",
    )


def priority(balancers: Sequence[Host], host: Host) -> int:
    """Who takes over first: the earlier in the document. Those with the same priority are told apart by address."""
    return max(_HIGHEST_PRIORITY - _PRIORITY_STEP * balancers.index(host), _LOWEST_PRIORITY)


def check_script() -> str:
    """What keepalived asks each second: whether HAProxy of this host would serve. Needs nothing but bash."""
    return _rendered("check.j2", monitor={"host": LOOPBACK, "port": MONITOR_PORT, "path": MONITOR_PATH})


def _rendered(template: str, **values: Any) -> str:
    """The text of a file of the folder ``templates``. Raises jinja2.UndefinedError where it uses no such value."""
    return _templates().get_template(template).render(values)


@functools.cache
def _templates() -> jinja2.Environment:
    """Nothing is escaped, because none of the texts is HTML: what values may contain is decided by the schema."""
    import jinja2  # noqa: PLC0415 - only this type of endpoint needs it

    return jinja2.Environment(  # noqa: S701
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _haproxy_tree(instance: Instance, host: Host, authority: bytes) -> Tree:
    user, folder = user_named(instance, HAPROXY), configuration_folder(instance, HAPROXY)
    files = [
        configuration_file(f"{folder}/ca.crt", authority, user),
        configuration_file(f"{folder}/haproxy.cfg", haproxy_configuration(instance, host).encode(), user),
    ]
    command = f"{PROGRAMS[HAPROXY]} -Ws -f {folder}/haproxy.cfg"
    hardening: dict[str, str] = {}
    if endpoint.port(instance.spec["endpoint"], None) < _FIRST_UNPRIVILEGED_PORT:
        # In a user namespace of its own it would have the capability there only.
        right = "CAP_NET_BIND_SERVICE"
        hardening = {"AmbientCapabilities": right, "CapabilityBoundingSet": right, "PrivateUsers": "no"}
    service = [
        ("Type", "notify"),
        ("ExecStart", command),
        # New settings go to a new worker, and the listening sockets with them: no client sees it.
        ("ExecReload", f"{command} -c -q"),
        ("ExecReload", "/bin/kill -USR2 $MAINPID"),
        # Sooner than keepalived takes the address away.
        ("RestartSec", "200ms"),
        ("TimeoutStopSec", "5"),
        ("LimitNOFILE", "65536"),
    ]
    health = {"url": f"http://{LOOPBACK}:{MONITOR_PORT}{MONITOR_PATH}", "authority": ""}
    return _unit_tree(instance, HAPROXY, files, service, hardening, health)


def _keepalived_tree(instance: Instance, host: Host, interface: str) -> Tree:
    name, folder = unit_name(instance, KEEPALIVED), configuration_folder(instance, KEEPALIVED)
    configuration = keepalived_configuration(instance, host, interface).encode()
    # All of it belongs to root: keepalived refuses a check that somebody else could change, its own user included.
    files = [
        file_entry(f"{folder}/check", check_script().encode(), "root", 0o755, secret=False),
        file_entry(f"{folder}/{_KEEPALIVED_FILE}", configuration, "root", 0o644, secret=False),
    ]
    run = name.removesuffix(".service")
    # To put the address on the interface, to speak VRRP, and to tell neighbours where the address is now. The last one
    # is for its check: before, it drops groups that it has not, and takes a check that it could not run for passed.
    rights = "CAP_NET_ADMIN CAP_NET_RAW CAP_SETGID"
    hardening = {
        "AmbientCapabilities": rights,
        "CapabilityBoundingSet": rights,
        # What a group of the system could read.
        "InaccessiblePaths": "-/etc/shadow -/etc/gshadow",
        "PrivateUsers": "no",
        "RestrictAddressFamilies": "AF_INET AF_INET6 AF_NETLINK AF_PACKET AF_UNIX",
    }
    command = [
        *(PROGRAMS[KEEPALIVED], "--dont-fork", "--vrrp", "--log-console", "--no-syslog"),
        *(
            f"--use-file={folder}/{_KEEPALIVED_FILE}",
            f"--pid=/run/{run}/keepalived.pid",
            f"--vrrp_pid=/run/{run}/vrrp.pid",
        ),
    ]
    service = [
        ("Type", "exec"),
        ("ExecStart", " ".join(command)),
        # It keeps the address meanwhile.
        ("ExecReload", "/bin/kill -HUP $MAINPID"),
        ("RuntimeDirectory", run),
        ("RestartSec", "1"),
        ("TimeoutStopSec", "10"),
        # A host that is busy must not lose the address for it, and none may keep it because keepalived was killed.
        ("Nice", "-15"),
        ("OOMScoreAdjust", "-900"),
    ]
    health = {
        "url": endpoint.url(virtual_ip(instance.spec), endpoint.port(instance.spec["endpoint"], None))
        + KARMADA_APISERVER.health.ready,
        "authority": f"{configuration_folder(instance, HAPROXY)}/ca.crt",
    }
    # What starts after HAProxy stops before it: in a shutdown the address goes while it is still served. The API server
    # serves on for its shutdown delay, and is not named: units wait for those that they start after, and a host whose
    # etcd does not come up would have no load balancer.
    after, more_calls = unit_name(instance, HAPROXY), "setgid setgroups setuid"
    return _unit_tree(instance, KEEPALIVED, files, service, hardening, health, after, more_calls)


def _unit_tree(
    instance: Instance,
    program: str,
    files: Sequence[Mapping[str, Any]],
    service: Sequence[tuple[str, str]],
    hardening: Mapping[str, str],
    health: Mapping[str, str],
    after: str = "",
    more_calls: str = "",
) -> Tree:
    user, name = user_named(instance, program), unit_name(instance, program)
    folder = configuration_folder(instance, program)
    owner = "root" if program == KEEPALIVED else user

    def text(digest: str) -> str:
        return unit_file(
            {
                "Unit": [
                    ("Description", f"{program} of the endpoint of Karmada control plane {instance.name}"),
                    ("After", " ".join(filter(None, ("network-online.target", after)))),
                    ("Wants", "network-online.target"),
                    ("StartLimitIntervalSec", "0"),
                    (OWNER_KEY, instance.owner),
                ],
                "Service": [
                    ("User", user),
                    ("Group", user),
                    ("Environment", environment(HASH_VARIABLE, digest)),
                    *service,
                    ("Restart", "always"),
                    *sorted({**HARDENING, **hardening}.items()),
                    *(("SystemCallFilter", calls) for calls in (*SYSTEM_CALLS, more_calls) if calls),
                ],
                "Install": [("WantedBy", "multi-user.target")],
            }
        )

    # The files are settings that a process takes by a reload.
    settings = "".join(f"{file['path']}\0{file['content']}\0" for file in files)
    digest = "-".join(hashlib.sha256(part.encode()).hexdigest()[:32] for part in (text(""), settings))
    unit = text(digest).encode()
    return {
        **merged([], instance.owner),
        "users": [{"name": user, "home": "/nonexistent", "comment": f"Karmada {instance.name} {instance.owner}"}],
        "directories": [
            *(
                {"path": path, "user": "root", "mode": 0o755}
                for path in (CONFIGURATION, f"{CONFIGURATION}/{instance.name}")
            ),
            {"path": folder, "user": "root", "mode": 0o755}
            if owner == "root"
            else configuration_directory(folder, owner),
        ],
        "files": [*files, file_entry(f"{UNIT_FOLDER}/{name}", unit, "root", 0o644, secret=False)],
        "folders": [folder],
        "units": [{"name": name, "hash": digest, "health": dict(health)}],
    }


def _checked(host: Host, interface: str) -> str:
    problem = interface_problem(host, interface)
    if problem:
        raise ValueError(str(problem))
    return interface
