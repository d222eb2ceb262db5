# SPDX-License-Identifier: Apache-2.0
"""Room in the database of the member of etcd on a plain host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: _etcd_room
short_description: "Inner step on a host: have its member of etcd give back room"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Sends the member of etcd on this host one request of maintenance, from this host and with the certificate of the
    member. Refused unless O(holder) has the lock of this host.
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
      - V(compacted) discards what is older than O(revision), in all members.
      - V(defragmented) gives the free space of its database back to the disk. It answers nobody meanwhile.
      - V(disarmed) clears the alarm NOSPACE of O(member).
    type: str
    choices: [compacted, defragmented, disarmed]
    required: true
  url:
    description: The client URL of the member.
    type: str
    required: true
  folder:
    description: The folder with ca.crt, tls.crt and tls.key of the member.
    type: str
    required: true
  revision:
    description: The revision that V(compacted) is about.
    type: int
    default: 0
  member:
    description: The ID of the member that V(disarmed) is about, in hexadecimal digits.
    type: str
attributes:
  check_mode:
    support: full
    description: Nothing is compacted, defragmented or disarmed.
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
- name: Defragment the member of etcd on this host
  karmada.installer._etcd_room:
    name: prod
    holder: me
    state: defragmented
    url: https://192.0.2.11:2379
    folder: /etc/karmada/prod/etcd/pki/server
  become: true
"""

RETURN = r"""
holder:
  description: Who has the lock.
  returned: when it is another one
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.karmada.installer.plugins.module_utils import etcd_member, etcd_requests, host_module
from ansible_collections.karmada.installer.plugins.module_utils.host_system import System


def main() -> None:
    """Run on the host."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "holder": {"type": "str", "required": True},
            "state": {"type": "str", "required": True, "choices": ["compacted", "defragmented", "disarmed"]},
            "url": {"type": "str", "required": True},
            "folder": {"type": "str", "required": True},
            "revision": {"type": "int", "default": 0},
            "member": {"type": "str"},
        },
        required_if=[("state", "disarmed", ["member"])],
        supports_check_mode=True,
    )
    with host_module.refusals_told(module):
        changed = _perform(System(), module.params, module.check_mode)
    module.exit_json(changed=changed)


def _perform(system: System, wanted: dict[str, Any], check: bool) -> bool:
    with host_module.working(system, wanted, check):
        post = etcd_member.poster(system, wanted["url"], wanted["folder"])
        if check:
            return True
        if wanted["state"] == "compacted":
            return etcd_member.compact(post, wanted["revision"])
        if wanted["state"] == "defragmented":
            etcd_requests.defragment(post)
        else:
            etcd_requests.disarm(post, wanted["member"], "NOSPACE")
        return True


if __name__ == "__main__":
    main()
