# SPDX-License-Identifier: Apache-2.0
"""EtcdRestores of a control plane: which backup is to be restored, and where it lies. No I/O.

That it is to be done at all is confirmed by name, in the document or when it is run. What becomes of the quarantine is
decided by a playbook; of an object, by its spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..problems import Problem
from . import companions
from .object_kind import ObjectKind, invalid, where

KIND = "EtcdRestore"
PLURAL = "etcdrestores"
RESTORE = ObjectKind(KIND, "etcdrestores.yaml")
#: Key of the Secret with private keys.
IDENTITY = "identity"
#: Decisions upon a control plane in quarantine.
RELEASE, UNDO = "Release", "Undo"


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
    """Problem of a decision in a file, which nobody reads: it would be there before there is anything to decide."""
    if found := written["spec"].get("decision"):
        playbook = "release" if found == RELEASE else "restore_undo"
        remedy = f"Take it out, and run karmada.installer.{playbook} when the control plane is in quarantine."
        yield invalid("has no effect in a file", where(place, ("spec", "decision")), remedy)
