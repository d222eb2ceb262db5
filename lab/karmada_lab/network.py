# SPDX-License-Identifier: Apache-2.0
"""The lab's network: one bridge on this machine, a network namespace for each host or node, and rules that keep
test traffic inside.

Machines reach each other and this machine over the bridge. Anything else they try to reach is rejected at once, and so
is every question to the name server they are given (the bridge address): a name server that is silent costs minutes.
Nothing here needs forwarding on this machine.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from karmada_lab.errors import LabError
from karmada_lab.shell import run, say
from karmada_lab.state import IPV4, IPV6, ClusterRecord, Lab, MachineRecord, Network, read_json, write_json

NETNS = Path("/run/netns")
_LINKS = Path("/sys/class/net")

# Shared by all labs of this machine, and gone with a reboot like the settings themselves.
_SYSCTLS = Path("/run/karmada-lab/sysctls.json")

# Kernel-wide settings that kubelets and many watchers change or need; put back by `lab down`.
RAISED_SYSCTLS = {"fs.inotify.max_user_instances": 2048, "fs.inotify.max_user_watches": 524288}
TOUCHED_SYSCTLS = ("vm.overcommit_memory", "vm.panic_on_oom", "kernel.panic", "kernel.panic_on_oops",
                   "kernel.keys.root_maxkeys", "kernel.keys.root_maxbytes")  # fmt: skip


def namespace(lab: Lab, name: str) -> str:
    """Name of the network namespace (and control group) of a machine."""
    return f"{lab.id}-{name}"


def link_name(lab: Lab, index: int) -> str:
    """This machine's end of the cable to machine number index; at most 15 characters."""
    return f"{lab.id}-{index}"


def hardware_address(address: str) -> str:
    """The MAC address that goes with an IP address: a machine that is made anew is found at once, because what others
    remember of the old one is still right. With random ones it is lost for half a minute.
    """
    return "02:4b:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def version(address: str) -> int:
    """IPV4 or IPV6."""
    return IPV6 if ":" in address else IPV4


def gateway(lab: Lab, address: str) -> str:
    """This machine's address on the bridge, as who has that address knows it."""
    return lab.gateway6 if version(address) == IPV6 else lab.gateway


# The bridge ----------------------------------------------------------------------------------------------------------


def ensure_bridge(lab: Lab) -> None:
    """Bridge, its address and the rules; each only where missing."""
    _remember_sysctls()
    if lab.id not in links():
        _refuse_foreign_route(lab)
        run(["ip", "link", "add", lab.id, "address", hardware_address(lab.gateway), "type", "bridge"])
    shown = json.loads(run(["ip", "-j", "addr", "show", "dev", lab.id]).stdout)
    present = {entry["local"] for link in shown for entry in link.get("addr_info", [])}
    if lab.gateway not in present:
        run(["ip", "addr", "add", f"{lab.gateway}/{lab.bridge_network.prefixlen}", "dev", lab.id])
    if lab.gateway6 not in present and has_ipv6():
        # Nobody else has this address: to look for them would only keep it from being used for a second.
        run(["ip", "addr", "add", f"{lab.gateway6}/{lab.bridge_network6.prefixlen}", "dev", lab.id, "nodad"])
    run(["ip", "link", "set", lab.id, "up"])
    if not has_rules(lab):
        run(["nft", "-f", "-"], stdin=rules(lab))


def rules(lab: Lab) -> str:
    """nftables rules on this machine: what comes from the lab's bridge may reach the lab only, and no name server.

    `reject` in prerouting, because without forwarding a packet for elsewhere never reaches a later hook.
    """
    return f"""
table inet {lab.id} {{
  chain prerouting {{
    type filter hook prerouting priority filter; policy accept;
    iifname != "{lab.id}" accept
    meta l4proto {{ tcp, udp }} th dport 53 ip daddr {lab.gateway} counter jump refuse
    meta l4proto {{ tcp, udp }} th dport 53 ip6 daddr {lab.gateway6} counter jump refuse
    fib daddr type != unicast accept
    ip daddr != {lab.subnet} counter jump refuse
    ip6 daddr != {{ {lab.subnet6}, fe80::/10 }} counter jump refuse
  }}
  chain refuse {{
    meta l4proto tcp reject with tcp reset
    reject
  }}
}}
"""


