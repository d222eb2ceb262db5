# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_prefix
short_description: "Inner step: mark the key prefix in an external etcd as this control plane's"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Writes one key below the prefix, C(karmada-installer/owner), that says whose the prefix is. It is written in one
    transaction with the proof that no other key is below the prefix, so that two control planes never share one.
  - >-
    A prefix that is marked as another control plane's, or that holds keys of somebody else, is refused.
  - >-
    Where etcd cannot be asked from this machine, nothing is marked, and that is told. The uninstallation then deletes
    no keys.
  - >-
    A document whose etcd is local has no prefix, and nothing is done.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
attributes:
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.preflight
  - module: karmada.installer.workloads
"""

EXAMPLES = r"""
- name: Mark the key prefix in an external etcd as this control plane's
  karmada.installer.etcd_prefix:
"""

RETURN = r"""
changes:
  description: The prefix, if it was marked by this. In check mode, if it would be.
  returned: success
  type: list
  elements: str
  sample: [created KeyPrefix /karmada/prod]
"""
