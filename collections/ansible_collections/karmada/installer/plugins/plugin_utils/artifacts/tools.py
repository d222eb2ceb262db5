# SPDX-License-Identifier: Apache-2.0
"""Programs beside those of components, which a run itself starts on the machine that Ansible runs on.

They come out of the same image, archive or modules as a component's program, of its version, and by the same settings
of the document; so they are looked for as if they were one.
"""

from __future__ import annotations

from dataclasses import replace

from ..components.table import ETCD

#: Judges and restores snapshots of etcd. Of the version of the etcd that made them.
ETCDUTL = replace(ETCD, name="etcdutl", binary="/usr/local/bin/etcdutl")
