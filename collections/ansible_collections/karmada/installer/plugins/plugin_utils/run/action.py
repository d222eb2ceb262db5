# SPDX-License-Identifier: Apache-2.0
"""Base of all actions of this collection: options, check and diff mode, and errors as results.

An action runs inside ansible-playbook, not as a module: a step costs some 20 ms instead of half a second.
"""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import PurePath
from typing import Any, ClassVar

from ansible import context
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from .. import awx_job, run_process
from ..components import image_pins
from ..components.named import component_in
from ..components.spec import Spec
from ..document.references import Connection
from ..kube.apply import ApplyFailed, Change
from ..kube.errors import ApiError
from ..kube.lease import LockLost
from ..kube.wait import NotReady
from ..problems import Problem, ProblemsError, Reason, Severity, in_order
from ..redaction import shown
from . import before_forks, end, inventory_variables, not_given, phases
from . import changes as changes_of_steps
from . import selection as selected_members
from .facts import Facts
from .in_pods import InPods, PodsAboveHosts
from .on_hosts import OnHosts
from .place import Place
from .plain import plain
from .run import Run
from .said import say
from .silence import Silence

#: Errors that a user can do something about. Any other is a defect and keeps its traceback.
EXPECTED_ERRORS = (ProblemsError, ApiError, ApplyFailed, NotReady, LockLost)
#: For a request whose sender was killed, until the API server has carried it out.
_UNDER_WAY_SECONDS = 1.0


class StepAction(ActionBase):  # type: ignore[misc]  # ansible-core ships no types
    """Step of a run: its options, its run, and errors as results. Subclasses implement ``_performed``."""

    TRANSFERS_FILES = False
    OPTIONS: ClassVar[dict[str, Any]] = {}
    #: Options of every action of the kind.
    COMMON: ClassVar[dict[str, Any]] = {}
    #: True if an earlier step of the run may hold the lock, which then has to be renewed during this one.
    KEEPS_LOCK: ClassVar[bool] = True
    #: Reason of a failure that no problem is told of.
    FAILURE: ClassVar[Reason] = Reason.REQUEST_FAILED

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Validate the options, perform the step, and turn expected errors into results."""
        run_process.end_with_main()
        self.variables = task_vars or {}
        result: dict[str, Any] = super().run(tmp, self.variables)
        options = {**self.COMMON, **self.OPTIONS}
        self._task.args = not_given.left_out(self._task.args, options)
        try:
            _validation, arguments = self.validate_argument_spec(argument_spec=options)
        except AnsibleError as error:
            told = Problem(str(error), reason=Reason.INVALID_ARGUMENT)
            return {**result, "failed": True, "changed": False, "msg": told.what, **self._for_programs([told])}
        run: Run | None = None
        problems: list[Problem] = []
        try:
            run = self._make_run(arguments)
            if self.KEEPS_LOCK:
                run.store.resume_lock()
            with self._broken_silence(run):
                result.update(self._performed(run, arguments))
            self._hand_on_changes(run, result)
        except EXPECTED_ERRORS as error:
            made = changed_result(getattr(error, "changes", None) or ())
            result.update(failed=True, changed=made["changed"], msg=shown(str(error)))
            problems += error.problems
            if run is not None:
                self._hand_on_changes(run, made)
        finally:
            if run is not None:
                run.close()
        problems += run.told if run else ()
        if problems:
            result["problems"] = [
                {key: shown(text) for key, text in each.plain.items()} for each in in_order(problems)
            ] + result.get("problems", [])
        if result.get("failed"):
            result.update(self._for_programs(problems, result, instance=run.name if run else ""))
        if not self._task.diff:
            result.pop("diff", None)
        return result

    def _for_programs(
        self, problems: Iterable[Problem], result: Mapping[str, Any] | None = None, instance: str = ""
    ) -> dict[str, str]:
        """Phase, reason and component of a failure, which programs read instead of its message."""
        found = result or {}
        of_members = [each for member in found.get("broken_members") or () for each in member.get("problems", ())]
        first = next(
            (each for each in (*problems, *map(Problem.of, of_members)) if each.severity is Severity.ERROR), None
        )
        # A module tells of units, each with why it is not healthy.
        ailing = [name for name, unit in (found.get("units") or {}).items() if unit.get("reason")]
        places = [first.where] if first else ailing
        return phases.failure(
            self._task,
            self.variables.get("karmada_operation", ""),
            first.reason if first else self.FAILURE,
            next(filter(None, (component_in(each, instance) for each in places)), ""),
        )

    @property
    def _host(self) -> str:
        """Name of the plain host that the step is about; empty if it is about the control plane or members."""
        return ""

    def _broken_silence(self, run: Run) -> AbstractContextManager[None]:
        """Context in which the step says that it goes on whenever it has said nothing for a while."""
        where = f"host {shown(self._host)}" if self._host else ""
        silence = Silence(run.say, where, self._task.name or self._task.action)
        run.say = silence.say
        return silence.broken()

    def _hand_on_changes(self, run: Run, result: Mapping[str, Any]) -> None:
        """Hand the changes of this step on to the report: all changes of a run pass here."""
        if result.get("changed"):
            run.handover.add_changes(changes_of_steps.of_step(result, self._host))

    @abstractmethod
    def _performed(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Do the step; returns the result's own keys. Raises one of EXPECTED_ERRORS."""

    def _make_run(self, arguments: dict[str, Any]) -> Run:
        variables = self.variables
        loaded, connected = inventory_variables.of_control(variables)
        deployment = arguments.get("deployment") or loaded
        if not deployment:
            raise ProblemsError([_no_document()])
        connection = arguments.get("connection") or connected
        run = make_run(deployment, connection, variables, check=bool(self._task.check_mode))
        run.confirmed_dead = self._confirmed_dead()
        run.one_of_several = inventory_variables.has_several(variables)
        run.confirmed_manager = str(variables.get("karmada_confirm_manager") or "")
        return run

    def _confirmed_dead(self) -> str:
        """Dead holder that the role of this task was told of, or the whole run."""
        role = getattr(self._task, "_role", None)
        option = f"{role.get_name(include_role_fqcn=False)}_confirm_dead" if role else ""
        name = option if option in self.variables else "karmada_confirm_dead"
        return str(self._templar.template(self.variables[name]) or "") if name in self.variables else ""


