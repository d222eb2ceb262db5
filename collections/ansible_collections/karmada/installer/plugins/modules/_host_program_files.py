# SPDX-License-Identifier: Apache-2.0
"""Programs of a control plane on a plain host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: _host_program_files
short_description: "Inner step on a host: install the programs of a control plane on a plain host"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Puts programs that were sent to a host into their places, side by side by version, so that an upgrade can go back.
    Each is looked at by its checksum there. M(karmada.installer.host_programs) sends them.
  - It fails, and changes nothing, unless O(holder) has the lock that M(karmada.installer._host_state) takes.
options:
  name:
    description: Name of the control plane.
    type: str
    required: true
  holder:
    description: Who holds the lock of the control plane on this host.
    type: str
    required: true
  programs:
    description: Programs, each with C(path) and C(sha256).
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Where it belongs.
        type: path
        required: true
      sha256:
        description: Its checksum.
        type: str
        required: true
  arrived:
    description: The files that were sent, by checksum.
    type: dict
    default: {}
  state:
    description: >-
      V(absent) removes the versions that no unit of the host names; none while a run works on another control plane
      there.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    support: full
    description: Nothing is installed.
  diff_mode:
    support: none
    description: Programs are binary.
  platform:
    support: full
    platforms: posix
    description: Linux.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
"""

EXAMPLES = r"""
- name: Install a program that was sent before
  karmada.installer._host_program_files:
    name: prod
    holder: me
    programs:
      - path: /usr/local/lib/karmada/v3.6.16/etcd
        sha256: "{{ etcd_sha256 }}"
    arrived: "{{ {etcd_sha256: '/home/ansible/etcd'} }}"
  become: true
"""

RETURN = r"""
removed:
  description: Folders of the versions that were removed.
  returned: O(state=absent)
  type: list
  elements: str
  sample: [/usr/local/lib/karmada/v3.6.16]
holder:
  description: Who has the lock.
  returned: when it is another one
  type: str
installed:
  description: Paths of the programs.
  returned: O(state=present)
  type: list
  elements: str
  sample: [/usr/local/lib/karmada/v3.6.16/etcd]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.karmada.installer.plugins.module_utils import host_module, host_program_files
from ansible_collections.karmada.installer.plugins.module_utils.host_system import System


def main() -> None:
    """Run on the host."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "holder": {"type": "str", "required": True},
            "programs": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"path": {"type": "path", "required": True}, "sha256": {"type": "str", "required": True}},
            },
            "arrived": {"type": "dict", "default": {}},
            "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
        },
        supports_check_mode=True,
    )
    with host_module.refusals_told(module):
        result = _perform(System(), module.params, module.check_mode)
    module.exit_json(**result)


def _perform(system: System, wanted: dict[str, Any], check: bool) -> dict[str, Any]:
    with host_module.working(system, wanted, check):
        if wanted["state"] == "absent":
            gone = host_program_files.remove_unused(system, "/usr/local/lib/karmada", wanted["name"], check)
            return {"changed": bool(gone), "removed": gone}
        programs = wanted["programs"]
        if not check:
            host_program_files.install(system, programs, wanted["arrived"])
        return {"changed": bool(programs), "installed": [program["path"] for program in programs]}


if __name__ == "__main__":
    main()
