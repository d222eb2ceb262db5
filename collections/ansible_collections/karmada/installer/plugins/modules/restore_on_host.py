# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action of the same name, which does the work."""

from __future__ import annotations

DOCUMENTATION = r"""
module: restore_on_host
short_description: "Inner step: look at a plain host in a restore, make new data of its member of etcd, or remove old"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Does on a host what M(karmada.installer.restore) has decided: brings a decrypted snapshot as a file that one user
    can read, has etcd's user make the data of the member out of it with the host's own C(etcdutl), beside the data that
    etcd has, and deletes the snapshot. No folder of data is deleted or written again, except by V(removed).
  - >-
    The host is locked by M(karmada.installer.host_observe).
extends_documentation_fragment:
  - karmada.installer.host_attributes
options:
  state:
    description:
      - >-
        V(seen) notes which components run, how the member of etcd is, whether the folder of the new data is there, and,
        where API servers are to refuse agents, how the one of this host answers a certificate like those of agents;
        where members are held after the release of a part, whether it refuses Works of theirs.
      - >-
        V(made) makes the data out of O(snapshot), and before it the user and the folders of etcd on a machine that is
        new under the name of a lost host.
      - >-
        V(copied) copies the data of the member, which has survived where most others are lost, has the copy here, and
        starts it here once, without all others, for a snapshot of it. Nothing of it stays on the host.
      - V(counted) notes the hash over the keys of the member, and how many there are of each kind.
      - >-
        V(listed) notes which folders with data of etcd are there, on a host without a member, too.
      - >-
        V(removed) removes the folders of old data that the state names as put aside, and those of V(listed) that by
        the state no member uses, and no other: refused if one is used, by the state or by a process on the host, or is
        no folder. Links are not followed.
      - V(restarted) restarts karmada-controller-manager, if it runs here, because members are let go.
      - V(woken) restarts the agents of members that run here, because API servers accept them again.
    type: str
    choices: [seen, made, copied, counted, listed, removed, restarted, woken]
    default: seen
  snapshot:
    description: The file here, its size and its SHA-256, as M(karmada.installer.restore) has delivered it.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Looks, and makes and removes nothing.
  diff_mode:
    support: none
seealso:
  - module: karmada.installer.restore
"""

EXAMPLES = r"""
- name: See what runs
  karmada.installer.restore_on_host:
    state: seen
  become: true
"""

RETURN = r"""
changes:
  description: What was made, the folders that were removed, or the units that were restarted.
  returned: success
  type: list
  elements: str
copied:
  description: The snapshot, in a folder of this run, and what it tells.
  returned: with V(copied)
  type: dict
"""
