# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: scheduler_estimators
short_description: "Inner step: run a karmada-scheduler-estimator for each member"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Where the document has C(components.karmadaSchedulerEstimator), each member that is joined gets an estimator, which
    tells the scheduler and the descheduler how many replicas have room there. As pods they are made here. For plain
    hosts this hands on what M(karmada.installer.host_components) needs to make them there.
  - >-
    In the control plane it makes a Service for each, by which they are found. Services, and as pods everything else, of
    members that have left or that the document has no estimators for any more, are removed.
  - >-
    What an estimator may do on its member, M(karmada.installer.member_join) has put there. A member that does not
    answer keeps nothing here from being done, and is not waited for.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
options:
  timeout:
    description: Seconds to wait until the estimators of members that are Ready serve.
    type: int
    default: 120
seealso:
  - module: karmada.installer.member_join
  - module: karmada.installer.host_components
"""

EXAMPLES = r"""
- name: Run an estimator for each member
  karmada.installer.scheduler_estimators:
    timeout: 180
"""

RETURN = r"""
changes:
  description: >-
    What was done to each object that differed, as C(created), C(changed) or C(deleted) with its kind, namespace and
    name. In check mode, what would be done.
  returned: success
  type: list
  elements: str
  sample: ["created Service karmada-system/estimator-member1"]
due:
  description: Whether plain hosts lack something that estimators need, or have something that they need no longer.
  returned: success
  type: bool
  sample: false
"""
