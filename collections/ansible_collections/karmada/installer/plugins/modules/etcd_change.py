# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_change
short_description: "Inner step: take one step with the members of etcd on plain hosts"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Takes a step that M(karmada.installer.etcd_members) has decided, on the host that it names, and puts on record what
    has come of it. What etcd cannot do yet changes nothing, so that the step is decided again.
extends_documentation_fragment:
  - karmada.installer.host_attributes
options:
  state:
    description:
      - V(added) adds O(member) without a vote, by way of the member on this host.
      - V(promoted) gives O(member) its vote.
      - V(removed) removes O(member) from etcd.
      - V(led) has the member O(identity) lead in place of that of this host.
      - V(stopped) stops what ran as O(member) on this host, and forgets it.
    type: str
    choices: [added, promoted, removed, led, stopped]
    required: true
  member:
    description: The name of the member, which is that of its host.
    type: str
    required: true
  identity:
    description: The ID of a member in hexadecimal digits.
    type: str
    default: ""
attributes:
  check_mode:
    details: Tells that it would be done.
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.etcd_members
"""

EXAMPLES = r"""
- name: Add a member
  karmada.installer.etcd_change:
    state: added
    member: etcd4
  become: true
  delegate_to: etcd1
"""

RETURN = r"""
changes:
  description: The member that has got its vote, or is gone.
  returned: when it has
  type: list
  elements: str
  sample: [created EtcdMember etcd4]
later:
  description: Why it cannot be done yet.
  returned: when a later try may succeed
  type: str
  sample: "it answers: etcdserver: can only promote a learner member which is in sync with leader"
"""
