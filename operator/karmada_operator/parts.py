# SPDX-License-Identifier: Apache-2.0
"""Parts of a control plane in quarantine: which an EtcdRestore names, and which are released by its status. Pure.

Names of a spec become variables of a playbook, which Ansible templates. So nothing passes but what can be the name of
a cluster, a namespace or a Work, also where an API server has a definition that judges less.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import Part, parts_of, works_of
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason

from .wishes import handed_on

#: Entries of each list of a status: see the schema.
MOST = 100
#: Names that a sentence has room for.
_IN_WORDS = 10
#: (cluster, namespaces that are released on it, none for all of it)
Released = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Named:
    """Names in the spec of an EtcdRestore: ``parts`` that are to be released, and Works that are going, by what
    becomes of their objects. What cannot be used is in ``problems``.
    """

    parts: tuple[Part, ...] = ()
    kept: tuple[str, ...] = ()
    let_go: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Named:
        """Names in a spec as an API server gives it."""
        problems: list[Problem] = []

        def read(field: str, form: Callable[[Any], Any]) -> Any:
            try:
                return () if spec.get(field) is None else form(spec[field])
            except ValueError as error:
                problems.append(_problem(field, str(error), "Write names as kubectl shows them, or take it out."))
                return ()

        found = cls(read("release", parts_of), read("keep", works_of), read("letGo", works_of))
        # Its order has them, and its variables.
        if too_much := handed_on(*2 * ([plain(each) for each in found.parts], found.kept, found.let_go)):
            remedy = "Release whole clusters, or fewer at a time, or all that is left by taking it out."
            problems.append(_problem("release", too_much, remedy))
        return cls(problems=tuple(problems)) if problems else found


def plain(part: Part) -> dict[str, list[str]]:
    """Part as the playbook takes it."""
    return {"clusters": [*part.clusters], "namespaces": [*part.namespaces]}


def digest(parts: Sequence[Part]) -> str:
    """Text that changes with each of the parts; empty for none."""
    if not parts:
        return ""
    text = json.dumps([plain(each) for each in parts])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def released_of(status: Mapping[str, Any]) -> Released:
    """Parts that are released by a status."""
    found = status.get("released") or ()
    return tuple((str(each.get("cluster")), tuple(map(str, each.get("namespaces") or ()))) for each in found)


def fields_of(fact: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a status for what a run tells of parts: of each list as much as the schema has room for."""
    rows = []
    for each in sorted(fact.get("clusters") or (), key=lambda each: str(each.get("name"))):
        spaces = sorted(map(str, each.get("namespaces") or ()))
        rows.append({"cluster": str(each.get("name")), **({"namespaces": spaces[:MOST]} if spaces else {})})
    return {"released": rows[:MOST], "held": sorted(map(str, fact.get("held") or ()))[:MOST]}


def covered(parts: Sequence[Part], released: Released, held: Sequence[str]) -> bool:
    """Return whether all that these parts name is released; False where the status has no room to tell.

    Without parts it is everything, of which something is held.
    """
    known = dict(released)

    def has(cluster: str, namespaces: Sequence[str]) -> bool:
        there = known.get(cluster)
        if there is None:
            return False
        return not there or (bool(namespaces) and set(namespaces) <= set(there))

    if len(held) >= MOST and not all(each.clusters for each in parts):
        # Of those that are held the status may name only the first.
        return False
    return bool(parts) and all(has(name, each.namespaces) for each in parts for name in each.clusters or held)


def beyond(parts: Sequence[Part], released: Released) -> Released:
    """Released parts that a spec does not name any longer, and that stay released."""
    found = []
    for cluster, namespaces in released:
        about = [each for each in parts if not each.clusters or cluster in each.clusters]
        if any(not each.namespaces for each in about):
            continue
        named = {name for each in about for name in each.namespaces}
        left = tuple(name for name in namespaces if name not in named)
        if left or not namespaces:
            found.append((cluster, left))
    return tuple(found)


def in_words(released: Released) -> str:
    """Released parts for people."""
    told = [f"{name} (namespace {', '.join(spaces)})" if spaces else name for name, spaces in released]
    return _bounded(told)


def asked_in_words(parts: Sequence[Part]) -> str:
    """Parts of a spec for people; empty for none."""
    told = [
        f"{', '.join(each.clusters) or 'all clusters'}"
        + (f" (namespace {', '.join(each.namespaces)})" if each.namespaces else "")
        for each in parts
    ]
    return _bounded(told)


def names_in_words(names: Sequence[str]) -> str:
    """Names for people."""
    return _bounded([*names])


def _bounded(told: list[str]) -> str:
    more = f" and {len(told) - _IN_WORDS} more" if len(told) > _IN_WORDS else ""
    text = ", ".join(told[:_IN_WORDS])
    return f"{text[:300]}{'…' if len(text) > 300 else ''}{more}"


def _problem(field: str, what: str, remedy: str) -> Problem:
    return Problem(what, f"spec.{field}", remedy, reason=Reason.INVALID_ARGUMENT)
