# SPDX-License-Identifier: Apache-2.0
"""Typed fields of a kubeconfig, and the files they name. Values that may be secret are never quoted.

A file of the person who runs Ansible may name other files and run programs. The content of a Secret may come from
somebody else, who could have a token of this machine sent to a server of theirs; so it must not reach this machine's
disk. It may name keys of the same Secret, and run programs only if the Secret is a directory of this machine.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .. import private_file, yaml_document
from ..problems import Problem, ProblemsError, Reason

#: Size limit of a Secret; no kubeconfig needs more.
MAX_BYTES = 1024 * 1024
FLATTEN = "Write the content of its files into it: kubectl config view --flatten --minify."
#: Characters allowed in a token (sent in a header) or an address.
_VISIBLE = re.compile(r"[\x21-\x7e]+")
#: Beginning of an error of the YAML reader → wording that quotes nothing of the file.
_UNREADABLE = {
    "is not YAML": "is not YAML",
    "is not text in UTF-8": "is not text in UTF-8",
    "is nested deeper": "is nested too deep",
    "has more than": "has too many values, those that aliases repeat included",
    "uses the alias": "uses an alias inside of what it stands for, or before it",
}
_WORDS: dict[type, str] = {str: "a string", bool: "true or false", dict: "a mapping", list: "a list"}


def problem(what: str, where: str, remedy: str = "", kind: Reason = Reason.INVALID_KUBECONFIG) -> ProblemsError:
    """ProblemsError with one problem, for the caller to raise."""
    return ProblemsError(Problem(what, where, remedy, reason=kind))


def place_of_key(where: str, key: str, folder: Path | None, secret: str = "") -> str:
    """Place of a key for people: the field that names its Secret, and the file or the Secret that has it.

    ``folder`` is the directory that stands for the Secret, ``secret`` the namespace and name of one in a cluster; where
    neither is known, only the key is told.
    """
    if folder:
        return f"{where} ({folder / key})"
    return f"{where} (Secret {secret}, key {key})" if secret else f"{where}, key {key}"


@dataclass(frozen=True)
class Origin:
    """Origin of a kubeconfig, which decides on what it may use.

    ``where`` is the place that problems name. ``keys`` are the keys of its Secret (name → content), which stand for the
    files it names; None: it may name files of this machine. ``folder`` is the directory that stands for that Secret;
    None with ``keys``: the Secret is an object of a cluster. ``of_host``: it comes from another machine, of which no
    other file is read.
    """

    where: str = "kubeconfig"
    keys: Mapping[str, bytes] | None = None
    folder: Path | None = None
    of_host: bool = False

    @property
    def runs_programs(self) -> bool:
        """True if it may start programs of this machine."""
        return self.keys is None or self.folder is not None

    def text(self, name: str, base: Path, field: str) -> str:
        """Content of the file that ``field`` names; ``base`` is the directory of the kubeconfig."""
        where = f"{field} in {self.where}"
        if self.keys is None:
            return file_text(base / private_file.expanded(name), where)
        key = name.removeprefix("./")
        if self.folder and Path(name).parent == self.folder:
            key = Path(name).name
        if key not in self.keys:
            outside = "/" in key or key in ("", ".", "..")
            what = "a file outside of its Secret" if outside else f"{key!r}, and the Secret has no such key"
            what = "a file of that host, of which nothing else is read" if self.of_host else what
            raise problem(f"it names {what}", where, FLATTEN)
        try:
            return self.keys[key].decode()
        except UnicodeDecodeError:
            raise problem(f"the key {key!r} of the Secret is not text", where, "Put PEM or a token there.") from None


def file_text(file: Path, named_by: str) -> str:
    """Text of a file of this machine. Raises ProblemsError naming ``named_by``."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        found = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({reason(error)})"
        raise problem(f"{file} {found}", named_by, "Mend the path, or who may read it.") from None


def reason(error: Exception) -> str:
    """Short form of an error."""
    words: str = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
    # OpenSSL appends details that help no user.
    return words.partition(":")[0] or type(error).__name__


