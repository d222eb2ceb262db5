# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: etcd_snapshot
short_description: "Inner step: fetch the database of the member of etcd on a plain host"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Has the member of etcd on a host write its database into a file of that host, and fetches the file into a folder of
    this run, readable for its owner only. On the host the file is gone afterwards. The step
    M(karmada.installer.backup) makes a backup of it and removes the folder.
  - >-
    M(karmada.installer.etcd_member) has to have asked the member before; its host is locked by
    M(karmada.installer.host_observe).
extends_documentation_fragment:
  - karmada.installer.host_attributes
attributes:
  check_mode:
    description: Does nothing.
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.backup
"""

EXAMPLES = r"""
- name: Fetch the database of a member
  karmada.installer.etcd_snapshot:
  delegate_to: host1
  become: true
  register: karmada_snapshot
"""

RETURN = r"""
file:
  description: The file, here.
  returned: without check mode
  type: str
revision:
  description: Newest revision in it.
  returned: without check mode
  type: int
beginning:
  description: When that began, and a digest of which etcd it is.
  returned: without check mode
  type: dict
acknowledged:
  description: Revision that a majority of the members had before.
  returned: without check mode
  type: int
"""
