# SPDX-License-Identifier: Apache-2.0
"""What every action of this collection has in common: options, check and diff mode, errors a person can read.

An action runs inside ansible-playbook, not as a module: a step costs some 20 ms instead of half a second.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from typing import Any, ClassVar

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from .. import run_process
from ..components import image_pins
from ..document.references import Connection
from ..kube.apply import ApplyFailed, Change
from ..kube.errors import ApiError
from ..kube.lease import LockLost
from ..kube.wait import NotReady
from ..problems import Problem, ProblemsError
from ..redaction import shown
from . import end
from . import selection as selected_members
from .etcd_on_hosts import EtcdOnHostsRun
from .handover import Handover
from .inventory_names import CONTROL
from .on_plain_hosts import HostsRun
from .plain import plain
from .run import Run

#: Everything that a user can do something about. Anything else is a defect and keeps its traceback.
EXPECTED_ERRORS = (ProblemsError, ApiError, ApplyFailed, NotReady, LockLost)


class KarmadaAction(ActionBase):  # type: ignore[misc]  # ansible-core ships no types
    """Base of the actions: subclasses name their options and implement ``perform``."""

    TRANSFERS_FILES = False
    OPTIONS: ClassVar[dict[str, Any]] = {}
    #: Whether an earlier step of the same run may hold the lock, so that it has to be kept through this one.
    KEEPS_LOCK: ClassVar[bool] = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Validate, perform, and turn errors into results."""
        run_process.end_with_main()
        task_vars = task_vars or {}
        result: dict[str, Any] = super().run(tmp, task_vars)
        del tmp
        argument_spec = {"deployment": {"type": "dict"}, "connection": {"type": "dict"}, **self.OPTIONS}
        _validation, arguments = self.validate_argument_spec(argument_spec=argument_spec)
        run: Run | None = None
        try:
            run = self._make_run(arguments, task_vars)
            if self.KEEPS_LOCK:
                run.resume_lock()
            result.update(self.perform(run, arguments))
        except EXPECTED_ERRORS as error:
            result.update(failed=True, changed=bool(getattr(error, "changes", None)), msg=shown(str(error)))
        finally:
            if run is not None:
                run.close()
        if not self._task.diff:
            result.pop("diff", None)
        return result

    @abstractmethod
    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Do the step; returns the result's own keys. Raises one of EXPECTED_ERRORS."""

    def _make_run(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> Run:
        # A first play has other hosts, and with --limit one may have those of members only.
        elsewhere = "karmada_deployment" not in task_vars and CONTROL in task_vars.get("hostvars", ())
        known = task_vars["hostvars"][CONTROL] if elsewhere else task_vars
        deployment = arguments.get("deployment") or known.get("karmada_deployment")
        if not deployment:
            raise ProblemsError([_no_document()])
        connection = arguments.get("connection") or known.get("karmada_connection")
        return make_run(deployment, connection, task_vars, check=bool(self._task.check_mode))


def make_run(deployment: Any, connection: Any, task_vars: Mapping[str, Any], *, check: bool) -> Run:
    """What an action has at hand, from the document and the connection as Ansible's variables have them."""
    deployment, given = plain(deployment), plain(connection or {})
    known = {each.name for each in fields(Connection)}
    common: dict[str, Any] = {
        "operation": str(task_vars.get("karmada_operation", "apply")),
        # Actions run in forks; what they have in common is the process that forked them.
        "holder": run_process.holder_identity(run_process.main_pid()),
        "check": check,
        # What is said may quote others, and a terminal obeys what it gets.
        "say": lambda message: Display().display(f"    {shown(message)}"),
        "selected": selected_members.of_variables(task_vars),
    }
    stands = Connection(**{key: value for key, value in given.items() if key in known})
    run: Run
    if deployment["spec"]["mode"] == "Binary":
        run = HostsRun(deployment, stands, **common, handover=Handover.of_this_run())
    elif deployment["spec"].get("hosts"):
        run = EtcdOnHostsRun(deployment, stands, **common, handover=Handover.of_this_run())
    else:
        run = Run(deployment, stands, **common)
    run.trace = Display().vvv
    run.confirmed_images = image_pins.confirmed(task_vars)
    lock = {"deployment": deployment, "connection": asdict(stands)}
    run.on_lock = lambda held: end.holding(lock if held else None)
    return run


def give_back(lock: Mapping[str, Any]) -> None:
    """Let go of a lock that ``make_run`` noted, in the first process of the run; nothing is said if that fails."""
    run = Run(
        lock["deployment"],
        Connection(**lock["connection"]),
        operation="",
        holder=run_process.holder_identity(run_process.main_pid()),
        check=False,
        say=lambda _message: None,
    )
    try:
        with suppress(*EXPECTED_ERRORS):
            run.release_lock()
    finally:
        run.close()


def changed_result(changes: Iterable[Change], **more: Any) -> dict[str, Any]:
    """The result of a step that applied or deleted objects."""
    effective = [change for change in changes if change.action != "unchanged"]
    return {
        "changed": bool(effective),
        "changes": [f"{change.action} {change.ref}" for change in effective],
        "diff": [
            {**change.diff, "before_header": str(change.ref), "after_header": str(change.ref)} for change in effective
        ],
        **more,
    }


def _no_document() -> Problem:
    return Problem(
        what="no KarmadaDeployment is known here",
        where="variable karmada_deployment",
        remedy="run on the host karmada_control that karmada.installer.karmada makes, or pass `deployment`",
    )


# This is loaded in the first process of a run, too, before it forks.
end.attend(give_back)
