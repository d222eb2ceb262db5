# SPDX-License-Identifier: Apache-2.0
"""Checks of the rights that a document grants on a member, against its resources and the objects propagated to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..components.spec import MemberEntry
from ..kube.cluster import Cluster
from ..kube.objects import Ref
from ..members import rights as member_rights
from ..members import works as member_works
from ..problems import Problem, Reason

#: Objects that a problem names at most.
_SHOWN = 3


def of_member(entry: MemberEntry, member: Cluster, say: Callable[[str], None]) -> Iterator[Problem]:
    """Resources in the document that this member cannot have; one that a CRD may add later is only a hint."""
    served: dict[str, dict[str, set[str]]] = {}
    for group, resource in member_rights.listed(entry):
        if group not in served:
            served[group] = member.resources_of(group)
        if resource in served[group]:
            continue
        full, where = member_rights.full_name(group, resource), f"spec.members[{entry.name}].{member_rights.FIELD}"
        meant = [name for name, others in served[group].items() if resource in others]
        if meant:
            yield Problem(
                f"{full} is no name of a resource", where, f"write {meant[0]}", reason=Reason.INVALID_DOCUMENT
            )
        elif "." not in group:
            yield Problem(
                what=f"{member.name} has no resource {full}, and no CRD can bring it",
                where=where,
                remedy="write apiGroup and resource as they stand in `kubectl api-resources` of that member",
                reason=Reason.INVALID_DOCUMENT,
            )
        else:
            say(f"{member.name} does not have {full} yet; it can be propagated there when its CRD has come")


def of_what_is_propagated(entry: MemberEntry, member: Cluster, control_plane: Cluster) -> Iterator[Problem]:
    """Objects already propagated to the member that these rights would no longer allow to change or delete."""
    if not member_rights.are_scoped(entry):
        return
    space = member_works.execution_namespace(entry.name)
    found: dict[str, list[Ref]] = {}
    for work in control_plane.list(member_works.WORK_API, "Work", space):
        for ref in () if member_works.is_of_cluster(work) else member_works.references(work):
            group = ref.api_version.rpartition("/")[0]
            resource = member.resource(ref.api_version, ref.kind)
            if resource and not member_rights.may_keep(entry, group, resource):
                found.setdefault(member_rights.full_name(group, resource), []).append(ref)
    for full, refs in sorted(found.items()):
        shown = ", ".join(f"{each.namespace}/{each.name}" if each.namespace else each.name for each in refs[:_SHOWN])
        more = f" and {len(refs) - _SHOWN} more" if len(refs) > _SHOWN else ""
        yield Problem(
            what=f"{full} are propagated to it ({shown}{more}), and these rights do not have them",
            where=f"spec.members[{entry.name}].{member_rights.FIELD}",
            remedy="list them there, or take this member out of the policies that propagate them first",
            reason=Reason.RIGHTS_INCOMPLETE,
        )
