# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_journal
short_description: Write the installer's state to a plain host, or let go of the host
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    The installer's state of a control plane on plain hosts lies on those with the role C(controlPlane), readable for
    root only. The others of the control plane know its serial and digest only, because keys of authorities are in it.
    M(karmada.installer.instance_state) says what is to be written; a host that has it already is not asked.
  - >-
    Beneath a control plane in pods the state is in the host cluster, and a host only has the lock to let go of.
options:
  state:
    description:
      - V(written) replaces the state. A host on which another one is than this run has seen refuses it.
      - V(absent) removes it.
      - V(kept) renews the lock of a host if no step has for a while, and fails if this run has lost it.
      - V(released) lets other runs change the host again.
    type: str
    required: true
    choices: [written, absent, kept, released]
  required:
    description: >-
      Whether a host that cannot do it fails the step. Otherwise it is noted for M(karmada.installer.hosts_outcome), so
      that one host does not keep the others from being let go.
    type: bool
    default: true
extends_documentation_fragment:
  - karmada.installer.host_attributes
attributes:
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Let others write again
  karmada.installer.host_journal:
    state: released
  become: true
"""

RETURN = r"""
changed:
  description: Whether a state was removed. Writing it is bookkeeping and no change of the control plane.
  returned: always
  type: bool
  sample: false
"""
