# SPDX-License-Identifier: Apache-2.0
"""Status of the member of etcd on a plain host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: _etcd_member
short_description: "Inner step on a host: ask its member of etcd"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Asks the member of etcd on this host, from this host and with the certificate of the member, so that the client port
    need not be open to the machine that Ansible runs on.
options:
  state:
    description:
      - V(seen) tells the status of the member, whom it lists, whether its data is there, and all folders with data.
      - V(hashed) tells the hash over its keys at O(revision), and the numbers of keys in O(ranges) then.
    type: str
    choices: [seen, hashed]
    default: seen
  url:
    description: The client URL of the member.
    type: str
    required: true
  folder:
    description: The folder with ca.crt, tls.crt and tls.key of the member.
    type: str
    required: true
  data:
    description: The folder with its data.
    type: str
    default: ""
  revision:
    description: The revision that V(hashed) is about.
    type: int
    default: 0
  ranges:
    description: Name to a list of the first key and the one after the last, both in base64, for V(hashed).
    type: dict
    default: {}
attributes:
  check_mode:
    support: full
    description: It never changes anything.
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
- name: Ask the member of etcd on this host
  karmada.installer._etcd_member:
    url: https://192.0.2.11:2379
    folder: /etc/karmada/prod/etcd/pki/server
  become: true
"""

RETURN = r"""
answer:
  description: What the member told, in the plain form that is checked where Ansible runs.
  returned: success
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.karmada.installer.plugins.module_utils import etcd_member, host_module
from ansible_collections.karmada.installer.plugins.module_utils.host_system import System


def main() -> None:
    """Run on the host."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "default": "seen", "choices": ["seen", "hashed"]},
            "url": {"type": "str", "required": True},
            "folder": {"type": "str", "required": True},
            "data": {"type": "str", "default": ""},
            "revision": {"type": "int", "default": 0},
            "ranges": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    with host_module.refusals_told(module):
        answer = _answer(System(), module.params)
    module.exit_json(changed=False, answer=answer)


def _answer(system: System, wanted: dict[str, Any]) -> dict[str, Any]:
    if wanted["state"] == "hashed":
        post, revision = etcd_member.poster(system, wanted["url"], wanted["folder"]), wanted["revision"]
        return {
            **etcd_member.hash_at(post, revision),
            **etcd_member.counted_at(post, revision, wanted.get("ranges") or {}),
        }
    return etcd_member.answered(system, wanted["url"], wanted["folder"], wanted["data"])


if __name__ == "__main__":
    main()
