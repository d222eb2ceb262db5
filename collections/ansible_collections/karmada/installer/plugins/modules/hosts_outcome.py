# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hosts_outcome
short_description: "Inner step: say how far a run on plain hosts has come that did not come to its end"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    The last step of a run on plain hosts. It fails if the run has opened the journal and not closed it, has lost a
    host, or has changed something and a host could not carry out its step; and says of each host what is done there,
    what is not, and why. It changes nothing.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
attributes:
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Say how far each host has come
  karmada.installer.hosts_outcome:
  run_once: true
"""

RETURN = r"""
changed:
  description: Always false.
  returned: always
  type: bool
  sample: false
"""
