# Copyright the karmada.installer authors
# SPDX-License-Identifier: Apache-2.0
"""Whether an output shows a secret.

    leaks.py LOG... [--kubeconfig FILE --namespace NAMESPACE]

Looked for: private keys by their headers, readable and in base64, tokens, and with a namespace every value of every
Secret in it, apart from certificates and public keys. What was found is named by where it is, never shown. Exit code 1:
something was found.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from snapshot import Object, kubectl

#: How a certificate begins in base64.
CERTIFICATE = base64.b64encode(b"-----BEGIN CERTIFICAT").decode()
PUBLIC = (".crt", ".pub")
PATTERNS = {
    "a PEM header": re.compile(r"-----BEGIN (?!CERTIFICATE-|PUBLIC KEY-)[A-Z ]+-----"),
    "a PEM header in base64": re.compile(rf"LS0tLS1CRUdJTi(?!{CERTIFICATE.removeprefix('LS0tLS1CRUdJTi')})"),
    "a token": re.compile(r"eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}"),
}
#: Anything shorter is found in every text.
SHORTEST = 24


def values_of(secrets: list[Object]) -> dict[str, set[str]]:
    """Secret and key → the texts in which its value could appear, the words of a readable one each on its own."""
    found: dict[str, set[str]] = {}
    for each in secrets:
        name = each["metadata"]["name"]
        for key, encoded in (each.get("data") or {}).items():
            value = base64.b64decode(encoded)
            if key == "instance.json":
                found[f"{name}/encryptionKey"] = {json.loads(value)["encryptionKey"]}
            elif not key.endswith((".json", *PUBLIC)):
                words = value.decode(errors="replace").split()
                found[f"{name}/{key}"] = {word for word in (encoded, *words) if _is_secret(word)}
    return found


def _is_secret(word: str) -> bool:
    """Names and addresses around a key are none."""
    shape = re.fullmatch(rf"[A-Za-z0-9+/=_-]{{{SHORTEST},}}", word)
    return shape is not None and any(map(str.isdigit, word)) and not word.startswith(CERTIFICATE)


def leaks(text: str, values: Mapping[str, set[str]]) -> Iterator[str]:
    """What is in this text that should not be, by line."""
    for number, line in enumerate(text.splitlines(), start=1):
        for what, pattern in PATTERNS.items():
            if pattern.search(line):
                yield f"line {number}: {what}"
        for name, texts in values.items():
            if any(secret in line for secret in texts):
                yield f"line {number}: the value of {name}"


def main() -> int:
    """Look through the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="+", type=Path)
    parser.add_argument("--kubeconfig")
    parser.add_argument("--namespace")
    options = parser.parse_args()
    values: dict[str, set[str]] = {}
    if options.namespace:
        answer = kubectl(options.kubeconfig, "get", "secrets", "--namespace", options.namespace, "--output=json")
        values = values_of(json.loads(answer)["items"])
    found = [f"{log}: {line}" for log in options.log for line in leaks(log.read_text(), values)]
    print("\n".join(found) if found else f"No secret in {len(options.log)} logs, {len(values)} values looked for.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
