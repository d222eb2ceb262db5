# SPDX-License-Identifier: Apache-2.0
"""What actions on plain hosts have in common: they compute here what a module does there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from ansible.errors import AnsibleError
from ansible_collections.karmada.installer.plugins.module_utils import host_lock

from ..redaction import redacted
from .action import StepAction
from .host_observation import HostObservation, Lost, Notes, Trouble, UnitStatus
from .host_view import HostView
from .plain import plain
from .run import Run

#: Modules that change what a host is; how far a host has come is told by the tasks that ran them. They ask the lock.
CHANGING_MODULES = ("_host_tree", "_host_program_files")
#: What ``host_state`` renews the lock for.
_RENEWING_STATES = ("locked", "kept", "written")
#: After how many seconds without a step on a host its lock is renewed before more of them go by.
RENEW_SECONDS = host_lock.LOCK_SILENCE / 5


class HostAction(StepAction):
    """Base of the actions that work on one plain host; runs on the controller, and its module on the host."""

    #: That of the host cluster, where there is one.
    KEEPS_LOCK: ClassVar[bool] = False

    def _performed(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        self.karmada = run
        try:
            return self._spared(arguments)
        except AnsibleError as error:
            # The connection, or a file on its way. Ansible tells it; what else it means is told at the end of the run.
            self.note(lost=Lost(self._task.name, redacted(str(error))))
            raise

    def _spared(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The step. A host that members alone need does not end the run: what is wrong with it is told of them.

        That does not hold where something is taken away, which has to be known to be gone.
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
    def host_entry(self) -> dict[str, Any]:
        """The entry of the document of this host, or of the one that the task is delegated to."""
        variables = self.variables
        if self._task.delegate_to:
            variables = variables["hostvars"][self._task.delegate_to]
        entry: dict[str, Any] = plain(variables["karmada_host"])
        return entry

    @property
    def host_name(self) -> str:
        """The name of the host in the document."""
        return str(self.host_entry["name"])

    @property
    def seen(self) -> HostObservation:
        """What was seen of this host."""
        return self.karmada.handover.observed(self.host_name)

    @property
    def leaves(self) -> bool:
        """Whether the document has this host no more."""
        return self.host_name not in self.karmada.hosts

    @property
    def view(self) -> HostView:
        """What this host is to be."""
        return self.karmada.on_host(self.host_name)

    def note(self, **seen: Unpack[Notes]) -> None:
        """Hand on what was seen of this host."""
        self.karmada.handover.note(self.host_name, **seen)

    def note_units(self, units: Mapping[str, Mapping[str, str]]) -> None:
        """Hand on how units of this host do, as ``_host_tree`` told it."""
        self.note(units={**self.seen.units, **{name: UnitStatus.of(each) for name, each in units.items()}})

    def on_host(self, module: str, *, check: bool | None = None, **arguments: Any) -> dict[str, Any]:
        """Run a module of this collection on the host; ``check`` as the task has it unless it is given."""
        own = self._task.check_mode
        checks = bool(own if check is None else check)
        if module in CHANGING_MODULES:
            arguments = {"name": self.karmada.name, "holder": self.karmada.holder, **arguments}
        self._task.check_mode = checks
        try:
            found: dict[str, Any] = self._execute_module(
                module_name=f"karmada.installer.{module}", module_args=arguments, task_vars=self.variables
            )
        finally:
            self._task.check_mode = own
        if module in CHANGING_MODULES or found.get("failed"):
            # For people, and partly in the words of the host: journals, names of files, what programs complain of.
            found = _told(found)
        if module in CHANGING_MODULES and not checks:
            if found.get("failed"):
                self.note(stopped=self._task.name)
            else:
                self.note(done=self._task.name)
        renews = module in CHANGING_MODULES or (module == "_host_state" and arguments["state"] in _RENEWING_STATES)
        if renews and not checks and not found.get("failed"):
            self.note(renewed=host_lock.clock())
        return found

    def keep_lock(self) -> dict[str, Any]:
        """Renew the lock of this host if no step has for a while; what the host says if it is lost, else nothing.

        For what takes long between two steps on a host. One that could not be reached when this run began, or was
        somebody else's, has none of ours.
        """
        if self._task.check_mode or self.seen.refusal:
            return {}
        if host_lock.clock() - self.seen.renewed < RENEW_SECONDS:
            return {}
        found = self.on_host("_host_state", name=self.karmada.name, holder=self.karmada.holder, state="kept")
        return found if found.get("failed") else {}


def _told(found: Any) -> Any:
    """What a module tells, without secrets that others have written into logs."""
    if isinstance(found, dict):
        return {key: _told(value) for key, value in found.items()}
    if isinstance(found, list):
        return [_told(each) for each in found]
    return redacted(found) if isinstance(found, str) else found


def refusal_of(work: Any) -> tuple[dict[str, Any], str]:
    """The result of a module, and why the host did not let us have one (empty if it did)."""
    try:
        found: dict[str, Any] = work()
    except AnsibleError as error:
        return {}, redacted(str(error))
    if found.get("failed") or found.get("unreachable"):
        told = [found.get(key) for key in ("module_stderr", "module_stdout", "msg")]
        return found, next((str(each).strip() for each in told if each), "it gives no reason")
    return found, ""
