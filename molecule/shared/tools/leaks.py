# SPDX-License-Identifier: Apache-2.0
"""Return whether an output shows a secret.

    leaks.py remember VALUES [--cluster NAME=KUBECONFIG]... [--lab LAB --host NAME]... [--file FILE]...
    leaks.py look VALUES LOG...
    leaks.py look VALUES [--lab LAB] --host NAME...

``remember`` adds to the file VALUES, which only its owner may read, what nobody may be shown: every value of every
Secret of a cluster; on a host, what holds keys below the folders of control planes; a file of the user's with a key or
a token. A place that holds none is an error: whoever looked there would look for nothing. What leaves during a scenario
is remembered while it is there.

``look`` looks for all of them, and for the shapes of secrets that nobody has told it: private keys by their headers,
tokens of service accounts, bootstrap tokens. A value is found whole, line by line of a PEM block without its frame, and
in base64, wherever in a longer text in base64 it may stand, also across the ends of lines. Certificates and public keys
are none. On a host it looks for the values alone, in every file that a run or a component could have written outside of
the folders that control planes have there. What was found is named by where it is, never shown. Exit code 1: something
was found; 2: nothing to look for.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
)
from snapshot import Object, kubectl

#: How a certificate begins in base64.
CERTIFICATE = base64.b64encode(b"-----BEGIN CERTIFICAT").decode()
#: How public keys of SSH begin: Ed25519, RSA, ECDSA.
PUBLIC_SSH = ("AAAAC3NzaC1lZDI1NTE5", "AAAAB3NzaC1yc2E", "AAAAE2VjZHNhLXNoYTItbmlzdH")
#: A public key of age: what a private one begins with in its file, and what a backup says of its recipients.
PUBLIC_AGE = re.compile(r"age1[02-9ac-hj-np-z]{58}")
PUBLIC_NAMES = (".crt", ".pub")
#: Where a control plane keeps anything on a host.
HOST_FOLDERS = ("etc/karmada", "var/lib/karmada-installer")
#: Where else a run or a component could leave something on a host, disk and memory, and what is not looked at there:
#: the data of etcd, which an API server has encrypted, and programs.
WRITABLE_FOLDERS = ("dev/shm", "etc", "home", "opt", "root", "run", "srv", "tmp", "usr/local", "var")
NOT_LOOKED_AT = (
    *(*HOST_FOLDERS, "var/lib/karmada", "usr/local/lib/karmada"),
    *("var/cache/apt", "var/lib/apt", "var/lib/dpkg"),
)


def in_base64(secret: bytes) -> set[str]:
    """Forms that base64 makes of it, wherever it stands in a longer text: there are three ways to cut that."""
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
#: Anything shorter is found in every text, unless its key says that it is a secret.
SHORTEST = 24
#: Keys of Secrets whose values are secret, whatever they look like, and the length from which on they can be found.
SECRET_KEYS = ("password", "token-secret")
SHORTEST_OF_THEM = 8
_PUBLIC_BLOCK = re.compile(
    rb"-----BEGIN ((?:[A-Z]+ )*CERTIFICATE(?: REQUEST)?|PUBLIC KEY)-----.*?-----END \1-----", re.DOTALL
)
_TEXT_OF_BASE64 = re.compile(rf"[A-Za-z0-9+/=_-]{{{SHORTEST_OF_THEM},}}")
#: What holds a key or a token: a private key, readable or in base64, a token, an encryption key.
_HOLDS_A_KEY = re.compile(
    (
        r"PRIVATE KEY-----|eyJhbGciOiJ|^ *(secret|token|password): |"
        + "|".join(sorted(in_base64(b" PRIVATE KEY-----")))
    ).encode(),
    re.MULTILINE,
)


#: First line of every private key of OpenSSH: format, cipher and kind. All keys of a kind have the same one.
_FIRST_OF_SSH = base64.b64encode(b"openssh-key-v1\0").decode()


def values_in(contents: Mapping[str, bytes]) -> dict[str, set[str]]:
    """Name → the texts in which a value could appear, the words of a readable one each on its own.

    Records in JSON have names for their own sake; of them, an instance's knows a key.
    """
    found: dict[str, set[str]] = {}
    for name, value in contents.items():
        key = name.rpartition("/")[2]
        if key == "instance.json":
            found[f"{name}/encryptionKey"] = _forms([json.loads(value)["encryptionKey"]])
        elif key in SECRET_KEYS and len(value) >= SHORTEST_OF_THEM:
            found[name] = _forms([value.decode(errors="replace").strip()])
        elif not key.endswith((".json", ".json.gz", *PUBLIC_NAMES)):
            found[name] = texts_of(value)
    return {name: texts for name, texts in found.items() if texts}


def values_of(secrets: list[Object]) -> dict[str, set[str]]:
    """Values of these Secrets that may not be shown."""
    return values_in(
        {
            f"{each['metadata'].get('namespace', '')}/{each['metadata']['name']}/{key}": base64.b64decode(encoded)
            for each in secrets
            for key, encoded in (each.get("data") or {}).items()
        }
    )


def texts_of(value: bytes) -> set[str]:
    """The texts in which a secret value could appear."""
    encoded, public = base64.b64encode(value).decode(), _public_part(value)
    words = list(_words(_PUBLIC_BLOCK.sub(b"", value).decode(errors="replace")))
    found = {encoded} if _is_secret(encoded) and not _is_public(words) else set()
    for word in words:
        if _is_secret(word) and not word.startswith(_FIRST_OF_SSH) and not _stands_in(public, word):
            found |= _forms([word])
        # What proves a token is its last part; the others say whose it is, and are enough to find it as well.
        if PATTERNS["a token"].fullmatch(word):
            found |= _forms([word, word.rpartition(".")[2]])
        found |= _inside(word)
    return found


def _is_public(words: list[str]) -> bool:
    """Return whether these, beside certificates, are all of a value, and its only key is a public one of SSH."""
    return not words or (any(word.startswith(PUBLIC_SSH) for word in words) and not any(map(_is_secret, words)))


def _inside(word: str) -> set[str]:
    """The texts of a key that stands in base64 in a readable file, as in a kubeconfig."""
    try:
        value = base64.b64decode(word, validate=True)
    except ValueError:
        return set()
    return texts_of(value) if b"PRIVATE KEY-----" in value else set()


def _words(text: str) -> Iterator[str]:
    """The strings of a text in JSON, the words of any other."""
    try:
        strings = list(_strings(json.loads(text)))
    except ValueError:
        strings = [text]
    for each in strings:
        yield from (word.strip("\"'{}[],;") for word in each.split())


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(each)


def _public_part(value: bytes) -> bytes:
    """Public part of a private key: an elliptic one ends with it, and its certificate has it, too."""
    start = value.find(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    try:
        if start >= 0:
            blob = (
                load_ssh_private_key(value[start:], None)
                .public_key()
                .public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
            )
            return base64.b64decode(blob.split()[1])
        public = load_pem_private_key(_PUBLIC_BLOCK.sub(b"", value), None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return b""
    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _stands_in(public: bytes, word: str) -> bool:
    """Return whether this line of a PEM block is a piece of that."""
    try:
        return bool(public) and base64.b64decode(word, validate=True) in public
    except ValueError:
        return False


def _forms(words: Iterable[str]) -> set[str]:
    return {form for word in words for form in (word, *in_base64(word.encode()))}


def _is_secret(word: str) -> bool:
    """Names and addresses around a key are none. A line of a key may have no digit; names are not as long as that."""
    shape = re.fullmatch(rf"[A-Za-z0-9+/=_-]{{{SHORTEST},}}", word)
    by_chance = any(map(str.isdigit, word)) or (len(word) >= 2 * SHORTEST and word != word.lower())
    public = word.startswith((CERTIFICATE, *PUBLIC_SSH)) or PUBLIC_AGE.fullmatch(word)
    return shape is not None and by_chance and not public


def leaks(
    text: str, values: Mapping[str, set[str]], patterns: Mapping[str, re.Pattern[str]] = PATTERNS
) -> Iterator[str]:
    """Secrets in this text that should not be there, by line."""
    # A long output says most things many times; what could be a secret of it is little.
    runs = "\n".join(set(_TEXT_OF_BASE64.findall(text)))
    odd = {secret for texts in values.values() for secret in texts if not _TEXT_OF_BASE64.fullmatch(secret)}
    there = {
        name: [each for each in texts if each in (text if each in odd else runs)] for name, texts in values.items()
    }
    seen = {name: bool(secrets) for name, secrets in there.items()}
    for number, line in enumerate(text.splitlines(), start=1):
        for what, pattern in patterns.items():
            if pattern.search(line):
                yield f"line {number}: {what}"
        for name, secrets in there.items():
            if any(secret in line for secret in secrets):
                yield f"line {number}: the value of {name}"
    without_ends = "\n".join(set(_TEXT_OF_BASE64.findall(re.sub(r"\s+|\\[nrt]", "", text))))
    for name, texts in values.items():
        if not seen[name] and any(secret in without_ends for secret in texts):
            yield f"across the ends of lines: the value of {name}"


def holding_keys(archive: bytes) -> dict[str, bytes]:
    """The files of an archive that hold a key or a token, and the record of an instance."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        for member in packed:
            content = packed.extractfile(member)
            value = content.read() if content else b""
            if member.name.endswith("/instance.json") or _HOLDS_A_KEY.search(value):
                found["/" + member.name.removeprefix("./")] = value
    return found


