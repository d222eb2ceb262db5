# SPDX-License-Identifier: Apache-2.0
"""Plan of joins and leaves: the document compared with the recorded and the registered members. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from ..api_object import Object
from ..kube.objects import claimed_by
from ..labels import FIELD_MANAGER
from ..problems import Problem, Reason


class Clusters(dict[str, Object]):
    """Cluster objects of a control plane by name, as they were when they were read; none is added later."""

    @classmethod
    def of(cls, found: Iterable[Object]) -> Self:
        """Collection of these Cluster objects."""
        return cls({each["metadata"]["name"]: each for each in found})

    @cached_property
    def names(self) -> dict[str | None, list[str]]:
        """Identity of a cluster → names under which it is registered."""
        found: dict[str | None, list[str]] = {}
        for name, cluster in self.items():
            found.setdefault(cluster["spec"].get("id"), []).append(name)
        return found


@dataclass(frozen=True)
class MemberPlan:
    """Names of members, sorted. Each known name is in exactly one of these."""

    #: listed and not registered
    join: tuple[str, ...] = ()
    #: listed, and registered by us
    keep: tuple[str, ...] = ()
    #: listed, and registered by somebody else: it becomes ours
    adopt: tuple[str, ...] = ()
    #: ours, and no longer listed
    leave: tuple[str, ...] = ()
    #: registered by somebody else and not listed: left alone
    others: tuple[str, ...] = ()


def plan(
    listed: Collection[str], recorded: Collection[str], registered: Mapping[str, Mapping[str, Any]], owner: str
) -> MemberPlan:
    """Sort all known members.

    ``listed`` are the names in the document, ``recorded`` those in the installer's state, ``registered`` the Cluster
    objects of the control plane by name. A Cluster is ours if it carries the label of ``owner``. A recorded member
    leaves even if nothing is registered under its name, because objects of joining may still be on it.
    """
    found: dict[str, list[str]] = {"join": [], "keep": [], "adopt": [], "leave": [], "others": []}
    listed, recorded = frozenset(listed), frozenset(recorded)
    for name in sorted({*listed, *recorded, *registered}):
        cluster = registered.get(name)
        ours = cluster is not None and claimed_by(dict(cluster)) == (FIELD_MANAGER, owner)
        if name in listed:
            found["join" if cluster is None else "keep" if ours else "adopt"].append(name)
        else:
            found["leave" if name in recorded or ours else "others"].append(name)
    return MemberPlan(**{key: tuple(names) for key, names in found.items()})


def same_cluster(identities: Mapping[str, str], registered: Mapping[str, Mapping[str, Any]]) -> dict[str, Problem]:
    """Problems, by name, of members that are one cluster listed under several names.

    ``identities`` is member → identity of its cluster. A registered cluster keeps its name;
    ``member_join.check_identity`` reports any other name for it.
    """
    taken = {cluster["spec"].get("id") for cluster in registered.values()}
    names: dict[str, list[str]] = {}
    for name, identity in sorted(identities.items()):
        names.setdefault(identity, []).append(name)
    return {
        name: Problem(
            what=f"this cluster is listed as {', '.join(other for other in found if other != name)}, too",
            where=f"spec.members[{name}]",
            remedy="list it once, or point one of the Secrets at the cluster that was meant",
            reason=Reason.DUPLICATE_MEMBER,
        )
        for identity, found in names.items()
        if len(found) > 1 and identity not in taken
        for name in found
    }


def unconfirmed(leaving: Collection[str], confirmed: str, control_plane: str) -> Problem | None:
    """Problem if more than one member would leave in this run and not all of them were confirmed by name.

    ``confirmed`` holds names from the user, separated by commas. A single member needs no confirmation.
    """
    named = {name.strip() for name in confirmed.split(",")}
    missing = [name for name in leaving if name not in named]
    if len(leaving) < 2 or not missing:
        return None
    said = f", of which these were not named once more: {', '.join(missing)}" if len(missing) < len(leaving) else ""
    return Problem(
        what=f"{len(leaving)} members are no longer listed and would leave: {', '.join(sorted(leaving))}{said}",
        where=f"spec.members of {control_plane}",
        remedy=f"if that is what you want, name them: -e karmada_confirm_leave={','.join(sorted(leaving))}",
        reason=Reason.CONFIRMATION_REQUIRED,
    )
