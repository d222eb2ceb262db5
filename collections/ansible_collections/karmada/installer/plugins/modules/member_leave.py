# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: member_leave
short_description: Let members leave a control plane that are no longer listed
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    A member leaves if this control plane joined it, by record or by the label on its Cluster, and the document does not
    list it any more. A cluster that somebody else registered is left alone.
  - >-
    What was propagated to the member stays there or goes, as C(onLeave) of its entry said when it was last listed.
    Where it stays, the API server of the control plane refuses, from before the Cluster is deleted, every Work of the
    member that would take along what it stands for; Karmada takes its own labels and annotations off what stays.
  - >-
    The Cluster goes first, with its execution namespace and its Secrets, then what joining put on the member, and the
    record of the member last. Each run looks at what is there, so that one that was cut off is carried on by the next.
  - >-
    Members are worked on at the same time, sixteen at once, each on its own and with a time limit of its own. The task
    fails after all were tried when one is not gone, unless O(on_broken_member=tell).
  - >-
    Nothing is changed for a member that does not answer, or that the control plane does not find ready, because then
    nobody could see to its workloads. It stays until it answers or is given up by O(abandon).
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  stage:
    description:
      - >-
        V(confirm) changes nothing. It fails if more than one member would leave that is not in O(confirm). It needs no
        control plane that answers, so that it can be asked before the first change of a run.
      - V(leave) asks the same and lets the members leave.
    type: str
    choices: [confirm, leave]
    default: leave
  confirm:
    description: >-
      Names of the members that leave, separated by commas. Needed if it is more than one, but not in check mode.
    type: str
    default: ''
  abandon:
    description: >-
      Names of members that leave and are given up. Their Clusters and Works go from the control plane without their
      finalizers, their workloads stay as they are, and what joining put on them is removed only if they happen to
      answer. What stays is told. A name of a member that does not leave has no effect.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds for each member until it is gone.
    type: int
    default: 180
  on_broken_member:
    description:
      - What to do, after all were tried, if a member is not gone.
      - V(fail) fails with the reasons.
      - V(tell) succeeds, with them in RV(broken_members), so that a play can do all the rest and fail at its end.
    type: str
    choices: [fail, tell]
    default: fail
seealso:
  - module: karmada.installer.member_join
  - module: karmada.installer.uninstall
"""

EXAMPLES = r"""
- name: Fail if more than one member would leave unasked
  karmada.installer.member_leave:
    stage: confirm
    confirm: "{{ karmada_confirm_leave | default('') }}"

- name: Let members leave, and give one up that is lost
  karmada.installer.member_leave:
    abandon: [member2]
    timeout: 300
  register: leave_result
"""

RETURN = r"""
changes:
  description: >-
    What was done to each object that differed, as C(created), C(changed) or C(deleted) with its kind, namespace and
    name. In check mode, what would be done.
  returned: when members leave
  type: list
  elements: str
  sample: ["deleted Cluster member1", "deleted ServiceAccount karmada-cluster/karmada-member1"]
members:
  description: What came of each member that leaves, by name. It is there too when the task fails.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name of the member.
      returned: always
      type: str
      sample: member1
    gone:
      description: Whether no problem was found. In check mode this does not mean that it is gone already.
      returned: always
      type: bool
      sample: true
    changes:
      description: What was done on the member and for it in the control plane.
      returned: always
      type: list
      elements: str
      sample: ["deleted Cluster member1"]
    workloads:
      description: What becomes of that which was propagated to it, as recorded, C(Retain) or C(Delete).
      returned: always
      type: str
      sample: Retain
    stays:
      description: Number of propagated objects that stay on it, as far as the control plane knows when it begins.
      returned: always
      type: int
      sample: 1
    problem:
      description: Why it is not gone. Empty if it is.
      returned: always
      type: str
      sample: ""
    left:
      description: What is left on the member. Empty if that is nothing but workloads that were to stay.
      returned: always
      type: str
      sample: ""
    next:
      description: What to do next. Empty if that is nothing.
      returned: always
      type: str
      sample: ""
now:
  description: >-
    One line for each member that has left, or in check mode would leave, that says how much stays on it.
  returned: always
  type: list
  elements: str
  sample: ["member1 has left; 1 workload stays on it"]
has_agents_on_hosts:
  description: Whether hosts have agents of members, or had them, so that a step on hosts has to follow.
  returned: always
  type: bool
  sample: false
broken_members:
  description: >-
    Those that are not gone, with what is left on them.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name of the member.
      returned: always
      type: str
      sample: member1
    problem:
      description: What is wrong with it.
      returned: always
      type: str
      sample: "member member1: cannot reach https://192.0.2.1:6443: connection refused"
    next:
      description: What to do about it.
      returned: always
      type: str
      sample: let it answer; then run again
"""
