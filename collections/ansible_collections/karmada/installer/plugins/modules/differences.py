# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: differences
short_description: "Inner step: see at one look whether etcd and the control plane are as the document says"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Compares the pods of etcd and of the control plane, what belongs to them in the host cluster, and the objects inside
    the control plane with the document; looks whether all of them are ready, and asks the aggregated API and the
    webhook. Changes nothing and waits for nothing. Of a control plane on plain hosts it is what is inside, and the
    administrator's kubeconfig; M(karmada.installer.host_components) compares the hosts.
  - >-
    The steps that bring these up do the same one after the other, and mend what they find. A run leaves them out where
    nothing is found here, which makes a run with nothing to do twice as fast.
  - >-
    Something is always found before the first run with a document has come to its end, after a run that did not, in
    check mode, where etcd is somebody else's, and where it is on plain hosts beneath a control plane in pods.
options:
  etcd_abandon_nodes:
    description: Names of nodes with members of etcd that are given up.
    type: list
    elements: str
    default: []
  etcd_replace:
    description: Names of members of etcd that are to be replaced; with one of them something is always found.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
attributes:
  check_mode:
    details: The steps have to tell what they would do, so none may be left out.
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.workloads
  - module: karmada.installer.control_plane
  - module: karmada.installer.etcd_rollout
"""

EXAMPLES = r"""
- name: Compare the control plane with the document
  karmada.installer.differences:
  register: compared

- name: Bring it to what the document says
  ansible.builtin.include_role:
    name: karmada.installer.control_plane
  when: compared.found | length > 0
"""

RETURN = r"""
found:
  description: What differs, in words; not everything where something was found early. Empty where nothing does.
  returned: success
  type: list
  elements: str
  sample: [Deployment karmada-system/karmada-scheduler is not as it should be]
"""
