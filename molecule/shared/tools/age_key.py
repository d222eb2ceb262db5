# SPDX-License-Identifier: Apache-2.0
"""Make a key pair as age-keygen does.

The private key goes into a new file for its owner only, the public one is printed:

age_key.py FILE
"""

from __future__ import annotations

import os
import sys

import pyrage

identity = pyrage.x25519.Identity.generate()
with open(sys.argv[1], "x", opener=lambda path, flags: os.open(path, flags, 0o600), encoding="utf-8") as file:
    file.write(f"# public key: {identity.to_public()}\n{identity}\n")
print(identity.to_public())
