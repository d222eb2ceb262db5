# SPDX-License-Identifier: Apache-2.0
"""Members of a control plane as hosts of the inventory: their groups, their entries, and which of them are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import jmespath_query
from ..api_object import is_true
from ..components.spec import Spec
from .inventory_names import JOIN, KEEP, LEAVE, MEMBERS


@dataclass(frozen=True)
class Member:
    """One member: its group, its entry of the document or an equivalent one, and its Cluster if that was read."""

    name: str
    group: str
    entry: Mapping[str, Any]
    cluster: Mapping[str, Any] | None = None


def chosen(
    found: Sequence[tuple[dict[str, Any], Any]], query: str | None, where: str, *, several: bool
) -> list[list[Member]]:
    """Members of each document that a query chooses; all without one. Each document comes with what is registered.

    ``several``: the source may have many documents, so that a name alone is no member's, be there one document today.
    Raises ProblemsError for a query that cannot be used. ``where`` names it in messages.
    """
    members = [list(of(deployment, registered)) for deployment, registered in found]
    if query is None:
        return members
    seen = [
        _seen(each, deployment)
        for (deployment, _), of_one in zip(found, members, strict=True)
        for each in of_one
    ]  # fmt: skip
    wanted = jmespath_query.chosen(query, seen, where, identity=("namespace", "instance", "name"), names=not several)
    places = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each, _ in found]
    return [
        [each for each in of_one if each.name in wanted or (*place, each.name) in wanted]
        for place, of_one in zip(places, members, strict=True)
    ]


def of(deployment: dict[str, Any], registered: Any) -> Iterator[Member]:
    """Members that the document lists and, unless ``registered`` is None, those that are registered."""
    listed = {name: entry.plain for name, entry in Spec(deployment["spec"]).member_by_name.items()}
    if registered is None:
        yield from (Member(name, JOIN, entry) for name, entry in listed.items())
        return
    plan = registered.plan(deployment)
    groups = {JOIN: (*plan.join, *plan.adopt), KEEP: plan.keep, LEAVE: plan.leave, MEMBERS: plan.others}
    for group, names in groups.items():
        for name in names:
            cluster = registered.clusters.get(name)
            yield Member(name, group, listed.get(name) or _entry_of(name, cluster), cluster)


def _seen(member: Member, deployment: Mapping[str, Any]) -> dict[str, Any]:
    """Form that queries see."""
    metadata = deployment["metadata"]
    return {
        "name": member.name,
        "namespace": metadata["namespace"],
        "instance": metadata["name"],
        "plan": member.group.removeprefix(f"{MEMBERS}_") if member.group != MEMBERS else "",
        "member": dict(member.entry),
        "ready": is_true(member.cluster, "Ready"),
        "cluster": member.cluster,
    }


def _entry_of(name: str, cluster: Mapping[str, Any] | None) -> dict[str, Any]:
    """Equivalent of a document's entry for a member that is not listed, without its access."""
    if cluster is None:
        return {"name": name}
    spec = cluster["spec"]
    labels = {
        key: value
        for key, value in (cluster["metadata"].get("labels") or {}).items()
        if not key.startswith(("installer.karmada.io/", "app.kubernetes.io/"))
    }
    found = {"name": name, "mode": spec.get("syncMode", "Push")}
    found.update({key: spec[key] for key in ("provider", "region", "zones") if spec.get(key)})
    return {**found, "labels": labels} if labels else found
