# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: journal
short_description: "Inner step: open, write and close the journal of a run, and let go of what it has locked"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    The installer's state of a control plane says how far a run has come, so that the next one knows where the work has
    stopped. Of a control plane in pods it is a Secret of the host cluster, locked by the Lease C(<name>-installer). Of
    one on plain hosts it lies on those with the role C(controlPlane), readable for root only; the others know its
    serial and digest, because keys of authorities are in it. Each host has a lock of its own.
  - >-
    A task that is for a plain host, or is delegated to one, is about the copy of the state and the lock there. All
    other tasks are about the state as one, and are done once.
  - >-
    The journal is bookkeeping, and no step of it is a change of the control plane.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  state:
    description:
      - >-
        V(chosen) takes the state that M(karmada.installer.host_observe) has found on more than half of the hosts that
        keep one, now or one step ago, one with an API server among them, or makes a first one. Without such a majority
        it fails and names the hosts that differ.
      - >-
        V(opened) opens the journal, if there is anything to do on hosts. In pods a step that writes opens it by itself.
      - V(noted) records O(event).
      - >-
        V(written) replaces the state on a host. A host that has it already is not asked, and one on which another state
        is than this run has seen refuses it. Beneath a control plane in pods there is no state on hosts, and nothing is
        done.
      - V(kept) renews the lock of a host if no step has for a while, and fails if this run has lost it.
      - V(closed) closes the journal, records the document as carried out to its end, and lets go of the Lease.
      - >-
        V(released) only lets go, of the Lease or of a host, if this run holds it. The journal stays open after a
        failure.
      - V(absent) removes the state from a host.
    type: str
    required: true
    choices: [chosen, opened, noted, written, kept, closed, released, absent]
  event:
    description:
      - What is recorded with V(state=noted), about plain hosts.
      - V(etcd_bootstrapped) says that no member of etcd may found a cluster any more.
      - V(hosts_left) forgets the hosts that have left the document.
      - V(restarted) says that components that held connections to members as they were before have started again.
    type: str
    choices: [etcd_bootstrapped, hosts_left, restarted]
  silence:
    description: >-
      With V(state=kept), for how many seconds no other run takes the host when it hears nothing of this one, from 600
      to 3600. Where it is set, the lock is renewed in any case, and stays so until the next step that renews it. For
      work that takes long, and renews nothing while it lasts.
    type: int
  asked:
    description: >-
      With V(state=opened), that the user has asked for a change which neither the document nor the hosts tell.
    type: bool
    default: false
  required:
    description: >-
      Whether a host that cannot do it fails the step. Otherwise it is noted for M(karmada.installer.hosts_outcome), so
      that one host does not keep the others from being let go.
    type: bool
    default: true
  write:
    description: >-
      With V(state=released) on a host, write the state there before, as V(state=written) does. The lock is let go of
      in any case.
    type: bool
    default: false
attributes:
  diff_mode:
    support: none
notes:
  - >-
    In check mode nothing is written and no lock is taken or let go of.
  - >-
    On a host the document is that of karmada_control; O(deployment) and O(connection) are for all other tasks.
seealso:
  - module: karmada.installer.host_observe
"""

EXAMPLES = r"""
- name: Change something, and let others write again whatever happens
  block:
    - name: Join the members
      karmada.installer.member_join:
    - name: Close the journal
      karmada.installer.journal:
        state: closed
  always:
    - name: Let others write again
      karmada.installer.journal:
        state: released

- name: Let others change the plain hosts again
  karmada.installer.journal:
    state: released
    required: false
  become: true
  when: karmada_host is defined
"""

RETURN = r"""
changed:
  description: Whether a state was removed from a host. Writing it is no change of the control plane.
  returned: always
  type: bool
  sample: false
due:
  description: >-
    With V(state=opened), whether there is anything to do on hosts; with V(state=closed), whether there was. With
    V(state=noted), whether the hosts must have it before the run goes on.
  returned: for tasks that are about the state as one
  type: bool
  sample: true
members_answer:
  description: >-
    With V(state=opened), whether all members of etcd on hosts were seen to answer that are neither to come nor to go.
  returned: for tasks that are about the state as one
  type: bool
  sample: true
api_servers_answer:
  description: With V(state=opened), whether all API servers on hosts were seen to answer.
  returned: for tasks that are about the state as one
  type: bool
  sample: true
"""
