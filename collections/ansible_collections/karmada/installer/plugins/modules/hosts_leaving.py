# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hosts_leaving
short_description: "Inner step: find the plain hosts that have left the document"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Says which hosts a control plane on plain hosts had and the document has no more, as long as something may be left
    on them: the state that M(karmada.installer.host_observe) has read from the other hosts names them. Says, too, how
    Ansible reaches them, with the same keys and the same checks of host keys as the hosts of the document.
  - >-
    A host that has only got another name, with the address that it had, is none of them.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
attributes:
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.host_components
"""

EXAMPLES = r"""
- name: Find the hosts that have left the document
  karmada.installer.hosts_leaving:
  register: hosts_leaving_result
  run_once: true
"""

RETURN = r"""
hosts:
  description: The hosts, in the order in which they came.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the host.
      returned: always
      type: str
      sample: cp3
    entry:
      description: Its last entry of the document.
      returned: always
      type: dict
      sample: {"name": "cp3", "address": "192.0.2.13", "roles": ["controlPlane"]}
    variables:
      description: Its connection variables. Those that another inventory source has for it win.
      returned: always
      type: dict
      sample: {"ansible_host": "192.0.2.13", "ansible_port": 22}
"""
