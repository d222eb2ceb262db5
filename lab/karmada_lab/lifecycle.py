# SPDX-License-Identifier: Apache-2.0
"""Up and down: from what is wanted and what is there to what must be made, repaired or removed."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from karmada_lab import artifacts, cluster, configuration, images, machine, network, prepare, registry, rootfs
from karmada_lab.cluster import Settings
from karmada_lab.errors import LabError
from karmada_lab.images import Image
from karmada_lab.shell import say, step
from karmada_lab.state import (
    FAMILIES,
    MAX_CLUSTERS,
    MAX_NODES,
    ClusterRecord,
    Family,
    Lab,
    MachineRecord,
    cluster_records,
    free_index,
    machine_records,
    read_json,
    save,
    state_lock,
    write_json,
)

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class Shape:
    """Wanted shape of a cluster."""

    nodes: int = 1
    family: Family = "ipv4"


@dataclass
class Wanted:
    """Request to `lab up`."""

    clusters: dict[str, Shape] = field(default_factory=dict)
    hosts: dict[str, Family] = field(default_factory=dict)
    image_sets: list[str] = field(default_factory=list)
    metallb: bool = False
    pod_routes: bool = False


def parse_cluster(text: str) -> tuple[str, Shape]:
    """`NAME[=NODES][,FAMILY]`, like `host`, `host=3` or `host,ipv6`. Raises LabError when it is something else."""
    rest, comma, word = text.partition(",")
    name, _, count = rest.partition("=")
    check_name(name)
    nodes = int(count) if count.isdigit() else (1 if not count else 0)
    if not 1 <= nodes <= MAX_NODES:
        raise LabError(f"--cluster {text}: the number of nodes must be 1 to {MAX_NODES}")
    return name, Shape(nodes, _family(f"--cluster {text}", word if comma else "ipv4"))


def parse_host(text: str) -> tuple[str, Family]:
    """`NAME[,FAMILY]`, like `cp1` or `cp1,ipv6`. Raises LabError when it is something else."""
    name, comma, word = text.partition(",")
    return check_name(name), _family(f"--host {text}", word if comma else "ipv4")


def _family(option: str, word: str) -> Family:
    families = {str(family): family for family in FAMILIES}
    if word not in families:
        raise LabError(f"{option}: the family of addresses must be one of {', '.join(families)}")
    return families[word]


def check_name(name: str) -> str:
    """Raise LabError unless the name can be a host name."""
    if not _NAME.fullmatch(name):
        raise LabError(f"{name!r} cannot be a name in the lab: use up to 32 of a-z, 0-9 and -, beginning with a letter")
    return name


# Up ------------------------------------------------------------------------------------------------------------------


def up(lab: Lab, settings: Settings, wanted: Wanted, source: str = "auto") -> None:
    """Make what is wanted and missing, say what is there already, repair leftovers of a command that was killed."""
    check_wanted(lab, wanted)
    begin = time.monotonic()
    if _nothing_to_do(lab, wanted):
        return
    prepare.require(lab)
    rootfs.ensure_base(lab)
    sets = {name: images.image_set(name, rootfs.base(lab)) for name in wanted.image_sets}
    extra = [image for group in sets.values() for image in group]
    if wanted.metallb:
        extra += images.metallb_images()
    if wanted.clusters:
        cluster.ensure_binaries(lab, settings, source)
    artifacts.ensure_images(lab, settings.products, extra, source)
    _remove_leftovers(lab)
    network.ensure_bridge(lab)
    machine.user_key(lab)
    if wanted.pod_routes:
        write_json(lab.state / "options.json", {"pod_routes": True})
    plans = _plan(lab, settings, wanted)
    _in_parallel([partial(_make, lab, settings, plan, extra) for plan in plans])
    _connect(lab)
    _in_parallel([partial(_finish, lab, settings, wanted, name, extra) for name in wanted.clusters])
    if registry.is_up(lab):
        registry.trust_everywhere(lab)
    say(f"up after {time.monotonic() - begin:.1f} s")


@dataclass
class _Plan:
    """Something to make: a plain host (cluster is None), or a cluster with its nodes."""

    machines: list[MachineRecord]
    cluster: ClusterRecord | None = None


def check_wanted(lab: Lab, wanted: Wanted) -> None:
    """Every problem with the names, before anything is made."""
    problems = []
    clusters, machines = cluster_records(lab), machine_records(lab)
    names = [*wanted.hosts]
    for name, shape in wanted.clusters.items():
        names += [cluster.node_name(name, node) for node in range(shape.nodes)]
        there = clusters.get(name)
        if there and there.ready and Shape(there.nodes, there.family) != shape:
            problems.append(
                f"cluster {name} is up with {there.nodes} node(s), {there.family}, not {shape.nodes}, {shape.family}: "
                f"`lab down {name}` first"
            )
        if shape.family != "ipv4" and not network.has_ipv6():
            problems.append(f"cluster {name} wants IPv6, which this machine's kernel does not speak")
        if name in machines and machines[name].kind == "host":
            problems.append(f"{name} is a plain host: `lab down {name}` first, or choose another name")
    for name, family in wanted.hosts.items():
        there_is = machines.get(name)
        if there_is and [*map(network.version, there_is.addresses)] != [*FAMILIES[family]]:
            problems.append(
                f"host {name} is up with {', '.join(there_is.addresses)}, not {family}: `lab down {name}` first"
            )
        if family != "ipv4" and not network.has_ipv6():
            problems.append(f"host {name} wants IPv6, which this machine's kernel does not speak")
    problems += [
        f"{name} is a node of cluster {machines[name].cluster}: choose another name"
        for name in wanted.hosts
        if name in machines and machines[name].kind == "node"
    ]
    problems += [
        f"{name} is switched off: `lab power on {name}`"
        for name in wanted.hosts
        if name in machines and machines[name].off
    ]
    problems += [f"{name} is wanted twice" for name in sorted({name for name in names if names.count(name) > 1})]
    if problems:
        raise LabError("\n".join(problems))


def _nothing_to_do(lab: Lab, wanted: Wanted) -> bool:
    """The quick way for the second `lab up`: everything wanted is there and works."""
    machines = machine_records(lab)
    network_is_up = lab.id in network.links() and network.has_rules(lab)
    if not network_is_up or leftovers(lab) or (wanted.pod_routes and not _pod_routes(lab)):
        return False
    if not all(name in machines and machine.reusable(machines[name]) for name in wanted.hosts):
        return False
    if not all(_is_complete(lab, name, wanted) for name in wanted.clusters):
        return False
    for name in [*wanted.clusters, *wanted.hosts]:
        say(f"ok  {name} is up already")
    return True


def _is_complete(lab: Lab, name: str, wanted: Wanted) -> bool:
    """Return whether the cluster works and has all that was asked for."""
    record = cluster_records(lab).get(name)
    if record is None or not rootfs.base(lab).exists():
        return False
    references = {image.reference for text in wanted.image_sets for image in images.image_set(text, rootfs.base(lab))}
    has_all = references <= set(record.images) and (not wanted.metallb or "metallb" in record.addons)
    return has_all and cluster.is_usable(lab, record, cluster.nodes_of(lab, name))


def _pod_routes(lab: Lab) -> bool:
    return bool(read_json(lab.state / "options.json").get("pod_routes"))


def leftovers(lab: Lab) -> list[MachineRecord]:
    """Machines that are on record but were never finished, or died."""
    clusters = cluster_records(lab)
    return [
        record
        for record in machine_records(lab).values()
        if not (record.off or machine.reusable(record))
        or (record.kind == "node" and (record.cluster not in clusters or not clusters[record.cluster].ready))
    ]


def _remove_leftovers(lab: Lab) -> None:
    """Remove what a killed command or a dead machine left; the caller makes anew what is wanted."""
    for name in machine.strays(lab):
        say(f"    {name} runs without a record: removed")
        machine.kill_cgroups(name)
    for record in leftovers(lab):
        if record.kind == "host":
            say(f"    host {record.name} is a leftover (unfinished or dead): removed")
            machine.remove(lab, record)
    broken = {record.cluster for record in leftovers(lab) if record.kind == "node"}
    broken |= {name for name, record in cluster_records(lab).items() if not record.ready}
    for name in sorted(broken):
        say(f"    cluster {name} is a leftover (unfinished or dead): removed")
        _remove_cluster(lab, name)


def _plan(lab: Lab, settings: Settings, wanted: Wanted) -> list[_Plan]:
    """Numbers and addresses for what is missing. Clusters whose API does not answer are waited for, not remade."""
    clusters, machines = cluster_records(lab), machine_records(lab)
    taken_machines = {record.index for record in machines.values()}
    taken_clusters = {record.index for record in clusters.values()}
    plans = []

    def new_machine(
        name: str, kind: str, cluster_name: str = "", node: int = 0, family: Family = "ipv4"
    ) -> MachineRecord:
        index = free_index(taken_machines, 200, "machines")
        taken_machines.add(index)
        first, *others = lab.machine_addresses(index, family)
        return MachineRecord(name, index, first, kind, cluster_name, node, second_address="".join(others))

    for name, shape in wanted.clusters.items():
        if name in clusters:
            say(f"ok  cluster {name} is up already")
            continue
        index = free_index(taken_clusters, MAX_CLUSTERS, "clusters")
        taken_clusters.add(index)
        record = ClusterRecord(name, index, shape.nodes, settings.kubernetes, shape.family)
        own = [
            new_machine(cluster.node_name(name, node), "node", name, node, shape.family) for node in range(shape.nodes)
        ]
        plans.append(_Plan(own, record))
    for name, family in wanted.hosts.items():
        if name in machines:
            say(f"ok  host {name} is up already")
            continue
        plans.append(_Plan([new_machine(name, "host", family=family)]))
    # On record before anything is made: whoever comes after a crash knows what to look for.
    for plan in plans:
        for record_ in plan.machines:
            save(lab, record_)
    return plans


def _make(lab: Lab, settings: Settings, plan: _Plan, extra: Sequence[Image]) -> None:
    if plan.cluster is not None:
        cluster.create(lab, settings, plan.cluster, plan.machines, extra)
        return
    for host in plan.machines:
        with step(f"{host.name}: boot a plain host at {host.address}"):
            if host.name == registry.NAME:
                registry.start(lab, host)
            else:
                machine.start(lab, host, {}, {}, {})
            host.ready = True
            save(lab, host)


def _connect(lab: Lab) -> None:
    """Routes between pods, and every machine's name in every machine."""
    machines, clusters = machine_records(lab), cluster_records(lab)
    everywhere = _pod_routes(lab)
    network.route_pods(lab, machines, clusters, everywhere)
    text = machine.hosts_file(list(machines.values()))
    for record in machines.values():
        machine.write_hosts(record, text)


