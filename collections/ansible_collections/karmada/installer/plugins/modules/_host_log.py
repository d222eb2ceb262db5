# SPDX-License-Identifier: Apache-2.0
"""Recent log lines of a unit of a plain host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: _host_log
short_description: "Inner step on a host: find the newest lines of a unit's log"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - Reads the journal of a unit, and returns the last line with each of some texts in it.
  - Logs may hold what nobody else should read. Tasks are to be marked with C(no_log).
options:
  unit:
    description: Name of the unit.
    type: str
    required: true
  texts:
    description: What to look for.
    type: list
    elements: str
    required: true
  seconds:
    description: How far back to look.
    type: int
    required: true
  ignored:
    description: Lines with one of these texts in them do not count.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: It changes nothing anyway.
  diff_mode:
    support: none
    description: It changes nothing.
  platform:
    support: full
    platforms: posix
    description: Linux with systemd.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
"""

EXAMPLES = r"""
- name: What does Karmada say of the member
  karmada.installer._host_log:
    unit: karmada-prod-controller-manager.service
    texts: ['cluster="m1"']
    seconds: 180
  become: true
  no_log: true
"""

RETURN = r"""
lines:
  description: Text to the last line that has it in it, without those that no line has.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.karmada.installer.plugins.module_utils import host_log, host_module
from ansible_collections.karmada.installer.plugins.module_utils.host_system import System


def main() -> None:
    """Run on the host."""
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "texts": {"type": "list", "elements": "str", "required": True},
            "seconds": {"type": "int", "required": True},
            "ignored": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    with host_module.refusals_told(module):
        lines = host_log.newest_lines(System(), wanted["unit"], wanted["texts"], wanted["seconds"], wanted["ignored"])
    module.exit_json(changed=False, lines=lines)


if __name__ == "__main__":
    main()
