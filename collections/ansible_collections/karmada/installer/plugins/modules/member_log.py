# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: member_log
short_description: "Inner step: read on a plain host why members are not Ready"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Karmada says of a member that it does not reach no more than that. karmada-controller-manager logs why. This reads
    the newest line about each of these members in the journal of a host; M(karmada.installer.member_join) with
    O(karmada.installer.member_join#module:stage=reasons) tells it.
  - >-
    It does not fail where nothing can be read.
options:
  members:
    description: Names of the members.
    type: list
    elements: str
    required: true
extends_documentation_fragment:
  - karmada.installer.host_attributes
attributes:
  check_mode:
    description: It changes nothing anyway.
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Read on the hosts why they are not ready
  karmada.installer.member_log:
    members: "{{ member_join_result.not_ready }}"
  become: true
  no_log: true
"""

RETURN = r"""
changed:
  description: Always false; the lines are kept on the control node, for the next M(karmada.installer.member_join).
  returned: always
  type: bool
  sample: false
"""