def _finish(lab: Lab, settings: Settings, wanted: Wanted, name: str, extra: Sequence[Image]) -> None:
    """Bring what was asked for and a cluster does not have yet: images, MetalLB."""
    record = cluster_records(lab)[name]
    missing = [image for image in extra if image.reference not in record.images]
    if missing:
        load_images(lab, settings, name, missing)
    if wanted.metallb and "metallb" not in record.addons:
        with step(f"{name}: MetalLB with {_listed(lab, record, 'load_balancer')}"):
            cluster.add_metallb(lab, settings, cluster_records(lab)[name])


def load_images(lab: Lab, settings: Settings, name: str, wanted: Sequence[Image]) -> None:
    """Import images into every node of a cluster and note it in the cluster's record."""
    record = cluster_records(lab).get(name)
    if record is None or not record.ready:
        raise LabError(f"no cluster {name} is up; `lab status` shows what is")
    unique = list({image.reference: image for image in wanted}.values())
    with step(f"{name}: load {len(unique)} images"):
        for node in cluster.nodes_of(lab, name):
            cluster.load(lab, settings, node, unique)
    record.images = sorted({*record.images, *(image.reference for image in unique)})
    save(lab, record)


def _in_parallel(work: Sequence[Callable[[], None]]) -> None:
    """Run all; when some fail, finish the others and then raise the first error, the rest as text."""
    workers = max(2, (os.cpu_count() or 2) + 1)
    with ThreadPoolExecutor(max_workers=workers) as pool:
        futures = [pool.submit(item) for item in work]
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in errors:
        if not isinstance(error, LabError):
            raise error
    if errors:
        raise LabError("\n".join(str(error) for error in errors))


