# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: workloads
short_description: "Inner step: run components of a control plane as pods of the host cluster"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Applies the Deployment or StatefulSet, the Service, the NetworkPolicy and the configuration of the named
    components, and waits until they are ready.
  - >-
    Ready means that as many pods as the document asks for pass their probes, and for a Deployment that all of them
    are of the newest form. A wait says what it waits for and why it is not ready yet; when it gives up it shows the
    last log lines of what crashed. It gives up early when waiting cannot help.
  - >-
    Once etcd has been ready for the first time, that is recorded and its members are configured never to found a
    cluster again. A member that has lost its data then waits to be replaced.
  - >-
    Certificates and keys are not part of this; M(karmada.installer.certificates) has to run before.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  components:
    description: Which components. They are applied at the same time.
    type: list
    elements: str
    required: true
    choices:
      - etcd
      - karmada-apiserver
      - karmada-aggregated-apiserver
      - kube-controller-manager
      - karmada-controller-manager
      - karmada-scheduler
      - karmada-webhook
      - karmada-descheduler
      - karmada-search
      - karmada-metrics-adapter
      - karmada-scheduler-estimator
  apply:
    description: >-
      Whether to apply them, and to take away what is unwanted. Without that they are only waited for, where an earlier
      task has applied them.
    type: bool
    default: true
  wait:
    description: Whether to wait until the components are ready.
    type: bool
    default: true
  remove_unwanted:
    description: >-
      Whether to take away what the document no longer calls for: optional components that it does not name, a
      disruption budget of a component that has one replica again, and network policies that are switched off.
    type: bool
    default: true
  timeout:
    description: Seconds to wait.
    type: int
    default: 300
notes:
  - >-
    In check mode nothing is waited for.
seealso:
  - module: karmada.installer.certificates
  - module: karmada.installer.control_plane
"""

EXAMPLES = r"""
- name: Start etcd and wait until every member is healthy
  karmada.installer.workloads:
    components: [etcd]

- name: Start the controllers and the scheduler without waiting for them
  karmada.installer.workloads:
    components: [karmada-controller-manager, karmada-scheduler]
    wait: false
"""

RETURN = r"""
changes:
  description: >-
    What was done to each object that differed, as C(created), C(changed) or C(deleted) with its kind, namespace and
    name. In check mode, what would be done.
  returned: success
  type: list
  elements: str
  sample: ["created Deployment karmada-prod/prod-scheduler"]
"""
