# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: reach_from_host
short_description: "Inner step: look whether a plain host reaches what it has to"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Connects from the host to everything that M(karmada.installer.reach_targets) has named for it, all at once and for
    5 seconds at most, and looks whether the certificates are right. Nothing is sent but what begins a connection.
  - >-
    What is not reached does not fail the task. M(karmada.installer.preflight) tells of it.
extends_documentation_fragment:
  - karmada.installer.host_attributes
attributes:
  check_mode:
    description: It changes nothing anyway.
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Look at members from the hosts
  karmada.installer.reach_from_host:
  when: inventory_hostname in karmada_reach_targets.hosts
"""

RETURN = r"""
unreached:
  description: The names of what it does not reach.
  returned: always
  type: list
  elements: str
  sample: [m1]
"""
