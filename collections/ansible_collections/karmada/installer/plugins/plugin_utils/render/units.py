# SPDX-License-Identifier: Apache-2.0
"""The component table as systemd units, users and files of plain hosts.

This module has only what is particular to hosts: paths, users, and permissions of processes. Flags, ports, probes,
certificates and their files are those of the table.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HASH_VARIABLE, UNIT_FOLDER
from ansible_collections.karmada.installer.plugins.module_utils.host_tree import OWNER_KEY

from ..components import etcd_configuration, table
from ..components.endpoint import url
from ..components.etcd_state import EtcdState
from ..components.hosts import AGENT_ROLE, Host, all_components, all_hosts, etcd_members, role_of
from ..components.instance import Instance, shortened
from ..components.ip_families import bracketed
from ..components.server_names import server_names
from ..components.spec import Spec
from ..components.table import ETCD, KARMADA_APISERVER
from ..components.types import Component, Layout, Names, Scheme, settings_of
from ..encoding import base64_text
from ..pki.files import MEMBER_CONFIG, Material, contents
from . import unit_text

Tree = dict[str, Any]

CONFIGURATION = "/etc/karmada"
DATA = "/var/lib/karmada"
PROGRAMS = "/usr/local/lib/karmada"
#: Parent of folders that exist while their unit runs.
RUNTIME = "/run"
#: Address of listeners that only the API server of the same host uses.
LOOPBACK = "127.0.0.1"
_SERVE_OTHERS = (ETCD, KARMADA_APISERVER)
#: Longest user name in Linux.
_LONGEST_USER_NAME = 31


def unit_name(instance: Instance, component: Component) -> str:
    """``karmada-prod-webhook.service``."""
    return f"karmada-{instance.object_name(component.name)}.service"


def runtime_folder(instance: Instance, component: Component) -> str:
    """Name of the folder that its unit may have while it runs."""
    return unit_name(instance, component).removesuffix(".service")


def user_name(instance: Instance, component: Component) -> str:
    """User that runs a component of one instance; shortened to Linux's limit, and still unique."""
    return user_named(instance, component.name)


def user_named(instance: Instance, what: str) -> str:
    """User for a part of an instance that need not be a component."""
    return shortened(f"karmada-{instance.object_name(what)}", _LONGEST_USER_NAME)


def program(instance: Instance, component: Component) -> str:
    """Path of a component's program. Versions lie side by side, so that an upgrade can be reverted. The folder of a
    program from an image that the document names for this component has a hash of that image in its name: another
    instance on the host may use the publisher's image, whose program differs.
    """
    release, spec = instance.release, instance.spec
    version, settings = getattr(release, component.image.release), settings_of(component, spec)
    folder, tag = version, settings.image_tag or version
    if spec.artifacts.source == "Image" and (settings.image_repository or tag != version):
        reference = component.image.reference(spec.images, release, settings)
        # No tag contains this character.
        folder = f"{tag}~{hashlib.sha256(reference.encode()).hexdigest()[:8]}"
    return f"{PROGRAMS}/{folder}/{component.binary.rsplit('/', 1)[-1]}"


def layout(instance: Instance, host: Host, component: Component, endpoint_host: str) -> Layout:
    """Layout of a component on this host. Each has a folder of its own, which only its user can read."""
    members = etcd_members(instance)
    local = tuple(member for member in members if member.name == host.name and not member.leaving)
    return Layout(
        base=configuration_folder(instance, component.name),
        data=_data_folder(instance),
        bind_address=host.address if component in _SERVE_OTHERS else LOOPBACK,
        metrics_address=LOOPBACK,
        # Its own host's API server: a component that outlives it must not act on what it can no longer see.
        apiserver_url=url(host.address, KARMADA_APISERVER.listens(instance.spec)["https"]),
        # With etcd on the same host an API server uses that member only; members need all of them.
        etcd_members=members if component.peer_ports or not local else local,
        service_account_issuer=f"https://kubernetes.default.svc.{instance.cluster_domain}",
        server_names=_server_names(instance, host, endpoint_host),
        service_subnet=instance.service_subnet,
        shutdown_delay=_shutdown_delay(instance.spec),
        runtime=f"{RUNTIME}/{runtime_folder(instance, component)}" if role_of(component) == AGENT_ROLE else "",
    )


