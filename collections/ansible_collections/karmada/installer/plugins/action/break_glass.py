# SPDX-License-Identifier: Apache-2.0
"""Kubeconfig for an emergency. Documentation: the module of the same name."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils import private_file
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import admin_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import certificates, x509
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run

#: User name in the audit log; no component or administrator has it.
USER = "system:karmada:break-glass"
SHORTEST, LONGEST = timedelta(minutes=5), timedelta(hours=8)


class ActionModule(KarmadaAction):
    """Issue short-lived credentials that the control plane cannot revoke; change nothing there."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "confirm": {"type": "str", "default": ""},
        "path": {"type": "str", "default": ""},
        "validity": {"type": "str", "default": "1h"},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Write a file on the machine that Ansible runs on, and nothing anywhere else."""
        path, validity = Path(arguments["path"]).expanduser(), _duration(arguments["validity"])
        problems = [*_unconfirmed(run, arguments["confirm"]), *_no_place(run, arguments["path"], path)]
        if validity is None or not SHORTEST <= validity <= LONGEST:
            what = f"{arguments['validity']!r} is no duration between 5m and 8h"
            problems.append(
                Problem(
                    what, "validity", "say how long the emergency may last, such as 1h", reason=Reason.INVALID_ARGUMENT
                )
            )
        if run.stored_state is None:
            remedy = "run karmada.installer.install first, or let this machine reach where it is"
            problems.append(
                Problem(
                    "no state of a control plane can be read there",
                    run.place.where,
                    remedy,
                    reason=Reason.NOT_INSTALLED,
                )
            )
        if problems or validity is None:
            raise ProblemsError(problems)
        pair = certificates.superuser(USER, run.state, run.spec, run.now, validity)
        if not run.check:
            private_file.write(path, admin_kubeconfig.for_person(run, pair))
        until = x509.expiry(pair.certificate).isoformat()
        run.say(
            f"{'would write' if run.check else 'wrote'} {path}: everything is allowed until {until}; delete it before"
        )
        return {"changed": True, "path": str(path), "expires": until, "user": USER}


def _duration(text: str) -> timedelta | None:
    try:
        return x509.parse_duration(text)
    except ValueError:
        return None


def _unconfirmed(run: Run, confirm: str) -> list[Problem]:
    if run.is_confirmed(confirm):
        return []
    return [
        Problem(
            what="whoever has this kubeconfig may do everything, and nothing takes it back while it is valid",
            where=f"control plane {run.name}",
            remedy=f"if that is meant, name it: -e karmada_confirm={run.confirmation}",
            reason=Reason.CONFIRMATION_REQUIRED,
        )
    ]


def _no_place(run: Run, text: str, path: Path) -> list[Problem]:
    where = "the file for it"
    if not text or not path.is_absolute():
        remedy = "say where: -e karmada_break_glass_output=/run/user/1000/karmada.kubeconfig"
        return [Problem(f"{text!r} is no absolute path", where, remedy, reason=Reason.INVALID_ARGUMENT)]
    if path.is_dir() or (run.connection.kubeconfig_output and path == Path(run.connection.kubeconfig_output)):
        return [
            Problem(
                f"{path} is a folder, or the administrator's own kubeconfig",
                where,
                "name another file",
                reason=Reason.INVALID_ARGUMENT,
            )
        ]
    return []
