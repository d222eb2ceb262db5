# SPDX-License-Identifier: Apache-2.0
"""Members of etcd on plain hosts as they are seen: by the answers that earlier steps of a run have noted. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..components import hosts as component_hosts
from ..components.etcd_state import EtcdMemberState
from ..components.hosts import ETCD_ROLE, Host
from ..components.table import ETCD
from ..components.types import etcd_on_hosts
from ..render import units
from ..run.run import Run
from . import on_hosts
from . import plan_types as steps
from .client import EndpointStatus
from .health import Seen as Answer
from .listed import SILENT, identity_of, member_of
from .lists import agreed
from .plan import ids_of


def are_ours(run: Run) -> bool:
    """Return whether members of etcd are units of plain hosts."""
    return etcd_on_hosts(run.spec)


def wanted(run: Run) -> list[str]:
    """Names of the members that the document asks for: those of its hosts."""
    return [host.name for host in component_hosts.hosts_of(run.spec, ETCD_ROLE)]


def known(run: Run) -> list[str]:
    """Names of the members on record."""
    return [each.name for each in run.state.etcd.members]


def is_asked(run: Run, name: str) -> bool:
    """Return whether a host has a member, or is to have one."""
    return name in hosts_of_members(run) or name in wanted(run)


def is_due(run: Run, replace_names: Collection[str] = ()) -> bool:
    """Return whether members have to be asked: they are to change, or the run has something else to carry out.

    A run that has nothing to do asks none of them before its report.
    """
    if not are_ours(run) or run.stored_state is None:
        return False
    return members_change(run, replace_names) or (run.stored_state.etcd.bootstrapped and run.has_more_to_do)


def members_change(run: Run, replace_names: Collection[str] = ()) -> bool:
    """Return whether members are to come, to go or to be replaced, or are on record without their IDs."""
    if not are_ours(run) or run.stored_state is None:
        return False
    etcd = run.stored_state.etcd
    under_way = any(not each.is_settled for each in etcd.members)
    others = bool(replace_names) or set(known(run)) != set(wanted(run)) or bool(ailing(run))
    return under_way or (etcd.bootstrapped and others)


def ailing(run: Run) -> list[str]:
    """Names of members whose units were seen not to work."""
    unit = units.unit_name(run.instance, ETCD)
    return [
        name for name in known(run) if (told := run.handover.observed(name).units.get(unit)) is not None and told.reason
    ]


@dataclass(frozen=True)
class Look:
    """Members as they answered on their hosts, and what the planner makes of them."""

    seen: steps.Seen
    #: name → answer of the member on the host of this name
    answers: Mapping[str, Answer]

    def works(self, name: str) -> bool:
        """Return whether the member of this name answered, and takes part in majorities by its own words."""
        return name in self.answers and self.answers[name].status.works


def look(run: Run) -> Look:
    """Members by the answers that earlier steps of this run have noted."""
    etcd = run.state.etcd
    places = hosts_of_members(run)
    answers = {name: on_hosts.answer(run, host) for name, host in places.items()}
    lists = {name: each.known for name, each in answers.items() if each.known and _is_able(each.status)}
    agreement = agreed(list(lists.values()))
    listed = agreement.members if agreement else None
    ids = {each.name: identity_of(each, listed) for each in etcd.members}
    status = {
        identity: answers[name].status
        for name, identity in ids.items()
        # A host speaks for its own member and for no other.
        if identity and name in answers and answers[name].status.member_id == identity
    }
    members = None
    if listed is not None:
        members = tuple(member_of(each, status.get(each.id), _why_silent(each.name, answers)) for each in listed)
    healthy = {each.id for each in members or () if each.works}
    seen = steps.Seen(
        members=members,
        known=tuple(_known(run, each, ids[each.name], answers, healthy) for each in etcd.members),
        peer_urls={name: component_hosts.etcd_member(run.spec, host).peer_url for name, host in places.items()},
        clients=frozenset(each.name for each in etcd.members if each.has_vote and not each.unused),
        answering=frozenset(name for name in ids if name in answers and answers[name].status.cause is None),
        lists={name: frozenset(member.id for member in each.members) for name, each in lists.items()},
        cluster=agreement.cluster_id if agreement else "",
        known_cluster=etcd.cluster,
    )
    return Look(seen, answers)


def hosts_of_members(run: Run) -> dict[str, Host]:
    """Hosts of members on record and of those to come, as far as the document or the state knows them."""
    found = {}
    for name in dict.fromkeys([*known(run), *wanted(run)]):
        if name in run.hosts or name in run.leaving:
            found[name] = on_hosts.host_of_member(run, name)
    return found


def _is_able(status: EndpointStatus) -> bool:
    """Return whether a member takes part in a majority, if a full one; others have no list to go by."""
    return status.healthy or bool(status.alarms)


def _why_silent(name: str, answers: Mapping[str, Answer]) -> str:
    return (answers[name].status.message if name in answers else "") or SILENT


def _known(
    run: Run, record: EtcdMemberState, identity: str, answers: Mapping[str, Answer], healthy: Collection[str]
) -> steps.Known:
    """Member on record. Its data is lost if its folder is gone from its host, or if its host was given up by name."""
    lost = record.lost
    if not lost and record.has_vote and identity not in healthy:
        if record.name in run.leaving and run.handover.observed(record.name).refusal:
            lost = f"its host {record.name} was given up"
        elif record.name in answers and answers[record.name].disk is False:
            lost = "its data folder is gone from its host"
    return steps.Known(record.name, identity, leaving=record.leaving, lost=lost)


def moved(seen: steps.Seen) -> list[str]:
    """Names of members that the others know at another address than the document gives their hosts."""
    urls = {each.id: each.peer_url for each in seen.members or ()}
    return [
        each.name
        for each in seen.known
        if each.id in urls and seen.peer_urls.get(each.name, urls[each.id]) != urls[each.id]
    ]


def ids_to_replace(seen: steps.Seen, names: Collection[str]) -> frozenset[str]:
    """IDs of the members of these names, and of those that have moved, as far as they may be replaced."""
    return ids_of(seen, {*names, *moved(seen)})
