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
from pathlib import Path
from typing import Any

from karmada_lab.errors import LabError
from karmada_lab.shell import run, say
from karmada_lab.state import ClusterRecord, Lab, MachineRecord, read_json, write_json

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


# The bridge ----------------------------------------------------------------------------------------------------------


def ensure_bridge(lab: Lab) -> None:
    """Bridge, its address and the rules; each only where missing."""
    _remember_sysctls()
    if lab.id not in links():
        _refuse_foreign_route(lab)
        run(["ip", "link", "add", lab.id, "address", hardware_address(lab.gateway), "type", "bridge"])
    address = f"{lab.gateway}/{lab.bridge_network.prefixlen}"
    shown = json.loads(run(["ip", "-j", "addr", "show", "dev", lab.id]).stdout)
    present = {entry["local"] for link in shown for entry in link.get("addr_info", [])}
    if lab.gateway not in present:
        run(["ip", "addr", "add", address, "dev", lab.id])
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
    fib daddr type != unicast accept
    ip daddr != {lab.subnet} counter jump refuse
  }}
  chain refuse {{
    meta l4proto tcp reject with tcp reset
    reject
  }}
}}
"""


def has_rules(lab: Lab) -> bool:
    """Whether the lab's nftables table is there."""
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
    """A fresh network namespace for the machine, cabled to the bridge, with address and default route."""
    unplug(lab, machine)
    name, outer = namespace(lab, machine.name), link_name(lab, machine.index)
    run(["ip", "netns", "add", name])
    inner = ["name", "eth0", "address", hardware_address(machine.address), "netns", name]
    run(["ip", "link", "add", outer, "type", "veth", "peer", *inner])
    run(["ip", "link", "set", outer, "master", lab.id, "up"])
    inside = [
        "link set lo up",
        f"addr add {machine.address}/{lab.bridge_network.prefixlen} dev eth0",
        "link set eth0 up",
        f"route add default via {lab.gateway}",
    ]
    run(["ip", "-n", name, "-batch", "-"], stdin="\n".join(inside) + "\n")


def unplug(lab: Lab, machine: MachineRecord) -> None:
    """Remove the machine's namespace and cable, if there."""
    if (NETNS / namespace(lab, machine.name)).exists():
        run(["ip", "netns", "delete", namespace(lab, machine.name)], check=False)
    if link_name(lab, machine.index) in links():
        run(["ip", "link", "delete", link_name(lab, machine.index)], check=False)


def masquerade_rules(own_pods: str, reachable_pods: str) -> str:
    """nftables rules in a node: pods keep their address where the way back is known, and take the node's elsewhere.

    reachable_pods: network whose members know the way back: the cluster's own range, or the lab's with --pod-routes.
    """
    return f"""
table ip lab
delete table ip lab
table ip lab {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {own_pods} ip daddr != {reachable_pods} oifname "eth0" masquerade
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
                pods = lab.node_pod_range(clusters[node.cluster].index, node.node)
                lines.append(f"route replace {pods} via {node.address}")
        if lines:
            run(["ip", "-n", namespace(lab, machine.name), "-batch", "-"], stdin="\n".join(lines) + "\n")
        if machine.kind == "node" and machine.cluster in clusters:
            own_pods = lab.cluster_pod_range(clusters[machine.cluster].index)
            reachable = lab.pod_network if everywhere else own_pods
            run(["ip", "netns", "exec", namespace(lab, machine.name), "nft", "-f", "-"],
                stdin=masquerade_rules(str(own_pods), str(reachable)))  # fmt: skip
    if everywhere:
        lines = [
            f"route replace {lab.node_pod_range(clusters[node.cluster].index, node.node)} via {node.address}"
            for node in nodes
        ]
        if lines:
            run(["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")


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
