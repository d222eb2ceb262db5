# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: restore
short_description: "Inner step: restore a control plane from a backup, one step at a time"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Takes the next step of a restore, of its release or of the way back. Which one that is follows from the record in
    the installer's state and from what runs, so that a run that was killed is gone on with by the next one.
  - >-
    A restore ends in quarantine: the control plane is exactly the backup, nothing that writes to members runs, and
    certificates of agents are refused. A person reads what members would get, and releases it or takes it back.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  goal:
    description:
      - V(quarantine) restores the backup that an EtcdRestore names.
      - >-
        V(release) lets the control plane work again, for all members or for a part of them. From then on there is no
        way back.
      - V(undo) starts the control plane with the data that it had before.
    type: str
    choices: [quarantine, release, undo]
    default: quarantine
  state:
    description:
      - >-
        V(begun) judges the backup, tells what is lost, requires its name in O(confirm), and opens the record. Where a
        restore is under way it does nothing, and refuses another backup than that; nor is one begun again that was
        released. Where no control plane is, it judges the backup of one that moves to here, whose O(signer) is named,
        and has its keys be the state of this place.
      - V(adopted) opens the record of such a move, with an empty etcd that works.
      - >-
        V(judged) tells of a member on a plain host that has survived (O(survivor)) whether its data is to be copied
        (M(karmada.installer.restore_on_host)) for V(begun), which judges that.
      - >-
        V(next) looks whether the step O(step), whose rest tasks of the role have done, has come to its end, and puts
        that on record. Then it takes the next step, or none if the goal is reached. On plain hosts it takes those after
        it, too, up to one with tasks.
      - >-
        V(held) writes what holds the members that are not released, and what lets others go, as far as V(next) has put
        that on record. Its next turn sees on each plain host whether it is in force, and does the rest.
      - >-
        V(delivered) fetches the backup and decrypts it into a folder of this run, for
        M(karmada.installer.restore_on_host); V(forgotten) removes that.
      - >-
        V(cleaned) removes data of etcd that a restore has put aside and that nobody uses any more, for good, and in
        pods volume claims of members that etcd has no more. It
        requires the name of the control plane in O(confirm), and is refused while a restore is under way. Of plain
        hosts it tells what is to go (RV(on_hosts)); M(karmada.installer.restore_on_host) removes that, and V(removed)
        puts on record that all of them have.
    type: str
    choices: [judged, begun, adopted, next, held, delivered, forgotten, cleaned, removed]
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
  backup:
    description: Name of the backup that these tasks have taken.
    type: str
    default: ""
  troubles:
    description: What went wrong with it.
    type: list
    elements: str
    default: []
  last:
    description: Whether a step that comes to nothing is not to be done again.
    type: bool
    default: true
  snapshot:
    description: What was delivered; with O(state=begun), the copy that has come of a survivor, which is deleted then.
    type: dict
    default: {}
  restores:
    description: The documents of kind EtcdRestore beside the document, as the inventory plugin has read them.
    type: list
    elements: dict
    default: []
  backups:
    description: The documents of kind EtcdBackup beside the document, as the inventory plugin has read them.
    type: list
    elements: dict
    default: []
  name:
    description: >-
      Name of the EtcdRestore, where there are several. With O(goal=release) and O(goal=undo) it has to be that of the
      restore on record.
    type: str
    default: ""
  confirm:
    description:
      - >-
        Name of the backup, which says that what is newer may be lost. Without it, that of the document counts, as do
        its C(foreignAgents) without O(foreign_agents), and its Secret without O(identity).
      - With the state V(cleaned), name of the control plane.
    type: str
    default: ""
  identity:
    description:
      - File with a private key of a recipient, as C(age-keygen) writes it, on the machine that Ansible runs on.
    type: path
    default: ""
  survivor:
    description: >-
      Name of a member of etcd that has its data while most others have lost theirs. With O(state=begun) what it has is
      kept as a backup, and that is restored; its name is that which O(confirm) requires. Without it, that of the
      document counts.
    type: str
    default: ""
  foreign_agents:
    description: Members in mode Pull whose agents are somebody else's, and were stopped by them.
    type: list
    elements: str
    default: []
  without_backup:
    description: >-
      Name of the backup that is restored, once more, to restore it although what is there cannot be backed up: the
      target takes nothing, or no copy of its etcd is sound. Its data stays beside the new in any case.
    type: str
    default: ""
  clusters:
    description:
      - >-
        Clusters that a release is about. What is left is held until it is released, too: the API server refuses Works
        there that are not suspended, and their deletion. Without O(clusters) and O(namespaces) all is released.
    type: list
    elements: str
    default: []
  namespaces:
    description: Namespaces on these clusters (on all of them, without O(clusters)) that a release is about.
    type: list
    elements: str
    default: []
  parts:
    description: >-
      Parts that a release is about beside that, each with C(clusters), C(namespaces) or both, which mean the same. So
      several are released by one run.
    type: list
    elements: dict
    default: []
  keep:
    description: >-
      Works of what is held, as C(CLUSTER/NAME), that were being deleted when the backup was taken, and whose objects
      stay on the cluster.
    type: list
    elements: str
    default: []
  let_go:
    description: Works like those of O(keep) whose objects are deleted from the cluster although it is held.
    type: list
    elements: str
    default: []
  signer:
    description: >-
      Public key that has signed the backup, where no control plane is and one moves to here. It was told by
      M(karmada.installer.hand_over), and is told by a list of its backups at the place that it comes from.
    type: str
    default: ""
  take_over:
    description: Name of the control plane, where the place that it comes from was not handed over, because it is lost.
    type: str
    default: ""
  unfenced:
    description: >-
      Members that do not answer when a control plane that has moved is released, and that may follow the place it came
      from until a run reaches them.
    type: list
    elements: str
    default: []
  joined:
    description: Members that tasks of the role have had follow this place in the step Fence.
    type: list
    elements: str
    default: []
  broken:
    description: Members that tasks of the role could not join anew in the step Fence.
    type: list
    elements: dict
    default: []
  timeout:
    description: Seconds for each wait.
    type: int
    default: 600
