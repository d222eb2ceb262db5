# SPDX-License-Identifier: Apache-2.0
"""Look at an instance on plain hosts as it is, for the report. Earlier steps have read the answers of the hosts."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from ..components import hosts as component_hosts
from ..components.releases import is_digest
from ..components.table import ETCD, ON_HOSTS, wanted_components, wanted_leaf_certificates
from ..components.types import Component, LeafCertificate, members_with_agent_hosts
from ..etcd import external as external_etcd
from ..etcd import health, on_hosts
from ..members.registration import PUSH
from ..pki import certificates, x509
from ..preflight import host_preflight
from ..problems import Problem, ProblemsError, Reason, Severity
from ..redaction import printable, redacted
from ..render import units as render
from ..restore import left_data
from ..run.host_observation import UnitStatus
from ..run.run import Run
from .observe import (
    NO_ETCD,
    Seen,
    control_plane_answers,
    etcd_health,
    etcd_members,
    look,
    number_of_works,
    observation,
    version_numbers,
    warning,
)
from .report import ComponentStatus, HostStatus, Observation

_VERSION_IN_PATH = re.compile(rf"{render.PROGRAMS}/(v[0-9]+\.[0-9]+\.[0-9]+)[^/]*/")


def observe_hosts(run: Run) -> Observation:
    """Observe the hosts and the control plane now. A check run before the first install finds neither."""
    installed = run.stored_state is not None and run.control_plane_exists
    try:
        api = control_plane_answers(run) if installed else {}
    except ProblemsError as error:
        api, trouble = {}, [warning(problem.what, problem.reason) for problem in error.problems]
    else:
        trouble = [warning(run.endpoint_trouble, Reason.ENDPOINT_MISDIRECTED)] if run.endpoint_trouble else []
    hosts = members_with_agent_hosts(run.spec)
    members = [replace(each, agent_hosts=hosts.get(each.name, ())) for each in api.get("members", ())]
    etcd = etcd_on_hosts_health(run) if installed else NO_ETCD
    joined = {each.name for each in members if each.mode == PUSH}
    pushed = [name for name in run.instance.pushed if name in joined or not api]
    seen = Seen(
        api={**api, "members": members} if api else api,
        components=[
            *(_component(run, component) for component in wanted_components(run.spec, pushed=pushed)),
            *_agents(run),
        ],
        versions=_running_versions(run),
        etcd=etcd,
        etcd_desired=len(etcd.members),
        etcd_ready=sum(each.status.healthy for each in etcd.members),
        certificates=_expiries(run) if installed else {},
        kubeconfig_secret=run.kubeconfig_secret if installed else "",
        notes=[
            *(*_hosts_in_trouble(run), *host_preflight.left(run), *_different_programs(run), *trouble),
            *(*host_preflight.unlike_others(run), *host_preflight.done_to_states(run)),
            *left_data.notes(run),
        ],
    )
    return replace(observation(run, seen), hosts=_hosts(run))


def observe_etcd_on_hosts(run: Run) -> Observation:
    """Observe the host cluster, the hosts below it and the control plane now."""
    seen = look(run)
    etcd = [_component(run, ETCD)] if run.stored_state else []
    found = etcd_on_hosts_health(run) if run.stored_state else NO_ETCD
    seen = replace(
        seen,
        etcd=found,
        etcd_ready=sum(each.status.healthy for each in found.members),
        components=[*etcd, *seen.components],
        certificates=_expiries(run) if run.stored_state else {},
        notes=[
            *(*_hosts_in_trouble(run), *_different_programs(run), *left_data.notes(run), *seen.notes),
        ],
    )
    return replace(observation(run, seen), hosts=_hosts(run))


def hint_at_etcd(run: Run) -> str:
    """Hint for an API server that does not start: whether etcd answers from here, and so where to look next."""
    members = etcd_members(run)
    urls = ", ".join(each.url for each in members)
    if any(each.healthy for each in members):
        return (
            "etcd on hosts answers from here. If the log above says that the API server does not reach it, let the "
            f"pods of the host cluster reach {urls} (routes, firewalls of the hosts, NetworkPolicies of the cluster)"
        )
    unit = render.unit_name(run.instance, ETCD)
    return f"etcd on hosts does not answer from here either ({urls}); on the hosts, journalctl -u {unit} says more"


def _component(run: Run, component: Component) -> ComponentStatus:
    hosts = component_hosts.hosts_of(run.spec, component_hosts.role_of(component))
    ready = [host for host in hosts if _works(run, host.name, component)]
    told = [
        f"{host.name}: {unit.reason}" for host in hosts if (unit := _unit(run, host.name, component)) and unit.reason
    ]
    trouble = printable(redacted("; ".join(told)))
    if component.row in run.instance.held:
        return ComponentStatus(name=component.name, desired=0, ready=0, trouble=trouble)
    return ComponentStatus(name=component.name, desired=len(hosts), ready=len(ready), trouble=trouble)


def _agents(run: Run) -> list[ComponentStatus]:
    """Agents on hosts: for each member with agent hosts, one on each of them."""
    agents = [
        (host.name, agent) for host in run.hosts.values() for agent in component_hosts.agents_on(run.instance, host)
    ]
    desired = Counter(agent.name for _host, agent in agents)
    ready = Counter(agent.name for host, agent in agents if _works(run, host, agent))
    return [ComponentStatus(name, number, ready[name]) for name, number in sorted(desired.items())]


def _unit(run: Run, host: str, component: Component) -> UnitStatus | None:
    units: Mapping[str, UnitStatus] = run.observed[host].units
    return units.get(render.unit_name(run.instance, component))


def _works(run: Run, host: str, component: Component) -> bool:
    unit = _unit(run, host, component)
    return unit is not None and not unit.reason


def _hosts(run: Run) -> list[HostStatus]:
    """Hosts of the document; one is in trouble that cannot be asked, or has a unit that is not healthy."""
    found = []
    for name, host in run.hosts.items():
        observed = run.observed[name]
        unheard = [observed.refusal, *(each.reason for each in (observed.lost, observed.trouble) if each)]
        units = [f"{unit} {told.reason}" for unit, told in sorted(observed.units.items()) if told.reason]
        trouble = printable(redacted("; ".join(filter(None, [*unheard, *units]))))
        found.append(HostStatus(name, host.address, host.roles, trouble))
    return found


def _hosts_in_trouble(run: Run) -> list[Problem]:
    """Unhealthy units, each with its reason."""
    return [
        Problem(f"{unit} {told.reason}", f"host {name}", reason=Reason.UNIT_NOT_HEALTHY, severity=Severity.WARNING)
        for name, observed in run.observed.items()
        for unit, told in sorted(observed.units.items())
        if told.reason
    ]


def _different_programs(run: Run) -> list[Problem]:
    """Programs of one version whose files differ between hosts of one architecture."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for host, observed in run.observed.items():
        view = run.on_host(host)
        used = {render.program(run.instance, each) for each in view.components(ON_HOSTS)}
        architecture = observed.facts.architecture if observed.facts else ""
        for path, sha256 in observed.programs.items():
            # The host reports this about itself, and it is displayed, so it must be a digest.
            digest = f"sha256:{sha256}"
            if path in used and is_digest(digest):
                found.setdefault((path, architecture), {}).setdefault(digest, []).append(host)
    return [
        Problem(
            f"hosts have different programs as {path}: "
            + ", ".join(f"{digest} on {', '.join(hosts)}" for digest, hosts in sorted(programs.items())),
            remedy="Where it is the wrong one, take the file away, and run again",
            reason=Reason.PROGRAMS_DIFFER,
            severity=Severity.WARNING,
        )
        for (path, _), programs in sorted(found.items())
        if len(programs) > 1
    ]


