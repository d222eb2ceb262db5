# Copyright the karmada.installer authors
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: instance_state
short_description: Choose the state that a run on plain hosts goes on with
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    The installer's state of a control plane on plain hosts lies on those hosts. This takes the newest of what
    M(karmada.installer.host_state) found there, or makes a first one, and notes in it how far the run has come.
  - >-
    The result holds keys. Register it as C(karmada_instance_state), with C(no_log), and have
    M(karmada.installer.host_state) write it to the hosts.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  event:
    description:
      - V(chosen) notes nothing.
      - V(begun) opens the journal.
      - V(etcd_bootstrapped) says that no member of etcd may found a cluster any more.
      - V(ended) closes the journal and keeps the document.
    type: str
    required: true
    choices: [chosen, begun, etcd_bootstrapped, ended]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Choose the newest state
  karmada.installer.instance_state:
    event: chosen
  register: karmada_instance_state
  no_log: true
"""

RETURN = r"""
serial:
  description: Number of the state; grows with each that differs.
  returned: success
  type: int
  sample: 4
files:
  description: The state, base64 by name of the file.
  returned: success
  type: dict
is_new:
  description: Whether it still has to be written to the hosts.
  returned: success
  type: bool
  sample: false
"""
