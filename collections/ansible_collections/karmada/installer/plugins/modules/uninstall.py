# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: uninstall
short_description: "Inner step: remove one part of a control plane"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Takes a control plane away, one stage at a time. The stages are meant to run in the order of the choices, as the
    role C(karmada.installer.uninstall) does it.
  - >-
    Only objects that carry the label of this control plane, and whose UID was recorded when they were made, are
    deleted. A namespace is deleted only if this installation made it, or one that has left since, and it holds nothing
    of anybody else, of whatever kind. If some kinds may not be listed, it stays.
  - >-
    What the control plane propagated to members stays there as it is: everything that could remove it is stopped
    first.
  - >-
    A control plane that is not there counts as removed.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  stage:
    description:
      - Which part to remove.
      - >-
        V(confirm) removes nothing. It fails unless O(confirm) names the control plane, and unless every member
        that was joined answers or is in O(abandon_members).
      - V(components) stops every component but etcd, with all that acts on members.
      - V(members) removes what joining put on each member, and asks for the deletion of the namespace there.
      - >-
        V(control_plane) removes the rest in the host cluster, and etcd's volume claims if the document's deletion
        policy is C(Delete). On plain hosts it removes nothing but the keys of this control plane from an external etcd,
        by the same policy.
      - >-
        V(state) removes the installer's state, its lock, and the namespace if the installation made it. With the
        deletion policy C(Retain) these are kept. It also removes the administrator's kubeconfig on this machine if
        that file is of this control plane. At its end the namespaces of the members are gone as well.
    type: str
    required: true
    choices: [confirm, components, members, control_plane, state]
  confirm:
    description: >-
      Name of the control plane, for O(stage=confirm), or C(<namespace>/<name>), which an inventory of several control
      planes needs. In check mode it need not be given.
    type: str
    default: ''
  abandon_members:
    description: >-
      Names of members that are given up: they are not asked, nothing is removed there, and what stays on them is told.
      For O(stage=confirm), O(stage=members) and O(stage=state).
    type: list
    elements: str
    default: []
  timeout:
    description: >-
      How many seconds deleted objects may take to be gone. After that the run fails and names each one with what holds
      it, such as its finalizers. Nothing is forced.
    type: int
    default: 120
seealso:
  - module: karmada.installer.member_join
"""

EXAMPLES = r"""
- name: Ask twice, and find members that do not answer
  karmada.installer.uninstall:
    stage: confirm
    confirm: prod

- name: Remove what joining put on the members, except on one that is lost
  karmada.installer.uninstall:
    stage: members
    abandon_members: [member2]
"""

RETURN = r"""
changes:
  description: >-
    What was done to each object that differed, as C(created), C(changed) or C(deleted) with its kind, namespace and
    name. In check mode, what would be done.
  returned: when something was looked for to remove
  type: list
  elements: str
  sample: ["deleted Deployment karmada-prod/prod-webhook"]
now:
  description: >-
    One line for the end of the removal, that says what is then, with the number of objects that stay on members.
  returned: with O(stage=confirm), or when there is no control plane
  type: str
  sample: prod is gone; 1 workload stays on member1
installed:
  description: Always false. The host cluster holds no state of this control plane, so there is nothing to remove.
  returned: when there is no control plane
  type: bool
  sample: false
"""