def _data_folder(instance: Instance) -> str:
    """Folder of etcd's data. Root may have it on a disk of its own, by a mount or a link."""
    return f"{DATA}/{instance.name}/etcd"


def _shutdown_delay(spec: Spec) -> int:
    """Shutdown delay in seconds, longer than our load balancer needs to detect it; others check less often.

    0 if clients use the address of a host. It does not depend on the number of hosts: a new host would restart the API
    servers of the others.
    """
    settings = spec.endpoint
    if settings.type == "VirtualIP":
        return 3
    return 0 if settings.host in {host.address for host in all_hosts(spec)} else 5


@dataclass(frozen=True)
class Addition:
    """Parts of a component on a host beyond the table: entries of ``files``, lines of its unit's section Service,
    programs that these start, and other content whose change needs a restart.
    """

    files: Sequence[Mapping[str, Any]] = ()
    service: Sequence[tuple[str, str]] = ()
    programs: Sequence[str] = ()
    read_at_start: str = ""


_NOTHING = Addition()


def component_tree(
    instance: Instance,
    component: Component,
    where: Layout,
    material: Material,
    etcd: EtcdState,
    *,
    awaited: bool = True,
    addition: Addition = _NOTHING,
    clients: Sequence[Component] = (),
) -> Tree:
    """Tree of one component on one host (see ``module_utils.host_tree`` for the form).

    One that is not ``awaited`` may be unhealthy for a reason that cannot be mended on the host. ``clients`` are
    components of this host that can work with no other process of this kind, and stop before it restarts.
    """
    user, unit = user_name(instance, component), unit_name(instance, component)
    files = [*_configuration(instance, component, where, material, etcd, user), *addition.files]
    before = component_unit(instance, component, where, "", addition) + addition.read_at_start
    if restarts := instance.restarts.get(component.row):
        before += f"\0restarts {restarts}"
    digest = _digest(component, files, before)
    text = component_unit(instance, component, where, digest, addition)
    data = [where.data] if component.keeps_data else []
    return {
        "owner": instance.owner,
        "users": [{"name": user, "home": "/nonexistent", "comment": f"Karmada {instance.name} {instance.owner}"}],
        "directories": [
            *({"path": path, "user": "root", "mode": 0o755} for path in _shared_parents(instance, component)),
            *(configuration_directory(path, user) for path in _own_folders(where, files)),
            *({"path": path, "user": user, "mode": 0o700} for path in data),
        ],
        "files": [*files, file_entry(f"{UNIT_FOLDER}/{unit}", text.encode(), "root", 0o644, secret=False)],
        "folders": [where.base, *data],
        "data_folders": data,
        "units": [
            {
                "name": unit,
                "hash": digest,
                "health": _health(instance, component, where),
                "awaited": awaited,
                **({"stopped": True} if component.row in instance.held else {}),
                **({"clients": [unit_name(instance, each) for each in clients]} if clients else {}),
            }
        ],
    }


def watched(instance: Instance, component: Component, where: Layout) -> Tree:
    """Tree of a component that is left as it is: only the state of its unit, if there is one, is reported."""
    return {"watched": [{"name": unit_name(instance, component), "health": _health(instance, component, where)}]}


_PARTS = ("users", "directories", "files", "folders", "data_folders", "units", "watched", "held")
#: Parts that can be removed.
_NAMED = ("users", "folders", "units")


def skeleton(instance: Instance, *, keep_data: bool = False) -> Tree:
    """Tree of all that an instance can have on a host, without content, for its removal by uninstall."""
    tree: Tree = {"owner": instance.owner, **{part: [] for part in _PARTS}}
    for component in all_components(instance):
        tree["users"].append({"name": user_name(instance, component)})
        tree["units"].append({"name": unit_name(instance, component)})
    # Data that stays keeps its user, too: a free user ID would be given to the next user.
    data = (f"{DATA}/{instance.name}", _data_folder(instance))
    tree["folders"] = [f"{CONFIGURATION}/{instance.name}", *(() if keep_data else data)]
    if keep_data:
        keepers = {user_name(instance, component) for component in all_components(instance) if component.keeps_data}
        tree["users"] = [user for user in tree["users"] if user["name"] not in keepers]
    return tree