# Down ----------------------------------------------------------------------------------------------------------------


def down(lab: Lab, names: Sequence[str]) -> None:
    """Remove the named clusters and hosts, or the whole lab when none is named; works on half-made state."""
    clusters, machines = cluster_records(lab), machine_records(lab)
    if not names:
        _down_everything(lab)
        return
    unknown = [name for name in names if name not in clusters and name not in machines]
    inner = [name for name in names if name in machines and machines[name].kind == "node" and name not in clusters
             and machines[name].cluster in clusters]  # fmt: skip
    if inner:
        raise LabError(f"{', '.join(inner)}: a node cannot go alone; name its cluster")
    for name in unknown:
        say(f"ok  {name} is not there")
    for name in names:
        if name in clusters:
            with step(f"remove cluster {name}"):
                _remove_cluster(lab, name)
        elif name in machines:
            with step(f"remove host {name}"):
                machine.remove(lab, machines[name])


def _remove_cluster(lab: Lab, name: str) -> None:
    for node in cluster.nodes_of(lab, name):
        machine.remove(lab, node)
    shutil.rmtree(lab.clusters / name, ignore_errors=True)


def _down_everything(lab: Lab) -> None:
    begin = time.monotonic()
    records = list(machine_records(lab).values())
    _in_parallel([partial(machine.remove, lab, record) for record in records])
    for name in machine.strays(lab):
        machine.kill_cgroups(name)
    network.remove_bridge(lab)
    if lab.state.exists():
        shutil.rmtree(lab.state, ignore_errors=True)
    left = remains(lab)
    if left:
        raise LabError("the lab is down, but this is left:\n" + "\n".join(f"  - {item}" for item in left))
    state_lock(lab).unlink(missing_ok=True)
    seconds = time.monotonic() - begin
    say(f"down after {seconds:.1f} s: no process, mount, network namespace, link, rule or folder is left")


