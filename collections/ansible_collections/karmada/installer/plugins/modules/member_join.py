# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: member_join
short_description: "Inner step: join the members of the document to a control plane"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Joins every member cluster that the document lists and that is not joined. Changes what differs on the others. A
    member that is not listed is left alone.
  - >-
    On a member it creates the namespace C(karmada-cluster), two service accounts with a token each, and a
    ClusterRole with all rights for the account that the control plane uses, and the CRDs of ServiceExport and
    ServiceImport where they are missing. In the control plane it creates the Cluster object and the Secrets with
    those tokens. The kubeconfig that the document refers to is used for this
    only; the control plane keeps none of it.
  - >-
    A member in mode Pull gets a karmada-agent on top, with a client certificate of its own for the control plane. The
    module asks for that certificate, approves the request and deletes it afterwards, and does not ask again while the
    certificate is good.
  - >-
    A member that is registered in the other mode changes to that of the document in place: its Cluster and its
    workloads stay. Nobody works on it while that lasts.
  - >-
    Components that hold a connection to a member that has another token, address or mode start again, one after the
    other. On plain hosts the play does that by RV(restarts).
  - >-
    A member is joined when the control plane itself finds it Ready. This is waited for, also for members at which
    nothing had to be changed.
  - >-
    Members are worked on at the same time, sixteen at once, and each on its own. One that could not be joined stops no
    other; the task fails after all were tried, unless O(on_broken_member=tell).
  - >-
    One cluster under two names is refused, and so is another cluster under a name that is taken. A cluster is known
    by the UID of its namespace kube-system.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  stage:
    description:
      - V(registration) joins and does not wait.
      - >-
        V(agents) gives their agents to members that were in mode Push (RV(without_agent)). For a control plane on plain
        hosts, when what V(registration) has named in RV(restarts) has started again.
      - V(readiness) only waits for the members of the document.
      - >-
        V(all) does all of these. On plain hosts the state, with what was made on members, is written to the hosts in
        between.
      - >-
        V(reasons) does nothing but add to those of O(broken) what M(karmada.installer.member_log) has found on hosts.
    type: str
    choices: [all, registration, agents, readiness, reasons]
    default: all
  noted:
    description: >-
      For a control plane on plain hosts with O(stage=registration), that hosts know what this step has noted for them
      before (RV(to_note)). Members that it has not are left alone, and are among the broken ones.
    type: bool
    default: false
  on_record:
    description: >-
      Work on every member that the control plane has on record, whichever the run has selected, instead of those of the
      document. So a control plane that has moved has all of them follow it. One that the document does not list keeps
      what was asked for it, and gets other tokens and the mark of this place.
    type: bool
    default: false
  timeout:
    description: Seconds to wait for each member until it is Ready.
    type: int
    default: 120
  broken:
    description: >-
      Members that an earlier step has found broken, in the form of RV(broken_members). They are left as they are, and
      are among those that could not be joined.
    type: list
    elements: dict
    default: []
  on_broken_member:
    description:
      - What to do, after all were tried, if a member could not be joined.
      - V(fail) fails with the reasons.
      - V(tell) succeeds, with them in RV(broken_members), so that a play can do all the rest and fail at its end.
    type: str
    choices: [fail, tell]
    default: fail
attributes:
  diff_mode:
    support: partial
    details:
      - >-
        In check mode a change of an object that exists is named, but its content is not shown. New objects are.
seealso:
  - module: karmada.installer.uninstall
"""

EXAMPLES = r"""
- name: Join the members and wait until they are ready
  karmada.installer.member_join:
    timeout: 180
  register: join_result
"""

RETURN = r"""
changes:
  description: >-
    What was done to each object that differed, as C(created), C(changed) or C(deleted) with its kind, namespace and
    name. In check mode, what would be done.
  returned: when the document lists members
  type: list
  elements: str
  sample: ["created ServiceAccount karmada-cluster/karmada-member1", "created Cluster member1"]
members:
  description: What came of each member, in the order of the document. It is there too when the task fails.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name of the member.
      returned: always
      type: str
      sample: member1
    joined:
      description: Whether no problem was found. In check mode this does not mean that it is joined already.
      returned: always
      type: bool
      sample: true
    changes:
      description: What was done on the member and for it in the control plane.
      returned: always
      type: list
      elements: str
      sample: ["created Cluster member1"]
    problem:
      description: Why it is not joined. Empty if it is.
      returned: always
      type: str
      sample: ""
    next:
      description: What to do about it. Empty if it is joined.
      returned: always
      type: str
      sample: ""
broken_members:
  description: >-
    Those that could not be joined.
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
not_ready:
  description: >-
    Names of those that were registered and that the control plane does not find Ready.
  returned: always
  type: list
  elements: str
  sample: []
to_note:
  description: >-
    Whether nothing was changed, because the hosts of a control plane on plain hosts have to know before on which
    members something is made, and what is to start again. When M(karmada.installer.journal) has told them, the step is
    done once more, with O(noted).
  returned: always
  type: bool
  sample: false
restarts:
  description: >-
    Components of a control plane on plain hosts that have to start again, because they hold connections to members as
    they were before. Empty where they have.
  returned: always
  type: list
  elements: str
  sample: [karmada-controller-manager]
without_agent:
  description: Members that were in mode Push and wait for their agents, until those components have started again.
  returned: always
  type: list
  elements: str
  sample: []
has_agents_on_hosts:
  description: Whether plain hosts run agents of members, or may have some left from when they did.
  returned: always
  type: bool
  sample: false
"""