def ended(instance: Instance, component: Component) -> Tree:
    """Parts to remove with a component that a host no longer runs. Data stays, and the user that owns it."""
    units = [{"name": unit_name(instance, component)}]
    if component.keeps_data:
        return {"users": [], "folders": [], "units": units}
    return {
        "users": [{"name": user_name(instance, component)}],
        "folders": [configuration_folder(instance, component.name)],
        "units": units,
    }


def configuration_folder(instance: Instance, what: str) -> str:
    """Folder of the configuration of a component, or of another part of an instance."""
    return f"{CONFIGURATION}/{instance.name}/{what}"


def merged(trees: Iterable[Tree], owner: str) -> Tree:
    """Trees of several components of one host as one tree, in which shared entries occur once."""
    trees = list(trees)
    absent = [tree["absent"] for tree in trees if "absent" in tree]
    return {
        "owner": owner,
        **{part: _each_once(entry for tree in trees for entry in tree.get(part, ())) for part in _PARTS},
        "absent": {part: _each_once(entry for tree in absent for entry in tree[part]) for part in _NAMED},
    }


def _each_once(entries: Iterable[Any]) -> list[Any]:
    found = list(entries)
    return [entry for index, entry in enumerate(found) if entry not in found[:index]]


def component_unit(
    instance: Instance, component: Component, where: Layout, digest: str, addition: Addition = _NOTHING
) -> str:
    """Unit file of a component. ``digest`` identifies the version of its files with which the process was started."""
    settings = settings_of(component, instance.spec)
    arguments = (
        [f"--config-file={where.path(component.settings_file)}"]
        if component.settings_file
        else component.flags(instance.spec, where)
    )
    after = ["network-online.target", "time-sync.target"]
    for earlier in (ETCD, KARMADA_APISERVER):
        if component is earlier or role_of(component) == AGENT_ROLE:
            break
        after.append(unit_name(instance, earlier))
    unit = [
        ("Description", f"{component.name} of Karmada control plane {instance.name}"),
        ("Documentation", "https://karmada.io/docs/"),
        ("After", " ".join(after)),
        ("Wants", "network-online.target"),
        # Restart without limit: a control plane that gave up would have to be started by hand.
        ("StartLimitIntervalSec", "0"),
        (OWNER_KEY, instance.owner),
    ]
    service = [
        ("Type", "notify" if component.notifies_systemd else "exec"),
        ("User", user_name(instance, component)),
        ("Group", user_name(instance, component)),
        ("Environment", unit_text.environment(HASH_VARIABLE, digest)),
        *(("Environment", unit_text.environment(each["name"], each.get("value", ""))) for each in settings.extra_env),
        ("ExecStart", " \\\n  ".join(unit_text.argument(part) for part in [program(instance, component), *arguments])),
        ("Restart", "always"),
        ("RestartSec", "2"),
        # Otherwise a unit that was stopped stays in state "failed", on a host that is handed over, too.
        *((("SuccessExitStatus", str(component.stops_with)),) if component.stops_with else ()),
        ("TimeoutStartSec", "infinity"),
        ("TimeoutStopSec", str(component.stop_seconds)),
        ("LimitNOFILE", "1048576"),
        *addition.service,
        *unit_text.shares(settings.resources),
        *((("ReadWritePaths", where.data),) if component.keeps_data else ()),
        *sorted(unit_text.HARDENING.items()),
        *unit_text.execution([program(instance, component), *addition.programs]),
        *(("SystemCallFilter", calls) for calls in unit_text.SYSTEM_CALLS),
    ]
    install = [("WantedBy", "multi-user.target")]
    return unit_text.unit_file({"Unit": unit, "Service": service, "Install": install})


