# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_rollout
short_description: "Inner step: replace members of etcd that run with older settings, one at a time"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    The StatefulSet of etcd never replaces a pod by itself. This deletes the pods that are of an older revision than
    it, one after the other, and waits until the new pod is ready before the next one.
  - >-
    A member that is ready is replaced only while all others are there and ready, and all members are healthy by etcd's
    own words; the leader last, after another one leads. One that is not ready is replaced first, so that settings under
    which members do not start can be mended; all of them at once where none is ready.
  - >-
    Where the document names an external etcd, there is nothing to do.
  - >-
    A pod that holds its member's data (emptyDir) is never deleted; settings that would need it are refused with the
    reason.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  timeout:
    description: Seconds to wait for each member.
    type: int
    default: 300
attributes:
  check_mode:
    details: Asks by dry run what the document would make of the StatefulSet; with other settings every pod is outdated.
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.workloads
"""

EXAMPLES = r"""
- name: Replace members that run with older settings, one at a time
  karmada.installer.etcd_rollout:
"""

RETURN = r"""
changes:
  description: The pods that were replaced. In check mode, those that would be.
  returned: success
  type: list
  elements: str
  sample: [changed Pod karmada-system/karmada-etcd-0]
"""
