# SPDX-License-Identifier: Apache-2.0
"""Documents that belong to a KarmadaDeployment: beside it in its file, or objects in its namespace.

Validated as the KarmadaDeployment is (``object_kind``); in addition each has to speak of this control plane. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..problems import Problem, ProblemsError
from . import crd
from .object_kind import ObjectKind, invalid, name_of, version_problems, where

#: Problems of one valid document that no schema can tell; the second argument is its place.
Check = Callable[[Mapping[str, Any], str], Iterable[Problem]]


def of_kind(kind: ObjectKind, documents: Iterable[Any]) -> list[dict[str, Any]]:
    """Documents of this kind among those of a text."""
    return [each for each in documents if isinstance(each, dict) and each.get("kind") == kind.kind]


def that_name(objects: Iterable[Mapping[str, Any]], deployment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Objects of a namespace that speak of this control plane."""
    name = deployment["metadata"]["name"]
    return [each for each in objects if _deployment_of(each) == name]


def of_objects(
    kind: ObjectKind,
    objects: Iterable[Mapping[str, Any]],
    deployment: Mapping[str, Any],
    check: Check = lambda _written, _place: (),
) -> list[dict[str, Any]]:
    """Documents of this control plane among the objects of a namespace, resolved. Raises ProblemsError."""
    return resolved(kind, that_name(objects, deployment), deployment, check=check)


def resolved(
    kind: ObjectKind,
    documents: Iterable[Mapping[str, Any]],
    deployment: Mapping[str, Any],
    source: str = "",
    check: Check = lambda _written, _place: (),
) -> list[dict[str, Any]]:
    """Documents with all defaults, in the order of their names. Raises ProblemsError with all problems."""
    problems: list[Problem] = []
    by_name: dict[str, dict[str, Any]] = {}
    for written in documents:
        named = f"{kind.kind} {name_of(written)}" if name_of(written) else kind.kind
        place = ": ".join(filter(None, (source, named)))
        if found := version_problems(written, place) or kind.validate(written, source=place):
            problems += found
            continue
        completed = kind.completed(written)
        problems += [*_problems(completed, deployment, place), *check(completed, place)]
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
    """Problems that no schema can tell, because they are about the document that it belongs to."""
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


def _deployment_of(written: Mapping[str, Any]) -> Any:
    return ((written.get("spec") or {}).get("deploymentRef") or {}).get("name")
