# SPDX-License-Identifier: Apache-2.0
"""Failure with a reason if no document was loaded. Documentation: the module of the same name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ansible import constants
from ansible.errors import AnsibleError
from ansible.inventory.data import InventoryData
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import inventory_loader
from ansible_collections.karmada.installer.plugins.plugin_utils import libraries
from ansible_collections.karmada.installer.plugins.plugin_utils.document import inventory_source
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import k8s_auth
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.report import forms, predicted
from ansible_collections.karmada.installer.plugins.plugin_utils.run import (
    instances,
    inventory_parts,
    inventory_variables,
    not_given,
    phases,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.run.inventory_names import CONTROL, HOSTS, MEMBERS
from ansible_collections.karmada.installer.plugins.plugin_utils.run.said import say
from ansible_collections.karmada.installer.plugins.plugin_utils.run.selection import SHOWN

_not_loaded = partial(Problem, reason=Reason.DOCUMENT_NOT_LOADED)
_HOW_TO_START = f"Write an inventory source that names your document, and give it with -i:\n{inventory_source.EXAMPLE}"


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core ships no types
    """First step of every playbook."""

    TRANSFERS_FILES = False
    OPTIONS: ClassVar[dict[str, Any]] = {
        "limit": {"type": "str", "default": "control_plane", "choices": ["control_plane", "members", "any"]},
        "report": {"type": "str", "default": forms.JSON},
        "fail_on_drift": {"type": "bool", "default": False},
        "several": {"type": "str", "default": "choose", "choices": ["choose", "show"]},
    }

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Succeed if exactly one document was loaded; fail with the reason otherwise."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._task.args = not_given.left_out(self._task.args, self.OPTIONS)
        _validation, arguments = self.validate_argument_spec(argument_spec=self.OPTIONS)
        known = task_vars or {}
        sources = list(_files(known.get("ansible_inventory_sources") or ()))
        # A document may be called karmada.yaml, which is also a name of inventory sources.
        ours = [path for path in sources if inventory_source.is_ours(path) and not inventory_source.is_document(path)]
        problems: list[Problem] = []
        adopted: list[str] = []
        shown = arguments["several"] == "show" and instances.are_many(known)
        if shown:
            for line in instances.table(known):
                say(line)
        elif instances.are_there(known):
            problems, adopted = instances.adopted(known)
        # A source of ours that fails may have left some of its groups; it tells why itself.
        elif not ours and (part := inventory_parts.missing(known)):
            problems = [part]
        elif CONTROL not in known.get("groups", {}).get("all", ()):
            problems = self._reasons(sources, ours)
        elif other := instances.another(known):
            problems = [other]
        elif len(ours) > 1:
            remedy = "Give one of them, with -i, or as the only one in a directory of inventory sources."
            problems = [_not_loaded("a run works on one control plane, and these name more", _listed(ours), remedy)]
        # An inventory of one's own beside it may say more of hosts, and add none.
        elif part := inventory_parts.missing(known):
            problems = [part]
        elif known.get("ansible_limit") and arguments["limit"] != "any":
            problems = _of_limit(known, takes_members=arguments["limit"] == "members")
        # Without the libraries every later step would end with the traceback of an import.
        of_check = predicted.problem(fail_on_drift=arguments["fail_on_drift"], check=bool(self._task.check_mode))
        asked = [*_of_report(arguments["report"]), *([of_check] if of_check else [])]
        problems = [*libraries.all_missing(), *_of_debugging(), *asked, *problems]
        if problems:
            told = [each.plain for each in problems]
            of_programs = phases.failure(self._task, known.get("karmada_operation", ""), problems[0].reason)
            said = {"msg": str(ProblemsError(problems)), "problems": told}
            return {**result, "failed": True, "changed": False, **said, **of_programs}
        warnings = list(_of_environment(known, adopted[0] if adopted else ""))
        for each in warnings:
            say(f"{each.severity.value}: {each}")
        return {**result, "changed": False, "problems": [each.plain for each in warnings], "adopted": adopted}

    def _reasons(self, sources: list[str], ours: list[str]) -> list[Problem]:
        if not ours:
            return [_without_source(sources)]
        found = [problem for path in ours for problem in self._reasons_of(path)]
        what = "was read now, but not when the run began"
        return found or [_not_loaded(what, _listed(ours), "Start again.")]

    def _reasons_of(self, path: str) -> list[Problem]:
        """Problems of a source that gave no hosts: its own, or Ansible's reason for not reading it."""
        found = inventory_source.misnamed(path)
        try:
            inventory_source.load(path)
        except ProblemsError as error:
            found += error.problems
        if found:
            return found
        plugin = inventory_loader.get("karmada.installer.karmada")
        try:
            plugin.fill(InventoryData(), self._loader, path)
        except AnsibleError as error:
            return [Problem(str(error), inventory_source.short(path), reason=Reason.INVALID_INVENTORY_SOURCE)]
        remedy = "The setting INVENTORY_ENABLED (enable_plugins) must contain auto or karmada.installer.karmada."
        return [
            _not_loaded(
                "is in order, but the inventory plugin was not asked for it", inventory_source.short(path), remedy
            )
        ]


