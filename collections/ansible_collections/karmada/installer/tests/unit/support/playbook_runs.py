# SPDX-License-Identifier: Apache-2.0
"""Playbooks that Ansible runs as they are, with actions that note what they are given and answer as a test says."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands
from ansible_collections.karmada.installer.tests.unit.support.samples import document

COLLECTION = Path(__file__).parents[3]
NOTES = """
import json, os
from ansible.plugins.action import ActionBase
from ansible_collections.karmada.installer.plugins.plugin_utils.run import selection

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        name, args = self._task.action.rpartition(".")[2], self._task.args
        with open(os.environ["STEPS"], "a+") as steps:
            steps.seek(0)
            before = [json.loads(line) for line in steps]
            selected = selection.of_variables(task_vars)
            host = self._task.delegate_to or task_vars["inventory_hostname"]
            where = {"host": host} if name in ("etcd_change", "host_components", "host_observe") else {}
            steps.write(json.dumps({"step": name, "selected": selected, **where, **args}) + "\\n")
        results = json.loads(os.environ["RESULTS"])
        part = args.get("stage") or args.get("state")
        found = results.get(f"{name} {part}") or results.get(name) or {"changed": False}
        if isinstance(found, list):
            # One answer after the other, to those who ask for the same.
            times = sum(each["step"] == name and part in (each.get("stage"), each.get("state")) for each in before)
            found = found[min(times, len(found) - 1)]
        return found
"""
BROKEN = [{"name": "m1", "problem": "it does not answer", "next": "mend it"}]
LATE = [{"name": "m2", "problem": "it is not ready", "next": "wait"}]
STAYS = [{"name": "m3", "problem": "it has not left", "next": "give it up"}]
#: Arguments of the report, but the members that are broken.
REPORT = {"step": "report", "selected": [], "form": "json", "fail_on_drift": False, "backups": []}
#: Answer of who decides steps with members of etcd on hosts, if there is nothing to do.
NO_STEP = {
    "changed": False,
    "step": "",
    "host": "",
    "member": "",
    "identity": "",
    "wait": True,
    "done": True,
    "follows": "",
    "before": "",
    "stops": False,
}
RESULTS: dict[str, Any] = {
    "preflight": {"changed": False, "installed": True, "broken_members": BROKEN, "document_seen": {}},
    "member_join": {"changed": True, "broken_members": BROKEN, "has_agents_on_hosts": False},
    "member_join readiness": {"changed": False, "broken_members": [*BROKEN, *LATE], "has_agents_on_hosts": False},
    "member_leave leave": {"changed": False, "broken_members": STAYS},
    "report": {
        "changed": False,
        "status": {},
        "artifact": {},
        "summary": ["what there is"],
        "failure": "m1: it does not answer",
    },
    "differences": {"changed": False, "found": ["it is not installed"]},
    "hosts_leaving": {"changed": False, "hosts": []},
    "scheduler_estimators": {"changed": False, "due": False},
    "journal": {"changed": False, "due": False},
    "etcd_members": NO_STEP,
    "programs": {"changed": False, "turns": []},
}


def run(
    playbook: str,
    tmp_path: Path,
    results: dict[str, Any],
    *options: str,
    mode: str = "Container",
    hosts: dict[str, Any] | None = None,
    grouped: bool = False,
    source: dict[str, Any] | None = None,
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """The command, and what each step was given, in order.

    ``playbook`` is the name of one of ours, or the text of a play. With ``grouped`` the group of all hosts has them.
    The inventory is written here, or what our plugin makes of this ``source``.
    """
    collection = tmp_path / "ansible_collections/karmada/installer"
    (collection / "plugins/action").mkdir(parents=True)
    for part in (
        "playbooks",
        "roles",
        "meta",
        "galaxy.yml",
        "plugins/modules",
        "plugins/doc_fragments",
        "plugins/module_utils",
        "plugins/plugin_utils",
        *(("plugins/inventory", "schemas") if source else ()),
    ):
        (collection / part).symlink_to(COLLECTION / part)
    for action in (COLLECTION / "plugins/action").glob("*.py"):
        (collection / "plugins/action" / action.name).write_text(NOTES)
    shutil.copy(COLLECTION / "galaxy.yml", tmp_path)
    deployment = document({"members": [{"name": each, "secretRef": {"name": each}} for each in ("m1", "m2")]})
    deployment["spec"]["mode"] = mode
    group = "karmada_in_pods" if mode == "Container" else "karmada_on_hosts"
    here = {"ansible_connection": "local", "karmada_deployment": deployment, "karmada_connection": {}}
    members = {name: {"ansible_connection": "local", "karmada_member_name": name} for name in ("m1", "m2")}
    empty: dict[str, Any] = {"hosts": {}}
    groups: dict[str, Any] = {
        **dict.fromkeys(("karmada_in_pods", "karmada_on_hosts", "karmada_hosts", "karmada_hosts_leaving"), empty),
        **dict.fromkeys(("karmada_etcd", "karmada_control_plane", "karmada_load_balancer", "karmada_agent"), empty),
        "karmada_members": {"hosts": members},
        **({"karmada_hosts": {"hosts": {name: {} for name in hosts or ()}}} if grouped else {}),
        group: {"hosts": {"karmada_control": here, **(hosts or {})}},
    }
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": groups}}))
    steps = tmp_path / "steps"
    steps.touch()
    if playbook.startswith("-"):
        (tmp_path / "play.yml").write_text(playbook)
    started = "play.yml" if playbook.startswith("-") else f"karmada.installer.{playbook}"
    if source:
        said = {"plugin": "karmada.installer.karmada", **source}
        (tmp_path / "site.karmada.yml").write_text(yaml.safe_dump(said))
    command = ["-i", "site.karmada.yml" if source else "hosts.yml", started, *options]
    done = ansible_commands.run(
        "ansible-playbook",
        *command,
        directory=tmp_path,
        collection=False,
        STEPS=str(steps),
        RESULTS=json.dumps(results),
    )
    return done, [json.loads(line) for line in steps.read_text().splitlines()]


def given(steps: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [each for each in steps if each["step"] == name]


def named(steps: list[dict[str, Any]]) -> list[str]:
    return [f"{each['step']} {each.get('stage', '')}".strip() for each in steps]