def has_ipv6() -> bool:
    """Return whether this machine's kernel speaks IPv6."""
    disabled = _sysctl("net.ipv6.conf.all.disable_ipv6")
    return disabled.exists() and disabled.read_text().strip() == "0"


def has_rules(lab: Lab) -> bool:
    """Return whether the lab's nftables table is there."""
    return run(["nft", "list", "table", "inet", lab.id], check=False).returncode == 0


def remove_bridge(lab: Lab) -> None:
    """Bridge, rules and what is still plugged into the bridge; sysctls put back."""
    for name in sorted(links()):
        if name == lab.id or name.startswith(f"{lab.id}-"):
            run(["ip", "link", "delete", name], check=False)
    if has_rules(lab):
        run(["nft", "delete", "table", "inet", lab.id])
    for name in namespaces(lab):
        run(["ip", "netns", "delete", name], check=False)
    _restore_sysctls(lab)


def links() -> set[str]:
    """Names of all network interfaces of this machine."""
    return {path.name for path in _LINKS.iterdir()}


def namespaces(lab: Lab) -> list[str]:
    """Names of the lab's network namespaces that exist."""
    if not NETNS.exists():
        return []
    return sorted(path.name for path in NETNS.iterdir() if path.name.startswith(f"{lab.id}-"))


def _refuse_foreign_route(lab: Lab) -> None:
    routes: list[dict[str, Any]] = json.loads(
        run(["ip", "-j", "route", "show", "root", str(lab.subnet)]).stdout or "[]"
    )
    if routes:
        raise LabError(
            f"the lab's network {lab.subnet} is in use on this machine (route {routes[0].get('dst')} on "
            f"{routes[0].get('dev')}).\n    Choose another one: KARMADA_LAB_SUBNET=10.N.0.0/16"
        )


# Machines ------------------------------------------------------------------------------------------------------------


def plug_in(lab: Lab, machine: MachineRecord) -> None:
    """A fresh network namespace for the machine, cabled to the bridge, with addresses and default routes."""
    unplug(lab, machine)
    name, outer = namespace(lab, machine.name), link_name(lab, machine.index)
    run(["ip", "netns", "add", name])
    inner = ["name", "eth0", "address", hardware_address(lab.machine_address(machine.index)), "netns", name]
    run(["ip", "link", "add", outer, "type", "veth", "peer", *inner])
    run(["ip", "link", "set", outer, "master", lab.id, "up"])
    inside = ["link set lo up"]
    for address in machine.addresses:
        if version(address) == IPV6:
            inside.append(f"addr add {address}/{lab.bridge_network6.prefixlen} dev eth0 nodad")
        else:
            inside.append(f"addr add {address}/{lab.bridge_network.prefixlen} dev eth0")
    inside.append("link set eth0 up")
    inside += [f"route add default via {gateway(lab, address)}" for address in machine.addresses]
    run(["ip", "-n", name, "-batch", "-"], stdin="\n".join(inside) + "\n")


def cut(lab: Lab, machine: MachineRecord) -> None:
    """From now on nothing reaches the machine or leaves it, and neither side is told."""
    run(["ip", "link", "set", link_name(lab, machine.index), "down"], check=False)


def unplug(lab: Lab, machine: MachineRecord) -> None:
    """Remove the machine's namespace and cable, if there."""
    if (NETNS / namespace(lab, machine.name)).exists():
        run(["ip", "netns", "delete", namespace(lab, machine.name)], check=False)
    if link_name(lab, machine.index) in links():
        run(["ip", "link", "delete", link_name(lab, machine.index)], check=False)


