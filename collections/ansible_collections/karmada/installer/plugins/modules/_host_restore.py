# SPDX-License-Identifier: Apache-2.0
"""A restore on a plain host: what runs there, and the new data of its member of etcd."""

from __future__ import annotations

DOCUMENTATION = r"""
module: _host_restore
short_description: "Inner step on a host: look at it in a restore, make the new data of its member of etcd, remove old"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    Makes the data of the member of etcd on this host out of a snapshot, beside the data that it has, and tells what a
    restore has to know of this host. Refused unless O(holder) has the lock of this host.
options:
  name:
    description: Name of the control plane.
    type: str
    required: true
  holder:
    description: Who has the lock.
    type: str
    required: true
  state:
    description:
      - >-
        V(seen) tells which of O(units) run, whether O(folder) is there, how the API server at O(url) answers who shows
        O(certificate), how the one of O(admission) answers its requests, and how the member at O(member) is.
      - V(expected) makes an empty file for the snapshot, which O(reader) alone can write, if there is room.
      - V(made) has O(user) make the data in O(folder) out of the snapshot, and deletes that.
      - V(absent) deletes the snapshot.
      - >-
        V(copied) copies the data of the member in O(folder) into one file in the place of the snapshot, for O(reader).
      - V(counted) tells the hash over the keys of the member at O(revision), and how many there are below prefixes.
      - >-
        V(listed) tells which folders with data of etcd are in O(folder), used or not, and their sizes.
      - >-
        V(removed) removes the folders O(aside) in O(folder), where the member uses O(used). Refused if one is used, or
        is no folder; no link is followed.
      - V(restarted) restarts those of O(units) that run.
    type: str
    choices: [seen, expected, made, absent, copied, counted, listed, removed, restarted]
    required: true
  units:
    description: Names of units.
    type: list
    elements: str
    default: []
  folder:
    description: The folder of the new data, or of that which is copied, or the one with all folders of data.
    type: str
    default: ""
  aside:
    description: Names of folders of old data, which a restore has put aside, or a former member has left.
    type: list
    elements: str
    default: []
  used:
    description: Name of the folder that the member of this host uses; empty where there is no member.
    type: str
    default: ""
  reader:
    description: The user that brings the snapshot, or fetches the copy.
    type: str
    default: root
  size:
    description: Size of the snapshot in bytes.
    type: int
    default: 0
  room:
    description: Bytes that the new data needs.
    type: int
    default: 0
  user:
    description: The user of the member.
    type: str
    default: ""
  digest:
    description: SHA-256 of the snapshot.
    type: str
    default: ""
  program:
    description: Path of etcdutl.
    type: str
    default: ""
  flags:
    description: Flags of etcdutl.
    type: list
    elements: str
    default: []
  url:
    description: The URL of the API server, or the client URL of the member.
    type: str
    default: ""
  authority:
    description: The certificate of the authority of the API server.
    type: str
    default: ""
  certificate:
    description: A client certificate.
    type: str
    default: ""
  key:
    description: Its private key.
    type: str
    default: ""
  admission:
    description: Objects that the API server of this host is asked to make, by dry runs, so that its admission is seen.
    type: dict
    suboptions:
      url:
        description: Its URL.
        type: str
        required: true
      authority:
        description: The certificate of its authority.
        type: str
        required: true
      certificate:
        description: A client certificate.
        type: str
        required: true
      key:
        description: Its private key.
        type: str
        required: true
      requests:
        description: Name → C(path) and C(body) of a request.
        type: dict
        required: true
  certificates:
    description: The folder with ca.crt, tls.crt and tls.key of the member.
    type: str
    default: ""
  member:
    description: >-
      The member of etcd that is asked beside all else: C(url), the C(folder) of its certificate, and that of its
      C(data).
    type: dict
  revision:
    description: A revision of etcd.
    type: int
    default: 0
  prefixes:
    description: Kind → first key and the key after the last one, in base64, with a space between.
    type: dict
    default: {}
attributes:
  check_mode:
    support: full
    description: Nothing is made or removed. What would be removed is told.
  diff_mode:
    support: none
  platform:
    support: full
    platforms: posix
    description: Linux with systemd.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
"""

EXAMPLES = r"""
- name: See what runs
  karmada.installer._host_restore:
    name: prod
    holder: me
    state: seen
    units: [karmada-prod-etcd.service]
    folder: /var/lib/karmada/prod/etcd/gen-2
  become: true
"""

RETURN = r"""
running:
  description: Units that run, or are stopping.
  returned: with V(seen)
  type: list
  elements: str
there:
  description: Whether the folder is there.
  returned: with V(seen)
  type: bool
status:
  description: The HTTP status that the API server answered; 0 if it did not answer.
  returned: with V(seen) and O(url)
  type: int
admission:
  description: Name of a request → C(status) of the answer, 0 if there was none, and its C(message).
  returned: with V(seen) and O(admission)
  type: dict
member:
  description: How the member is, as M(karmada.installer._etcd_member) tells it.
  returned: with V(seen) and O(member)
  type: dict
hash:
  description: The hash over the keys.
  returned: with V(counted), if the member can tell
  type: dict
counts:
  description: Kind → number of keys.
  returned: with V(counted), if the member can tell
  type: dict
size:
  description: Size of the copy in bytes.
  returned: with V(copied)
  type: int
folders:
  description: The C(name) of each folder with data, and its C(size) in bytes, if that is known.
  returned: with V(listed)
  type: list
  elements: dict
removed:
  description: Paths of the folders that were removed, or in check mode would be.
  returned: with V(removed)
  type: list
  elements: str
restarted:
  description: Names of the units that were restarted, or in check mode would be.
  returned: with V(restarted)
  type: list
  elements: str
holder:
  description: Who has the lock.
  returned: when it is another one
  type: str
"""

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.karmada.installer.plugins.module_utils import (
    etcd_member,
    host_module,
    host_old_data,
    host_restore,
    host_snapshot,
)
from ansible_collections.karmada.installer.plugins.module_utils.host_system import System


