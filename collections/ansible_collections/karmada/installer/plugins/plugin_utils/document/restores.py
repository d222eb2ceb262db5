# SPDX-License-Identifier: Apache-2.0
"""EtcdRestores of a control plane: which backup is to be restored, and where it lies. No I/O.

That it is to be done at all is confirmed by name, in the document or when it is run. What becomes of the quarantine is
decided by a playbook; of an object, by its spec, which may name parts that are released first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..problems import Problem
from ..redaction import printable
from . import companions
from .object_kind import ObjectKind, invalid, where

KIND = "EtcdRestore"
RESTORE = ObjectKind(KIND, "etcdrestores.yaml")
#: Key of the Secret with private keys.
IDENTITY = "identity"
#: Decisions upon a control plane in quarantine.
RELEASE, UNDO = "Release", "Undo"
#: Fields of the spec that say what becomes of the quarantine.
_OF_THE_QUARANTINE = ("decision", "release", "keep", "letGo")
#: Variables of the playbook release that say what these fields say.
_WORDS = {"release": "restore_release_parts", "keep": "restore_keep", "letGo": "restore_let_go"}
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_CLUSTER, _NAMESPACE = re.compile(rf"(?=.{{1,48}}\Z){_LABEL}"), re.compile(rf"(?=.{{1,63}}\Z){_LABEL}")
_WORK = re.compile(rf"(?=.{{1,302}}\Z){_LABEL}/[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True, order=True)
class Part:
    """A part that is released: these namespaces on these clusters, at least one of either.

    Without clusters it is about all of them, and without namespaces about all of each cluster.
    """

    clusters: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    @classmethod
    def of(cls, written: Any) -> Part:
        """Part from its plain data, names in order. Raises ValueError in words that follow the place of it."""
        if not isinstance(written, Mapping):
            raise ValueError("has something that is no part")
        if unknown := written.keys() - {"clusters", "namespaces"}:
            raise ValueError(f"has a part with {printable(', '.join(sorted(map(str, unknown))), 60)}")
        found = cls(
            _names(written.get("clusters"), _CLUSTER, "a cluster"),
            _names(written.get("namespaces"), _NAMESPACE, "a namespace"),
        )
        if found == cls():
            # It would be everything, which nobody has meant who names parts.
            raise ValueError("has a part that names neither clusters nor namespaces")
        return found


def parts_of(written: Any) -> tuple[Part, ...]:
    """Parts from their plain data, each once, in order. Raises ValueError in words that follow the place of them."""
    if not isinstance(written, list):
        raise ValueError("is no list of parts")
    return tuple(sorted({Part.of(each) for each in written}))


def works_of(written: Any) -> tuple[str, ...]:
    """Works by their names, ``CLUSTER/NAME``, in order. Raises ValueError as ``parts_of`` does."""
    return _names(written, _WORK, "a Work as CLUSTER/NAME")


def _names(written: Any, form: re.Pattern[str], what: str) -> tuple[str, ...]:
    if written is None:
        return ()
    if not isinstance(written, list):
        raise ValueError(f"has no list of names where {what} is to stand")
    for each in written:
        if not isinstance(each, str) or not form.fullmatch(each):
            raise ValueError(f"has {printable(repr(each), 60)}, which cannot be the name of {what}")
    return tuple(sorted(set(written)))


@dataclass(frozen=True)
class WantedRestore:
    """One EtcdRestore, valid. ``series`` names its EtcdBackup; ``backup`` is empty for the newest verified one.

    ``survivor`` is the member of etcd whose data is restored instead of a backup. ``confirm`` is the name of the
    backup, or of the survivor, that was confirmed, ``secret`` that of the Secret with private keys, ``decision`` what
    becomes of the quarantine; each is empty if it is not there.
    """

    name: str
    series: str
    backup: str = ""
    confirm: str = ""
    secret: str = ""
    foreign_agents: tuple[str, ...] = ()
    decision: str = ""
    survivor: str = ""

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> WantedRestore:
        """Content of a document that ``resolved`` has returned."""
        asked = written["spec"]
        return cls(
            name=written["metadata"]["name"],
            series=asked["backupRef"]["name"],
            backup=asked.get("backup", ""),
            confirm=asked.get("confirm", ""),
            secret=asked.get("identitySecretRef", {}).get("name", ""),
            foreign_agents=tuple(asked.get("foreignAgents", ())),
            decision=asked.get("decision", ""),
            survivor=asked.get("survivor", ""),
        )

    @property
    def place(self) -> str:
        """The document in messages; the path of a field follows it."""
        return f"{KIND} {self.name}"


def beside(documents: Iterable[Any], deployment: Mapping[str, Any], source: str = "") -> list[dict[str, Any]]:
    """EtcdRestores among the documents of a text, resolved. Raises ProblemsError with all problems."""
    return companions.resolved(
        RESTORE, companions.of_kind(RESTORE, documents), deployment, source, _decided_by_a_playbook
    )


def of_objects(objects: Iterable[Mapping[str, Any]], deployment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """EtcdRestores of this control plane among the objects of a namespace, resolved. Raises ProblemsError."""
    return companions.of_objects(RESTORE, objects, deployment)


def resolved(
    documents: Iterable[Mapping[str, Any]], deployment: Mapping[str, Any], source: str = ""
) -> list[dict[str, Any]]:
    """Documents with all defaults, in the order of their names. Raises ProblemsError with all problems."""
    return companions.resolved(RESTORE, documents, deployment, source)


def _decided_by_a_playbook(written: Mapping[str, Any], place: str) -> Iterator[Problem]:
    """Problems of a decision in a file, which nobody reads: it would be there before there is anything to decide."""
    for name in _OF_THE_QUARANTINE:
        if found := written["spec"].get(name):
            playbook = "restore_undo" if found == UNDO else "release"
            words = f" -e '{{\"{_WORDS[name]}\": [...]}}'" if name in _WORDS else ""
            remedy = (
                f"Take it out, and run karmada.installer.{playbook}{words} when the control plane is in quarantine."
            )
            yield invalid("has no effect in a file", where(place, ("spec", name)), remedy)