def elsewhere(archive: bytes, values: Mapping[str, set[str]]) -> list[str]:
    """Places in the files of this archive where one of the values is."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        return [
            f"/{member.name}: {line}"
            for member in packed
            if (content := packed.extractfile(member))
            for line in leaks(content.read().decode(errors="replace"), values, {})
        ]


def packing_elsewhere(root: str = "/") -> str:
    """Command of a shell that packs what is below ``WRITABLE_FOLDERS``. Files may come and go while it looks."""
    skipped = " -o ".join(f"-path {each}" for each in NOT_LOOKED_AT)
    return (
        f"cd {root} && find $(ls -d {' '.join(WRITABLE_FOLDERS)} 2>/dev/null) -xdev \\( {skipped} \\) -prune "
        "-o -type f -print0 2>/dev/null "
        "| { tar --create --null --files-from=- --ignore-failed-read --warning=none; test $? -le 1; }"
    )


def _on_host(lab: str, host: str) -> dict[str, bytes]:
    """Files that hold keys on a host; their content goes from there into this program, and to no other place."""
    there = f"$(ls -d {' '.join(HOST_FOLDERS)} 2>/dev/null)"
    return holding_keys(_packed(lab, host, f"cd / && tar --create --files-from=/dev/null {there}"))


def _packed(lab: str, host: str, pack: str) -> bytes:
    return subprocess.run([lab, "exec", host, "--", "sh", "-c", pack], check=True, stdout=subprocess.PIPE).stdout


def _secrets_in(kubeconfig: str) -> list[Object]:
    items: list[Object] = json.loads(kubectl(kubeconfig, "get", "secrets", "--all-namespaces", "--output=json"))[
        "items"
    ]
    return items


def remember(options: argparse.Namespace) -> int:
    """Add the values of all these places to the file."""
    places = {f"cluster {name}": values_of(_secrets_in(kubeconfig)) for name, _, kubeconfig in options.cluster}
    places |= {f"host {name}": values_in(_on_host(options.lab, name)) for name in options.host}
    places |= {f"file {file}": values_in({file.name: file.read_bytes()}) for file in options.file}
    if empty := [place for place, values in places.items() if not values]:
        print(f"nothing secret in {', '.join(empty)}: who looks for what is there looks for nothing", file=sys.stderr)
        return 2
    values = _read(options.values) if options.values.exists() else {}
    for place, found in places.items():
        for name, texts in found.items():
            # A key that was renewed has the name of the one before.
            values[f"{place}: {name}"] = values.get(f"{place}: {name}", set()) | texts
    written = os.open(options.values, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(written, "w") as file:
        json.dump({name: sorted(texts) for name, texts in values.items()}, file)
    print("\n".join(f"{len(found)} in {place}" for place, found in places.items()))
    return 0


def look(options: argparse.Namespace) -> int:
    """Look for the values in the logs, and on the hosts."""
    values = _read(options.values)
    if not values:
        print(f"{options.values} holds nothing to look for", file=sys.stderr)
        return 2
    if not options.log and not options.host:
        print("neither a log nor a host to look at", file=sys.stderr)
        return 2
    found = [f"{log}: {line}" for log in options.log for line in leaks(log.read_text(errors="replace"), values)]
    for host in options.host:
        found += [f"host {host}: {each}" for each in elsewhere(_packed(options.lab, host, packing_elsewhere()), values)]
    places = f"{len(options.log)} logs and {len(options.host)} hosts"
    print("\n".join(found) if found else f"No secret in {places}, {len(values)} values looked for.")
    return 1 if found else 0


def _read(file: Path) -> dict[str, set[str]]:
    return {name: set(texts) for name, texts in json.loads(file.read_text()).items()}


def main() -> int:
    """Remember, or look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("remember")
    one.add_argument("values", type=Path)
    one.add_argument("--cluster", action="append", default=[], type=lambda text: text.partition("="))
    one.add_argument("--lab", default="lab")
    one.add_argument("--host", action="append", default=[])
    one.add_argument("--file", action="append", default=[], type=Path)
    one.set_defaults(run=remember)
    one = commands.add_parser("look")
    one.add_argument("values", type=Path)
    one.add_argument("log", nargs="*", default=[], type=Path)
    one.add_argument("--lab", default="lab")
    one.add_argument("--host", action="append", default=[])
    one.set_defaults(run=look)
    options = parser.parse_args()
    code: int = options.run(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
