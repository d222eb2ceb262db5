# Copyright the karmada.installer authors
# SPDX-License-Identifier: Apache-2.0
"""Programs of a control plane on a plain host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_program_files
short_description: Install the programs of a control plane on a plain host
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Puts programs that were sent to a host into their places, side by side by version, so that an upgrade can go back.
    Each is looked at by its checksum there. M(karmada.installer.host_programs) sends them.
options:
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
    description: V(absent) removes the versions that no unit of the host names.
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
  karmada.installer.host_program_files:
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
installed:
  description: Paths of the programs.
  returned: O(state=present)
  type: list
  elements: str
  sample: [/usr/local/lib/karmada/v3.6.16/etcd]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.karmada.installer.plugins.module_utils import host_program_files
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System


def main() -> None:
    """Run on the host."""
    module = AnsibleModule(
        argument_spec={
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
    if module.params["state"] == "absent":
        gone = host_program_files.remove_unused(System(), "/usr/local/lib/karmada", module.check_mode)
        module.exit_json(changed=bool(gone), removed=gone)
    programs = module.params["programs"]
    try:
        if not module.check_mode:
            host_program_files.install(System(), programs, module.params["arrived"])
    except HostError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(programs), installed=[program["path"] for program in programs])


if __name__ == "__main__":
    main()
