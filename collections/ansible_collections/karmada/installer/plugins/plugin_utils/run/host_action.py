# SPDX-License-Identifier: Apache-2.0
"""Base of actions on plain hosts: they compute on the controller, and modules act on the host."""

from __future__ import annotations

import contextlib
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Unpack

from ansible.errors import AnsibleError
from ansible_collections.karmada.installer.plugins.module_utils import host_lock

from ..components.spec import HostEntry
from ..problems import Problem, ProblemsError, Reason
from ..redaction import redacted, shown
from . import host_answer, host_bounds
from .action import StepAction
from .host_observation import HostObservation, Lost, Notes, Trouble, UnitStatus
from .host_view import HostView
from .run import Run

#: Modules that change a host and check its lock; the tasks that run them show how far a host has come.
CHANGING_MODULES = (
    "_host_tree",
    "_host_program_files",
    "_etcd_room",
    "_etcd_change",
    "_etcd_snapshot",
    "_host_restore",
)
#: Modules that wait for what they change: for units, and for a package manager.
_LASTING_MODULES = (*CHANGING_MODULES, "ansible.builtin.package")
#: States of ``_host_state`` that renew the lock.
_RENEWING_STATES = ("locked", "kept", "written")
#: Name of a user as a host prints it.
_USER = re.compile(r"[!-~]{1,256}")
#: Seconds without a step on a host after which its lock is renewed.
RENEW_SECONDS = host_lock.LOCK_SILENCE / 5


