# SPDX-License-Identifier: Apache-2.0
"""Endpoint of type VirtualIP: HAProxy and keepalived as users, files and units of plain hosts. Reads only templates.

keepalived keeps the address on one of the load balancers; HAProxy runs on all of them, listens on the address whether
or not its host has it at the moment, and forwards connections to a ready kube-apiserver. TLS is not terminated on the
way, because clients authenticate with certificates. kube-apiserver listens only on the address of its host, so both can
use the same port.

**Health of a backend** follows from two periodic checks over TLS that is verified:

* ``/livez`` does not answer 200: the process is gone, or it has lost etcd. It gets no connections, and its existing
  ones are cut, so that a client does not wait on them for minutes.
* ``/livez`` succeeds and ``/readyz`` fails: it is starting, or shutting down and finishing its requests. It gets no new
  connections and keeps the existing ones: cutting them would make requests fail in each rolling restart.

**Slow is not gone.** If every API server is overloaded, removing them one after the other would leave no backend. So an
answer may take long, and a host without power is recognised in another way: unlike the kernel of a busy host, its
kernel does not acknowledge packets. The connections to it end by that.

**Other settings**, such as another backend, are applied by a reload: HAProxy starts a worker that takes over the
sockets, and keepalived keeps the address. Only a change of the unit itself needs a restart.

A connection that a backend does not accept within half a second goes to another one, so clients notice little before
the checks have detected a failure.

**The holder of the address releases it first**: keepalived stops before HAProxy, at shutdown and if a host is no longer
a load balancer. Such a host stops before the others stop sending to it: one that hears no adverts takes the address.
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
from ..components.spec import Spec
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
#: Paths of the programs in packages of distributions.
PROGRAMS: Mapping[str, str] = {HAPROXY: "/usr/sbin/haproxy", KEEPALIVED: "/usr/sbin/keepalived"}
#: Port on loopback on which HAProxy reports whether it has a usable backend.
MONITOR_PORT = 5444
MONITOR_PATH = "/readyz"

_TEMPLATES = Path(__file__).parent / "templates"
#: Steps large enough that two backups do not both take over when the holder is gone: for each point of lower priority a
#: backup waits longer by 1/256 of the advert interval.
_HIGHEST_PRIORITY, _PRIORITY_STEP, _LOWEST_PRIORITY = 250, 20, 10
#: Lower ports need a capability.
_FIRST_UNPRIVILEGED_PORT = 1024
_KEEPALIVED_FILE = "keepalived.conf"
_INTERFACE = re.compile(r"[A-Za-z0-9_.:-]{1,15}")


def is_wanted(spec: Spec) -> bool:
    """Return whether the document asks for a virtual IP."""
    return spec.endpoint.type == VIRTUAL_IP


def load_balancers(spec: Spec) -> tuple[Host, ...]:
    """Hosts that can hold the address, in the order of the document; empty without a virtual IP."""
    if not is_wanted(spec):
        return ()
    return hosts_of(spec, ROLE) or hosts_of(spec, CONTROL_PLANE_ROLE)


def in_turn(instance: Instance, files: Mapping[str, Mapping[str, str]]) -> tuple[list[str], list[str]]:
    """Names of hosts that are load balancers already, and of new ones, in this order of changes.

    A new one that came first would take the address, because it would not hear the others, which do not know it yet.
    ``files`` is host name → existing files, path → base64.
    """
    configuration = f"{configuration_folder(instance, KEEPALIVED)}/{_KEEPALIVED_FILE}"
    names = [host.name for host in load_balancers(instance.spec)]
    serving = [name for name in names if configuration in files.get(name, ())]
    return serving, [name for name in names if name not in serving]


def virtual_ip(spec: Spec) -> str:
    """Virtual IP address in its canonical form."""
    return str(ipaddress.ip_address(spec.endpoint.virtual_ip))


def interface_problem(host: Host, interface: str) -> Problem | None:
    """Problem if the address cannot be put on this host. ``interface`` was found on the host, empty if none."""
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
    """``karmada-prod-haproxy.service``: apart from the distribution's own unit, which may serve something else."""
    return f"karmada-{instance.object_name(program)}.service"


def tree(instance: Instance, host: Host, interface: str, authority: bytes) -> Tree:
    """Tree of a load balancer on its host (see ``module_utils.host_tree`` for the form).

    ``interface`` is the one with the host's address, ``authority`` the certificate (PEM) of the authority that issued
    the certificates of kube-apiserver. Raises ValueError for an interface for which ``interface_problem`` has a
    problem.
    """
    parts = [_haproxy_tree(instance, host, authority), _keepalived_tree(instance, host, interface)]
    return {**merged(parts, instance.owner), "held": _held(instance)}


def packages(instance: Instance) -> Tree:
    """Tree of a load balancer before its packages are installed: their units, which must not start."""
    return {**merged([], instance.owner), "held": _held(instance)}


def _held(instance: Instance) -> list[dict[str, str]]:
    """Units of the packages, which are kept from starting (see ``module_utils.held_units``)."""
    ours = unit_name(instance, "packages").removesuffix(".service")
    return [
        {"unit": f"{program}.service", "drop_in": f"{UNIT_FOLDER}/{program}.service.d/{ours}.conf"}
        for program in PROGRAMS
    ]


def absent(instance: Instance) -> Tree:
    """Tree of a host that is no longer a load balancer."""
    return {**packages(instance), "absent": skeleton(instance)}