def _configuration(
    instance: Instance,
    component: Component,
    where: Layout,
    material: Material,
    etcd: EtcdState,
    user: str,
) -> Iterable[dict[str, Any]]:
    """Files that a component reads, apart from its unit."""
    for files in table.enabled_file_sets(component, instance.spec):
        for name, content in sorted(contents(files, material, where).items()):
            path = where.path(files.directory, name)
            yield configuration_file(path, content, user, secret=name.endswith(_SECRET_FILES))
    for configuration_files in component.config_files:
        texts = configuration_files.contents(instance.spec, instance.config_maps)
        for name, text in sorted(texts.items()):
            yield configuration_file(where.path(configuration_files.directory, name), text.encode(), user)
    if component.settings_file:
        own = url(where.bind_address, ETCD.listens(instance.spec)["peer"])
        member = next(each for each in where.etcd_members if each.peer_url == own)
        configuration = etcd_configuration.of_member(
            member,
            where,
            token=etcd.token,
            existing=etcd.bootstrapped,
            generation=etcd.generation,
            extra=settings_of(ETCD, instance.spec).extra_args,
            record=etcd.member(member.name),
        )
        yield configuration_file(where.path(ETCD.settings_file), yaml.safe_dump(configuration).encode(), user)


#: Name suffixes of files with secret content.
_SECRET_FILES = (".key", "encryption.yaml", MEMBER_CONFIG)


def file_entry(path: str, content: bytes, user: str, mode: int, *, secret: bool) -> dict[str, Any]:
    """Entry for a file of a tree."""
    return {
        "path": path,
        "content": base64_text(content),
        "user": user,
        "mode": mode,
        "secret": secret,
    }


def configuration_file(path: str, content: bytes, user: str, *, secret: bool = False) -> dict[str, Any]:
    """Entry for a file that a user can read but not change: owned by root and the user's group."""
    return {**file_entry(path, content, "root", 0o640, secret=secret), "group": user}


def configuration_directory(path: str, user: str) -> dict[str, Any]:
    """Entry for a directory of such files. Only root can create entries there, even links for root to follow."""
    return {"path": path, "user": "root", "group": user, "mode": 0o750}


def _digest(component: Component, files: Sequence[Mapping[str, Any]], unit: str) -> str:
    """Digest of everything that the process reads only at its start; ``unit`` is its text."""
    digest = hashlib.sha256(unit.encode())
    for file in files:
        name = file["path"].rsplit("/", 1)[-1]
        if name in component.read_again:
            continue
        content = file["content"]
        if name == component.settings_file:
            content = yaml.safe_dump(etcd_configuration.read_at_start(yaml.safe_load(base64.b64decode(content))))
        digest.update(f"{file['path']}\0{content}\0".encode())
    return digest.hexdigest()[:32]


def _shared_parents(instance: Instance, component: Component) -> list[str]:
    parents = [CONFIGURATION, f"{CONFIGURATION}/{instance.name}"]
    return parents + ([DATA, f"{DATA}/{instance.name}"] if component.keeps_data else [])


def _own_folders(where: Layout, files: Iterable[Mapping[str, Any]]) -> list[str]:
    """Folder of a component and all below it, parents first."""
    folders = {where.base}
    for file in files:
        folder = file["path"].rsplit("/", 1)[0]
        while len(folder) > len(where.base):
            folders.add(folder)
            folder = folder.rsplit("/", 1)[0]
    return sorted(folders)


def _health(instance: Instance, component: Component, where: Layout) -> dict[str, str]:
    health = component.health
    ports = component.listens(instance.spec)
    if health.opens_when_ready:
        listens = component.address(where, health.opens_when_ready)
        return {"url": f"tcp://{bracketed(listens)}:{ports[health.opens_when_ready]}", "authority": ""}
    address = f"{bracketed(component.address(where, health.port))}:{ports[health.port]}{health.ready}"
    if health.scheme is Scheme.HTTP:
        return {"url": f"http://{address}", "authority": ""}
    return {"url": f"https://{address}", "authority": where.path("pki", "server", "ca.crt")}


def _server_names(instance: Instance, host: Host, endpoint_host: str) -> dict[str, Names]:
    """Names in the serving certificates of this host: always the host's own, too, for direct access."""
    own = Names.of(["localhost", "127.0.0.1", "::1", host.name, host.address])
    per_member = [component for component in all_components(instance) if component.member]
    return server_names(instance, per_member, lambda _component, _leaf: own, [endpoint_host])
