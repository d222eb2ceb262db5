# SPDX-License-Identifier: Apache-2.0
"""Room in the databases of etcd. Documentation: the module of the same name."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD, pod_components
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import (
    external,
    maintenance,
    on_hosts,
    patience,
    room,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Compact, defragment and disarm where that is due; for members on hosts, decide it only."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "choices": ["done", "decided", "well", "next", "concluded"], "default": "done"},
        "left": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": 300},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Do what is due; refused before the first change if etcd is not ours, or not well."""
        _refuse(run)
        in_pods = ETCD in pod_components(run.spec)
        if arguments["state"] == "done":
            changes = room.make_room(run, arguments["timeout"]) if in_pods else []
            return {"changed": bool(changes), "changes": changes}
        if arguments["state"] == "well":
            return {"changed": False, "again": _may_become_well(run, arguments["timeout"])}
        if arguments["state"] == "next":
            member = maintenance.first(on_hosts.seen(run), arguments["left"])
            return {"changed": False, "member": member, "left": [each for each in arguments["left"] if each != member]}
        return {"changed": False, **(_concluded(run) if arguments["state"] == "concluded" else _decided(run))}


def _decided(run: Run) -> dict[str, Any]:
    """Steps that are due on hosts: the members to defragment in their order, and the host that compacts."""
    seen, limits = on_hosts.seen(run), room.limits(run)
    step = maintenance.next_step(seen, limits)
    if step is None:
        return {"due": False, "order": [], "by": "", "revision": 0}
    if refused := maintenance.refusal(seen, run.name):
        raise ProblemsError(refused)
    return {"due": True, "order": maintenance.order(seen, limits), "by": step.member, "revision": step.revision}


def _may_become_well(run: Run, timeout: float) -> bool:
    """Return whether members on hosts that are not well are to be asked again, after a pause.

    One that was defragmented has its log to catch up with, and may have led. What is not well when the time is over the
    next step refuses.
    """
    now = time.monotonic()
    since = run.handover.etcd_step.get("unwell_since", now)
    well = maintenance.refusal(on_hosts.seen(run), run.name) is None
    if well or run.check or now - since >= timeout:
        run.handover.etcd_step = {}
        return False
    run.handover.etcd_step = {"unwell_since": since}
    time.sleep(patience.pause_on_hosts(now - since, timeout))
    return True


def _concluded(run: Run) -> dict[str, Any]:
    """Members whose alarm is to be cleared, now that all have given back their free space."""
    seen, limits = on_hosts.seen(run), room.limits(run)
    names = [each.name for each in seen]
    # In check mode nobody has given back anything yet.
    step = (
        maintenance.disarm(seen)
        if run.check
        else maintenance.next_step(seen, limits, compacted=True, defragmented=names)
    )
    if step is None and (full := maintenance.no_room(seen, limits, run.name)):
        raise ProblemsError(full, "its members were compacted and defragmented")
    return {"by": step.member if step else "", "identities": list(step.identities) if step else []}


def _refuse(run: Run) -> None:
    if external.is_named(run):
        raise ProblemsError(
            Problem(
                "etcd is not of this control plane, and others may rely on its history",
                "spec.components.etcd.external",
                "whoever runs that etcd defragments it",
                reason=Reason.FIELD_WITHOUT_EFFECT,
            )
        )
    if run.stored_state is None:
        raise ProblemsError(
            Problem(
                "there is no etcd yet",
                run.place.where,
                "run karmada.installer.install first",
                reason=Reason.NOT_INSTALLED,
            )
        )
