# SPDX-License-Identifier: Apache-2.0
"""Ways between the hosts of members of etcd, tried before the first of them starts and before one is added.

Nothing listens yet where a member is to come, so a refused connection is what a way looks like that is there. What that
cannot prove: that a firewall lets through what is answered, and that nobody else takes the port until then.
"""

from __future__ import annotations

from ansible_collections.karmada.installer.plugins.module_utils import host_reach as kinds

from ..components import hosts as component_hosts
from ..components.table import ETCD
from ..problems import Problem, Reason
from ..run.reach import Target
from ..run.run import Run
from .seen_on_hosts import are_ours, known, wanted

#: Prefix of the name of a target: what follows is the host of the member.
_PEER = "etcd/"
#: Faults of the way itself.
_OF_THE_WAY = (kinds.UNKNOWN_NAME, kinds.NO_ROUTE, kinds.SILENT)


def targets(run: Run) -> dict[str, list[Target]]:
    """Host → peer ports that it has to reach, and has not as a member of before; empty if no member is to come."""
    etcd = run.stored_state.etcd if run.stored_state else None
    if not are_ours(run) or (etcd and etcd.bootstrapped and not etcd.members):
        # An earlier version of this collection has installed them, and this run puts them on record.
        return {}
    there = known(run) if etcd and etcd.bootstrapped else []
    coming = [name for name in wanted(run) if name not in there]
    members = [name for name in dict.fromkeys([*wanted(run), *there]) if name in run.hosts]
    found = {}
    for name in members:
        peers = [each for each in members if each != name and (each in coming or name in coming)]
        if peers and not run.observed[name].refusal:
            found[name] = [_target(run, each) for each in peers]
    return found


def _target(run: Run, name: str) -> Target:
    host = run.hosts[name]
    url = component_hosts.etcd_member(run.spec, host).peer_url
    return Target(f"{_PEER}{name}", url, host.address, ETCD.listens(run.spec)["peer"], tls=False)


def problems(run: Run) -> list[Problem]:
    """Members that hosts of others do not reach, by what these have tried."""
    faults: dict[tuple[Target, str], list[str]] = {}
    for host, observed in run.observed.items():
        for target in observed.targets:
            fault = observed.unreached.get(target.name)
            if target.name.startswith(_PEER) and fault and fault.kind in _OF_THE_WAY:
                faults.setdefault((target, fault.words(target)), []).append(host)
    return [
        Problem(
            f"{', '.join(hosts)} {'does' if len(hosts) == 1 else 'do'} not reach {target.url}: {words}",
            f"host {target.name.removeprefix(_PEER)} ({target.host})",
            f"let the hosts with etcd reach each other at port {target.port} (routes, firewalls)",
            reason=Reason.ETCD_UNREACHABLE,
        )
        for (target, words), hosts in faults.items()
    ]
