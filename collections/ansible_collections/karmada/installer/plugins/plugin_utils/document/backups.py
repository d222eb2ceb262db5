# SPDX-License-Identifier: Apache-2.0
"""EtcdBackups of a control plane: those that stand beside its document, or are objects in its namespace.

In addition to what all such documents have to fulfil (``companions``), its schedule has to come, a volume claim needs a
host cluster, and a directory of a plain host needs that host: the same one in all of them. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ..components.spec import Spec
from ..problems import Problem, ProblemsError, Reason
from . import companions, crd
from .object_kind import ObjectKind, invalid, name_of, where
from .schedule import Schedule, schedule_of

KIND = "EtcdBackup"
BACKUP = ObjectKind(KIND, "etcdbackups.yaml")
#: Fields of a target.
CLAIM, ON_HOST = "persistentVolumeClaim", "hostDirectory"
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
class HostDirectory:
    """The directory ``path`` of a plain host of the document; ``prefix`` is a path below it, or empty."""

    host: str
    path: str
    prefix: str


@dataclass(frozen=True)
class VolumeClaim:
    """A PersistentVolumeClaim in the namespace of the control plane; ``prefix`` is a path in its volume, or empty.

    ``image`` has the Python of the pod that mounts it.
    """

    name: str
    prefix: str
    image: str


@dataclass(frozen=True)
class Wanted:
    """One EtcdBackup, valid and with all defaults. ``name`` is that of the series of its backups."""

    name: str
    recipients: tuple[str, ...]
    schedule: Schedule
    suspended: bool
    target: S3 | Directory | HostDirectory | VolumeClaim
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
    return resolved(companions.of_kind(BACKUP, documents), deployment, source)


def of_objects(objects: Iterable[Mapping[str, Any]], deployment: Mapping[str, Any]) -> list[dict[str, Any]]:
    """EtcdBackups of this control plane among the objects of a namespace, resolved. Raises ProblemsError."""
    return _at_one_host(companions.of_objects(BACKUP, objects, deployment, partial(_problems, deployment)))


def names_of_objects(objects: Iterable[Mapping[str, Any]], deployment: Mapping[str, Any]) -> list[str]:
    """Their names in order, also of those that are not valid."""
    return sorted(name_of(each) for each in companions.that_name(objects, deployment))


def resolved(
    documents: Iterable[Mapping[str, Any]], deployment: Mapping[str, Any], source: str = ""
) -> list[dict[str, Any]]:
    """Documents with all defaults, in the order of their names. Raises ProblemsError with all problems."""
    return _at_one_host(
        companions.resolved(BACKUP, documents, deployment, source, partial(_problems, deployment)), source
    )


def _problems(deployment: Mapping[str, Any], written: Mapping[str, Any], place: str) -> Iterator[Problem]:
    """Problems that no schema can tell; where only the name of ``deployment`` is known, those of the object alone."""
    yield from _never_comes(written, place)
    if CLAIM in written["spec"]["target"] and "spec" in deployment and Spec(deployment["spec"]).mode == "Binary":
        yield Problem(
            "has no meaning in mode Binary, where no host cluster has volume claims",
            where(place, ("spec", "target", CLAIM)),
            "write s3, or directory for a disk or a mounted share of the machine that runs Ansible",
            reason=Reason.FIELD_WITHOUT_EFFECT,
        )
    if ON_HOST in written["spec"]["target"] and "spec" in deployment:
        yield from _of_host(written["spec"]["target"][ON_HOST]["host"], Spec(deployment["spec"]), place)


def _of_host(name: str, spec: Spec, place: str) -> Iterator[Problem]:
    """Problem of a host that the document of the control plane does not list."""
    listed = [each.name for each in spec.hosts]
    path = where(place, ("spec", "target", ON_HOST))
    if not listed:
        yield Problem(
            "has no meaning without plain hosts, and the document of the control plane lists none",
            path,
            "write s3, persistentVolumeClaim, or directory for a disk of the machine that runs Ansible",
            reason=Reason.FIELD_WITHOUT_EFFECT,
        )
    elif name not in listed:
        yield Problem(
            f"{crd.shown(name)} is no host of the control plane",
            f"{path}.host",
            f"Name one of {', '.join(listed)}. If the host is to go, copy its backups to another first, and name that.",
            reason=Reason.HOST_NOT_LISTED,
        )


def _at_one_host(found: list[dict[str, Any]], source: str = "") -> list[dict[str, Any]]:
    """Return them. Raises ProblemsError if they name several hosts: a step of a run reaches one of them."""
    of_hosts = {each["metadata"]["name"]: each["spec"]["target"].get(ON_HOST) for each in found}
    named = {name: target["host"] for name, target in of_hosts.items() if target}
    first = next(iter(named.values()), "")
    problems = [
        invalid(
            f"is {crd.shown(host)}, and that of {KIND} {next(iter(named))} is {crd.shown(first)}",
            where(": ".join(filter(None, (source, f"{KIND} {name}"))), ("spec", "target", ON_HOST, "host")),
            "Name the same host in all of them. For a second place beside it, write s3 or directory.",
        )
        for name, host in named.items()
        if host != first
    ]
    if problems:
        raise ProblemsError(problems)
    return found


def _never_comes(written: Mapping[str, Any], place: str) -> Iterator[Problem]:
    """Problem of a schedule that no day of the calendar meets, which no schema can tell."""
    schedule = schedule_of(written["spec"].get("schedule", ""), written["spec"].get("interval", ""))
    if schedule.after(_SOME_MOMENT) is None:
        yield invalid(
            f"{crd.shown(written['spec']['schedule'])} never comes",
            where(place, ("spec", "schedule")),
            "Write days that the months have, and ranges from the lower number to the higher one.",
        )


def _target(given: Mapping[str, Any]) -> S3 | Directory | HostDirectory | VolumeClaim:
    if "directory" in given:
        return Directory(given["directory"].get("prefix", ""))
    if ON_HOST in given:
        return HostDirectory(given[ON_HOST]["host"], given[ON_HOST]["path"], given[ON_HOST].get("prefix", ""))
    if CLAIM in given:
        claim = given[CLAIM]
        return VolumeClaim(claim["claimName"], claim.get("prefix", ""), claim["image"])
    found = given["s3"]
    return S3(
        bucket=found["bucket"],
        endpoint=found.get("endpoint", ""),
        region=found["region"],
        prefix=found.get("prefix", ""),
        secret=found["secretRef"]["name"],
    )
