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
    What the tag of an image led to is recorded in the installer's state, before any host has a program out of it. A tag
    that leads elsewhere later is refused, unless the variable C(karmada_confirm_images) names the image. It is a list,
    or a text with commas, of references such as C(docker.io/karmada/karmada-webhook:v1.18.2).
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
- name: Bring the programs here
  karmada.installer.programs:
  run_once: true
"""

RETURN = r"""
lacking:
  description: Host name to the paths of the programs that it lacks.
  returned: success
  type: dict
  sample:
    cp1: [/usr/local/lib/karmada/v3.6.16/etcd]
"""
