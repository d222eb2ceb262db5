# SPDX-License-Identifier: Apache-2.0
"""Everything that can be checked of plain hosts before the first change."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace

from ..artifacts.programs import ARCHITECTURES
from ..components import hosts as component_hosts
from ..components.hosts import CONTROL_PLANE_ROLE, Host
from ..components.types import members_with_agent_hosts
from ..problems import Problem, ProblemsError, Reason, Severity
from ..run import host_access, host_programs
from ..run.run import Run
from ..run.state_on_hosts import Kept, Stored
from . import host_checks


def unreachable_hosts(run: Run, abandoned: Sequence[str] = ()) -> list[Problem]:
    """Hosts that an uninstall cannot look at, or that another run works on, unless given up by name."""
    refused = _refused(
        run, [*component_hosts.all_hosts(run.spec), *map(component_hosts.host_of, run.leaving.values())], abandoned
    )
    return [_or_given_up(host, problem, "uninstall_abandon_hosts", abandoned) for host, problem in refused]


def unnamed_members(run: Run, abandoned: Sequence[str] = ()) -> list[Problem]:
    """Hosts with etcd, or with what is left of it, that the document does not name; an uninstall below pods works only
    on those it names.
    """
    nodes = list(dict.fromkeys([*(run.stored_state.etcd.nodes if run.stored_state else ()), *run.leaving]))
    missing = [name for name in nodes if name not in run.hosts and name not in abandoned]
    if not missing:
        return []
    names = json.dumps({"uninstall_abandon_hosts": [*abandoned, *missing]})
    return [
        Problem(
            what=f"its etcd is on hosts ({', '.join(nodes)}), and the document does not name {', '.join(missing)}",
            where="spec.hosts",
            remedy="write them as they were at the install, so that etcd is taken away there, too; or give up what is "
            f"on them: -e '{names}'",
            reason=Reason.HOST_NOT_LISTED,
        )
    ]


def problems(run: Run, abandoned: Sequence[str] = ()) -> list[Problem]:
    """Problems of hosts that stop the run. Changes nothing. ``abandoned``: hosts that have left and are given up."""
    found = [*host_checks.problems(run.instance, run.observed, run.stored_state), *_of_leaving(run, abandoned)]
    hosts = [name for name, host in run.hosts.items() if not host.is_of_members]
    return found + _programs(run, hosts)


def of_members(run: Run) -> dict[str, list[Problem]]:
    """Problems of the hosts that run agents, by member.

    Later steps skip a host that has a problem.
    """
    if not any(host.is_of_members for host in run.hosts.values()):
        return {}
    found = host_checks.of_members(run.instance, run.observed)
    of_hosts = {name: [*each, *_programs(run, [name])] for name, each in found.items()}
    for name, each in of_hosts.items():
        if each:
            run.place.leave_alone(name, "; ".join(problem.what for problem in each))
    return {
        member: [problem for host in hosts for problem in of_hosts.get(host, ())]
        for member, hosts in members_with_agent_hosts(run.spec).items()
    }


def _programs(run: Run, hosts: Sequence[str]) -> list[Problem]:
    """Programs that cannot be had; known only if all hosts were looked at and have a supported architecture."""
    seen = [run.observed[host].facts for host in hosts]
    known = all(facts and facts.architecture in ARCHITECTURES for facts in seen)
    return host_programs.problems(run, hosts) if known else []


def _of_leaving(run: Run, abandoned: Sequence[str]) -> Iterator[Problem]:
    """Problems that keep hosts from being cleaned after they have left the document."""
    hosts = [component_hosts.host_of(entry) for entry in run.leaving.values()]
    for host, problem in _refused(run, hosts, abandoned):
        told = replace(problem, what=f"it has left the document and is to be cleaned, but {problem.what}")
        yield _or_given_up(host, told, "preflight_abandon_hosts", abandoned)
    for host in hosts:
        facts = run.handover.observed(host.name).facts
        others = ((name, seen.facts) for name, seen in run.observed.items())
        for other in (name for name, its in others if facts and its and facts.is_same_machine(its)):
            yield Problem(
                f"it has left the document, and {other} is the same machine",
                _where(host),
                f"call {other} by the name {host.name} again, or uninstall first: what is there belongs to {other} now",
                reason=Reason.DUPLICATE_HOST,
            )


def _refused(run: Run, hosts: Iterable[Host], abandoned: Sequence[str]) -> Iterator[tuple[Host, Problem]]:
    """Hosts that could not be looked at, with the reason, except those given up by name."""
    user = run.spec.ssh_user
    for host in hosts:
        refusal = run.handover.observed(host.name).refusal
        if refusal and host.name not in abandoned:
            yield host, host_access.problem(refusal, host=host.name, address=host.address, user=user)


def _or_given_up(host: Host, problem: Problem, variable: str, abandoned: Sequence[str]) -> Problem:
    names = json.dumps({variable: [*abandoned, host.name]})
    return replace(problem, remedy=f"{problem.remedy}; or give it up, with what is on it: -e '{names}'")


def _where(host: Host) -> str:
    return f"host {host.name} ({host.address})"


def hints(run: Run) -> list[Problem]:
    """Hints, which stop nothing."""
    found = [*host_checks.hints(run.instance, run.observed), *left(run), *_moved(run), *_not_cleaned(run)]
    return [*found, *_with_keys(run), *unlike_others(run)]


def unlike_others(run: Run) -> list[Problem]:
    """Hosts whose state is accepted and not that of the others, or is followed though as many hosts have none."""
    chosen = _agreed(run)
    said = {name: each.unlike(chosen) for name, each in run.store.kept_by_hosts.items()} if chosen else {}
    return [
        Problem.hint(f"{_where(run.hosts[name])}: {text}", Reason.INVALID_STATE)
        for name, text in [*said.items(), *kept_by_few(run).items()]
        if text
    ]


def kept_by_few(run: Run) -> dict[str, str]:
    """Host → sentence, of the hosts that have a state, where it is followed though as many hosts have none.

    Hosts may be new or emptied, or somebody has put a state on a host before the first install: nobody can tell from
    here.
    """
    chosen = _agreed(run)
    if not chosen or not chosen.serial:
        return {}
    kept = run.store.kept_by_hosts
    empty = [name for name, host in run.hosts.items() if not host.is_of_members and run.observed[name].facts]
    empty = [name for name in empty if name not in kept]
    if len(kept) > len(empty):
        return {}
    others = f"{', '.join(empty)} {'has' if len(empty) == 1 else 'have'} none"
    said = (
        f"it has a state of the installer, and {others}: right if these are new or were emptied; if nothing was "
        "installed here before, somebody has put it there"
    )
    return dict.fromkeys(kept, said)


def _agreed(run: Run) -> Stored | None:
    """State that the hosts agree on; None if they do not, which preflight tells as a problem."""
    try:
        return run.store.agreed
    except ProblemsError:
        return None


def done_to_states(run: Run) -> list[Problem]:
    """Hints at what this run has done to the states of hosts, which nobody would see in them any more."""
    return [
        Problem.hint(f"{_where(host)}: {text}", Reason.INVALID_STATE)
        for name, host in run.hosts.items()
        for text in run.observed[name].told
    ]


def _with_keys(run: Run) -> list[Problem]:
    """Hosts without an API server that hold a copy of a state. Earlier versions gave them one, with all keys."""
    kept = {run.hosts[name]: each for name, each in run.store.kept_by_hosts.items()}
    with_api_server = [each for host, each in kept.items() if CONTROL_PLANE_ROLE in host.roles]
    known = {digest for each in with_api_server for digest in (each.digest, *each.lineage)}
    return [
        Problem.hint(f"{_where(host)} {_holds(each, known)}", Reason.LEFT_BEHIND)
        for host, each in kept.items()
        if each.copies and CONTROL_PLANE_ROLE not in host.roles
    ]


def _holds(kept: Kept, known: Container[str]) -> str:
    if any(copy.digest in known for copy in kept.copies):
        return "has the keys of all authorities from an earlier time, and no API server; an install takes them away"
    return (
        "holds a copy of a state of the installer, has no API server, and no host with one knows this state; an "
        "install takes it away"
    )


def _not_cleaned(run: Run) -> list[Problem]:
    """Hosts that cannot be looked at and that no member names, so that no member reports them."""
    needed = {name for hosts in members_with_agent_hosts(run.spec).values() for name in hosts}
    return [
        replace(
            problem,
            what=f"{problem.what}; no member names it, what its agents had there stays until a run cleans it",
            remedy="",
            severity=Severity.HINT,
        )
        for host, problem in _refused(run, [host for host in run.hosts.values() if host.is_of_members], [])
        if host.name not in needed
    ]


def left(run: Run) -> list[Problem]:
    """Hosts that have left the document."""
    return [
        Problem.hint(
            f"{_where(component_hosts.host_of(entry))} has left the document; an install takes away what is there",
            Reason.HOST_NOT_LISTED,
        )
        for entry in run.leaving.values()
    ]


def _moved(run: Run) -> list[Problem]:
    """Hosts whose address has changed. Whether it is still the same machine cannot be seen from here."""
    known = run.stored_state.hosts if run.stored_state else {}
    return [
        Problem.hint(
            f"{_where(host)} had the address {known[name]['address']} before; should that be another machine, what is "
            "on it stays there: take such a host out of the document first, and add the new one by another name",
            Reason.LEFT_BEHIND,
        )
        for name, host in run.hosts.items()
        if name in known and known[name]["address"] != host.address
    ]
