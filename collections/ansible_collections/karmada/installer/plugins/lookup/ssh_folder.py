# Copyright the karmada.installer authors
# SPDX-License-Identifier: Apache-2.0
"""Where this run keeps what SSH needs of Secrets."""

from __future__ import annotations

DOCUMENTATION = r"""
name: ssh_folder
short_description: Folder of this run with the SSH key and host keys of Secrets
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    The folder that M(karmada.installer.ssh_files) writes to in this run of a playbook. It ends with the run. Connection
    variables of P(karmada.installer.karmada#inventory) use it, because an inventory may be read by another process than
    the one that connects.
  - It makes nothing and reads no file.
options: {}
seealso:
  - module: karmada.installer.ssh_files
"""

EXAMPLES = r"""
- name: Where the key is
  ansible.builtin.debug:
    msg: "{{ lookup('karmada.installer.ssh_folder') }}/ssh-privatekey"
"""

RETURN = r"""
_raw:
  description: The absolute path, whether the folder exists or not.
  type: list
  elements: str
"""

from typing import Any

from ansible.plugins.lookup import LookupBase
from ansible_collections.karmada.installer.plugins.plugin_utils import ssh_folder


class LookupModule(LookupBase):  # type: ignore[misc]  # ansible-core ships no types
    """See DOCUMENTATION."""

    def run(self, terms: list[Any], variables: Any = None, **options: Any) -> list[str]:
        """The folder, as the only element."""
        return [str(ssh_folder.of_this_run())]
