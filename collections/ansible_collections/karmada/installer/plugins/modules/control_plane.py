# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: control_plane
short_description: "Inner step: create what a control plane consists of inside"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Applies one stage of the objects inside the control plane to its API server, as its administrator, and waits
    until they are of use. The API server is reached directly where that is possible, otherwise by port-forward
    through the host cluster.
  - >-
    It proves what it made. After stage V(aggregation) a list of clusters through the aggregated API has worked.
    After stage V(admission) the webhook has accepted a good policy and refused a bad one, both as dry runs; without
    Karmada's CRDs, that is with C(installCRD) false, this is left out.
  - >-
    In check mode without a running API server, everything counts as created. In check mode nothing is waited for or
    tried.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  stage:
    description:
      - Which part to apply. They build on each other in the order of the choices.
      - >-
        V(rights) is namespaces and rights, which components need to start. V(foundation) is where the aggregated
        APIs are and, unless C(installCRD) is false, Karmada's CRDs of the release, with verified checksum.
      - V(aggregation) is the registration of the aggregated API server.
      - V(admission) is the registration of the webhooks.
      - V(withdrawal) is the end of the APIs of optional components that are switched off, before their servers go.
      - V(addons) is the registration of the APIs of optional components, and the same end, for where pods go later.
      - V(discovery) is what a cluster needs to find and trust the control plane when it registers itself.
    type: str
    required: true
    choices: [rights, foundation, withdrawal, aggregation, admission, discovery, addons]
  wait:
    description:
      - Whether to wait until the objects are of use, and to try what the stage is for.
      - >-
        While it waits for what pods serve, it looks at these, and ends with their reason once they cannot become ready,
        such as an image that is pulled in vain for 60 s.
    type: bool
    default: true
  timeout:
    description: Seconds to wait for the objects of this stage, and again for what it proves.
    type: int
    default: 120
seealso:
  - module: karmada.installer.workloads
  - module: karmada.installer.admin_kubeconfig
"""

EXAMPLES = r"""
- name: Create CRDs in the control plane
  karmada.installer.control_plane:
    stage: foundation

- name: Register the aggregated API and see it answer
  karmada.installer.control_plane:
    stage: aggregation
    timeout: 300
"""

RETURN = r"""
changes:
  description: >-
    What was done to each object that differed, as C(created), C(changed) or C(deleted) with its kind, namespace and
    name. In check mode, what would be done.
  returned: success
  type: list
  elements: str
  sample: ["created Namespace karmada-system"]
"""
