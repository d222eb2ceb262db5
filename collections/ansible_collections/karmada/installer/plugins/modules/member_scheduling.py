# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: member_scheduling
short_description: Cordon, uncordon and drain members
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Says by taints of the Cluster object whether workloads may be placed on a member. All other taints of the member
    stay as they are, whoever has set them.
  - >-
    It works for every cluster that is registered, listed in the document or not, in mode Push and Pull. A name that
    nobody has is refused before the first change.
  - >-
    It takes no lock and writes no state, so that it works beside another run. In mode Container the control plane is
    reached through the host cluster; in mode Binary by the Secret beside an object, with the kubeconfig that the
    environment names (C(KARMADA_KUBECONFIG)) or that the installation has written, or, if none is there, as the
    administrator by the state that M(karmada.installer.host_observe) has read from the plain hosts before.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  state:
    description:
      - >-
        V(cordoned) keeps away what is not there yet, by the taint that C(karmadactl cordon) sets. What runs there
        stays.
      - >-
        V(drained) does the same and makes what runs there go elsewhere, by the taint C(installer.karmada.io/drain)
        with the effect NoExecute. It is waited for until nothing is placed on the member but what tolerates that.
        Karmada moves nothing because of taints by default; it is refused unless karmada-controller-manager has the
        feature gate C(Failover) and the flag C(enable-no-execute-taint-eviction).
      - >-
        V(uncordoned) takes both taints away. What has gone does not come back by itself. What is going still and has no
        other place stays.
      - >-
        V(looked_for) changes nothing and says which plain hosts M(karmada.installer.host_observe) has to look at
        before, because nothing else tells how the control plane is reached.
    type: str
    required: true
    choices: [cordoned, drained, uncordoned, looked_for]
  members:
    description: >-
      Names of the members. Without any, those that the run has chosen with C(--limit) or the variable
      C(karmada_members).
    type: list
    elements: str
    default: []
  timeout:
    description: >-
      Seconds until all members are empty, with O(state=drained). After that the task fails with what is left and why;
      the taints stay.
    type: int
    default: 900
  confirm:
    description: >-
      Names of members, separated by commas, that may be drained although no other cluster could take the last replica
      of something that runs there. Without them O(state=drained) is refused for such members, before the first change
      where policies and taints show it, else as soon as the scheduler has found no place; then the taints are as
      before. In check mode that is a warning.
    type: str
    default: ''
seealso:
  - module: karmada.installer.member_join
"""

EXAMPLES = r"""
- name: Place nothing new on a member
  karmada.installer.member_scheduling:
    state: cordoned
    members: [member1]

- name: Move everything away from two members before their maintenance
  karmada.installer.member_scheduling:
    state: drained
    members: [member1, member2]
    timeout: 1800
  register: drain_result
"""

RETURN = r"""
hosts:
  description: Names of the plain hosts to look at, with O(state=looked_for); none where there is no need.
  returned: success
  type: list
  elements: str
  sample: [cp1, cp2, cp3]
changes:
  description: The Clusters that were changed. In check mode, those that would be.
  returned: success
  type: list
  elements: str
  sample: ["changed Cluster member1"]
left:
  description: >-
    What is still placed on the members and why, with O(state=drained). When the task succeeds, that is only what
    tolerates the taint. In check mode, everything that is placed there now.
  returned: always
  type: list
  elements: str
  sample: ["member1: ResourceBinding shop/web-deployment of Deployment shop/web (its policy tolerates the taint)"]
now:
  description: One line for each member, that says how it is now, or in check mode would be, and how much runs there.
  returned: success
  type: list
  elements: str
  sample: ["member1 is cordoned; 1 workload still runs there"]
"""
