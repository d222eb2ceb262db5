# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_components
short_description: "Inner step: run components of a control plane as systemd units of a plain host"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Makes users, configuration, certificates and hardened units of the named components as the document and the role of
    the host want them, and has M(karmada.installer._host_tree) bring the host to that.
  - >-
    A unit is restarted if, and only if, its process was started with something older than what there is now.
  - >-
    M(karmada.installer.host_observe) has to look at the host before, and M(karmada.installer.host_programs) has to
    bring the programs.
options:
  components:
    description:
      - Which components. Those that are not for this host, or that the document does not name, are left out.
      - Agents of members are among them by name only, because they follow what joining has found out.
    type: list
    elements: str
    default:
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
      - karmada-agent
  state:
    description:
      - V(present) brings the host to what the document says. Units of components that it no longer names go.
      - >-
        V(compared) only looks whether the host differs from that, and changes nothing. It says C(changed) in check mode
        only, where no other step will.
      - >-
        V(stopped) stops the units of this control plane but etcd, and keeps them from starting with the machine.
      - >-
        V(absent) takes everything of this control plane from the host. Data of etcd goes with it, unless the document's
        deletion policy is C(Retain).
    type: str
    choices: [present, stopped, absent, compared]
    default: present
  restart:
    description: >-
      Whether units that run with older files are restarted. Without it they are left running and named in the result,
      and only what does not run is started.
    type: bool
    default: true
  wait_for:
    description:
      - Which units have to answer on their health endpoints before this returns.
      - >-
        V(running) waits until systemd has started all units, whatever they answer; one that takes longer than
        O(timeout), or ends again, is no failure.
    type: str
    choices: [none, running, started, all]
    default: all
  timeout:
    description: Seconds to wait.
    type: int
    default: 120
extends_documentation_fragment:
  - karmada.installer.host_attributes
attributes:
  diff_mode:
    support: full
    description: Shows what changes in files; of secrets only that they change.
"""

EXAMPLES = r"""
- name: Start etcd and the API server
  karmada.installer.host_components:
    components: [etcd, karmada-apiserver]
  become: true
"""

RETURN = r"""
changes:
  description: What was done, or in check mode would be done, a line each.
  returned: success
  type: list
  elements: str
  sample: [restart karmada-prod-scheduler.service]
outdated:
  description: Units that run with older files.
  returned: success
  type: list
  elements: str
  sample: [karmada-prod-scheduler.service]
"""
