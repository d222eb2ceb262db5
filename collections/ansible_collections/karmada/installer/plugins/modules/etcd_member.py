# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_member
short_description: "Inner step: ask the member of etcd on a plain host how it is"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Asks the member of etcd on a host, from that host and with the certificate of the member. So its client port need
    not be open to the machine that Ansible runs on. The steps after it, such as M(karmada.installer.report), work with
    the answer.
  - >-
    A host without the role etcd is left alone. A member that does not answer does not fail the task.
extends_documentation_fragment:
  - karmada.installer.host_attributes
options:
  state:
    description:
      - V(seen) asks for its status, and for the members that it lists.
      - >-
        V(hashed) asks for the hash over its keys at a revision that all members have, which those have told that were
        seen. Large databases are left out, those above 2 GiB in karmada.installer.report, and those above 128 MiB in
        other runs.
    type: str
    choices: [seen, hashed]
    default: seen
  changing:
    description: Ask only where members are to come, to go or to be replaced.
    type: bool
    default: false
  keep:
    description: >-
      Write the state of the run to the host before, if the host lacks it. Otherwise renew its lock, if no step has
      lately: it may have to wait for long until it is its turn.
    type: bool
    default: false
  replace:
    description: Names of members that are to be replaced although nothing proves that their data is lost.
    type: list
    elements: str
    default: []
  revision:
    description:
      - The revision that V(state=hashed) is about, whatever the size of the database; 0 for the one that all have.
    type: int
    default: 0
attributes:
  check_mode:
    description: It changes nothing anyway.
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.report
"""

EXAMPLES = r"""
- name: Ask the members of etcd
  karmada.installer.etcd_member:
  become: true
  when: karmada_host is defined
"""

RETURN = r"""
asked:
  description: Whether there is a member, and it answered.
  returned: always
  type: bool
  sample: true
"""
