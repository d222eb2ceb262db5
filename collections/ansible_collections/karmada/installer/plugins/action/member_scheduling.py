# SPDX-License-Identifier: Apache-2.0
"""Cordon, uncordon and drain of members. Documentation: the module of the same name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.progress import Progress
from ansible_collections.karmada.installer.plugins.plugin_utils.members import scheduling as member_scheduling
from ansible_collections.karmada.installer.plugins.plugin_utils.members import taints as member_taints
from ansible_collections.karmada.installer.plugins.plugin_utils.members.registration import CLUSTER_API
from ansible_collections.karmada.installer.plugins.plugin_utils.members.scheduling import Placed
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run

#: Least seconds between two checks that a member is empty.
PAUSE_SECONDS = 1.0
#: Remaining placements that a message shows.
SHOWN = 10


class ActionModule(KarmadaAction):
    """Set or remove the taints of a state; wait until a drained member is empty."""

    # It writes no state, and its changes do not interfere with a run that does.
    KEEPS_LOCK: ClassVar[bool] = False

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "required": True, "choices": list(member_scheduling.TAINTS)},
        "members": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": 900},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check everything that may be refused, before the first change."""
        given = (name.strip() for name in arguments["members"])
        names = list(dict.fromkeys(name for name in given if name)) or list(run.selected)
        if not names:
            raise ProblemsError(member_scheduling.refusals(names, ()))
        with _control_plane(run) as control_plane:
            registered = {each["metadata"]["name"] for each in control_plane.list(CLUSTER_API, "Cluster")}
            problems = member_scheduling.refusals(names, registered)
            if arguments["state"] == "drained" and (refusal := member_scheduling.drain_refusal(run.spec)):
                problems.append(refusal)
            if problems:
                raise ProblemsError(problems)
            return _carried_out(run, control_plane, names, arguments)


def _carried_out(run: Run, control_plane: Cluster, names: list[str], arguments: dict[str, Any]) -> dict[str, Any]:
    add, remove = member_scheduling.TAINTS[arguments["state"]]
    changes: list[Change] = []
    for name in names:
        changes += member_taints.change(
            control_plane, name, lambda live: member_taints.patch_of(live, add, remove), check=run.check
        )
    if arguments["state"] != "drained":
        return changed_result(changes, left=[])
    left = _drained(run, control_plane, names, arguments["timeout"])
    told = [f"{name}: {each}" for name, placed in left.items() for each in placed]
    found = changed_result(changes, left=told)
    if any(not each.stays for placed in left.values() for each in placed) and not run.check:
        found.update(failed=True, msg=_not_empty(told, arguments["timeout"]))
    return found


@contextmanager
def _control_plane(run: Run) -> Iterator[Cluster]:
    """Client through the host cluster, or with the kubeconfig that an installation on plain hosts has left."""
    if run.place.in_pods:
        if run.stored_state is None:
            where, remedy = f"namespace {run.namespace} of the host cluster", "run karmada.installer.install first"
            raise ProblemsError(
                Problem("no control plane is installed there", where, remedy, reason=Reason.NOT_INSTALLED)
            )
        yield run.control_plane
        return
    path = Path(str(run.connection.kubeconfig_output))
    if not path.is_file():
        remedy = "name it in the inventory source (kubeconfig_output: …), or run karmada.installer.install"
        raise ProblemsError(
            Problem(
                "it is not there",
                f"{path}: kubeconfig of the control plane",
                remedy,
                reason=Reason.KUBECONFIG_NOT_FOUND,
            )
        )
    control_plane = Cluster.from_kubeconfig(str(path), name="control plane")
    try:
        yield control_plane
    finally:
        control_plane.close()


def _drained(run: Run, control_plane: Cluster, names: list[str], timeout: float) -> dict[str, list[Placed]]:
    """Remaining placements of each member, once nothing will move any more or the timeout is over."""
    start = time.monotonic()
    told = Progress(run.say, start, timeout)
    while True:
        began = time.monotonic()
        bindings = [
            each
            for kind in member_scheduling.BINDING_KINDS
            for each in control_plane.list(member_scheduling.BINDING_API, kind)
        ]
        left = {name: member_scheduling.placed_on(name, bindings) for name in names}
        going = [f"{name}: {each}" for name, placed in left.items() for each in placed if not each.stays]
        if run.check or not going or time.monotonic() - start > timeout:
            return {name: placed for name, placed in left.items() if placed}
        told.tell(f"{len(going)} resources have not gone, such as {going[0]}", time.monotonic())
        # Lists of thousands of bindings load the API server.
        time.sleep(max(PAUSE_SECONDS, 3 * (time.monotonic() - began)))


def _not_empty(told: list[str], timeout: int) -> str:
    more = [f"  and {len(told) - SHOWN} more"] if len(told) > SHOWN else []
    lines = [f"after {timeout} s the members are not empty:", *(f"  - {each}" for each in told[:SHOWN]), *more]
    return "\n".join([*lines, "The taints stay: run again to go on waiting, or uncordon to take them away."])
