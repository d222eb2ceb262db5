# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: admin_kubeconfig
short_description: "Inner step: publish the administrator's kubeconfig of a control plane"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Writes the kubeconfig of the control plane's administrator into the Secret C(<name>-admin-config) of the host
    cluster, under the key C(kubeconfig).
  - >-
    It is written into the file O(connection.kubeconfig_output) too, with mode 0600, whole or not at all. The inventory
    plugin sets that to C(<name>.kubeconfig) beside the document unless its source says otherwise.
  - >-
    With endpoint type C(ClusterIP) and no host in the document, the file leads to C(https://localhost:5443), for use
    with C(kubectl port-forward). The Secret then leads to the Service in the host cluster.
  - >-
    Both hold a client certificate with full rights in the control plane, by the binding
    C(system:karmada:administrators) that the stage C(rights) of M(karmada.installer.control_plane) makes; so that comes
    first. Neither is part of the result.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
attributes:
  diff_mode:
    support: partial
    details:
      - >-
        The Secret is shown without its data. The file is not shown.
seealso:
  - module: karmada.installer.certificates
  - module: karmada.installer.control_plane
"""

EXAMPLES = r"""
- name: Publish the administrator's kubeconfig
  karmada.installer.admin_kubeconfig:
"""

RETURN = r"""
changes:
  description: >-
    What was done to each object that differed, as C(created), C(changed) or C(deleted) with its kind, namespace and
    name. In check mode, what would be done.
  returned: success
  type: list
  elements: str
  sample: ["created Secret karmada-prod/prod-admin-config"]
secret:
  description: Namespace and name of the Secret in the host cluster.
  returned: success
  type: str
  sample: karmada-prod/prod-admin-config
path:
  description: The file that was written, or in check mode would be.
  returned: when O(connection.kubeconfig_output) is set
  type: str
  sample: /srv/site/prod.kubeconfig
"""
