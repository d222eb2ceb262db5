# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: backup
short_description: "Inner step: take, list and verify backups of a control plane"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Works on each EtcdBackup of the control plane: those beside its document, or the objects in its namespace.
  - >-
    A backup is a snapshot of etcd and the installer's state, encrypted to the recipients of its document. It counts
    only after the snapshot was restored on trial, what was stored has come back, and a signed record lies beside it.
    The control plane has no private key that opens it.
  - >-
    The failure of one series keeps no other from its work; the step fails when all are done.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  state:
    description:
      - V(taken) takes what is due, or what O(now) names, and deletes what is not kept any more after each success.
      - V(listed) tells what lies in each target.
      - V(verified) fetches one, or the newest of each series, and compares it with its record.
    type: str
    choices: [taken, listed, verified]
    default: taken
  backups:
    description: The documents of kind EtcdBackup beside the document, as the inventory plugin has read them.
    type: list
    elements: dict
    default: []
  now:
    description: Name of an EtcdBackup of which a backup is taken at once, due or not. No other is looked at.
    type: str
    default: ""
  name:
    description: Name of the backup that V(verified) is about. Without it, the newest of each series.
    type: str
    default: ""
  identity:
    description:
      - File with a private key of a recipient, as C(age-keygen) writes it, on the machine that Ansible runs on.
      - With it V(verified) decrypts the backup and restores it on trial.
    type: path
    default: ""
attributes:
  check_mode:
    details: Says what it would take. What would be deleted then is not known before.
  diff_mode:
    support: none
  idempotent:
    details: Where nothing is due, it takes nothing. With O(now) it takes a backup each time.
    support: partial
"""

EXAMPLES = r"""
- name: Take the backups that are due
  karmada.installer.backup:
    backups: "{{ karmada_backups }}"

- name: Take one now
  karmada.installer.backup:
    backups: "{{ karmada_backups }}"
    now: nightly
"""

RETURN = r"""
changes:
  description: What was taken and deleted. In check mode, the series that would be taken.
  returned: with the state taken
  type: list
  elements: str
  sample: [created Backup prod-20261125t020000z-1f3a9c]
backups:
  description: >-
    Each EtcdBackup with its C(name), its C(target) and its C(status) as its schema has it; with the state listed also
    C(backups), what lies there.
  returned: with the states taken and listed
  type: list
  elements: dict
verified:
  description: Each backup that was verified, with the C(proofs) that it has passed.
  returned: with the state verified
  type: list
  elements: dict
  sample: [{name: prod-20261125t020000z-1f3a9c, series: nightly, proofs: [stored]}]
"""
