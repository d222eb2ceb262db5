#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record the checksum of what the publisher of a release offers: lock_artifacts.py v1.18.2 [GoModules|URL]."""

from __future__ import annotations

import json
import sys

from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import LOCK_FILE, Source, content_hash, fetch


def main(version: str, kind: str = "GoModules") -> None:
    """Fetch, hash, and write the lock file. A Go module is verified by nobody here but is the same for everyone."""
    files, where = fetch(version, Source(kind=kind))
    lock = json.loads(LOCK_FILE.read_text()) if LOCK_FILE.exists() else {"karmada": {}}
    lock["karmada"].setdefault(version, {})["crds"] = content_hash(files)
    LOCK_FILE.write_text(json.dumps(lock, indent=2, sort_keys=True) + "\n")
    print(f"{version}: {len(files)} CRDs from {where}: {lock['karmada'][version]['crds']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
