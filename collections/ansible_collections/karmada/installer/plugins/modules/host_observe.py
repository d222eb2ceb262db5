# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_observe
short_description: "Inner step: look at a plain host before anything is changed there"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Looks at what a host of a control plane has: the installer's state, files and programs of the components, and what
    M(karmada.installer.preflight) wants to know of the machine. The steps after it work with that.
  - >-
    A host that cannot be looked at does not fail the task. M(karmada.installer.preflight) tells of it, together with
    everything else that is wrong.
  - >-
    Files of the components hold private keys. They are kept in Ansible's folder for temporary files until the run ends,
    and are not in the result. Mark the task with C(no_log) all the same, because verbose output of connections shows
    what modules return.
options:
  lock:
    description: >-
      Whether to keep other runs from changing the host, until M(karmada.installer.journal) lets go of it.
    type: bool
    default: false
  wait:
    description: >-
      For how many seconds to wait for another run that has the host.
    type: int
    default: 0
  confirm_dead:
    description: >-
      Who holds the lock of the control plane or of the host and is certainly dead, by the name that was told when it
      kept this run out, or by the id of its run (the environment variable E(KARMADA_RUN_ID) there); several with
      commas between. Nobody needs to say so of a run of the same machine, or of one that has been silent for 30
      seconds (in pods) or 10 minutes (on hosts).
    type: str
    default: ""
extends_documentation_fragment:
  - karmada.installer.host_attributes
attributes:
  check_mode:
    description: It looks without taking the lock.
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Look at the hosts
  karmada.installer.host_observe:
    lock: true
  become: true
  no_log: true
"""

RETURN = r"""
reached:
  description: Whether the host could be looked at.
  returned: always
  type: bool
  sample: true
"""
