# SPDX-License-Identifier: Apache-2.0
"""Snapshot of the member of etcd on a plain host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: _etcd_snapshot
short_description: "Inner step on a host: write the database of its member of etcd into a file"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Asks the member of etcd on this host for its database, from this host and with the certificate of the member, and
    writes it into a file that O(reader) alone can read, to be fetched at once. Refused unless O(holder) has the lock of
    this host.
options:
  name:
    description: Name of the control plane.
    type: str
    required: true
  holder:
    description: Who has the lock.
    type: str
    required: true
  state:
    description:
      - V(taken) writes the file.
      - V(absent) deletes it.
    type: str
    choices: [taken, absent]
    required: true
  url:
    description: The client URL of the member.
    type: str
    default: ""
  folder:
    description: The folder with ca.crt, tls.crt and tls.key of the member.
    type: str
    default: ""
  reader:
    description: The user that fetches it.
    type: str
    default: root
attributes:
  check_mode:
    support: full
    description: Nothing is written.
  diff_mode:
    support: none
  platform:
    support: full
    platforms: posix
    description: Linux with systemd.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
"""

EXAMPLES = r"""
- name: Write the database of the member of etcd on this host into a file
  karmada.installer._etcd_snapshot:
    name: prod
    holder: me
    state: taken
    url: https://192.0.2.11:2379
    folder: /etc/karmada/prod/etcd/pki/server
  become: true
"""

RETURN = r"""
size:
  description: The size of the file in bytes.
  returned: when it was taken
  type: int
acknowledged:
  description: The revision that a majority of the members had before, which is in it.
  returned: when it was taken
  type: int
holder:
  description: Who has the lock.
  returned: when it is another one
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.karmada.installer.plugins.module_utils import host_module, host_snapshot
from ansible_collections.karmada.installer.plugins.module_utils.host_system import System


def main() -> None:
    """Run on the host."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "holder": {"type": "str", "required": True},
            "state": {"type": "str", "required": True, "choices": ["taken", "absent"]},
            "url": {"type": "str", "default": ""},
            "folder": {"type": "str", "default": ""},
            "reader": {"type": "str", "default": "root"},
        },
        supports_check_mode=True,
    )
    with host_module.refusals_told(module):
        result = _perform(System(), module.params, module.check_mode)
    # A copy for a backup is no change of the host.
    module.exit_json(changed=False, **result)


def _perform(system: System, wanted: dict[str, Any], check: bool) -> dict[str, Any]:
    name = wanted["name"]
    if check:
        return {}
    with host_module.working(system, wanted, check):
        if wanted["state"] == "taken":
            return host_snapshot.take(system, name, wanted["url"], wanted["folder"], wanted["reader"])
        host_snapshot.remove(system, name)
    return {}


if __name__ == "__main__":
    main()
