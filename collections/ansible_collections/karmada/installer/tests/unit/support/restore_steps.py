# SPDX-License-Identifier: Apache-2.0
"""Steps of a restore on plain hosts that are directories: the action, with its modules called and files copied."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import Any

from ansible_collections.karmada.installer.plugins.action import restore_on_host
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError
from ansible_collections.karmada.installer.plugins.modules import _host_restore, _host_tree
from ansible_collections.karmada.installer.tests.unit.support.host_tree import Host
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs
from ansible_collections.karmada.installer.tests.unit.support.tasks import task

#: Run that has locked the hosts.
HOLDER = "me@here"


def performed(runs: Runs, host: Host, name: str, state: str, **told: Any) -> dict[str, Any]:
    """Result of ``restore_on_host`` in this state, with what it is told, on the host of this name."""
    step: Any = restore_on_host.ActionModule.__new__(restore_on_host.ActionModule)
    step.karmada, step.variables = runs.step(holder=HOLDER), {"inventory_hostname": name}
    step._task = task("restore_on_host")
    step._play_context = SimpleNamespace(remote_user="root")
    step._connection = SimpleNamespace(
        get_option=lambda _name: None,
        put_file=lambda local, remote: shutil.copyfile(local, host.path(remote)),
        fetch_file=lambda remote, local: shutil.copyfile(host.path(remote), local),
    )

    def execute(*, module_name: str, module_args: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        del task_vars
        try:
            return (_tree if module_name.endswith("_host_tree") else _restore)(host, module_args)
        except HostError as error:
            return {"failed": True, "msg": str(error)}

    step._execute_module = execute
    found: dict[str, Any] = step.perform({"state": state, "snapshot": {}, **told})
    return found


def _tree(host: Host, wanted: dict[str, Any]) -> dict[str, Any]:
    changes: list[Any] = []
    found = _host_tree._perform(host, {"restart": True, "timeout": 0, **wanted}, False, changes)
    return {**_host_tree._told(changes), **found}


def _restore(host: Host, wanted: dict[str, Any]) -> dict[str, Any]:
    plain = {"units": [], "folder": "", "url": "", "flags": [], "member": {}, "admission": {}, **wanted}
    found = _host_restore._perform(host, plain, False)
    return {"changed": _host_restore.wanted_change(plain["state"], False, found), **found}
