# Copyright the karmada.installer authors
# SPDX-License-Identifier: Apache-2.0
"""Whether an output shows a secret.

    leaks.py LOG... [--kubeconfig FILE --namespace NAMESPACE]... [--secret-file FILE]...
             [--remember FILE] [--recall FILE]

Looked for, readable and in base64 (wherever in a longer text in base64 it may stand): private keys by their headers,
tokens of service accounts, bootstrap tokens, and every value of every Secret in the namespaces and of the files, apart
from certificates and public keys. ``--remember`` keeps the values in a file for their owner only, for a later look with
``--recall`` when their Secrets are gone. What was found is named by where it is, never shown. Exit code 1: something
was found.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from snapshot import Object, kubectl

#: How a certificate begins in base64.
CERTIFICATE = base64.b64encode(b"-----BEGIN CERTIFICAT").decode()
PUBLIC = (".crt", ".pub")


def in_base64(secret: bytes) -> set[str]:
    """What base64 makes of it, wherever it stands in a longer text: there are three ways to cut one into threes."""
    found = set()
    for before in range(3):
        text = base64.b64encode(b"\0" * before + secret).decode()
        # The characters at both ends depend on the neighbours as well.
        start = -(-before * 8 // 6)
        found.add(text[start : (before + len(secret)) * 8 // 6])
    return found


PATTERNS = {
    "a PEM header": re.compile(r"-----BEGIN (?!CERTIFICATE-|PUBLIC KEY-)[A-Z ]+-----"),
    "a PEM header in base64": re.compile(
        rf"LS0tLS1CRUdJTi(?!{CERTIFICATE.removeprefix('LS0tLS1CRUdJTi')})|"
        + "|".join(sorted(in_base64(b" PRIVATE KEY-----")))
    ),
    "a token": re.compile(r"eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}"),
    "a token in base64": re.compile("|".join(sorted(in_base64(b"eyJhbGciOiJ")))),
    "a bootstrap token": re.compile(r"(?<![\w.-])[a-z0-9]{6}\.(?=[a-z]*\d)[a-z0-9]{16}(?![\w.-])"),
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
                found[f"{name}/encryptionKey"] = _forms([json.loads(value)["encryptionKey"]])
            elif not key.endswith((".json", ".json.gz", *PUBLIC)):
                found[f"{name}/{key}"] = texts_of(value)
    return {name: texts for name, texts in found.items() if texts}


def texts_of(value: bytes) -> set[str]:
    """The texts in which a secret value could appear."""
    encoded, public = base64.b64encode(value).decode(), _public_part(value)
    words = (word.strip("\"'{}[],;") for word in value.decode(errors="replace").split())
    whole = {encoded} if _is_secret(encoded) else set()
    return whole | _forms(word for word in words if _is_secret(word) and not _stands_in(public, word))


def _public_part(value: bytes) -> bytes:
    """What everybody may know of a private key: an elliptic one ends with it, and its certificate has it, too."""
    try:
        public = load_pem_private_key(value, None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return b""
    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _stands_in(public: bytes, word: str) -> bool:
    """Whether this line of a PEM block is a piece of that."""
    try:
        return bool(public) and base64.b64decode(word, validate=True) in public
    except ValueError:
        return False


def _forms(words: Iterable[str]) -> set[str]:
    return {form for word in words for form in (word, *in_base64(word.encode()))}


def _is_secret(word: str) -> bool:
    """Names and addresses around a key are none."""
    shape = re.fullmatch(rf"[A-Za-z0-9+/=_-]{{{SHORTEST},}}", word)
    return shape is not None and any(map(str.isdigit, word)) and not word.startswith(CERTIFICATE)


def leaks(text: str, values: Mapping[str, set[str]]) -> Iterator[str]:
    """What is in this text that should not be, by line."""
    there = {name: [secret for secret in texts if secret in text] for name, texts in values.items()}
    for number, line in enumerate(text.splitlines(), start=1):
        for what, pattern in PATTERNS.items():
            if pattern.search(line):
                yield f"line {number}: {what}"
        for name, secrets in there.items():
            if any(secret in line for secret in secrets):
                yield f"line {number}: the value of {name}"


def _secrets_in(kubeconfig: str, namespace: str) -> list[Object]:
    answer = kubectl(kubeconfig, "get", "secrets", "--namespace", namespace, "--output=json")
    items: list[Object] = json.loads(answer)["items"]
    return items


def main() -> int:
    """Look through the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="+", type=Path)
    parser.add_argument("--kubeconfig", action="append", default=[])
    parser.add_argument("--namespace", action="append", default=[])
    parser.add_argument("--secret-file", action="append", default=[], type=Path)
    parser.add_argument("--remember", type=Path)
    parser.add_argument("--recall", type=Path)
    options = parser.parse_args()
    values: dict[str, set[str]] = {}
    if options.recall:
        values = {name: set(texts) for name, texts in json.loads(options.recall.read_text()).items()}
    for kubeconfig, namespace in zip(options.kubeconfig, options.namespace, strict=True):
        found_here = values_of(_secrets_in(kubeconfig, namespace))
        values |= {f"{Path(kubeconfig).parent.name}/{name}": texts for name, texts in found_here.items()}
    values |= {str(file): texts for file in options.secret_file if (texts := texts_of(file.read_bytes()))}
    if options.remember:
        options.remember.touch(0o600)
        options.remember.write_text(json.dumps({name: sorted(texts) for name, texts in values.items()}))
    found = [f"{log}: {line}" for log in options.log for line in leaks(log.read_text(errors="replace"), values)]
    print("\n".join(found) if found else f"No secret in {len(options.log)} logs, {len(values)} values looked for.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
