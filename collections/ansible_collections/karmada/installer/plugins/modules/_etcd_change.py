# SPDX-License-Identifier: Apache-2.0
"""Change of the members of etcd, asked for on a plain host that has one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: _etcd_change
short_description: "Inner step on a host: change the members of etcd by way of its own"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Sends the member of etcd on this host one request that changes the members, from this host and with the certificate
    of the member. Refused unless O(holder) has the lock of this host.
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
      - V(added) adds a member without a vote, which others are to reach at O(peer_url).
      - V(promoted) gives the member O(identity) its vote.
      - V(removed) removes the member O(identity).
      - V(led) has the member O(identity) lead in place of the one on this host.
    type: str
    choices: [added, promoted, removed, led]
    required: true
  url:
    description: The client URL of the member on this host.
    type: str
    required: true
  folder:
    description: The folder with ca.crt, tls.crt and tls.key of the member.
    type: str
    required: true
  identity:
    description: The ID of the member that the request is about, in hexadecimal digits.
    type: str
    default: ""
  peer_url:
    description: The URL at which the other members reach the one that is added.
    type: str
    default: ""
  seconds:
    description: >-
      For how long the request is repeated while etcd refuses it because members have not been connected for five
      seconds.
    type: int
    default: 0
attributes:
  check_mode:
    support: full
    description: Nothing is asked of etcd.
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
- name: Give a member its vote
  karmada.installer._etcd_change:
    name: prod
    holder: me
    state: promoted
    url: https://192.0.2.11:2379
    folder: /etc/karmada/prod/etcd/pki/server
    identity: 8e9e05c52164694d
  become: true
"""

RETURN = r"""
added:
  description: The ID of the member that was added.
  returned: when one was added
  type: str
known:
  description: The members after it, in the form of their answer.
  returned: when they have changed
  type: dict
later:
  description: Why it cannot be done yet.
  returned: when a later request may succeed
  type: str
holder:
  description: Who has the lock.
  returned: when it is another one
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.karmada.installer.plugins.module_utils import etcd_member, host_module
from ansible_collections.karmada.installer.plugins.module_utils.host_system import System


def main() -> None:
    """Run on the host."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "holder": {"type": "str", "required": True},
            "state": {"type": "str", "required": True, "choices": ["added", "promoted", "removed", "led"]},
            "url": {"type": "str", "required": True},
            "folder": {"type": "str", "required": True},
            "identity": {"type": "str", "default": ""},
            "peer_url": {"type": "str", "default": ""},
            "seconds": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    with host_module.refusals_told(module):
        found = _perform(System(), module.params, module.check_mode)
    module.exit_json(**found)


def _perform(system: System, wanted: dict[str, Any], check: bool) -> dict[str, Any]:
    with host_module.working(system, wanted, check):
        post = etcd_member.poster(system, wanted["url"], wanted["folder"])
        if check:
            return {"changed": True}
        told = {name: wanted[name] for name in ("identity", "peer_url", "seconds")}
        return etcd_member.change(post, wanted["state"], **told)


if __name__ == "__main__":
    main()
