# SPDX-License-Identifier: Apache-2.0
"""Plain host to which a step of the control plane was delegated, because something that it works with lies there.

The step itself computes on the controller, as always. Ansible has made the connection of its task to that host, with
all that the inventory says of SSH; modules act there and files come and go over it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ansible.errors import AnsibleError

from ..components.spec import HostEntry
from ..problems import Problem, ProblemsError, Reason
from ..redaction import redacted
from . import host_access, host_answer, host_bounds
from .action import KarmadaAction
from .host_action import login_of, refusal_of
from .run import Run

T = TypeVar("T")


class DelegatedHost:
    """Host of a step. Each method raises ProblemsError if it is not reached, or does not answer as it should."""

    def __init__(self, action: KarmadaAction, entry: HostEntry, user: str) -> None:
        self._action, self._entry, self._user = action, entry, user
        self._bounds = host_bounds.of(action._connection)
        self._login = ""

    @property
    def name(self) -> str:
        """Name of the host in the document."""
        return self._entry.name

    @property
    def login(self) -> str:
        """User that SSH logs in, who brings and fetches files."""
        if not self._login:
            self._login = self._answered(lambda: login_of(self._action, self.name))
        return self._login

    def ask(self, module: str, *, is_long: bool = False, **arguments: Any) -> dict[str, Any]:
        """Answer of a module of this collection, in its form. ``is_long``: it may move much before it answers."""
        action = self._action
        # What is asked in check mode only reads, too, and Ansible would not let a module read.
        own, action._task.check_mode = action._task.check_mode, False
        seconds = host_bounds.CHANGE_SECONDS if is_long else host_bounds.LOOK_SECONDS

        def execute() -> object:
            with self._bounds.lasting(seconds):
                return action._execute_module(
                    module_name=f"karmada.installer.{module}", module_args=arguments, task_vars=action.variables
                )

        try:
            answer = self._answered(execute)
        finally:
            action._task.check_mode = own
        found, unfit = host_answer.of_module(module, arguments, answer)
        if unfit:
            raise self.refused(unfit)
        _same, refusal = refusal_of(lambda: found)
        if refusal:
            raise ProblemsError(self._problem(redacted(refusal)))
        return found

    def send(self, file: Path, path: str) -> None:
        """Write a file of this machine into one that the host has for the user of the connection."""
        self._answered(lambda: self._action._connection.put_file(str(file), path))

    def fetch(self, path: str, file: Path, size: int) -> None:
        """Write a file of the host, which has so many bytes, into one that is here already."""

        def fetch() -> None:
            with host_bounds.files_up_to(size):
                self._action._connection.fetch_file(path, str(file))

        self._answered(fetch)
        if file.stat().st_size != size:
            raise self.refused(f"a file came with {file.stat().st_size} of {size} bytes")

    def refused(self, what: str) -> ProblemsError:
        """Error for an answer that is not used."""
        remedy = "look after this host, and run again"
        return ProblemsError(Problem(what, self._where, remedy, reason=Reason.HOST_STEP_FAILED))

    @property
    def _where(self) -> str:
        return f"host {self.name}"

    def _answered(self, work: Callable[[], T]) -> T:
        """Result of some work over the connection."""
        try:
            return work()
        except host_bounds.AnswerUnboundedError as error:
            raise self.refused(f"{error}; nothing of that is used") from None
        except AnsibleError as error:
            raise host_access.LostError(self._problem(redacted(str(error)))) from None

    def _problem(self, refusal: str) -> Problem:
        """Problem of a host that says this, or of which Ansible says it."""
        if host_access.reason_of(refusal):
            return host_access.problem(refusal, host=self.name, address=self._entry.address, user=self._user)
        remedy = "look after this host, and run again"
        return Problem(refusal.strip()[:500], self._where, remedy, reason=Reason.HOST_STEP_FAILED)


class DelegableAction(KarmadaAction):
    """Base of the actions on the control plane that may be delegated to one of its plain hosts."""

    def _performed(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        listed = {each.name: each for each in run.spec.hosts}
        if (entry := listed.get(str(self._task.delegate_to or ""))) is not None:
            run.delegated = DelegatedHost(self, entry, run.spec.ssh_user)
        return super()._performed(run, arguments)

    def cleanup(self, force: bool = False) -> None:
        """Remove Ansible's temporary files there. The step has had its answers; a host that is lost now keeps them."""
        with contextlib.suppress(AnsibleError):
            super().cleanup(force)
