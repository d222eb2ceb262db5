# SPDX-License-Identifier: Apache-2.0
"""Agents of members after their API servers refused them: in pods of members, they begin anew."""

from __future__ import annotations

from typing import Any

from ..components.table import KARMADA_AGENT
from ..components.types import MEMBER_NAMESPACE
from ..kube.apply import Change
from ..kube.errors import ApiError
from ..kube.objects import Ref
from ..labels import MEMBER_LABEL, NAME_LABEL, OWNER_LABEL
from ..members import join
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run


def wake(run: Run, changes: list[Change]) -> None:
    """Have the agents of ours begin anew: they were locked out, and wait longer after each attempt."""
    for entry in run.spec.members:
        if entry.name not in run.state.members or not entry.pulls or entry.agent_hosts:
            continue
        try:
            with join.connected(run, entry) as member:
                _delete(run, member, entry.name, changes)
        except (ApiError, ProblemsError) as error:
            what = f"its agent could not be restarted, and may take minutes to log in again: {error}"
            run.tell(Problem.warning(what, Reason.MEMBER_UNREACHABLE, f"member {entry.name}"))


def _delete(run: Run, member: Any, name: str, changes: list[Change]) -> None:
    # Another control plane may have an agent there, too.
    labels = {NAME_LABEL: KARMADA_AGENT.name, OWNER_LABEL: run.state.owner, MEMBER_LABEL: name}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    for pod in member.list("v1", "Pod", MEMBER_NAMESPACE, labels=selector):
        name = pod["metadata"]["name"]
        run.require_lock()
        if member.delete("v1", "Pod", name, MEMBER_NAMESPACE, uid=pod["metadata"]["uid"]):
            changes.append(Change(Ref("v1", "Pod", name, MEMBER_NAMESPACE), "deleted", None))
