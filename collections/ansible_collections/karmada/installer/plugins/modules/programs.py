# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: programs
short_description: "Inner step: bring the programs that plain hosts lack to the controller"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Fetches each program once, whatever the number of hosts that need it, from the source that the document names,
    verifies its checksum, and keeps it in the cache of the user who runs this.
  - >-
    A download may take longer than the 10 minutes after which another run takes a host that it has not heard of. So
    this is a loop, which is delegated to one host after the other: each turn waits for a while, and renews the lock of
    its host. The first turn begins the downloads, the last one is that in which they have ended. They end, too, with a
    turn that fails: without its lock, a run goes no further.
  - >-
    What the tag of an image led to is recorded in the installer's state, before any host has a program out of it. A tag
    that leads elsewhere later is refused, unless the variable C(karmada_confirm_images) names the image. It is a list,
    or a text with commas, of references such as C(docker.io/karmada/karmada-webhook:v1.18.2).
options:
  state:
    description:
      - V(looked_for) says what hosts lack, and whose turns follow.
      - V(brought) is one turn, on the host whose lock it renews.
    type: str
    choices: [looked_for, brought]
    default: brought
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
attributes:
  check_mode:
    description: Nothing is fetched.
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: See which programs hosts lack
  karmada.installer.programs:
    state: looked_for
  register: lacking
  run_once: true

- name: Bring the programs here
  karmada.installer.programs:
  become: true
  delegate_to: "{{ item }}"
  loop: "{{ lacking.turns }}"
  loop_control:
    break_when: brought is failed or brought is unreachable or brought.brought | default(false)
  register: brought
  run_once: true
"""

RETURN = r"""
lacking:
  description: Host name to the paths of the programs that it lacks.
  returned: when it is known
  type: dict
  sample:
    cp1: [/usr/local/lib/karmada/v3.6.16/etcd]
turns:
  description: Names of hosts in the order of their turns, each many times; empty if nothing is to be fetched.
  returned: O(state=looked_for)
  type: list
  elements: str
  sample: [cp1, cp2, cp1, cp2]
brought:
  description: Whether all programs are here.
  returned: O(state=brought)
  type: bool
"""
