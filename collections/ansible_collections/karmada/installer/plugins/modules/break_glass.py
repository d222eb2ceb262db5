# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: break_glass
short_description: Make a kubeconfig for an emergency, which nothing in the control plane can take back
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Writes a kubeconfig of the user C(system:karmada:break-glass) in the group C(system:masters), for whom the API
    server asks no authorizer. It works where rights inside the control plane were lost, and for a short time only.
  - >-
    It is written into one file of the machine where Ansible runs, with mode 0600, and nowhere else. Each task makes new
    credentials. Nothing in the control plane or on its hosts is changed.
  - >-
    With endpoint type C(ClusterIP) and no host in the document, it leads to C(https://localhost:5443), for use with
    C(kubectl port-forward).
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  confirm:
    description: >-
      Name of the control plane, or C(<namespace>/<name>), which an inventory of several control planes needs. Anything
      else is refused.
    type: str
    default: ''
  path:
    description: >-
      The file to write, as an absolute path. One that is there is replaced. A place that is gone with the session, such
      as C(/run/user/1000), is a good one.
    type: str
    default: ''
  validity:
    description: How long it is valid, from V(5m) to V(8h), in hours (h), minutes (m) and seconds (s).
    type: str
    default: 1h
attributes:
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.admin_kubeconfig
"""

EXAMPLES = r"""
- name: Make a kubeconfig for an emergency
  karmada.installer.break_glass:
    confirm: prod
    path: /run/user/1000/prod.kubeconfig
    validity: 30m
"""

RETURN = r"""
path:
  description: The file that was written, or in check mode would be.
  returned: success
  type: str
  sample: /run/user/1000/prod.kubeconfig
expires:
  description: When the credentials end.
  returned: success
  type: str
  sample: "2026-03-01T13:00:00+00:00"
user:
  description: The name that the audit log has for them.
  returned: success
  type: str
  sample: system:karmada:break-glass
"""
