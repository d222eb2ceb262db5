# Copyright the karmada.installer authors
# SPDX-License-Identifier: Apache-2.0
"""Programs of a control plane on a plain host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_programs
short_description: Install the programs of a control plane on a plain host
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    The programs that the components of a host need, side by side by version, so that an upgrade can go back. The action
    of the same name gets them from the source that the document names, and sends those that the host does not have.
  - Each is looked at by its checksum on both sides.
options:
  programs:
    description: Programs, each with C(path) and C(sha256).
    type: list
    elements: dict
    required: true
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
    description: >-
      Files that belong to them, by checksum. Without it, the module only says which programs are missing.
    type: dict
attributes:
  check_mode:
    support: full
    description: Says which programs would be installed.
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
- name: Look which programs a host lacks
  karmada.installer.host_programs:
    programs:
      - path: /usr/local/lib/karmada/v3.6.16/etcd
        sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
  become: true
"""

RETURN = r"""
missing:
  description: Paths of the programs that were not there, or not as they should be.
  returned: always
  type: list
  elements: str
  sample: [/usr/local/lib/karmada/v3.6.16/etcd]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.karmada.installer.plugins.module_utils import host_programs
from ansible_collections.karmada.installer.plugins.module_utils.host_tree import HostError, System


def main() -> None:
    """Run on the host."""
    module = AnsibleModule(
        argument_spec={
            "programs": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {"path": {"type": "path", "required": True}, "sha256": {"type": "str", "required": True}},
            },
            "arrived": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    system = System()
    missing = host_programs.missing(system, module.params["programs"])
    try:
        if missing and module.params["arrived"] is not None and not module.check_mode:
            host_programs.install(system, missing, module.params["arrived"])
    except HostError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(missing), missing=[program["path"] for program in missing])


if __name__ == "__main__":
    main()
