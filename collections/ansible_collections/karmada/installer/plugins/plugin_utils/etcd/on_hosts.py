# SPDX-License-Identifier: Apache-2.0
"""Members of etcd on plain hosts, each asked by a module on its host. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash, Member, Members

from ..components import hosts as component_hosts
from ..components.table import ETCD
from ..redaction import printable, redacted
from ..render import units
from ..run.run import Run
from .client import Cause, EndpointStatus, endpoint_status
from .health import Seen


def question(run: Run, host: str) -> dict[str, Any]:
    """Arguments of the module for the member on this host."""
    where = units.layout(run.instance, run.hosts[host], ETCD, "")
    member = next(each for each in component_hosts.etcd_members(run.instance) if each.name == host)
    return {"url": member.client_url, "folder": where.path("pki", "server"), "data": where.data}


def asked(run: Run) -> bool:
    """Return whether a step of this run has asked the members on their hosts."""
    return any(run.observed[each.name].etcd for each in component_hosts.etcd_members(run.instance))


def seen(run: Run) -> list[Seen]:
    """Members as they answered on their hosts; one whose host could not be looked at does not answer."""
    return [
        _seen(each.name, each.client_url, run.observed[each.name].etcd, run.observed[each.name].refusal)
        for each in component_hosts.etcd_members(run.instance)
    ]


def _seen(name: str, url: str, answer: Mapping[str, Any], refusal: str) -> Seen:
    disk = answer.get("data")
    if "status" not in answer:
        reason = answer.get("message") or refusal or "its host was not asked"
        silent = EndpointStatus(url, message=printable(redacted(reason)), cause=Cause.WRONG)
        return Seen(name, silent, disk=disk)
    known, found = answer.get("known"), answer.get("hash")
    return Seen(
        name,
        endpoint_status(url, answer["status"]),
        known=_members(known) if known else None,
        hash=Hash(found["revision"], found["value"]) if found else None,
        disk=disk,
    )


def _members(known: Mapping[str, Any]) -> Members:
    return Members(
        known["cluster_id"],
        tuple(
            Member(
                id=each["id"],
                name=printable(each["name"]),
                peer_urls=tuple(each["peer_urls"]),
                client_urls=tuple(each["client_urls"]),
                learner=each["learner"],
            )
            for each in known["members"]
        ),
    )
