# SPDX-License-Identifier: Apache-2.0
"""Drift: objects of members against what the Works of a control plane would make of them. Reads only.

Works are compared with what the API servers of members answer, with the access that was given for joining; neither
Karmada's controllers nor agents are asked, and none runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ..api_object import Object
from ..components.spec import MemberEntry
from ..kube.cluster import Cluster
from ..kube.errors import ApiError
from ..kube.limits import AT_ONCE
from ..kube.objects import Ref, drift
from ..members import follow, join, one_member, registration, works
from ..members.broken import reason_and_next_step
from ..problems import Problem, Reason
from ..run.run import Run
from . import held

#: On what Karmada propagates: the generation of its template.
GENERATION = "resourcetemplate.karmada.io/generation"
_LABEL, _TRUE = "karmada.io/managed", "true"
_MANAGED = f"{_LABEL}={_TRUE}"
#: Objects of a verdict that a result names for each member.
MOST_NAMED = 200
#: Group, kind, namespace and name.
_Identity = tuple[str, str, str | None, str]
#: Verdicts that nobody has to look at.
_OF_NO_INTEREST = frozenset({"same"})


class Verdict(StrEnum):
    """Result of comparing an object of a member with its Work."""

    SAME = "same"
    OLDER = "older"  # the Work is of an older generation of the template: the release takes the object back
    OTHER = "other"  # the same generation, or none, and other content
    MISSING = "missing"  # the release creates it
    ORPHAN = "orphan"  # Karmada's by its label, and no Work is left for it: nobody takes care of it
    SUSPENDED = "suspended"  # it differs or is missing, and its Work was suspended by others: the release leaves it
    GOING = "going"  # its Work was being deleted when the backup was taken: the release deletes it


@dataclass(frozen=True)
class MemberDrift:
    """Comparison of one member; ``trouble`` says why there is none."""

    name: str
    found: Mapping[Verdict, Sequence[str]] = field(default_factory=dict)
    trouble: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """Number of objects of each verdict."""
        return {verdict.value: len(self.found.get(verdict, ())) for verdict in Verdict}

    @property
    def plain(self) -> dict[str, Any]:
        """JSON form: numbers of all, names of some of those that differ."""
        named = {
            verdict.value: list(names[:MOST_NAMED])
            for verdict, names in self.found.items()
            if verdict not in _OF_NO_INTEREST and names
        }
        return {"member": self.name, "counts": self.counts, "objects": named, "trouble": self.trouble}


@dataclass(frozen=True)
class Report:
    """All members; ``gone`` are joined and not registered any more, ``back`` are registered and not joined by us.

    ``forgotten`` are both, and the document does not list them.
    """

    members: Sequence[MemberDrift]
    gone: Sequence[str] = ()
    back: Sequence[str] = ()
    forgotten: Sequence[str] = ()

    @property
    def plain(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "members": [each.plain for each in self.members],
            "gone": list(self.gone),
            "back": list(self.back),
            "forgotten": list(self.forgotten),
        }

    def problems(self) -> list[Problem]:
        """Warnings that a person has to know before a release."""
        found = []
        for each in self.members:
            if each.trouble:
                what = f"it could not be compared: {each.trouble}"
                found.append(Problem.warning(what, Reason.RESTORE_DRIFT, f"member {each.name}"))
            elif any(number for verdict, number in each.counts.items() if verdict not in _OF_NO_INTEREST):
                told = ", ".join(f"{number} {verdict}" for verdict, number in each.counts.items() if number)
                found.append(Problem.warning(f"of its objects are {told}", Reason.RESTORE_DRIFT, f"member {each.name}"))
        for name in self.gone:
            what = (
                "it joined after the backup, and is not registered any more; karmada.installer.members joins it again"
            )
            found.append(Problem.warning(what, Reason.RESTORE_DRIFT, f"member {name}"))
        for name in self.forgotten:
            what = "the document does not list it: a release writes to it, too, and an install after that lets it leave"
            found.append(Problem.warning(what, Reason.MEMBER_LEAVING, f"member {name}"))
        for name in self.back:
            what = (
                "it is registered, and was not joined by this installer: it left after the backup, and its credentials "
                "may be dead, or somebody else has joined it; it was not compared"
            )
            found.append(Problem.warning(what, Reason.RESTORE_DRIFT, f"member {name}"))
        return found


def look(run: Run) -> Report:
    """Compare all members that are registered, several at a time."""
    clusters = {each["metadata"]["name"] for each in run.control_plane.list(registration.CLUSTER_API, "Cluster")}
    by_member = _works_by_member(run.control_plane.list(works.WORK_API, "Work"))
    ours = set(run.state.members)
    # A member that the document has forgotten is written to after the release, too.
    known = {each.name: each for each in (*run.spec.members, *follow.on_record(run))}
    entries = [entry for name, entry in known.items() if name in clusters]

    def of_member(entry: MemberEntry) -> MemberDrift:
        try:
            with one_member.apart(entry.name, run.trace), join.connected(run, entry) as member:
                return MemberDrift(entry.name, compare(by_member.get(entry.name, []), member))
        except one_member.TOLD as error:
            return MemberDrift(entry.name, trouble=reason_and_next_step(entry.name, error)[0])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(of_member, entries))
    forgotten = sorted(ours & clusters - run.spec.member_by_name.keys())
    return Report(found, gone=sorted(ours - clusters), back=sorted(clusters - ours), forgotten=forgotten)


def _works_by_member(all_works: Iterable[Object]) -> dict[str, list[Object]]:
    prefix, found = works.execution_namespace(""), dict[str, list[Object]]()
    for work in all_works:
        namespace = work["metadata"].get("namespace", "")
        if namespace.startswith(prefix):
            found.setdefault(namespace.removeprefix(prefix), []).append(work)
    return found


def compare(of_member: Sequence[Mapping[str, Any]], member: Cluster) -> dict[Verdict, list[str]]:
    """Verdict → objects, by name. Raises ApiError if the member cannot be asked."""
    of_works = [(Ref.of(manifest), manifest, work) for work in of_member for manifest in _manifests(work)]
    live = _managed(member, {ref[:2] for ref, _, _ in of_works})
    there = {**live, **_unlisted(member, {ref for ref, _, _ in of_works} - live.keys())}
    found: dict[Verdict, list[str]] = {verdict: [] for verdict in Verdict}
    for ref, manifest, work in of_works:
        found[_of_work(work, judge(manifest, there.get(ref)))].append(str(ref))
    seen = {_identity(ref) for ref, _, _ in of_works}
    # Listed in the versions of the Works and in the preferred one, it is still one object.
    orphans = {_identity(ref): ref for ref in live}
    found[Verdict.ORPHAN] = [str(ref) for identity, ref in orphans.items() if identity not in seen]
    return {verdict: sorted(names) for verdict, names in found.items()}


def _manifests(work: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return ((work.get("spec") or {}).get("workload") or {}).get("manifests") or []


def _unlisted(member: Cluster, refs: Collection[Ref]) -> dict[Ref, Object]:
    """Objects of Works that no list has, because they lack the label; several at a time, for all may be missing."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = pool.map(lambda ref: (ref, member.get(*ref)), refs)
        return {ref: obj for ref, obj in answers if obj is not None}


