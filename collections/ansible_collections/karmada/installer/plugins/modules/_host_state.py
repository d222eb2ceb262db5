# SPDX-License-Identifier: Apache-2.0
"""State of an instance on a plain host, and facts about the host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: _host_state
short_description: "Inner step on a host: read or write what a plain host knows of a control plane"
version_added: 0.1.0
author: karmada.installer contributors (@karmada)
description:
  - >-
    The installer's state of a control plane on plain hosts lies on each of them, readable for root only. This reads it,
    with what preflight wants to know of the host, or writes the next one.
  - >-
    The result holds private keys. Tasks that read are to be marked with C(no_log).
options:
  name:
    description: Name of the control plane.
    type: str
    required: true
  state:
    description:
      - V(read) returns what there is, and changes nothing.
      - V(locked) takes the lock first, or renews it.
      - V(kept) renews the lock, for O(silence), and nothing else.
      - V(written) replaces the state.
      - V(absent) removes the state.
      - V(released) lets go of the lock; if O(content) is given, it replaces the state before.
      - >-
        V(kept), V(written) and V(absent) fail unless O(holder) has the lock: another run may have worked on the host
        since.
    type: str
    choices: [read, locked, kept, written, absent, released]
    default: read
  holder:
    description: Who holds the lock.
    type: str
    required: true
  dead_holder:
    description: Who is known to have held the lock and ended without letting go.
    type: str
    default: ""
  silence:
    description: >-
      How many seconds the holder may be silent after V(state=kept) before it is taken for dead, from 600 to 3600. Its
      next step on the host makes it 600 again.
    type: int
    default: 600
  address:
    description: The address that the components of this host are to listen on.
    type: str
    default: ""
  virtual_ip:
    description: The virtual IP of the endpoint, if it has one. It is looked who has it.
    type: str
    default: ""
  folders:
    description: Folders whose free space is looked up.
    type: list
    elements: str
    default: []
  content:
    description: >-
      What to write, as JSON, with C(serial), C(files), C(digest) and C(lineage). Without files, the host keeps no copy
      of the state, and only knows which one it is.
    type: str
  expected:
    description: >-
      The digest of what is there, as this run has seen it; empty for nothing. Should something else be there by now,
      nothing is written.
    type: str
    default: ""
  member:
    description: >-
      The member of etcd to ask after V(state=written), with C(url), C(folder) and C(data) as for
      M(karmada.installer._etcd_member). Nobody is asked without it.
    type: dict
attributes:
  check_mode:
    support: full
    description: Nothing is written; without the lock.
  diff_mode:
    support: none
    description: It holds keys.
  platform:
    support: full
    platforms: posix
    description: Linux with systemd.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
"""

EXAMPLES = r"""
- name: Look at the hosts
  karmada.installer._host_state:
    name: prod
    holder: me
  become: true
  register: karmada_host_state
  no_log: true
"""

RETURN = r"""
answer:
  description: What the member told, as M(karmada.installer._etcd_member) returns it.
  returned: when one was asked
  type: dict
stored:
  description: What is kept of the state, C(serial), C(files), C(digest), C(lineage) and C(previous).
  returned: when it was read
  type: dict
files:
  description: The files of the components of this host, base64 by path.
  returned: when it was read
  type: dict
programs:
  description: The programs that are as they were installed, path to SHA-256 in hex.
  returned: when it was read
  type: dict
facts:
  description: What preflight wants to know of the host.
  returned: when it was read
  type: dict
"""

import contextlib
import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.karmada.installer.plugins.module_utils import (
    etcd_member,
    host_lock,
    host_module,
    host_program_files,
    host_snapshot,
    host_state,
)
from ansible_collections.karmada.installer.plugins.module_utils.host_system import System


def main() -> None:
    """Run on the host."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {
                "type": "str",
                "default": "read",
                "choices": ["read", "locked", "kept", "written", "absent", "released"],
            },
            "holder": {"type": "str", "required": True},
            "dead_holder": {"type": "str", "default": ""},
            "silence": {"type": "int", "default": 600},
            "address": {"type": "str", "default": ""},
            "virtual_ip": {"type": "str", "default": ""},
            "folders": {"type": "list", "elements": "str", "default": []},
            "content": {"type": "str", "no_log": True},
            "expected": {"type": "str", "default": ""},
            "member": {"type": "dict"},
        },
        required_if=[("state", "written", ["content"])],
        supports_check_mode=True,
    )
    with host_module.refusals_told(module):
        result = _perform(System(), module.params, module.check_mode)
    module.exit_json(**result)


def _perform(system: System, wanted: dict[str, Any], check: bool) -> dict[str, Any]:
    name, holder, state = wanted["name"], wanted["holder"], wanted["state"]
    if state == "released":
        return {"changed": False} if check else _released(system, wanted)
    if state == "locked" and not check:
        host_lock.take(system, name, holder, wanted["dead_holder"])
    if state != "read":
        silence = wanted["silence"] if state == "kept" else host_lock.LOCK_SILENCE
        with contextlib.nullcontext() if check else host_lock.working(system, name, holder, silence):
            if not check:
                host_state.recover(system, name)
            if state == "locked" and not check:
                # What a run has left that was killed. Who has the lock has none yet.
                host_snapshot.remove(system, name)
            if state == "written":
                content = json.loads(wanted["content"])
                changed = host_state.write_state(system, name, content, wanted["expected"], check)
                asked = wanted.get("member")
                answer = {"answer": etcd_member.answered(system, **asked)} if asked else {}
                return {"changed": changed, **answer}
            if state == "absent":
                return {"changed": host_state.remove_state(system, name, check)}
            if state == "kept":
                return {"changed": False}
    with host_lock.shared(system):
        programs = host_program_files.intact(system, "/usr/local/lib/karmada")
    return {
        "changed": False,
        "stored": host_state.read_state(system, name),
        "files": host_state.read_files(system, f"/etc/karmada/{name}"),
        "facts": host_state.facts(system, wanted["address"], wanted["folders"], wanted["virtual_ip"]),
        "programs": programs,
    }


def _released(system: System, wanted: dict[str, Any]) -> dict[str, Any]:
    name, holder = wanted["name"], wanted["holder"]
    try:
        if wanted.get("content"):
            with host_lock.working(system, name, holder):
                host_state.recover(system, name)
                host_state.write_state(system, name, json.loads(wanted["content"]), wanted["expected"], False)
    finally:
        host_lock.release(system, name, holder)
    return {"changed": False}


if __name__ == "__main__":
    main()