def parsed(text: str | bytes, where: str) -> dict[str, Any]:
    """Kubeconfig from YAML text, as one mapping whose fields are not checked yet. Raises ProblemsError."""
    if len(text) > MAX_BYTES:
        raise problem(
            f"it has {len(text) // 1024} KiB, more than the {MAX_BYTES // 1024} KiB of the largest kubeconfig",
            where,
            "Put only what is needed there: kubectl config view --flatten --minify.",
        )
    try:
        documents = [each for each in yaml_document.documents_of(text) if each is not None]
    except yaml_document.UnreadableError as error:
        # The error's own words are not used as they are: they may quote the file, and with it a key.
        told = (words for begin, words in _UNREADABLE.items() if error.what.startswith(begin))
        known = next(told, "is not plain YAML, each key once")
        line = f" (line {error.line})" if error.line else ""
        raise problem(f"the kubeconfig {known}{line}", where, "Compare it with one that kubectl takes.") from None
    if not documents:
        raise problem("the kubeconfig is empty", where, "Put a kubeconfig there.")
    if len(documents) > 1 or not isinstance(documents[0], dict):
        raise problem(
            "this is not a kubeconfig: expected one mapping with clusters, users and contexts",
            where,
            "Put a kubeconfig there.",
        )
    found: dict[str, Any] = documents[0]
    return found


def entries(config: Mapping[str, Any], section: str, where: str) -> list[dict[str, Any]]:
    """Entries of clusters, contexts or users, each with a name. Raises ProblemsError."""
    found = config.get(section) or []
    if not isinstance(found, list) or not all(
        isinstance(each, dict) and isinstance(each.get("name"), str) for each in found
    ):
        raise problem(
            f"{section} must be a list of entries, each with a name that is a string",
            where,
            "Put names that look like numbers in quotes.",
        )
    return found


def at(place: str, key: str) -> str:
    """Path of a key, for people: ``…: users[me].user.token``."""
    return f"{place}{key}" if place.endswith(" ") else f"{place}.{key}"


def value(entry: Mapping[str, Any], key: str, kind: type, place: str) -> Any:
    """Value of a key, checked to be of type ``kind``; None if absent or null. ``place`` is the path of the entry."""
    found = entry.get(key)
    if found is None or isinstance(found, kind):
        return found
    quotes = " Put it in quotes." if kind is str and isinstance(found, bool | int | float) else ""
    raise problem(f"must be {_WORDS[kind]}", at(place, key), f"See kubectl config view.{quotes}")


def visible(entry: Mapping[str, Any], key: str, place: str) -> str | None:
    """A string of visible ASCII characters, without spaces; None if absent or empty."""
    found: str | None = value(entry, key, str, place)
    if found and not _VISIBLE.fullmatch(found):
        raise problem("has a character that cannot be sent, such as a line break", at(place, key), "Remove it.")
    return found or None


def texts(entry: Mapping[str, Any], key: str, place: str) -> list[str]:
    """A list of strings."""
    found = value(entry, key, list, place) or []
    if not all(isinstance(each, str) for each in found):
        raise problem("must be a list of strings", at(place, key), "Put numbers in quotes.")
    return found


def variables(entry: Mapping[str, Any], key: str, place: str) -> Iterator[tuple[str, str]]:
    """A list of entries with name and value, as pairs."""
    for each in value(entry, key, list, place) or []:
        pair = (each.get("name"), each.get("value")) if isinstance(each, dict) else (None, None)
        if not all(isinstance(part, str) and "\0" not in part for part in pair) or not pair[0] or "=" in pair[0]:
            raise problem("must be a list of entries with name and value, both strings", at(place, key))
        yield pair[0], str(pair[1])


def address(entry: Mapping[str, Any], key: str, schemes: tuple[str, ...], place: str) -> str | None:
    """A URL with one of these schemes and a host; None if absent. Raises ProblemsError for any other."""
    found = visible(entry, key, place)
    if found is None:
        return None
    try:
        parts = urlsplit(found)
        complete = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        complete = False
    if not complete or parts.query or parts.fragment:
        known = " or ".join(f"{scheme}://…" for scheme in schemes)
        raise problem("is no address that can be connected to", at(place, key), f"Write {known}.")
    return found


def pem(entry: Mapping[str, Any], key: str, base: Path, origin: Origin, place: str) -> str | None:
    """PEM text from ``<key>-data``, or from the file that ``key`` names; None if neither is set."""
    data = value(entry, f"{key}-data", str, place)
    if data:
        try:
            return base64.b64decode("".join(data.split()), validate=True).decode()
        except (binascii.Error, ValueError):
            raise problem(
                "is not base64 of a PEM text", at(place, f"{key}-data"), "Encode it again: base64 -w0."
            ) from None
    name = value(entry, key, str, place)
    return origin.text(name, base, at(place, key)) if name else None
