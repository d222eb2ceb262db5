# SPDX-License-Identifier: Apache-2.0
"""What actions on plain hosts have in common: they compute here what a module of the same name does there."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from ansible.plugins.action import ActionBase
from ansible_collections.karmada.installer.plugins.plugin_utils.host_run import (
    INSTANCE_STATE,
    OBSERVED,
    HostView,
    Stored,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.lease import holder_identity
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError

CONTROL = "karmada_control"


class HostAction(ActionBase):  # type: ignore[misc]  # ansible-core ships no types
    """Base of the actions that work on one plain host; runs on the controller, and its module on the host."""

    TRANSFERS_FILES = False
    OPTIONS: ClassVar[dict[str, Any]] = {}

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Validate, perform, and turn what a person can mend into a result."""
        variables = task_vars or {}
        result: dict[str, Any] = super().run(tmp, variables)
        _validation, arguments = self.validate_argument_spec(argument_spec=self.OPTIONS)
        try:
            result.update(self.perform(variables, arguments))
        except ProblemsError as error:
            result.update(failed=True, changed=False, msg=str(error))
        if not self._task.diff:
            result.pop("diff", None)
        return result

    @abstractmethod
    def perform(self, variables: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
        """Do the step; returns the result's own keys."""

    def on_host(self, module: str, variables: Mapping[str, Any], **arguments: Any) -> dict[str, Any]:
        """Run a module of this collection on the host."""
        found: dict[str, Any] = self._execute_module(
            module_name=f"karmada.installer.{module}", module_args=arguments, task_vars=variables
        )
        return found

    @property
    def holder(self) -> str:
        """Who holds the lock: the process that all actions of a playbook have in common."""
        return holder_identity(os.getppid())


def deployment_of(variables: Mapping[str, Any]) -> dict[str, Any]:
    """The document of this run, as plain data."""
    found: dict[str, Any] = plain(variables["hostvars"][CONTROL]["karmada_deployment"])
    return found


def stored_of(variables: Mapping[str, Any]) -> Stored:
    """The state that this run goes on with."""
    found = plain(variables["hostvars"][CONTROL][INSTANCE_STATE])
    return Stored(found["serial"], found["files"])


def view_of(variables: Mapping[str, Any]) -> HostView:
    """What the host of this task is to be."""
    observed = plain(variables[OBSERVED])
    state = stored_of(variables).state("the state that this run goes on with")
    name = variables["karmada_host"]["name"]
    return HostView(deployment_of(variables), name, state, observed["files"], datetime.now(UTC))


def plain(value: Any) -> Any:
    """Plain data out of what Ansible wraps: its strings carry tags that serializers do not know."""
    return json.loads(json.dumps(value))
