# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_files
short_description: "Inner step: write private files with the SSH key and host keys of Secrets, for the time of a run"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Where the Secrets of C(spec.ssh) are objects of a cluster, reads them and puts what they hold into files that only
    their owner can read, in the private folder of the run on this machine. The connection variables of
    hosts, which P(karmada.installer.karmada#inventory) makes, lead there. The files go when the run ends.
  - >-
    Where the inventory source names a directory C(secrets), SSH reads the files there, and there is nothing to do.
  - >-
    The second step of the playbooks of this collection, before anything connects to a host.
extends_documentation_fragment:
  - karmada.installer.attributes
  - karmada.installer.deployment
attributes:
  diff_mode:
    support: none
notes:
  - Files on this machine that end with the run are no change, so it makes them in check mode, too.
  - On another host than C(karmada_control) the document is that of C(karmada_control).
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

    - name: Have SSH find its key
      karmada.installer.ssh_files:
      when: groups.karmada_hosts | length > 0
"""

RETURN = r"""
files:
  description: The files that were made.
  returned: success
  type: list
  elements: str
  sample: [/run/user/1000/karmada-installer-5f2c0de1-0000-4000-8000-000000000000.1.2-4711-815/ssh/ssh-privatekey]
"""
