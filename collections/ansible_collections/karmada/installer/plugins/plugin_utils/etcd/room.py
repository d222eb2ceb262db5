# SPDX-License-Identifier: Apache-2.0
"""Room in the databases of etcd's members: ``maintenance`` decides each step, this carries it out."""

from __future__ import annotations

import time

from ansible_collections.karmada.installer.plugins.module_utils import etcd_requests

from ..components.etcd_configuration import quota
from ..components.table import ETCD
from ..components.types import settings_of
from ..kube.objects import quantity
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run
from . import access, look, maintenance
from .client import EtcdClient, EtcdError
from .health import Seen
from .maintenance import COMPACT, DEFRAGMENT, DISARM, NOSPACE, Limits, Step

#: Least seconds between two looks at a member that is to become healthy.
PAUSE_SECONDS = 0.5
#: Defaults of the schema, for documents that were recorded before it had them.
_SIZE, _FREE_PERCENT = "100Mi", 50


def limits(run: Run) -> Limits:
    """Limits of the document."""
    settings = settings_of(ETCD, run.spec)
    size = quantity(settings.maintenance_size or _SIZE)
    return Limits(int(size or 0), settings.maintenance_free_percent or _FREE_PERCENT, quota(run.spec))


def planned(seen: list[Seen], allowed: Limits, name: str) -> list[str]:
    """Changes that a run would make, as far as is known before it; empty if nothing is due."""
    members = maintenance.order(seen, allowed)
    if not members:
        return []
    told = [f"compacted Etcd {name}", *(f"defragmented EtcdMember {each}" for each in members)]
    return told + [f"disarmed Etcd {name}"] * (maintenance.disarm(seen) is not None)


def make_room(run: Run, timeout: float) -> list[str]:
    """Do what is due for members that are reached from here; returns the changes, in check mode those that would be.

    ``timeout`` is in seconds, for a member to be healthy again. Raises ProblemsError if a member is not well, or does
    not become so, or if etcd is full of what is in use.
    """
    client, allowed = access.connect(run), limits(run)
    seen = _look(run, client)
    changes = planned(seen, allowed, run.name)
    if not changes:
        return []
    _require_health(seen, run.name)
    if run.check:
        return changes
    run.store.take_lock()
    # Another run may have been at work until now.
    seen = _look(run, client)
    changes, compacted, disarmed = [], False, False
    done: list[str] = []
    while step := maintenance.next_step(seen, allowed, compacted=compacted, defragmented=done, disarmed=disarmed):
        _require_health(seen, run.name, changes)
        run.require_lock()
        try:
            told = _carry_out(run, client, step, seen)
        except EtcdError as error:
            raise ProblemsError(_failure(step, run.name, str(error)), _so_far(changes)) from None
        changes += [told] if told else []
        compacted, disarmed = compacted or step.kind == COMPACT, disarmed or step.kind == DISARM
        if step.kind == DEFRAGMENT:
            done.append(step.member)
        seen = _healthy_again(run, client, timeout)
    if full := maintenance.no_room(seen, allowed, run.name):
        raise ProblemsError(full, _so_far(changes))
    return changes


def _look(run: Run, client: EtcdClient) -> list[Seen]:
    return look.look(client, access.names(run), dict, hashed_bytes=0)


def _carry_out(run: Run, client: EtcdClient, step: Step, seen: list[Seen]) -> str:
    """Do one step; returns the change, empty if there was nothing to do. Raises EtcdError."""
    where = next(each.status.url for each in seen if each.name == step.member)
    member = client.at(where)
    if step.kind == COMPACT:
        run.say(f"compacting etcd to revision {step.revision}")
        try:
            member.compact(step.revision)
        except EtcdError as error:
            # A full etcd takes no writes, so its revision is still that of the run before.
            if etcd_requests.is_compacted_already(error.code, str(error)):
                return ""
            raise
        return f"compacted Etcd {run.name}"
    if step.kind == DEFRAGMENT:
        run.say(f"defragmenting etcd member {step.member}")
        member.defragment()
        return f"defragmented EtcdMember {step.member}"
    run.say("clearing the alarm NOSPACE")
    for identity in step.identities:
        member.disarm(identity, NOSPACE)
    return f"disarmed Etcd {run.name}"


def _healthy_again(run: Run, client: EtcdClient, timeout: float) -> list[Seen]:
    """Members once all are well, or as they are when the time is over: the next step refuses then."""
    end = time.monotonic() + timeout
    while True:
        seen = _look(run, client)
        if maintenance.refusal(seen, run.name) is None or time.monotonic() >= end:
            return seen
        time.sleep(PAUSE_SECONDS)


def _require_health(seen: list[Seen], name: str, changes: list[str] | None = None) -> None:
    if refused := maintenance.refusal(seen, name):
        raise ProblemsError(refused, _so_far(changes or []))


def _so_far(changes: list[str]) -> str:
    return f"done until then: {', '.join(changes)}" if changes else "nothing was changed"


def _failure(step: Step, name: str, message: str) -> Problem:
    return Problem(
        f"member {step.member} does not {step.kind}: {message}",
        f"etcd of {name}",
        "see the log of this member, and run again: it goes on with what is still due",
        reason=Reason.ETCD_UNHEALTHY,
    )
