# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: reach_targets
short_description: "Inner step: find out what plain hosts have to reach"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    The hosts of a control plane connect to the API servers of its members in mode Push. This finds those that are not
    known to be Ready, with the address and the CA of their kubeconfigs, for M(karmada.installer.reach_from_host). Hosts
    that run agents connect to the members that they serve, and to the endpoint of the control plane. Where its name is
    new, hosts look it up.
  - >-
    It does not fail. What is wrong is told by M(karmada.installer.preflight), together with everything else.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
attributes:
  check_mode:
    description: It changes nothing anyway.
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Find out which members the hosts have to reach
  karmada.installer.reach_targets:
  run_once: true
  register: karmada_reach_targets
"""

RETURN = r"""
hosts:
  description: Host name to the names of what it has to reach.
  returned: success
  type: dict
  sample:
    cp1: [m1]
"""
