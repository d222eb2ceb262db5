# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_members
short_description: "Inner step: bring the members of etcd to those of the document, one at a time"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Looks at the members, does the next safe step, and looks again, until they are those of the document. So a run that
    was killed goes on where it stopped.
  - >-
    A new member comes without a vote, and gets it once it has nearly all of the log. A member whose volume is another
    one than recorded has lost its data: it is removed, and a new one comes in its place. One that goes is the one with
    the highest number; it gives up the lead before, and the API servers forget it before.
  - >-
    Nothing is done that would leave less than a majority of members healthy, nor while a member is not healthy that
    does not go. Members that somebody else has added or removed are told, and nothing is changed.
  - >-
    Data is never deleted. A member that was added later keeps its data in a folder of its own, so that it never finds
    what another one left.
  - >-
    Where the document names an external etcd, there is nothing to do.
  - >-
    Members on plain hosts are asked and changed by steps on their hosts, so for these it decides one step after the
    other, and M(karmada.installer.etcd_change) takes each.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  state:
    description:
      - V(begun) puts on record which members begin the cluster, before the first of them starts.
      - V(present) brings the members in pods to those of the document.
      - >-
        V(next) decides the next step for members on plain hosts, by what M(karmada.installer.etcd_member) was answered.
        In check mode it tells which members would come, be replaced and go.
      - >-
        V(next_restart) decides which of the O(outdated) members on plain hosts is to restart next. The leader is the
        last, and another one leads before.
      - >-
        V(clients_followed) has clients in pods connect to the members on plain hosts that stay, and puts on record that
        no client connects to those that go. Clients on hosts have followed before.
    type: str
    choices: [begun, present, next, next_restart, clients_followed]
    default: present
  replace:
    description: >-
      Names of members to replace although nothing proves that their data is lost. Usually given as
      C(-e '{"etcd_replace": ["prod-etcd-1"]}').
    type: list
    elements: str
    default: []
  abandon_nodes:
    description: >-
      Names of nodes that are lost for good, with the data of members in their directories. Another node is chosen for
      each of these members. Usually given as C(-e '{"etcd_abandon_nodes": ["node-b"]}').
    type: list
    elements: str
    default: []
  outdated:
    description: Names of the members that V(next_restart) is about.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds to wait for each member.
    type: int
    default: 300
attributes:
  check_mode:
    details: Tells which members would come, be replaced and go.
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.etcd_rollout
"""

EXAMPLES = r"""
- name: Bring the members to the number in the document
  karmada.installer.etcd_members:
"""

RETURN = r"""
changes:
  description: The members that came and went. In check mode, those that would.
  returned: success
  type: list
  elements: str
  sample: [created EtcdMember prod-etcd-1]
step:
  description: >-
    The next step, a state of M(karmada.installer.etcd_change), or V(started), V(clients), V(restarted) or V(look).
    Empty if there is nothing to do any more.
  returned: for members on hosts
  type: str
  sample: added
host:
  description: The host that takes the step.
  returned: for members on hosts
  type: str
  sample: etcd1
member:
  description: The member that the step is about.
  returned: for members on hosts
  type: str
  sample: etcd4
identity:
  description: The ID of a member that etcd is told, in hexadecimal digits.
  returned: for members on hosts
  type: str
  sample: 8e9e05c52164694d
wait:
  description: Whether to wait until what is restarted works.
  returned: for members on hosts
  type: bool
  sample: true
done:
  description: Whether the members are those of the document, by what they have just answered.
  returned: for members on hosts
  type: bool
  sample: false
follows:
  description: The host whose API server is to use the member there after this step; empty if there is none.
  returned: for members on hosts
  type: str
  sample: etcd4
before:
  description: The host whose API server has done so before, and has to answer first; empty if there is none.
  returned: for members on hosts
  type: str
  sample: ""
stops:
  description: Whether what ran as the member that is removed stops on its host after that.
  returned: for members on hosts
  type: bool
  sample: false
"""
