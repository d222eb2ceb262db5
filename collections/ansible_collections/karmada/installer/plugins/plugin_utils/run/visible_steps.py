# SPDX-License-Identifier: Apache-2.0
"""Steps of this collection that a user wants to see, and those that only hold a run together. No I/O.

Each action is in exactly one of the two sets; a test compares them with the actions that there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COLLECTION = "karmada.installer"
#: Actions that do something for the user. Where a stage or state of one does not, it is among PLUMBING.
STEPS = frozenset(
    {
        *("admin_kubeconfig", "backup", "break_glass", "certificates", "control_plane", "differences", "endpoint"),
        *("hand_over",),
        *("etcd_change", "etcd_maintenance", "etcd_members", "etcd_prefix", "etcd_rollout", "etcd_room_on_host"),
        *("host_components", "host_load_balancer", "host_programs", "member_join", "member_leave"),
        *(
            "member_scheduling",
            "preflight",
            "programs",
            "restore",
            "restore_on_host",
            "scheduler_estimators",
            "uninstall",
            "workloads",
        ),
    }
)
#: Actions, or stages of one, that read, note or pass on what others need. They are shown when they fail.
PLUMBING = frozenset(
    {
        *("etcd_member", "host_observe", "hosts_leaving", "hosts_outcome", "journal", "member_log", "reach_from_host"),
        *("reach_targets", "report", "require_document", "ssh_files", "instance"),
        *("member_leave confirm", "uninstall confirm", "host_components compared"),
        *("backup begun", "backup placed", "etcd_snapshot"),
        *(
            "restore delivered",
            "restore forgotten",
            "restore judged",
            "restore removed",
            "restore_on_host seen",
            "restore_on_host counted",
        ),
        *(f"etcd_maintenance {state}" for state in ("decided", "well", "next", "concluded")),
        "etcd_members next_restart",
    }
)
#: Actions of Ansible's own that roles and playbooks of this collection hold their steps together with.
_OF_ANSIBLE = frozenset(
    {
        *("add_host", "assert", "fail", "group_by", "import_role", "import_tasks", "include_role", "include_tasks"),
        *("include_vars", "meta", "set_fact", "set_stats", "validate_argument_spec"),
    }
)


#: Actions that have done their work where they have changed nothing. Others of ours have then found nothing to do.
READING = frozenset({"backup", "preflight"})


def is_worth_a_line(action: str, *, changed: bool) -> bool:
    """Return whether a step that succeeded has done something."""
    namespace, _, name = action.rpartition(".")
    return changed or namespace != COLLECTION or name in READING


def is_plumbing(action: str, arguments: Mapping[str, Any], path: str) -> bool:
    """Return whether a task only holds a run together.

    ``action`` is the full name of its action, ``path`` the file that it is in: of other people's tasks, all are shown.
    """
    namespace, _, name = action.rpartition(".")
    if namespace == COLLECTION:
        part = arguments.get("stage") or arguments.get("state") or ""
        return name in PLUMBING or f"{name} {part}" in PLUMBING
    ours = f"/ansible_collections/{COLLECTION.replace('.', '/')}/" in path
    return ours and name in _OF_ANSIBLE
