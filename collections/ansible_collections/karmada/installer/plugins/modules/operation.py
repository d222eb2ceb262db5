# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: operation
short_description: End an operation on a control plane
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    The steps of a playbook share a lock, the Lease C(<name>-installer), and a journal in the installer's state.
    This ends them.
  - >-
    The journal is bookkeeping. Closing it is no change of the control plane, and the task never says that it
    changed something.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  state:
    description:
      - V(finished) closes the journal, records the document as carried out to its end, and lets go of the lock.
      - >-
        V(released) only lets go of the lock, if this run holds it. The journal stays open after a failure, so that the
        next run knows where the work stopped.
    type: str
    required: true
    choices: [finished, released]
attributes:
  diff_mode:
    support: none
notes:
  - >-
    In check mode it does nothing, because a check run neither takes the lock nor writes the journal.
seealso:
  - module: karmada.installer.preflight
"""

EXAMPLES = r"""
- name: Change something, and let others write again whatever happens
  block:
    - name: Join the members
      karmada.installer.member_join:
    - name: Close the journal
      karmada.installer.operation:
        state: finished
  always:
    - name: Let others write again
      karmada.installer.operation:
        state: released
"""

RETURN = r"""
changed:
  description: Always false.
  returned: success
  type: bool
  sample: false
"""