def _running_versions(run: Run) -> dict[str, str]:
    """Running components of Karmada → version by the path of the program; the oldest if hosts differ."""
    found: dict[str, str] = {}
    for component in wanted_components(run.spec, pushed=run.instance.pushed):
        if component.image.release != "karmada":
            continue
        for name in run.hosts:
            unit = _unit(run, name, component)
            version = _VERSION_IN_PATH.match(unit.program) if unit and not unit.reason else None
            if version:
                known = found.get(component.name, version[1])
                found[component.name] = min(version[1], known, key=version_numbers)
    return found


def etcd_on_hosts_health(run: Run) -> health.Health:
    """Health of etcd by what its members answered on their hosts; an external etcd is asked from here."""
    asked = on_hosts.asked(run)
    # Playbooks that work on members only look at no host below the pods: they ask from here, as far as that leads.
    if external_etcd.is_named(run) or (run.place.etcd_apart and not asked):
        return etcd_health(run)
    if not asked:
        return NO_ETCD
    seen = on_hosts.seen(run)
    works = number_of_works(run, [each.status for each in seen])
    return health.assess(seen, works=works, cluster=run.state.etcd.cluster)


def _folder(component: Component, leaf: LeafCertificate) -> str:
    return f"/{component.name}/{certificates.file_set_of(leaf, [component]).directory}/"


def _expiries(run: Run) -> dict[str, str]:
    """Certificate → end of its validity; for certificates that each host has, the earliest."""
    found = dict(certificates.expiries(run.material))
    for component in wanted_components(run.spec, pushed=run.instance.pushed):
        for leaf in wanted_leaf_certificates(run.spec, component):
            ends = [
                x509.expiry(base64.b64decode(content)).isoformat()
                for observed in run.observed.values()
                for path, content in observed.files.items()
                if path.endswith(f"{_folder(component, leaf)}tls.crt")
            ]
            if ends:
                found[leaf.name] = min(ends)
    return dict(sorted(found.items()))
