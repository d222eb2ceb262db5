# SPDX-License-Identifier: Apache-2.0
"""Members of etcd as others list them, with what they answer themselves, in pods and on plain hosts alike. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.karmada.installer.plugins.module_utils import etcd_requests

from ..components.etcd_state import EtcdMemberState
from . import plan_types as steps
from .client import EndpointStatus

#: Said of a member that has not answered, where nobody knows why.
SILENT = "it does not answer"


def member_of(listed: etcd_requests.Member, status: EndpointStatus | None, silent: str = SILENT) -> steps.Member:
    """Member for the planner; ``silent`` is said of one without a status, which has not answered."""
    return steps.Member(
        id=listed.id,
        name=listed.name,
        peer_url=next(iter(listed.peer_urls), ""),
        learner=listed.learner,
        healthy=bool(status and status.healthy),
        full=bool(status and status.only_full),
        leader=bool(status and status.leader),
        index=status.index if status else 0,
        message=status.message if status else silent,
    )


def identity_of(record: EtcdMemberState, listed: Iterable[etcd_requests.Member] | None) -> str:
    """ID of a member on record; empty as long as it has none, or nobody gives a list.

    One of the first members is known by its name until its ID is on record. One that is to come has none before.
    """
    if record.id or record.coming:
        return record.id
    return next((each.id for each in listed or () if each.name == record.name), "")
