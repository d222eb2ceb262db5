# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_maintenance
short_description: "Inner step: give free space of etcd's databases back, and clear the alarm NOSPACE"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Where a database is as large and has as much free space as the document says (C(components.etcd.local.maintenance)),
    or where etcd takes no writes because it is full, etcd is compacted to its current revision, and its members are
    defragmented, one after the other, the leader last. Before each, all members must be healthy.
  - >-
    The alarm NOSPACE is cleared once every member has given back its free space and has room.
  - >-
    Where nothing is due, nothing is asked of etcd but its status, and nothing is locked.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  state:
    description:
      - V(done) does what is due, for members in pods. Members on hosts are left alone.
      - V(decided) says what is due for members on hosts, by what M(karmada.installer.etcd_member) was told.
      - V(well) says whether members on hosts are to be asked again, because one is not well yet.
      - V(next) says which of the members in O(left) is to be defragmented next. The leader is the last.
      - V(concluded) says whose alarm is to be cleared, and fails if etcd is full of what is in use.
    type: str
    choices: [done, decided, well, next, concluded]
    default: done
  left:
    description: Names of the members that V(next) is about.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds for all members to be well again after each step.
    type: int
    default: 300
attributes:
  check_mode:
    details: Says what it would do.
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.etcd_member
  - module: karmada.installer.etcd_room_on_host
"""

EXAMPLES = r"""
- name: Make room in etcd
  karmada.installer.etcd_maintenance:
"""

RETURN = r"""
changes:
  description: What was done. In check mode, what would be.
  returned: with the state done
  type: list
  elements: str
  sample: [compacted Etcd prod, defragmented EtcdMember prod-etcd-0]
due:
  description: Whether anything is to be done on hosts.
  returned: with the state decided
  type: bool
  sample: true
order:
  description: The members to defragment, the leader last.
  returned: with the state decided
  type: list
  elements: str
  sample: [host2, host3, host1]
by:
  description: The member that is to compact, or to clear the alarms; empty if none is to.
  returned: with the states decided and concluded
  type: str
  sample: host1
revision:
  description: The revision to compact to.
  returned: with the state decided
  type: int
  sample: 4711
again:
  description: Whether to ask the members again.
  returned: with the state well
  type: bool
  sample: false
member:
  description: The member to defragment next; empty if none is left.
  returned: with the state next
  type: str
  sample: host2
left:
  description: Those that come after it.
  returned: with the state next
  type: list
  elements: str
  sample: [host3, host1]
identities:
  description: IDs of the members whose alarm is to be cleared.
  returned: with the state concluded
  type: list
  elements: str
  sample: [8e9e05c52164694d]
"""
