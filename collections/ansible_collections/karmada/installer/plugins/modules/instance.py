# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: instance
short_description: "Inner step: make a host of the chosen control plane one that plays know"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    An inventory with several control planes (C(instances=all) of the source) has each host under a name of its own, in
    groups that no play of this collection names. The first play makes C(karmada_control) and the plain hosts of the
    chosen one out of them, for this run only.
  - >-
    Which hosts these are is what M(karmada.installer.require_document) returns. Changes nothing but the inventory that
    Ansible has in memory.
options:
  host:
    description: Host of the inventory, as in C(karmada-prod.prod) or C(cp1@karmada-prod.prod).
    type: str
    required: true
extends_documentation_fragment:
  - karmada.installer.attributes
attributes:
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.require_document
  - plugin: karmada.installer.karmada
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Read the document
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Choose a control plane
      karmada.installer.require_document:
      register: karmada_document

    - name: Work on it
      karmada.installer.instance:
        host: "{{ item }}"
      loop: "{{ karmada_document.adopted }}"
      changed_when: false
"""

RETURN = r"""
add_host:
  description: The host, as Ansible adds it to the inventory of this run.
  returned: success
  type: dict
  contains:
    host_name:
      description: Its name among those of one control plane, C(karmada_control) or the name of a plain host.
      type: str
      sample: karmada_control
    groups:
      description: Groups that it is in.
      type: list
      elements: str
      sample: [karmada_in_pods]
    host_vars:
      description: Variables that it has.
      type: dict
"""
