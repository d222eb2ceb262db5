# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: require_document
short_description: "Inner step: fail unless a KarmadaDeployment was loaded, and say why"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Ansible turns the failure of an inventory plugin into a warning, finds no hosts and ends with success. This is the
    first step of the playbooks of this collection, on C(localhost): if there is no host C(karmada_control), it reads
    the inventory sources of this run again and fails with everything that is wrong with them or with the document.
  - If no source of this collection was given, it says how to write one.
  - It also fails if more than one was given, because a run works on one control plane.
  - >-
    Where the inventory has several (C(instances=all) of the source), it finds the one that C(karmada_instance) names,
    and fails without a choice. M(karmada.installer.instance) then makes its hosts those that plays know.
  - >-
    And it fails with E(ANSIBLE_DEBUG), because Ansible then prints what tasks with C(no_log) read and write, such as
    the keys in the installer's state.
  - >-
    It warns if E(K8S_AUTH_VERIFY_SSL) switches the verification of the API server off, as AWX does for a credential
    without a CA.
  - It reads files, and the object if a source names one. Changes nothing.
  - >-
    It fails if C(--limit) leaves out what the run cannot be without, which Ansible takes for success. For that the
    play has to have C(all) hosts where there is a limit.
options:
  limit:
    description:
      - What C(--limit) may choose.
      - V(control_plane) is that and its plain hosts, all of them.
      - V(members) are also single members, unless there are plain hosts, which such a limit would leave out.
      - V(any) is whatever there is, for playbooks that work through the control plane only.
    type: str
    choices: [control_plane, members, any]
    default: control_plane
  report:
    description:
      - Form of the report for which the run was asked, usually the variable C(karmada_report).
      - V(json) and V(html) pass; any other is refused here, before the first change.
    type: str
    default: json
  fail_on_drift:
    description:
      - >-
        Whether a run in check mode fails at its end, after the report, if it would change something, with what that is.
        Usually set with C(karmada_fail_on_drift).
      - Outside of check mode it is refused here, before the first change.
    type: bool
    default: false
  several:
    description:
      - What is done about several control planes if none was chosen.
      - V(choose) fails and lists them.
      - V(show) shows a line for each, as the inventory has them, and succeeds; no play then finds one to work on.
    type: str
    choices: [choose, show]
    default: choose
extends_documentation_fragment:
  - karmada.installer.attributes
attributes:
  diff_mode:
    support: none
seealso:
  - plugin: karmada.installer.karmada
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Read the document
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Fail unless a KarmadaDeployment was loaded
      karmada.installer.require_document:

- name: Use it
  hosts: karmada_control
  gather_facts: false
  tasks:
    - name: Show the document with all defaults
      ansible.builtin.debug:
        var: karmada_deployment
"""

RETURN = r"""
adopted:
  description: >-
    Hosts of the chosen one of several control planes, its own first, for M(karmada.installer.instance). Empty where
    there is one only.
  returned: success
  type: list
  elements: str
  sample: [karmada-prod.prod]
msg:
  description: Everything that is wrong, each as what, where and how to mend it.
  returned: failure
  type: str
  sample: |-
    1 problem; nothing was changed:
      - prod.yaml: spec.modee: is not a field of this document. Did you mean mode?
phase:
  description: Phase of the control plane in which the step failed, in the words of the report.
  returned: failure
  type: str
  sample: Preflight
reason:
  description: Reason of the first problem. The reference has all.
  returned: failure
  type: str
  sample: InvalidDocument
component:
  description: Always empty here, as in other actions whose problem names no component.
  returned: failure
  type: str
  sample: ""
"""
