# SPDX-License-Identifier: Apache-2.0
"""EtcdRestores of a control plane: which backup is to be restored, and where it lies. No I/O.

That it is to be done at all is confirmed by name when it is run, so that a document that stands in a repository does
nothing by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import companions
from .object_kind import ObjectKind

KIND = "EtcdRestore"
PLURAL = "etcdrestores"
RESTORE = ObjectKind(KIND, "etcdrestores.yaml")


@dataclass(frozen=True)
class WantedRestore:
    """One EtcdRestore, valid. ``series`` names its EtcdBackup; ``backup`` is empty for the newest verified one."""

    name: str
    series: str
    backup: str = ""

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> WantedRestore:
        """Content of a document that ``resolved`` has returned."""
        asked = written["spec"]
        return cls(written["metadata"]["name"], asked["backupRef"]["name"], asked.get("backup", ""))

    @property
    def place(self) -> str:
        """The document in messages; the path of a field follows it."""
        return f"{KIND} {self.name}"


def beside(documents: Iterable[Any], deployment: Mapping[str, Any], source: str = "") -> list[dict[str, Any]]:
    """EtcdRestores among the documents of a text, resolved. Raises ProblemsError with all problems."""
    return resolved(companions.of_kind(RESTORE, documents), deployment, source)


def of_objects(objects: Iterable[Mapping[str, Any]], deployment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """EtcdRestores of this control plane among the objects of a namespace, resolved. Raises ProblemsError."""
    return resolved(companions.that_name(objects, deployment), deployment)


def resolved(
    documents: Iterable[Mapping[str, Any]], deployment: Mapping[str, Any], source: str = ""
) -> list[dict[str, Any]]:
    """Documents with all defaults, in the order of their names. Raises ProblemsError with all problems."""
    return companions.resolved(RESTORE, documents, deployment, source)