attributes:
  check_mode:
    details: >-
      Judges the backup, and says what is lost. Of a restore under way it names the next step, of old data what would be
      removed.
  diff_mode:
    details: Shows objects that are applied. What is decided next is not known before.
    support: partial
  idempotent:
    details: Where the goal is reached, nothing is done.
    support: full
"""

EXAMPLES = r"""
- name: Judge the backup, and ask for its confirmation
  karmada.installer.restore:
    state: begun
    restores: "{{ karmada_restores }}"
    backups: "{{ karmada_backups }}"
    identity: recovery.key
    confirm: prod-20261125t020000z-1f3a9c

- name: Take the next step
  karmada.installer.restore:
    restores: "{{ karmada_restores }}"
    backups: "{{ karmada_backups }}"
    identity: recovery.key

- name: Release one cluster, and hold the others
  karmada.installer.restore:
    goal: release
    clusters: [member1]

- name: Remove old data
  karmada.installer.restore:
    state: cleaned
    confirm: prod
"""

RETURN = r"""
step:
  description: The last step that was taken; empty if the goal is reached.
  returned: success
  type: str
  sample: StopWriters
anew:
  description: >-
    Whether something is let go, so that karmada-controller-manager is to begin anew: what was refused to it, it would
    try again after ever longer waits.
  returned: with V(held)
  type: bool
tasks:
  description: >-
    Tasks of the role that do the rest of this step, V(stages) for those of the role control_plane; empty if there is
    none.
  returned: with the state next
  type: str
components:
  description: Components that these tasks stop or start.
  returned: with the state next, if a step was taken
  type: list
  elements: str
series:
  description: Name of the EtcdBackup.
  returned: with the state next, if a step was taken
  type: str
adopted:
  description: Whether the keys of a backup are the state of this place, so that an empty etcd is to be started.
  returned: with the state begun, where no control plane is
  type: bool
again:
  description: Whether its tasks are to be done again.
  returned: with the state next
  type: bool
goes_on:
  description: Whether there is a step after it.
  returned: with the state next
  type: bool
on_hosts:
  description: Whether plain hosts have something to do for that.
  returned: with the state cleaned
  type: list
  elements: str
snapshot:
  description: The file, its size in bytes and its SHA-256.
  returned: with the state delivered
  type: dict
changes:
  description: What was changed. In check mode, the step that comes next.
  returned: success
  type: list
  elements: str
drift:
  description: >-
    What members have against what the restored control plane would make of them: for each member the C(counts) of each
    verdict (same, older, other, missing, orphan, suspended, going) and the names of objects that differ, and clusters
    that are C(gone), C(back) or C(forgotten).
  returned: with the step Compare, and when nothing is left to do in quarantine
  type: dict
released:
  description: >-
    What is released while the rest is held: the name of the C(restore), its C(clusters), each with the C(namespaces)
    that are released there (none for all of it), and the clusters of which something is C(held).
  returned: when the release of a part, or of everything, has come to its end; empty where nothing is held any more
  type: dict
  sample:
    restore: back
    clusters:
      - name: member2
        namespaces: [shop]
    held: [member1, member2]
"""
