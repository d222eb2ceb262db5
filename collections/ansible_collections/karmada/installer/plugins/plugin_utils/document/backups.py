# SPDX-License-Identifier: Apache-2.0
"""EtcdBackups of a control plane: those that stand beside its document, or are objects in its namespace.

Validated as the KarmadaDeployment is (``object_kind``); in addition each has to speak of this control plane, and its
schedule has to come. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..problems import Problem, ProblemsError
from . import crd
from .object_kind import ObjectKind, invalid, name_of, version_problems, where
from .schedule import Schedule, schedule_of

KIND = "EtcdBackup"
PLURAL = "etcdbackups"
BACKUP = ObjectKind(KIND, "etcdbackups.yaml")
#: A schedule either comes in these years or never; any moment would do.
_SOME_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Retention:
    """Numbers of hours, days and weeks, of those that have a backup, that keep one."""

    hourly: int
    daily: int
    weekly: int


@dataclass(frozen=True)
class S3:
    """A bucket. ``endpoint`` is empty for AWS, ``prefix`` for the bucket's root; ``secret`` names a Secret."""

    bucket: str
    endpoint: str
    region: str
    prefix: str
    secret: str


@dataclass(frozen=True)
class Directory:
    """The directory of the inventory source; ``prefix`` is a path below it, or empty."""

    prefix: str


@dataclass(frozen=True)
class Wanted:
    """One EtcdBackup, valid and with all defaults. ``name`` is that of the series of its backups."""

    name: str
    recipients: tuple[str, ...]
    schedule: Schedule
    suspended: bool
    target: S3 | Directory
    retention: Retention

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Wanted:
        """Content of a document that ``resolved`` has returned."""
        asked = written["spec"]
        return cls(
            name=written["metadata"]["name"],
            recipients=tuple(asked["recipients"]),
            schedule=schedule_of(asked.get("schedule", ""), asked.get("interval", "")),
            suspended=asked["suspend"],
            target=_target(asked["target"]),
            retention=Retention(**asked["retention"]),
        )

    @property
    def place(self) -> str:
        """The document in messages; the path of a field follows it."""
        return f"{KIND} {self.name}"


def beside(documents: Iterable[Any], deployment: Mapping[str, Any], source: str = "") -> list[dict[str, Any]]:
    """EtcdBackups among the documents of a text, resolved. Raises ProblemsError with all problems."""
    found = [each for each in documents if isinstance(each, dict) and each.get("kind") == KIND]
    return resolved(found, deployment, source)


def of_objects(objects: Iterable[Mapping[str, Any]], deployment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """EtcdBackups of this control plane among the objects of a namespace, resolved. Raises ProblemsError."""
    name = deployment["metadata"]["name"]
    return resolved([each for each in objects if _deployment_of(each) == name], deployment)


def resolved(
    documents: Iterable[Mapping[str, Any]], deployment: Mapping[str, Any], source: str = ""
) -> list[dict[str, Any]]:
    """Documents with all defaults, in the order of their names. Raises ProblemsError with all problems."""
    problems: list[Problem] = []
    by_name: dict[str, dict[str, Any]] = {}
    for written in documents:
        place = ": ".join(filter(None, (source, f"{KIND} {name_of(written)}" if name_of(written) else KIND)))
        if found := version_problems(written, place) or BACKUP.validate(written, source=place):
            problems += found
            continue
        completed = BACKUP.completed(written)
        problems += _problems(completed, deployment, place)
        name = completed["metadata"]["name"]
        if name in by_name:
            remedy = "Give each a name of its own."
            problems.append(invalid(f"{crd.shown(name)} is there twice", where(place, ("metadata", "name")), remedy))
        completed["metadata"].setdefault("namespace", deployment["metadata"]["namespace"])
        by_name[name] = completed
    if problems:
        raise ProblemsError(problems)
    return [by_name[name] for name in sorted(by_name)]


def _problems(written: Mapping[str, Any], deployment: Mapping[str, Any], place: str) -> Iterator[Problem]:
    """Problems that no schema can tell, because they are about other documents or about the calendar."""
    ours, theirs = deployment["metadata"]["name"], written["spec"]["deploymentRef"]["name"]
    if ours != theirs:
        yield invalid(
            f"is {crd.shown(theirs)}, but the document here is {crd.shown(ours)}",
            where(place, ("spec", "deploymentRef", "name")),
            f"Write {ours}, or move it beside the document of {theirs}.",
        )
    home = deployment["metadata"]["namespace"]
    if written["metadata"].get("namespace", home) != home:
        yield invalid(
            f"is {crd.shown(written['metadata']['namespace'])}, but the document is in {crd.shown(home)}",
            where(place, ("metadata", "namespace")),
            "Take it out, or write that of the document.",
        )
    schedule = schedule_of(written["spec"].get("schedule", ""), written["spec"].get("interval", ""))
    if schedule.after(_SOME_MOMENT) is None:
        yield invalid(
            f"{crd.shown(written['spec']['schedule'])} never comes",
            where(place, ("spec", "schedule")),
            "Write days that the months have, and ranges from the lower number to the higher one.",
        )


def _deployment_of(written: Mapping[str, Any]) -> Any:
    return ((written.get("spec") or {}).get("deploymentRef") or {}).get("name")


def _target(given: Mapping[str, Any]) -> S3 | Directory:
    if "s3" not in given:
        return Directory(given["directory"].get("prefix", ""))
    found = given["s3"]
    return S3(
        bucket=found["bucket"],
        endpoint=found.get("endpoint", ""),
        region=found["region"],
        prefix=found.get("prefix", ""),
        secret=found["secretRef"]["name"],
    )