def _of_environment(variables: Mapping[str, Any], chosen: str) -> Iterable[Problem]:
    """Warnings if the API server is the one of the environment: of what it has switched off, and of what it leaves.

    ``chosen`` is the host of the control plane that was chosen among several; empty where there is one.
    """
    deployment, connection = inventory_variables.of_control(variables, chosen)
    if deployment is None:
        # All of several are shown.
        return
    if not any(name.startswith(k8s_auth.PREFIX) for name in os.environ):
        return
    if inventory_source.leaves_to_environment(deployment, connection or {}):
        # Imports the client of API servers, which most runs have no use for at this moment.
        from ansible_collections.karmada.installer.plugins.plugin_utils.kube import passed_over  # noqa: PLC0415

        yield from filter(None, [k8s_auth.unverified(os.environ), passed_over.problem(os.environ)])


def _of_report(given: str) -> list[Problem]:
    """Problem of an unknown form of the report, which the last step of the run would find otherwise."""
    # Where the inventory plugin has made the hosts, there is always a file.
    found = forms.problem(given, file="report")
    return [found] if found else []


def _of_debugging() -> list[Problem]:
    """Problem if debugging is on: it logs the results of modules, private keys included, despite ``no_log``."""
    if not constants.DEFAULT_DEBUG:
        return []
    what = "it prints what tasks with no_log read and write, private keys of the control plane among it"
    return [
        Problem(
            what, "ANSIBLE_DEBUG", "leave it out; -vvv tells much, and nothing secret", reason=Reason.SECRETS_EXPOSED
        )
    ]


def _of_limit(variables: Mapping[str, Any], *, takes_members: bool) -> list[Problem]:
    """Problems of hosts that ``--limit`` excludes and the run needs. The hosts of this play are those within it."""
    groups, within = variables["groups"], set(variables["ansible_play_hosts_all"])
    of_control_plane = [CONTROL, *groups.get(HOSTS, ())]
    members = sorted(within & set(groups.get(MEMBERS, ())))
    where = f"--limit {variables['ansible_limit']}"
    named = f"-e karmada_members={','.join(members[:SHOWN])}{',…' if len(members) > SHOWN else ''}"
    if members and takes_members:
        if len(of_control_plane) == 1:
            return []
        what = "a control plane on plain hosts is worked on with all of them, so that a limit cannot choose members"
        return [Problem(what, where, f"choose them with {named}", reason=Reason.INVALID_ARGUMENT)]
    missing = [name for name in of_control_plane if name not in within]
    what = f"it leaves out {', '.join(missing)}, and this playbook works on the control plane as a whole"
    remedy = f"leave it out; for single members: karmada.installer.members {named}" if members else "leave it out"
    return [Problem(what, where, remedy, reason=Reason.INVALID_ARGUMENT)] if missing else []


def _without_source(sources: list[str]) -> Problem:
    for path in sources:
        if inventory_source.is_document(path):
            example = inventory_source.EXAMPLE.replace("prod.yaml", Path(path).name)
            remedy = f"Write an inventory source that names it, beside it, and give that with -i:\n{example}"
            return _not_loaded("is a KarmadaDeployment, not an inventory source", inventory_source.short(path), remedy)
    what = "no KarmadaDeployment was given"
    missing = [path for path in sources if not Path(path).exists() and path != "/etc/ansible/hosts"]
    if missing:
        return _not_loaded(f"{what}, and there is no file of this name", _listed(missing), _HOW_TO_START)
    return _not_loaded(what, "", _HOW_TO_START)


def _listed(paths: Iterable[str]) -> str:
    return ", ".join(inventory_source.short(path) for path in paths)


def _files(sources: Iterable[Any]) -> Iterable[str]:
    """Files among the sources, and in directories of sources, as Ansible walks them."""
    for source in sources:
        path = Path(str(source))
        if path.is_dir():
            yield from _files(sorted(entry for entry in path.iterdir() if not entry.name.startswith(".")))
        elif "," not in str(source):
            yield str(source)