class KarmadaAction(StepAction):
    """Base of the actions on the control plane and its members, which run on the controller only."""

    COMMON: ClassVar[dict[str, Any]] = {"deployment": {"type": "dict"}, "connection": {"type": "dict"}}

    def _performed(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.perform(run, arguments)

    @abstractmethod
    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Do the step; returns the result's own keys. Raises one of EXPECTED_ERRORS."""


def make_run(deployment: Any, connection: Any, task_vars: Mapping[str, Any], *, check: bool) -> Run:
    """Run for the document and the connection in Ansible's variables."""
    deployment, given = plain(deployment), plain(connection or {})
    common: dict[str, Any] = {
        "operation": str(task_vars.get("karmada_operation", "apply")),
        # Actions run in forks; the process that forked them identifies the run.
        "holder": run_process.run_holder(awx_job.label(task_vars, _playbook())),
        "check": check,
        "say": say,
        "selected": selected_members.of_variables(task_vars),
    }
    stands = Connection.of(given)
    run = Run(deployment, stands, **common, place=_place_of(Spec(deployment["spec"])))
    run.trace = Display().vvv
    run.confirmed_images = image_pins.confirmed(task_vars)
    run.lock_wait = lock_wait(task_vars)
    lock = {"deployment": deployment, "connection": asdict(stands), "holder": run.holder}
    run.store.on_lock = lambda held: end.holding(lock if held else None)
    return run


def lock_wait(variables: Mapping[str, Any]) -> float:
    """Seconds for which these variables of a task have another run waited for; a survey gives them as text, or empty.

    Raises ProblemsError for anything else.
    """
    text = str(variables.get("karmada_lock_wait", "")).strip()
    if not text:
        return Run.lock_wait
    if not re.fullmatch(r"[0-9]{1,6}", text):
        remedy = "Give a whole number of seconds, such as 120; with 0, a run that finds another one refuses at once."
        told = f"is no time to wait: {text[:40]!r}"
        raise ProblemsError(Problem(told, "karmada_lock_wait", remedy, reason=Reason.INVALID_ARGUMENT))
    return float(text)


def _playbook() -> str:
    """Name of the first playbook of this run, without its folder or collection; empty if there is none."""
    names = context.CLIARGS.get("args")
    # The command ansible has a pattern of hosts there.
    first = names[0] if names and isinstance(names, list | tuple) else ""
    return PurePath(str(first)).name.removesuffix(".yaml").removesuffix(".yml").rpartition(".")[2]


def _place_of(spec: Spec) -> Callable[[Facts], Place]:
    """Class of place for the mode of the document; no other code asks for the mode to tell places apart."""
    if spec.mode == "Binary":
        return OnHosts
    return PodsAboveHosts if spec.hosts else InPods


def give_back(lock: Mapping[str, Any]) -> bool:
    """Release a lock that ``make_run`` noted, in the first process of the run; returns whether that succeeded."""
    run = Run(
        lock["deployment"],
        Connection(**lock["connection"]),
        operation="",
        holder=lock["holder"],
        check=False,
        say=lambda _message: None,
    )
    try:
        run.store.release_lock()
        # What a fork asked for just before it was killed may reach the Lease after we have read it.
        time.sleep(_UNDER_WAY_SECONDS)
        run.store.release_lock()
    except EXPECTED_ERRORS:
        return False
    else:
        return True
    finally:
        run.close()


def changed_result(made: Iterable[Change], **more: Any) -> dict[str, Any]:
    """Result of a step that applied or deleted objects."""
    effective = [change for change in made if change.action != "unchanged"]
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
        reason=Reason.DOCUMENT_NOT_LOADED,
    )


# This module is also loaded in the first process of a run, before it forks.
if end.attend(give_back):
    before_forks.prepare()
