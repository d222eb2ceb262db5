# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: certificates
short_description: "Inner step: issue the keys and certificates of a control plane"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Makes sure that the host cluster holds every key and certificate of the control plane, in one Secret for each
    set of files that a component mounts, and in C(<name>-admin-cert) for the administrator.
  - >-
    A certificate that is there, valid, long enough from its end and right in its names, purpose and authority is
    kept as it is. Any other is issued anew, and the result says why.
  - >-
    The certificate authorities are made once, at the first installation, and kept in the installer's state. They
    are never replaced in passing; one that cannot be used is an error.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
seealso:
  - module: karmada.installer.preflight
  - module: karmada.installer.workloads
"""

EXAMPLES = r"""
- name: Issue missing and outdated keys and certificates
  karmada.installer.certificates:
  register: pki_result

- name: Show when each certificate ends
  ansible.builtin.debug:
    var: pki_result.expiries
"""

RETURN = r"""
changes:
  description: >-
    What was done to each object that differed, as C(created), C(changed) or C(deleted) with its kind, namespace and
    name. In check mode, what would be done.
  returned: success
  type: list
  elements: str
  sample: ["created Secret karmada-prod/prod-webhook-cert"]
reissued:
  description: Name of each certificate that was issued, or in check mode would be, and the reasons.
  returned: success
  type: dict
  sample: {"admin": ["It is missing."]}
expiries:
  description: When each certificate ends, authorities included, as UTC in ISO 8601.
  returned: success
  type: dict
  sample: {"admin": "2027-11-21T05:30:00+00:00"}
"""
