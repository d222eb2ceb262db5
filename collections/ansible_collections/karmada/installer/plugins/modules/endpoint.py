# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: endpoint
short_description: "Inner step: make what leads to the API server and find out its address"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Applies the Service of the karmada-apiserver as the endpoint of the document asks for it, and the Ingress or Route
    that passes TLS through to it. For type LoadBalancer it waits until the host cluster has given it an address, for
    type Route until a router has admitted it. Then it removes the Ingress or Route of a type that the endpoint had
    before.
  - >-
    That address goes into the certificate of the karmada-apiserver, so this comes before
    M(karmada.installer.certificates).
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  timeout:
    description: Seconds to wait for the address of a load balancer, or for a router.
    type: int
    default: 120
notes:
  - >-
    In check mode nothing is waited for.
seealso:
  - module: karmada.installer.certificates
  - module: karmada.installer.workloads
"""

EXAMPLES = r"""
- name: Make the way to the API server
  karmada.installer.endpoint:
"""

RETURN = r"""
changes:
  description: What was done to Service, Ingress and Route, if they differed. In check mode, what would be done.
  returned: success
  type: list
  elements: str
  sample: ["created Service karmada-prod/prod-apiserver"]
host:
  description: The name or address that clients outside use; empty where there is none.
  returned: success
  type: str
  sample: 192.0.2.10
url:
  description: Where the API server is.
  returned: success
  type: str
  sample: https://192.0.2.10:5443
"""