def skeleton(instance: Instance) -> Tree:
    """Everything of a load balancer without its content. keepalived holds the address, so its unit ends first."""
    programs = (KEEPALIVED, HAPROXY)
    return {
        **packages(instance),
        "users": [{"name": user_named(instance, program)} for program in programs],
        "units": [{"name": unit_name(instance, program)} for program in programs],
        "folders": [configuration_folder(instance, program) for program in programs],
    }


def haproxy_configuration(instance: Instance, host: Host) -> str:
    """Configuration of HAProxy on this host."""
    spec = instance.spec
    port = KARMADA_APISERVER.listens(spec)["https"]
    return _rendered(
        "haproxy.cfg.j2",
        source=bracketed(host.address),
        bind=f"{bracketed(virtual_ip(spec))}:{endpoint.port(spec.endpoint, None)}",
        servers=[
            {"name": each.name, "address": f"{bracketed(each.address)}:{port}"}
            for each in hosts_of(spec, CONTROL_PLANE_ROLE)
        ],
        health=KARMADA_APISERVER.health,
        folder=configuration_folder(instance, HAPROXY),
        monitor={"address": f"{LOOPBACK}:{MONITOR_PORT}", "path": MONITOR_PATH},
    )


def keepalived_configuration(instance: Instance, host: Host, interface: str) -> str:
    """Configuration of keepalived on this host.

    It has no password: VRRP version 3 has none, and version 2 sends it in plain text. Instead only adverts from the
    other load balancers in the same network are accepted.
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
        router=spec.endpoint.virtual_router_id,
        priority=priority(balancers, host),
        peers=[each.address for each in balancers if each != host],
        virtual_ip=f"{address}/{address.max_prefixlen}",
    )


def priority(balancers: Sequence[Host], host: Host) -> int:
    """Priority in VRRP: hosts earlier in the document take over first; equal priorities are decided by address."""
    return max(_HIGHEST_PRIORITY - _PRIORITY_STEP * balancers.index(host), _LOWEST_PRIORITY)


def check_script() -> str:
    """Script that keepalived runs each second to check that HAProxy on this host can serve. Needs only bash."""
    return _rendered("check.j2", monitor={"host": LOOPBACK, "port": MONITOR_PORT, "path": MONITOR_PATH})


def _rendered(template: str, **values: Any) -> str:
    """Text of a template of the folder ``templates``. Raises jinja2.UndefinedError if it uses a value not given."""
    return _templates().get_template(template).render(values)


@functools.cache
def _templates() -> jinja2.Environment:
    """Environment without escaping, because none of the texts is HTML: the schema restricts the values."""
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
    if endpoint.port(instance.spec.endpoint, None) < _FIRST_UNPRIVILEGED_PORT:
        # In a user namespace of its own the capability would be valid only there.
        right = "CAP_NET_BIND_SERVICE"
        hardening = {"AmbientCapabilities": right, "CapabilityBoundingSet": right, "PrivateUsers": "no"}
    service = [
        ("Type", "notify"),
        ("ExecStart", command),
        # A new worker gets the new settings and the listening sockets, without an interruption for clients.
        ("ExecReload", f"{command} -c -q"),
        ("ExecReload", "/bin/kill -USR2 $MAINPID"),
        # Sooner than keepalived would remove the address.
        ("RestartSec", "200ms"),
        ("TimeoutStopSec", "5"),
        ("LimitNOFILE", "65536"),
    ]
    health = {"url": f"http://{LOOPBACK}:{MONITOR_PORT}{MONITOR_PATH}", "authority": ""}
    return _unit_tree(instance, HAPROXY, files, service, hardening, health)


def _keepalived_tree(instance: Instance, host: Host, interface: str) -> Tree:
    name, folder = unit_name(instance, KEEPALIVED), configuration_folder(instance, KEEPALIVED)
    configuration = keepalived_configuration(instance, host, interface).encode()
    # All of it belongs to root: keepalived refuses a check that another user could change, even its own user.
    files = [
        file_entry(f"{folder}/check", check_script().encode(), "root", 0o755, secret=False),
        file_entry(f"{folder}/{_KEEPALIVED_FILE}", configuration, "root", 0o644, secret=False),
    ]
    run = name.removesuffix(".service")
    # To put the address on the interface, to speak VRRP, and to announce the address to neighbours. The last one is for
    # its check: keepalived drops groups before it runs one, and takes a check that it cannot run for passed.
    rights = "CAP_NET_ADMIN CAP_NET_RAW CAP_SETGID"
    hardening = {
        "AmbientCapabilities": rights,
        "CapabilityBoundingSet": rights,
        # Files that a group of the system could read.
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
        # It keeps the address during a reload.
        ("ExecReload", "/bin/kill -HUP $MAINPID"),
        ("RuntimeDirectory", run),
        ("RestartSec", "1"),
        ("TimeoutStopSec", "10"),
        # A busy host must not lose the address, and no host may keep it because keepalived was killed.
        ("Nice", "-15"),
        ("OOMScoreAdjust", "-900"),
    ]
    health = {
        "url": endpoint.url(virtual_ip(instance.spec), endpoint.port(instance.spec.endpoint, None))
        + KARMADA_APISERVER.health.ready,
        "authority": f"{configuration_folder(instance, HAPROXY)}/ca.crt",
    }
    # Units stop in the reverse order of their start: at shutdown the address goes while HAProxy still serves it. The
    # API server serves on during its shutdown delay and is not named: units wait for those that they start after, and a
    # host whose etcd does not come up would have no load balancer.
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

    # The process takes these settings by a reload.
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