def _identity(ref: Ref) -> _Identity:
    """Identity of an object in whatever version of its group it is read: members list it in the one they prefer."""
    return ref.api_version.rpartition("/")[0], ref.kind, ref.namespace, ref.name


def _of_work(work: Mapping[str, Any], verdict: Verdict) -> Verdict:
    """Verdict on an object of a Work, by what the release does with that."""
    if works.is_going(work):
        return Verdict.GOING
    return Verdict.SUSPENDED if verdict is not Verdict.SAME and held.is_suspended_by_others(work) else verdict


def judge(manifest: Mapping[str, Any], live: Mapping[str, Any] | None) -> Verdict:
    """Compare one live object with the manifest of its Work."""
    if live is None:
        return Verdict.MISSING
    if _generation(live) > _generation(manifest):
        return Verdict.OLDER
    wanted = {key: value for key, value in manifest.items() if key != "status"}
    return Verdict.OTHER if drift(dict(live), wanted) else Verdict.SAME


def _generation(obj: Mapping[str, Any]) -> int:
    text = str((obj["metadata"].get("annotations") or {}).get(GENERATION, ""))
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0


def _managed(member: Cluster, more: Collection[tuple[str, ...]]) -> dict[Ref, Object]:
    """Objects that Karmada claims, of every kind that can be listed: one list for each kind.

    ``more`` are apiVersions and kinds beside those that the member prefers.
    """
    kinds = list(dict.fromkeys([*member.listable_kinds(everywhere=True), *sorted((each[0], each[1]) for each in more)]))

    def listed(kind: tuple[str, str]) -> list[Object]:
        try:
            return list(member.list(*kind, labels=_MANAGED))
        except ApiError as error:
            # What cannot be listed with a selector (a review) or not by us is no reason to compare nothing.
            if error.status in (403, 404, 405):
                return []
            raise

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = [each for objects in pool.map(listed, kinds) for each in objects]
    # What a workload makes of its template has the labels of that, and no annotation of a Work.
    # Kinds that API servers make up as they are asked for know no selector.
    return {
        Ref.of(each): each
        for each in found
        if not each["metadata"].get("ownerReferences") and (each["metadata"].get("labels") or {}).get(_LABEL) == _TRUE
    }


def in_words(report: Report) -> list[str]:
    """Lines for people, one for each member."""
    lines = []
    for each in report.members:
        counts = Counter(each.counts)
        told = ", ".join(f"{counts[verdict.value]} {verdict}" for verdict in Verdict if counts[verdict.value])
        lines.append(f"  {each.name}: {each.trouble or told or 'nothing of Karmada is there'}")
    return lines
