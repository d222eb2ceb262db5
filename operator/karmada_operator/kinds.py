# SPDX-License-Identifier: Apache-2.0
"""Table of kinds: which playbook an object of a kind runs, and within which limits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils import document

SCHEMAS = Path(document.__file__).parents[3] / "schemas"
DEFAULT = Path(__file__).with_name("watches.yaml")


class Lane(StrEnum):
    """Queue of work with a bound of its own, so that none waits behind another kind of work."""

    QUICK = "quick"
    CHANGES = "changes"
    DELETIONS = "deletions"
    ROUTINE = "routine"
    RESTORES = "restores"
    BACKUPS = "backups"


class Key(NamedTuple):
    """Name of one object; ``kind`` is that of a row of the table."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True)
class Kind:
    """One row: a kind with its playbooks. ``period``, ``time_limit`` in seconds, ``memory_limit`` in MiB.

    Without a finalizer nothing is done when an object is deleted, without a report playbook nobody looks between runs.
    ``lane`` is that of its runs. An object in the lanes of backups and restores belongs to the control plane that its
    ``spec.deploymentRef`` names: a KarmadaDeployment in its namespace.
    """

    api_version: str
    kind: str
    playbook: str
    finalizer: str = ""
    finalizer_playbook: str = ""
    report_playbook: str = ""
    release_playbook: str = ""
    undo_playbook: str = ""
    lane: Lane = Lane.CHANGES
    period: float = 21600.0
    time_limit: float = 7200.0
    memory_limit: int = 1024
    #: Fields of the status that the schema knows; empty if no schema is named, and every field is written.
    status_fields: frozenset[str] = frozenset()

    @property
    def belongs(self) -> bool:
        """Return whether its objects belong to a control plane, and are none."""
        return self.lane in (Lane.BACKUPS, Lane.RESTORES)


def load(path: Path = DEFAULT) -> dict[str, Kind]:
    """Rows by kind. Raises ValueError for a table with an unknown word, a missing one, or a phase that is none."""
    rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    try:
        found = [_row(dict(each)) for each in rows]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from None
    return {each.kind: each for each in found}


def _row(row: dict[str, Any]) -> Kind:
    finalizer = dict(row.pop("finalizer", None) or {"name": "", "playbook": ""})
    made = Kind(
        api_version=f"{row.pop('group')}/{row.pop('version')}",
        kind=row.pop("kind"),
        playbook=row.pop("playbook"),
        finalizer=finalizer.pop("name"),
        finalizer_playbook=finalizer.pop("playbook"),
        report_playbook=row.pop("reportPlaybook", ""),
        release_playbook=row.pop("releasePlaybook", ""),
        undo_playbook=row.pop("undoPlaybook", ""),
        lane=Lane(row.pop("lane", Lane.CHANGES)),
        period=float(row.pop("reconcilePeriod", Kind.period)),
        time_limit=float(row.pop("runTimeout", Kind.time_limit)),
        memory_limit=int(row.pop("runMemoryMiB", Kind.memory_limit)),
        status_fields=_status_fields(row.pop("schema", None)),
    )
    if unknown := [*row, *finalizer]:
        raise ValueError(f"unknown words: {', '.join(unknown)}")
    return made


def _status_fields(schema: str | None) -> frozenset[str]:
    """Fields that a CRD of the collection has in its status: an API server refuses all of a status with another one."""
    if schema is None:
        return frozenset()
    definition = yaml.safe_load((SCHEMAS / schema).read_text(encoding="utf-8"))
    fields = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    return frozenset(fields)
