# SPDX-License-Identifier: Apache-2.0
"""Phase of a control plane to which each step of a playbook belongs. No I/O.

A failed action returns its phase to programs, and the operator shows that of the task under way. Roles, and where a
file of tasks belongs elsewhere than its role that file, stand before actions; a test compares these with what there is.
"""

from __future__ import annotations

from typing import Any

from ..problems import Reason

PREFLIGHT, UPGRADING, INSTALLING, WAITING = "Preflight", "Upgrading", "Installing", "Waiting"
INSTALL_CRD, COMPLETED, DELETING, FAILED = "InstallCRD", "Completed", "Deleting", "Failed"
#: Order in which phases may follow each other within a run; Failed ends any.
ORDER = (PREFLIGHT, UPGRADING, INSTALLING, WAITING, INSTALL_CRD, COMPLETED, DELETING)

#: Operation of a playbook all of whose steps belong to one phase, but for the first play, which reads the document.
OF_OPERATIONS = {"uninstall": DELETING}
#: Role, or role/file of its tasks → phase.
OF_ROLES = {
    "preflight": PREFLIGHT,
    "host_leave/look": PREFLIGHT,
    "member_leave/confirm": PREFLIGHT,
    "etcd/below_pods_look": PREFLIGHT,
    "etcd/below_pods_release": INSTALL_CRD,
    "etcd/health_on_hosts": COMPLETED,
    "host_units/end": INSTALL_CRD,
    **dict.fromkeys(("pki", "etcd", "load_balancer", "host_units", "etcd_maintenance", "restore"), INSTALLING),
    "hand_over": INSTALLING,
    "control_plane": WAITING,
    **dict.fromkeys(("members", "member_join", "member_agents", "scheduler_estimators"), INSTALL_CRD),
    **dict.fromkeys(("member_leave", "host_leave"), INSTALL_CRD),
    **dict.fromkeys(("backup", "member_scheduling", "report"), COMPLETED),
    "uninstall": DELETING,
}
#: Action, or action and its state → phase, for tasks outside of our roles.
OF_ACTIONS = {
    **dict.fromkeys(
        ("require_document", "instance", "ssh_files", "host_observe", "hosts_leaving", "preflight"), PREFLIGHT
    ),
    **dict.fromkeys(("reach_from_host", "reach_targets"), PREFLIGHT),
    **dict.fromkeys(("certificates", "differences", "endpoint", "etcd_prefix"), INSTALLING),
    **dict.fromkeys(
        ("etcd_change", "etcd_members", "etcd_rollout", "etcd_maintenance", "etcd_room_on_host"), INSTALLING
    ),
    **dict.fromkeys(("hand_over", "restore", "restore_on_host"), INSTALLING),
    **dict.fromkeys(("host_components", "host_load_balancer", "host_programs", "programs", "workloads"), INSTALLING),
    **dict.fromkeys(("admin_kubeconfig", "control_plane"), WAITING),
    **dict.fromkeys(("member_join", "member_leave", "member_log", "scheduler_estimators"), INSTALL_CRD),
    # The end of the work, whatever it was.
    **dict.fromkeys(("journal", "hosts_outcome"), INSTALL_CRD),
    **dict.fromkeys(
        (
            *("backup", "break_glass", "etcd_member", "etcd_snapshot", "member_scheduling", "report"),
            "host_components compared",
        ),
        COMPLETED,
    ),
    "uninstall": DELETING,
}
#: Roles of tasks that a playbook also does after a failure, wherever that was: that they begin tells nothing.
_ALSO_AFTER_FAILURES = frozenset({"host_leave/release", "etcd/below_pods_release"})


def of(action: str, role: str = "", path: str = "", operation: str = "", part: str = "") -> str:
    """Phase of a task; empty only for one that is no action of this collection, outside of its roles.

    ``action`` and ``role`` may be full names. ``path`` is the file of the task, with or without a line; ``operation``
    is that of the playbook (``karmada_operation``), and ``part`` a stage or state that the action was given.
    """
    if operation in OF_OPERATIONS:
        return OF_OPERATIONS[operation]
    name, short = action.rpartition(".")[2], role.rpartition(".")[2]
    in_role = OF_ROLES.get(_file_of(short, path)) or OF_ROLES.get(short)
    return in_role or OF_ACTIONS.get(f"{name} {part}") or OF_ACTIONS.get(name, "")


def begun(role: str, path: str, operation: str) -> str:
    """Phase that a control plane enters when a task of a role begins; empty if that does not tell.

    That it is completed is for the report to say.
    """
    if not role or _file_of(role.rpartition(".")[2], path) in _ALSO_AFTER_FAILURES:
        return ""
    found = of("", role, path, operation)
    return "" if found == COMPLETED else found


def failure(task: Any, operation: object, reason: Reason, component: str = "") -> dict[str, str]:
    """Phase, reason and component, which every failed action returns beside ``msg``; ``task`` is Ansible's."""
    role = getattr(task, "_role", None)
    part = task.args.get("stage") or task.args.get("state") or ""
    name, path = role.get_name(include_role_fqcn=False) if role else "", str(task.get_path() or "")
    phase = of(str(task.action), name, path, str(operation), str(part))
    return {"phase": phase, "reason": reason.value, "component": component}


def _file_of(role: str, path: str) -> str:
    """Key of a file of tasks, such as ``member_leave/confirm``; ``path`` is absolute, and may have a line."""
    return f"{role}/{path.rpartition('/tasks/')[2].partition('.yml')[0]}"
