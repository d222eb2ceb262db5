# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_room_on_host
short_description: "Inner step: have the member of etcd on a plain host compact, defragment, or clear the alarm"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Has the member of etcd on a host do one step of what M(karmada.installer.etcd_maintenance) has decided, asked from
    that host. It is refused if a member was not well when M(karmada.installer.etcd_member) asked all of them last.
extends_documentation_fragment:
  - karmada.installer.host_attributes
options:
  state:
    description:
      - V(compacted) discards what is older than O(revision), in all members.
      - V(defragmented) gives the free space of its database back to the disk.
      - V(disarmed) clears the alarm NOSPACE of O(identities).
    type: str
    choices: [compacted, defragmented, disarmed]
    required: true
  revision:
    description: The revision to compact to.
    type: int
    default: 0
  identities:
    description: IDs of members, in hexadecimal digits.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Says that it would.
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.etcd_maintenance
"""

EXAMPLES = r"""
- name: Defragment the member on this host
  karmada.installer.etcd_room_on_host:
    state: defragmented
  become: true
"""

RETURN = r"""
changes:
  description: What was done. In check mode, what would be.
  returned: success
  type: list
  elements: str
  sample: [defragmented EtcdMember host1]
"""