def main() -> None:
    """Run on the host."""
    text = {"type": "str", "default": ""}
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "holder": {"type": "str", "required": True},
            "state": {
                "type": "str",
                "required": True,
                "choices": [
                    *("seen", "expected", "made", "absent", "copied", "counted", "listed", "removed", "restarted")
                ],
            },
            "units": {"type": "list", "elements": "str", "default": []},
            "folder": text,
            "aside": {"type": "list", "elements": "str", "default": []},
            "used": text,
            "reader": {"type": "str", "default": "root"},
            "size": {"type": "int", "default": 0},
            "room": {"type": "int", "default": 0},
            "user": text,
            "digest": text,
            "program": text,
            "flags": {"type": "list", "elements": "str", "default": []},
            "url": text,
            "authority": text,
            "certificate": text,
            "key": {**text, "no_log": True},
            "admission": {
                "type": "dict",
                "options": {
                    **{name: {"type": "str", "required": True} for name in ("url", "authority", "certificate")},
                    "key": {"type": "str", "required": True, "no_log": True},
                    "requests": {"type": "dict", "required": True},
                },
            },
            "certificates": text,
            "member": {"type": "dict"},
            "revision": {"type": "int", "default": 0},
            "prefixes": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    with host_module.refusals_told(module):
        result = _perform(System(), module.params, module.check_mode)
    module.exit_json(changed=wanted_change(module.params["state"], module.check_mode, result), **result)


def wanted_change(state: str, check: bool, result: Mapping[str, Any]) -> bool:
    """Return whether a state that was reached, with this result, is a change of the host that stays."""
    if state in ("removed", "restarted"):
        return bool(result.get(state))
    return state == "made" and not check


def _perform(system: System, wanted: dict[str, Any], check: bool) -> dict[str, Any]:
    if check:
        return _checked(system, wanted)
    with host_module.working(system, wanted, check):
        return _done(system, wanted)


def _checked(system: System, wanted: dict[str, Any]) -> dict[str, Any]:
    if wanted["state"] == "removed":
        return _removed(system, wanted, check=True)
    if wanted["state"] == "restarted":
        return _restarted(system, wanted, check=True)
    if wanted["state"] == "listed":
        return _listed(system, wanted)
    return _looked(system, wanted) if wanted["state"] == "seen" else {}


def _listed(system: System, wanted: dict[str, Any]) -> dict[str, Any]:
    return {"folders": host_old_data.look(system, wanted["folder"])}


def _removed(system: System, wanted: dict[str, Any], *, check: bool = False) -> dict[str, Any]:
    place, used, names = (wanted[each] for each in ("folder", "used", "aside"))
    return {"removed": host_old_data.remove(system, place, used, names, check=check)}


def _restarted(system: System, wanted: dict[str, Any], *, check: bool = False) -> dict[str, Any]:
    return {"restarted": host_restore.restart(system, wanted["units"], check=check)}


def _done(system: System, wanted: dict[str, Any]) -> dict[str, Any]:
    name, state, folder = wanted["name"], wanted["state"], wanted["folder"]
    if state == "seen":
        return _looked(system, wanted)
    if state == "copied":
        return host_restore.copy(system, name, folder, wanted["reader"])
    if state in ("listed", "removed", "restarted"):
        act = {"listed": _listed, "removed": _removed, "restarted": _restarted}[state]
        return act(system, wanted)
    if state == "counted":
        post = etcd_member.poster(system, wanted["url"], wanted["certificates"])
        return host_restore.content(post, wanted["revision"], wanted["prefixes"])
    if state == "expected":
        host_restore.expect(system, name, wanted["reader"], wanted["size"], folder, wanted["room"])
    elif state == "made":
        host_restore.make(system, name, wanted["user"], wanted["digest"], wanted["program"], folder, wanted["flags"])
    else:
        host_snapshot.remove(system, name)
    return {}


def _looked(system: System, wanted: dict[str, Any]) -> dict[str, Any]:
    found = host_restore.look(system, wanted["units"], wanted["folder"])
    if wanted["url"]:
        asked = (wanted["url"], wanted["authority"], wanted["certificate"], wanted["key"])
        found["status"] = host_restore.ask(*asked)
    if asked_of := wanted["admission"]:
        found["admission"] = host_restore.answers(**asked_of)
    if member := wanted["member"]:
        found["member"] = etcd_member.answered(system, member["url"], member["folder"], member["data"])
    return found


if __name__ == "__main__":
    main()
