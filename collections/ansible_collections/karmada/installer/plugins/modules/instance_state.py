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
    M(karmada.installer.host_observe) found there, or makes a first one, and notes in it how far the run has come.
    M(karmada.installer.host_journal) writes it to the hosts.
  - >-
    Of an etcd on plain hosts beneath a control plane in pods the state is in the host cluster, and the same is noted
    there.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  event:
    description:
      - V(chosen) notes nothing.
      - V(begun) opens the journal, if there is anything to do.
      - V(etcd_bootstrapped) says that no member of etcd may found a cluster any more.
      - V(hosts_left) forgets the hosts that have left the document.
      - V(restarted) says that components that held connections to members as they were before have started again.
      - V(finished) closes the journal and keeps the document.
    type: str
    required: true
    choices: [chosen, begun, etcd_bootstrapped, hosts_left, restarted, finished]
attributes:
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Choose the newest state
  karmada.installer.instance_state:
    event: chosen
  run_once: true
"""

RETURN = r"""
due:
  description: Whether there is anything to do, or was.
  returned: success
  type: bool
  sample: true
"""
