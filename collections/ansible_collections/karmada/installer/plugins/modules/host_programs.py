# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_programs
short_description: "Inner step: install the programs of a control plane on a plain host"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Sends the programs that M(karmada.installer.programs) has brought to the controller for this host. They lie side by
    side by version, so that an upgrade can go back. Each is looked at by its checksum where it comes from and where it
    arrives; one that was touched since is sent again.
options:
  state:
    description: >-
      V(absent) removes the versions that no unit of the host names; none while a run works on another control plane
      there.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - karmada.installer.host_attributes
attributes:
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Send the programs that the host lacks
  karmada.installer.host_programs:
  become: true
"""

RETURN = r"""
installed:
  description: Paths of the programs that were sent, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [/usr/local/lib/karmada/v3.6.16/etcd]
"""