def remains(lab: Lab) -> list[str]:
    """Remains of this lab on the machine; empty after a complete `lab down`."""
    left = [
        f"control group {name} with processes {sorted(machine.members(name))}"
        for name in sorted(machine.cgroup_names(lab))
    ]
    left += [f"network namespace {name}" for name in network.namespaces(lab)]
    left += [
        f"network link {name}" for name in sorted(network.links()) if name == lab.id or name.startswith(f"{lab.id}-")
    ]
    if shutil.which("nft") and network.has_rules(lab):
        left.append(f"nftables table inet {lab.id}")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if line.split()[4].startswith(f"{lab.state}/"):
            left.append(f"mount {line.split()[4]}")
    if lab.state.exists():
        left.append(f"folder {lab.state}")
    return left


# Status --------------------------------------------------------------------------------------------------------------


def status(lab: Lab) -> dict[str, Any]:
    """Status of what is up, as data."""
    now = time.time()
    clusters = {
        name: {
            "kubernetes": record.kubernetes,
            "nodes": [node.name for node in cluster.nodes_of(lab, name)],
            "server": f"https://{configuration.api_address(cluster.nodes_of(lab, name)[0])}" if record.ready else "",
            "state": _cluster_state(lab, record),
            "age_seconds": round(now - record.created),
            "audit_log": record.audit_log,
            "images": record.images,
            "addons": record.addons,
            "family": record.family,
            "pod_range": _listed(lab, record, "cluster_pod"),
            "service_range": _listed(lab, record, "service"),
            "load_balancer_range": _listed(lab, record, "load_balancer"),
        }
        for name, record in cluster_records(lab).items()
    }
    machines = {
        name: {
            "kind": record.kind,
            "cluster": record.cluster,
            "address": record.address,
            "second_address": record.second_address,
            "pid": record.pid if machine.is_alive(record) else 0,
            "state": "off" if record.off else "up" if machine.reusable(record) else "leftover",
            "age_seconds": round(now - record.created),
        }
        for name, record in machine_records(lab).items()
    }
    return {
        "state_folder": str(lab.state),
        "cache_folder": str(lab.cache),
        "bridge": lab.id,
        "network": str(lab.subnet),
        "gateway": lab.gateway,
        "network6": str(lab.subnet6),
        "gateway6": lab.gateway6,
        "registry": registry.facts(lab),
        "pod_routes": _pod_routes(lab),
        "clusters": clusters,
        "machines": machines,
        "strays": machine.strays(lab),
    }


def _listed(lab: Lab, record: ClusterRecord, what: str) -> str:
    return ",".join(str(each) for each in lab.ranges(record, what))


def _cluster_state(lab: Lab, record: ClusterRecord) -> str:
    nodes = cluster.nodes_of(lab, record.name)
    if not record.ready or not all(machine.reusable(node) for node in nodes):
        return "leftover"
    return "up" if cluster.api_ready(lab, record.name, nodes[0].address) else "API does not answer"
