# SPDX-License-Identifier: Apache-2.0
"""Converges users, files and units of a plain host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: _host_tree
short_description: "Inner step on a host: bring users, files and systemd units of a host to what they should be"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    The host's half of a control plane on plain hosts: everything that the components of one host consist of is
    converged in one step. M(karmada.installer.host_components) makes the tree from the document; there is no need to
    call this by hand.
  - >-
    A unit is restarted if and only if it runs with something older than what the tree says, also after a run that was
    killed between writing a file and restarting.
  - >-
    Units and users under the same names that are not of this control plane are refused, before anything is changed.
  - >-
    It fails, and changes nothing, unless O(holder) has the lock that M(karmada.installer._host_state) takes. The lock
    is renewed as long as this works and waits; who loses it meanwhile waits no longer.
options:
  name:
    description: Name of the control plane.
    type: str
    required: true
  holder:
    description: Who holds the lock of the control plane on this host.
    type: str
    required: true
  tree:
    description: The tree, as JSON.
    type: str
    required: true
  state:
    description:
      - V(present) brings the host to what the tree says.
      - V(stopped) stops its units, and keeps them from starting with the machine.
      - V(absent) takes its units, folders and users away.
      - >-
        V(held) keeps the units of packages that it names from starting; V(present) and V(absent) leave them disabled.
    type: str
    choices: [present, stopped, absent, held]
    default: present
  restart:
    description: >-
      Whether units that run with older files are restarted. Without it they are left running and named in the result,
      and only what does not run is started.
    type: bool
    default: true
  wait_for:
    description:
      - Which units have to answer on their health endpoints before this returns.
      - >-
        V(running) waits until systemd has started all units, whatever they answer; one that takes longer than
        O(timeout), or ends again, is no failure.
    type: str
    choices: [none, running, started, all]
    default: all
  timeout:
    description: Seconds to wait.
    type: int
    default: 120
attributes:
  check_mode:
    support: full
    description: Says what would be changed, and changes nothing.
  diff_mode:
    support: full
    description: Shows what changes in files; of secrets only that they change.
  platform:
    support: full
    platforms: posix
    description: Linux with systemd.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
"""

EXAMPLES = r"""
# The form of a tree, by a unit without any file of its own beside it.
- name: Run a unit
  karmada.installer._host_tree:
    name: example
    holder: me
    tree: "{{ tree | to_json }}"
  vars:
    tree:
      owner: 5f0c3f0e-54a1-4a53-b7de-4ffb0a7c7a51
      users: []
      directories: []
      files:
        - path: /etc/systemd/system/example.service
          content: "{{ lookup('ansible.builtin.file', 'example.service') | b64encode }}"
          user: root
          mode: 420
          secret: false
      folders: []
      absent: {units: [], folders: [], users: []}
      held: []
      units:
        - name: example.service
          hash: 1a2b3c
          health:
            url: http://127.0.0.1:8080/healthz
            authority: ""
"""

RETURN = r"""
changes:
  description: What was done, or in check mode would be done, a line each.
  returned: always
  type: list
  elements: str
  sample:
    - change /etc/karmada/prod/karmada-scheduler/config/karmada.config
    - restart karmada-prod-scheduler.service
holder:
  description: Who has the lock.
  returned: when it is another one
  type: str
outdated:
  description: Units that run with older files.
  returned: success
  type: list
  elements: str
  sample: [karmada-prod-scheduler.service]
units:
  description: Each unit as it is, with C(program), what it runs, and C(reason), why it is not healthy.
  returned: success
  type: dict
"""

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.karmada.installer.plugins.module_utils import (
    held_units,
    host_lock,
    host_module,
    host_system,
    host_tree,
)


def main() -> None:
    """Run on the host."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "holder": {"type": "str", "required": True},
            "tree": {"type": "str", "required": True, "no_log": True},
            "state": {"type": "str", "default": "present", "choices": ["present", "stopped", "absent", "held"]},
            "restart": {"type": "bool", "default": True},
            "wait_for": {"type": "str", "default": "all", "choices": ["none", "running", "started", "all"]},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    changes: list[host_tree.Change] = []
    with host_module.refusals_told(module, lambda: _told(changes)):
        found = _perform(host_system.System(), module.params, module.check_mode, changes)
    module.exit_json(**_told(changes), **found)


def _perform(
    system: host_system.System, wanted: dict[str, Any], check: bool, changes: list[host_tree.Change]
) -> dict[str, Any]:
    """Add each change to ``changes`` as it is made; returns the other parts of the result."""
    tree, state = json.loads(wanted["tree"]), wanted["state"]
    with host_module.working(system, wanted, check):
        if state in ("present", "absent"):
            changes += held_units.release(system, tree, check)
        if state == "absent":
            changes += host_tree.remove(system, tree, check)
        elif state == "stopped":
            changes += host_tree.stop(system, tree, check)
        elif state == "held":
            changes += held_units.hold(system, tree, check)
        else:
            changes += host_tree.converge(system, tree, check, restart=wanted["restart"])
    if state != "present":
        return {}
    if not check and wanted["wait_for"] != "none":
        # No more changes follow: a run that takes over a stale lock need not wait for the units of this one.
        _wait(system, tree, wanted, changes)
    outdated = host_tree.outdated(system, tree, _started(changes))
    return {"outdated": outdated, "units": host_tree.observed(system, tree)}


def _wait(
    system: host_system.System, tree: host_tree.Tree, wanted: dict[str, Any], changes: list[host_tree.Change]
) -> None:
    def renew() -> None:
        host_lock.renew(system, wanted["name"], wanted["holder"])

    if wanted["wait_for"] == "running":
        names = [unit["name"] for unit in tree["units"]]
        host_system.wait_until_running(system, names, wanted["timeout"], renew)
    else:
        started = _started(changes) if wanted["wait_for"] == "started" else None
        host_tree.wait_until_healthy(system, tree, wanted["timeout"], started, renew)


def _started(changes: list[host_tree.Change]) -> set[str]:
    """Names of the units that run with the settings of the tree since these changes."""
    verbs = ("start ", "restart ", "reload ")
    return {change.what.split(" ", 1)[1] for change in changes if change.what.startswith(verbs)}


def _diff(change: host_tree.Change) -> dict[str, str]:
    """Diff for ``--diff``: the lines that differ, or words for a change without lines, such as a stopped unit."""
    if change.before == change.after:
        return {"prepared": f"{change.what}\n"}
    return {
        "before_header": change.what,
        "after_header": change.what,
        "before": change.before,
        "after": change.after,
    }


def _told(changes: list[host_tree.Change]) -> dict[str, Any]:
    return {
        "changed": bool(changes),
        "changes": [change.what for change in changes],
        "diff": [_diff(change) for change in changes],
    }


if __name__ == "__main__":
    main()
