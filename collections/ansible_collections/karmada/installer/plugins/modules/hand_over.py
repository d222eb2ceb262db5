# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hand_over
short_description: "Inner step: hand a control plane over to another place, one step at a time"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Takes the next step of a hand-over, or of the way back. Which one that is follows from the record in the installer's
    state and from what runs, so that a run that was killed is gone on with by the next one.
  - >-
    A hand-over stops what writes to members, the API servers and all else, takes the final backup of etcd, and stops
    that, too. Nothing starts here again, and other playbooks refuse to work on it. M(karmada.installer.restore) takes
    the control plane over at another place, from that backup.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  state:
    description:
      - >-
        V(begun) looks whether it can be left, requires its name in O(confirm), and opens the record. Where a hand-over
        is under way it does nothing.
      - >-
        V(next) looks whether the step O(step), whose rest tasks of the role have done, has come to its end, and puts
        that on record. Then it takes the next step, or none if what was asked for is reached. On plain hosts it takes
        those after it, too, up to one with tasks.
    type: str
    choices: [begun, next]
    default: next
  step:
    description: A step whose rest tasks of the role have done.
    type: str
    choices:
      - ""
      - BackUp
      - Prepare
      - StopWriters
      - StopServers
      - StopEtcd
      - StartEtcd
      - Prove
      - StartServers
      - Hold
      - StartAll
      - WakeAgents
      - Let
      - BackUpAgain
      - StopAll
      - StartFormer
      - Fence
    default: ""
  backups:
    description: The documents of kind EtcdBackup beside the document, as the inventory plugin has read them.
    type: list
    elements: dict
    default: []
  to:
    description: Name of the EtcdBackup in whose target the final backup goes, where there are several.
    type: str
    default: ""
  confirm:
    description: Name of the control plane, which says that it stops here for good.
    type: str
    default: ""
  undo:
    description: >-
      Take it back, and start the control plane here again. Refused if a member follows another place by now, or does
      not answer.
    type: bool
    default: false
  without:
    description: Members that do not answer, and that nobody has to be asked about before it is taken back.
    type: list
    elements: str
    default: []
  backup:
    description: Name of the final backup that tasks of the role have taken.
    type: str
    default: ""
  troubles:
    description: What went wrong with it.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds for each wait.
    type: int
    default: 600
attributes:
  check_mode:
    details: Looks whether it can be left. Of a hand-over under way it names the next step.
  diff_mode:
    details: Shows objects that are applied. What is decided next is not known before.
    support: partial
  idempotent:
    details: Where what was asked for is reached, nothing is done.
    support: full
"""

EXAMPLES = r"""
- name: Look whether it can be left, and ask for its name
  karmada.installer.hand_over:
    state: begun
    backups: "{{ karmada_backups }}"
    confirm: prod

- name: Take the next step
  karmada.installer.hand_over:
    backups: "{{ karmada_backups }}"
"""

RETURN = r"""
step:
  description: The last step that was taken; empty if what was asked for is reached.
  returned: success
  type: str
  sample: StopWriters
tasks:
  description: >-
    Tasks of the role that do the rest of this step, V(stages) for those of the role control_plane; empty if there is
    none.
  returned: with the state next
  type: str
goes_on:
  description: Whether there is a step after it.
  returned: with the state next
  type: bool
components:
  description: Components that these tasks stop or start.
  returned: with the state next, if a step was taken
  type: list
  elements: str
series:
  description: Name of the EtcdBackup.
  returned: with the state next, unless it was taken back
  type: str
backup:
  description: Name of the final backup.
  returned: with the state next, once it was handed over
  type: str
signer:
  description: Public key that has signed the final backup, which the other place has to be told.
  returned: with the state next, once it was handed over
  type: str
changes:
  description: What was changed. In check mode, the step that comes next.
  returned: success
  type: list
  elements: str
"""
