# SPDX-License-Identifier: Apache-2.0
"""Members of etcd on plain hosts, each asked by a module on its host. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Counted, Hash, Member, Members

from ..components import etcd_configuration
from ..components import hosts as component_hosts
from ..components.etcd_state import EtcdMemberState
from ..components.hosts import Host
from ..components.table import ETCD
from ..redaction import printable, redacted
from ..render import units
from ..run.run import Run
from .client import Cause, EndpointStatus, endpoint_status
from .health import Seen


def host_of_member(run: Run, name: str) -> Host:
    """Host of this name, which may have left the document. Raises KeyError if nothing is known of it."""
    return run.hosts[name] if name in run.hosts else component_hosts.host_of(run.leaving[name])


def question(run: Run, name: str) -> dict[str, Any]:
    """Arguments of the module for the member on the host of this name, with the folder that has its data."""
    host = host_of_member(run, name)
    where, etcd = units.layout(run.instance, host, ETCD, ""), run.state.etcd
    record = etcd.member(name) or EtcdMemberState(name)
    return {
        "url": component_hosts.etcd_member(run.spec, host).client_url,
        "folder": where.path("pki", "server"),
        "data": etcd_configuration.data_folder(where, etcd.generation, record),
    }


def asked(run: Run) -> bool:
    """Return whether a step of this run has asked the members on their hosts."""
    return any_answer(run, [each.name for each in component_hosts.etcd_members(run.instance)])


def any_answer(run: Run, names: Iterable[str]) -> bool:
    """Return whether a step of this run has asked the member of any of these hosts."""
    return any(run.handover.observed(name).etcd for name in names)


def seen(run: Run) -> list[Seen]:
    """Members of the document as they answered on their hosts."""
    return [answer(run, host) for host in component_hosts.hosts_of(run.spec, component_hosts.ETCD_ROLE)]


def answer(run: Run, host: Host) -> Seen:
    """Member of a host as it answered there; one whose host could not be looked at does not answer."""
    observed = run.handover.observed(host.name)
    return _seen(host.name, component_hosts.etcd_member(run.spec, host).client_url, observed.etcd, observed.refusal)


def _seen(name: str, url: str, answer: Mapping[str, Any], refusal: str) -> Seen:
    disk = answer.get("data")
    if "status" not in answer:
        reason = answer.get("message") or refusal or "its host was not asked"
        silent = EndpointStatus(url, message=printable(redacted(reason)), cause=Cause.WRONG)
        return Seen(name, silent, disk=disk)
    known, found, counted = answer.get("known"), answer.get("hash"), answer.get("counted")
    return Seen(
        name,
        endpoint_status(url, answer["status"]),
        known=_members(known) if known else None,
        hash=Hash(found["revision"], found["value"], found["compacted"]) if found else None,
        disk=disk,
        counted=Counted(counted["revision"], counted["counts"]) if counted else None,
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
