# SPDX-License-Identifier: Apache-2.0
"""Folder of this run for SSH files from Secrets."""

from __future__ import annotations

DOCUMENTATION = r"""
name: ssh_folder
short_description: "Inner lookup: folders of SSH in this run"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    The folder that M(karmada.installer.ssh_files) writes to in this run of a playbook. It ends with the run. Connection
    variables of P(karmada.installer.karmada#inventory) use it, because an inventory may be read by another process than
    the one that connects.
  - >-
    With V(connections), the folder in which Ansible is configured to keep the sockets of connections that stay open.
    Ours have a folder of their own in it, or a connection that somebody else has opened to the same host, perhaps
    without looking who is there, would be taken over.
  - It makes nothing and reads no file.
options:
  _terms:
    description: Nothing, or V(connections).
    type: list
    elements: str
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

from ansible import constants
from ansible.plugins.loader import connection_loader
from ansible.plugins.lookup import LookupBase
from ansible_collections.karmada.installer.plugins.plugin_utils.run import ssh_folder


class LookupModule(LookupBase):  # type: ignore[misc]  # ansible-core ships no types
    """See DOCUMENTATION."""

    def run(self, terms: list[Any], variables: Any = None, **options: Any) -> list[str]:
        """Path of the folder, as the only element."""
        if not terms:
            return [str(ssh_folder.of_this_run())]
        # The settings of a connection plugin are known once it is loaded.
        connection_loader.get("ssh", class_only=True)
        return [str(constants.config.get_config_value("control_path_dir", plugin_type="connection", plugin_name="ssh"))]
