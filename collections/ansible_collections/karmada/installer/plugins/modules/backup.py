# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: backup
short_description: "Inner step: take, list, verify and try backups of a control plane"
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
      - V(placed) tells which plain host the backups lie on, if they do. The other states have to be delegated to it.
      - V(taken) takes what is due, or what O(now) names, and deletes what is not kept any more after each success.
        Of members of etcd on plain hosts it only says what is due.
      - V(begun) says which hosts are to send and to prove a database, now that all are locked, and hands on the key
        that signs backups, which they keep before the first one.
      - V(stored) proves O(snapshot), which came from a plain host, and stores it, as V(taken) does of members in pods.
      - V(recorded) makes a backup of that, with the hosts locked again, if etcd is still the same.
      - V(listed) tells what lies in each target.
      - V(verified) fetches one, or the newest of each series, and compares it with its record.
      - V(drilled) starts etcd and kube-apiserver from it on the machine that Ansible runs on, reads every object, and
        tells how long that took. It needs O(identity).
    type: str
    choices: [placed, taken, begun, stored, recorded, listed, verified, drilled]
    default: taken
  backups:
    description: The documents of kind EtcdBackup beside the document, as the inventory plugin has read them.
    type: list
    elements: dict
    default: []
  restores:
    description: >-
      The documents of kind EtcdRestore beside the document. A backup that one of them names is not deleted, as long as
      that restore is not over.
    type: list
    elements: dict
    default: []
  now:
    description: Name of an EtcdBackup of which a backup is taken at once, due or not. No other is looked at.
    type: str
    default: ""
  only:
    description: Name of the only EtcdBackup of which one is V(taken) if it is due. No other is looked at.
    type: str
    default: ""
  name:
    description: Name of the backup that V(verified) or V(drilled) is about. Without it, the newest of each series.
    type: str
    default: ""
  identity:
    description:
      - File with a private key of a recipient, as C(age-keygen) writes it, on the machine that Ansible runs on.
      - With it V(verified) decrypts the backup and restores it on trial; V(drilled) has to have one.
    type: path
    default: ""
  at_once:
    description: >-
      Whether the backup that V(begun) and V(stored) are about was asked for, due or not. Of a quarantine no other one
      is taken.
    type: bool
    default: false
  snapshot:
    description: Result of M(karmada.installer.etcd_snapshot), for V(stored) and V(recorded).
    type: dict
    default: {}
  sender:
    description: Host that has sent it.
    type: str
    default: ""
  witness:
    description: Host whose member has told the hash of its content at the same revision.
    type: str
    default: ""
  last:
    description: >-
      Whether there is no other attempt after this one. Then V(stored) takes also what could not be compared with
      another member.
    type: bool
    default: true
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

- name: See which plain host backups lie on
  karmada.installer.backup:
    state: placed
    backups: "{{ karmada_backups }}"
  register: backup_placed

- name: Take one now
  karmada.installer.backup:
    backups: "{{ karmada_backups }}"
    now: nightly
  delegate_to: "{{ backup_placed.host | default(omit, true) }}"
  become: "{{ backup_placed.host | length > 0 }}"
"""

RETURN = r"""
changes:
  description: What was taken and deleted. In check mode, the series that would be taken.
  returned: with the state taken
  type: list
  elements: str
  sample: [created Backup prod-20261125t020000z-1f3a9c]
on_hosts:
  description: The O(now) of each backup that is due.
  returned: with the state taken, where one is due and members of etcd are on plain hosts
  type: list
  elements: str
host:
  description: The plain host that backups lie on; empty if they lie elsewhere.
  returned: with the state placed
  type: str
sender:
  description: The host whose member is to send its database.
  returned: with the state begun
  type: str
witness:
  description: The host whose member is to prove it.
  returned: with the state begun
  type: str
troubles:
  description: What has kept a series from being taken. The role fails with all of them at its end.
  returned: with C(on_hosts), and with the states stored and recorded
  type: list
  elements: str
stored:
  description: Whether it lies in the target now.
  returned: with the states stored and recorded
  type: bool
anew:
  description: Whether it has to be begun anew, because of what happened meanwhile.
  returned: with the states stored and recorded
  type: bool
name:
  description: Name of the backup that was made.
  returned: with the state recorded, if one was made
  type: str
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
drilled:
  description: >-
    Each backup that was served, with its C(ageSeconds), its C(revision), the C(counts) of what was read by kind, and
    the C(seconds) of each part of the way.
  returned: with the state drilled
  type: list
  elements: dict
  sample:
    - name: prod-20261125t020000z-1f3a9c
      series: nightly
      ageSeconds: 1800
      revision: 48213
      counts: {works: 212, secrets: 31}
      seconds: {fetched: 0.6, restored: 0.9, served: 4.1, read: 0.3}
"""