class HostAction(StepAction):
    """Base of the actions on one plain host; the action runs on the controller, its module on the host."""

    #: Concerns the lock of the host cluster, if there is one; a host has its own.
    KEEPS_LOCK: ClassVar[bool] = False
    FAILURE: ClassVar[Reason] = Reason.HOST_STEP_FAILED
    #: Bounds of what the host answers over the connection of this action.
    _bounds = host_bounds.Bounds(None)

    def __init__(self, *args: Any, **more: Any) -> None:
        """Take what Ansible gives an action; its connection has bounds from now on."""
        super().__init__(*args, **more)
        self._bounds = host_bounds.of(self._connection)

    def _performed(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        self.karmada = run
        if self.leaves and not self.seen.is_looked_at and self.host_name not in run.leaving:
            raise ProblemsError([_no_host(self.host_name)])
        try:
            return self._spared(arguments)
        except AnsibleError as error:
            # The connection or a file transfer failed. Ansible reports that; its consequences are reported at the end.
            self._note_loss(error)
            raise

    def cleanup(self, force: bool = False) -> None:
        """Remove Ansible's temporary files on the host; a host that is lost now, after its step, is noted as lost."""
        try:
            super().cleanup(force)
        except AnsibleError as error:
            # Without a run the step was refused, and said so.
            if hasattr(self, "karmada"):
                self._note_loss(error)
            raise

    def _note_loss(self, error: AnsibleError) -> None:
        self.note(lost=Lost(self._task.name, redacted(str(error))))

    def _spared(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Perform the step. A failure on a host that only members need becomes their problem and does not end the run.

        Removals are the exception: they must be known to have succeeded.
        """
        needed = self.leaves or not self.karmada.hosts[self.host_name].is_of_members
        if needed or arguments.get("state") in ("absent", "stopped"):
            return self.perform(arguments)
        if self.seen.refusal or self.seen.trouble:
            return {"changed": False}
        found, reason = refusal_of(lambda: self.perform(arguments))
        if not reason:
            return found
        self.note(trouble=Trouble(self._task.name, reason, lost=not found))
        return {"changed": bool(found.get("changed"))}

    @abstractmethod
    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Do the step; returns the result's own keys."""

    @property
    def host_entry(self) -> HostEntry:
        """Entry of this host, as the document or the state of the control plane has it.

        Variables may come from an answer of a host; who owns one would name another one's entry.
        """
        listed = {each.name: each for each in self.karmada.spec.hosts}
        return listed.get(self.host_name) or self.karmada.leaving[self.host_name]

    @property
    def host_name(self) -> str:
        """Name of this host in the document, or of the one that the task is delegated to: its name in the inventory."""
        return str(self._task.delegate_to or self.variables["inventory_hostname"])

    @property
    def _host(self) -> str:
        return self.host_name

    @property
    def seen(self) -> HostObservation:
        """Observation of this host."""
        return self.karmada.handover.observed(self.host_name)

    @property
    def leaves(self) -> bool:
        """True if the document lists this host no more."""
        return self.host_name not in self.karmada.hosts

    @property
    def view(self) -> HostView:
        """Desired state of this host."""
        return self.karmada.on_host(self.host_name)

    def note(self, **seen: Unpack[Notes]) -> None:
        """Update the observation of this host."""
        self.karmada.handover.note(self.host_name, **seen)

    def note_units(self, units: Mapping[str, Mapping[str, str]]) -> None:
        """Record the status of units of this host, in the form of ``_host_tree``."""
        self.note(units={**self.seen.units, **{name: UnitStatus.of(each) for name, each in units.items()}})

    def on_host(self, module: str, *, check: bool | None = None, **arguments: Any) -> dict[str, Any]:
        """Run a module of this collection on the host; ``check`` overrides the check mode of the task."""
        own = self._task.check_mode
        checks = bool(own if check is None else check)
        if module in CHANGING_MODULES:
            arguments = {"name": self.karmada.name, "holder": self.karmada.holder, **arguments}
        self._task.check_mode = checks
        seconds = host_bounds.CHANGE_SECONDS if module in _LASTING_MODULES else host_bounds.LOOK_SECONDS
        try:
            with self._bounds.lasting(seconds):
                answer = self._execute_module(
                    module_name=module if "." in module else f"karmada.installer.{module}",
                    module_args=arguments,
                    task_vars=self.variables,
                )
        except host_bounds.AnswerUnboundedError as error:
            answer = {"failed": True, "msg": f"{self.host_name}: {error}; nothing of that is used"}
        finally:
            self._task.check_mode = own
        found = self.accepted(module, arguments, answer)
        if module in CHANGING_MODULES and not checks:
            if found.get("failed"):
                self.note(stopped=self._task.name)
            else:
                self.note(done=self._task.name)
        renews = module in CHANGING_MODULES or (module == "_host_state" and arguments["state"] in _RENEWING_STATES)
        if renews and not checks and not found.get("failed"):
            self.note(renewed=host_lock.clock())
        return found

    def login(self) -> str:
        """User of the connection, who brings and fetches files without any right of root's. Raises ProblemsError."""
        return login_of(self, self.host_name)

    def tell_unused(self, found: Mapping[str, Any], refusal: str, consequence: str) -> None:
        """Name this host in the report because its answer is not used; ``found`` and ``refusal`` as of ``refusal_of``.

        For steps without which a run goes on. One that is lost is reported by the next step that needs it.
        """
        if refusal and found:
            why = refusal.removeprefix(f"{self.host_name}: ")
            text = f"host {self.host_name}: {why}; nothing of that is used, and {consequence}"
            self.karmada.tell(Problem.warning(text, Reason.HOST_STEP_FAILED))

    def accepted(self, module: str, arguments: Mapping[str, Any], answer: object) -> dict[str, Any]:
        """Answer of the host in the form that the module gives it; a failure in the place of any other."""
        found, refusal = host_answer.of_module(module, arguments, answer)
        if refusal:
            return {"failed": True, "msg": f"{self.host_name}: {refusal}"}
        if module == "_host_state" and not found.get("failed"):
            # Files and programs are compared byte by byte. None of it is text for people as it is.
            return found
        # The result quotes the host: journals, file names, messages of programs.
        told: dict[str, Any] = _told(found)
        return told

    def keep_lock(self, silence: int | None = None) -> dict[str, Any]:
        """Renew the lock of this host if no step has lately; returns the host's answer if the lock is lost, else {}.

        For work that takes long between two steps on a host. A host that was unreachable when this run began, or locked
        by another run, has no lock of ours.

        silence: seconds for which this run will not be heard of on the host; for them the lock is renewed in any case.
        """
        if self._task.check_mode or self.seen.refusal:
            return {}
        if silence is None and host_lock.clock() - self.seen.renewed < RENEW_SECONDS:
            return {}
        term: dict[str, Any] = {} if silence is None else {"silence": silence}
        found = self.on_host("_host_state", name=self.karmada.name, holder=self.karmada.holder, state="kept", **term)
        return found if found.get("failed") else {}


def login_of(action: StepAction, host: str) -> str:
    """User that the connection of an action to this host logs in. Raises ProblemsError if the host does not tell."""
    named = action._play_context.remote_user
    # Connections without SSH, such as the one to a host that is this machine, have no such option.
    with contextlib.suppress(KeyError):
        named = action._connection.get_option("remote_user") or named
    if named:
        return str(named)
    # Then the SSH configuration here says who logs in.
    found = action._low_level_execute_command("id -un", sudoable=False)
    told = str(found.get("stdout") or "").strip()
    if found.get("rc") or not _USER.fullmatch(told):
        what, remedy = "it does not tell as whom SSH logs in there", "look after this host, and run again"
        raise ProblemsError(Problem(what, f"host {host}", remedy, reason=Reason.HOST_STEP_FAILED))
    return told


def _no_host(name: str) -> Problem:
    return Problem(
        what=f"{shown(name)} is no plain host of this control plane: the document does not list it, nor does the state",
        where=f"host {shown(name)}",
        remedy="run this step on the hosts that karmada.installer.karmada makes, in the group karmada_hosts",
        reason=Reason.HOST_NOT_LISTED,
    )


def _told(found: Any) -> Any:
    """Result of a module, with secrets redacted that others have written into logs."""
    if isinstance(found, dict):
        return {key: _told(value) for key, value in found.items()}
    if isinstance(found, list):
        return [_told(each) for each in found]
    return redacted(found) if isinstance(found, str) else found


def refusal_of(work: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], str]:
    """Result of a module and the reason why the host refused it; the reason is empty on success."""
    try:
        found = work()
    except AnsibleError as error:
        return {}, redacted(str(error))
    if found.get("failed") or found.get("unreachable"):
        told = [found.get(key) for key in ("module_stderr", "module_stdout", "msg")]
        return found, next((str(each).strip() for each in told if each), "it gives no reason")
    return found, ""
