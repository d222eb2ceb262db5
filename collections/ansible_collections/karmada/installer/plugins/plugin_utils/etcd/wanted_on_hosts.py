# SPDX-License-Identifier: Apache-2.0
"""Members of etcd on plain hosts that the document asks for: what would change, and why it cannot be had."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..components import hosts as component_hosts
from ..components.hosts import ETCD_ROLE
from ..components.spec import HostEntry
from ..kube.apply import Change
from ..problems import Problem, Reason
from ..run.run import Run
from . import members_wanted, on_hosts
from . import plan_types as steps
from .members_wanted import unknown_names
from .plan import next_step
from .seen_on_hosts import are_ours, hosts_of_members, ids_to_replace, known, look, members_change, moved, wanted

#: Field of the document that says which hosts are members.
HOSTS_FIELD = "spec.hosts"


def problems(run: Run, *, confirmed: int, replace_names: Collection[str]) -> list[Problem]:
    """Reasons why the members cannot be brought to those of the document, as far as they can be known before.

    ``confirmed`` is the smaller number that the user has asked for by name; ``replace_names`` are the members to
    replace without a proof of loss. What members answer counts only where a step has asked them.
    """
    stored = run.stored_state
    if not are_ours(run) or stored is None:
        return []
    found = unknown_names(known(run), replace_names)
    if not stored.etcd.bootstrapped or not stored.etcd.members:
        return found
    names, wishes = known(run), wanted(run)
    found += _renamed(run)
    if len(wishes) < len(names) and confirmed != len(wishes):
        found.append(
            Problem(
                f"etcd has {len(names)} members and would have {len(wishes)}",
                HOSTS_FIELD,
                f"if that is what you want, say the number: -e etcd_confirm_members={len(wishes)}",
                reason=Reason.CONFIRMATION_REQUIRED,
            )
        )
    if found or not on_hosts.any_answer(run, hosts_of_members(run)):
        return found
    seen = look(run).seen
    found += _lost_among_those_that_stay(seen, names, wishes)
    step = next_step(seen, wishes, ids_to_replace(seen, replace_names))
    if not isinstance(step, steps.Refusal):
        return found
    # Members that somebody else has changed stop this run as well, whatever it is about; all else may pass.
    stops = members_change(run, replace_names) or (step.reason is Reason.ETCD_MEMBERS_DIFFER and not step.twice)
    return [*found, *([step.problem] if stops else [])]


def versions(run: Run) -> frozenset[str]:
    """Versions that members have answered with, where a step has asked them."""
    if not are_ours(run):
        return frozenset()
    found = {on_hosts.answer(run, host).status.version for host in hosts_of_members(run).values()}
    return frozenset(found - {""})


def _renamed(run: Run) -> list[Problem]:
    """Members whose hosts have another name in the document: etcd knows a member by its name."""
    recorded = {name: HostEntry(entry).address for name, entry in run.state.hosts.items()}
    now = {host.address: host.name for host in component_hosts.hosts_of(run.spec, ETCD_ROLE)}
    return [
        Problem(
            f"the member of etcd on {recorded[name]} is called {name}, and the document calls its host "
            f"{now[recorded[name]]}",
            HOSTS_FIELD,
            f"call it {name} again",
            reason=Reason.IMMUTABLE_SETTING,
        )
        for name in known(run)
        if name not in run.hosts and recorded.get(name) in now and now[recorded[name]] not in known(run)
    ]


def _lost_among_those_that_stay(seen: steps.Seen, names: Sequence[str], wishes: Sequence[str]) -> list[Problem]:
    """Members without data where there are to be fewer: clients would be left with them alone."""
    if len(wishes) >= len(names):
        return []
    return [
        Problem(
            f"the member {each.name} of etcd, which is to stay, has lost its data ({each.lost})",
            f"etcd member {each.name}",
            "run with all hosts of before, which replaces it, and take hosts away in the next run",
            reason=Reason.ETCD_MAJORITY_AT_RISK,
        )
        for each in seen.known
        if each.lost and each.name in wishes
    ]


def predicted(run: Run, replace_names: Collection[str]) -> list[Change]:
    """Changes of members that a run would make."""
    if not are_ours(run) or not run.state.etcd.bootstrapped or not run.state.etcd.members:
        return []
    seen = look(run).seen
    return members_wanted.predicted(seen, run.state.etcd.members, wanted(run), {*replace_names, *moved(seen)})