def masquerade_rules(ranges: Sequence[tuple[Network, Network]]) -> str:
    """nftables rules in a node: pods keep their address where the way back is known, and take the node's elsewhere.

    ranges: for each family the cluster's pods, and the network whose members know the way back to them: that range
    itself, or the lab's with --pod-routes.
    """
    rules = "\n    ".join(
        f'{word} saddr {own} {word} daddr != {reachable} oifname "eth0" masquerade'
        for own, reachable in ranges
        for word in ["ip6" if own.version == IPV6 else "ip"]
    )
    return f"""
table inet lab
delete table inet lab
table inet lab {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    {rules}
  }}
}}
"""


def route_pods(
    lab: Lab,
    machines: dict[str, MachineRecord],
    clusters: dict[str, ClusterRecord],
    everywhere: bool,
) -> None:
    """Routes to the pod ranges of other nodes: within each cluster always, among all clusters and from this machine
    when everywhere is set.
    """
    nodes = [machine for machine in machines.values() if machine.kind == "node" and machine.cluster in clusters]
    for machine in machines.values():
        if not (NETNS / namespace(lab, machine.name)).exists():
            continue
        lines = []
        for node in nodes:
            own = machine.cluster == node.cluster
            if node.name != machine.name and (own or everywhere):
                lines += _routes(lab, clusters[node.cluster], node, {version(each) for each in machine.addresses})
        if lines:
            run(["ip", "-n", namespace(lab, machine.name), "-batch", "-"], stdin="\n".join(lines) + "\n")
        if machine.kind == "node" and machine.cluster in clusters:
            pods = lab.ranges(clusters[machine.cluster], "cluster_pod")
            whole: dict[int, Network] = {IPV4: lab.pod_network, IPV6: lab.subnet6}
            rules = masquerade_rules([(own, whole[own.version] if everywhere else own) for own in pods])
            run(["ip", "netns", "exec", namespace(lab, machine.name), "nft", "-f", "-"], stdin=rules)
    if everywhere:
        ours = {IPV4, IPV6} if has_ipv6() else {IPV4}
        lines = [line for node in nodes for line in _routes(lab, clusters[node.cluster], node, ours)]
        if lines:
            run(["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")


def _routes(lab: Lab, record: ClusterRecord, node: MachineRecord, versions: set[int]) -> list[str]:
    """Lines for `ip -batch` that lead to a node's pods, with these versions of IP."""
    return [
        f"route replace {pods} via {address}"
        for pods, address in zip(lab.ranges(record, "node_pod", node.node), node.addresses, strict=True)
        if pods.version in versions
    ]


# Kernel settings -----------------------------------------------------------------------------------------------------


def _remember_sysctls() -> None:
    """Note the values once, before the first kubelet of any lab changes them, and raise what must be higher."""
    if not _SYSCTLS.exists():
        write_json(_SYSCTLS, {name: _sysctl(name).read_text().strip() for name in (*RAISED_SYSCTLS, *TOUCHED_SYSCTLS)})
    for name, wanted in RAISED_SYSCTLS.items():
        if int(_sysctl(name).read_text()) < wanted:
            _sysctl(name).write_text(f"{wanted}\n")


def _restore_sysctls(lab: Lab) -> None:
    """Put the values back, unless another lab is up on this machine: then its `down` does."""
    if any(name.startswith("klab") and name != lab.id and (_LINKS / name / "bridge").exists() for name in links()):
        return
    for name, value in read_json(_SYSCTLS).items():
        try:
            if _sysctl(name).read_text().strip() != value:
                _sysctl(name).write_text(f"{value}\n")
        except OSError as error:
            say(f"    kernel setting {name} could not be put back to {value}: {error}")
    shutil.rmtree(_SYSCTLS.parent, ignore_errors=True)


def _sysctl(name: str) -> Path:
    return Path("/proc/sys") / name.replace(".", "/")
