# SPDX-License-Identifier: Apache-2.0
"""Propagated objects that members do not take, by what Karmada has noted on their bindings. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from ..api_object import Object
from ..problems import Problem, Reason, Severity, number_of
from ..redaction import printable
from .scheduling import resource_of

#: Objects that the warning names.
_SHOWN = 3
#: Characters shown of what a member has answered.
_LONGEST = 200
#: Part of what Karmada says of an object that is on the member and not under its care.
_THERE_ALREADY = "already exist"


def warning(bindings: Iterable[Object]) -> Problem | None:
    """Warning if an object could not be applied on a member that its policy chose; None if each was, or will be."""
    found = [
        (resource_of(binding), each)
        for binding in bindings
        for each in (binding.get("status") or {}).get("aggregatedStatus") or ()
        if not each.get("applied") and each.get("appliedMessage")
    ]
    if not found:
        return None
    told = [
        f"{what} on {each.get('clusterName')} ({printable(each['appliedMessage'], _LONGEST)})"
        for what, each in found[:_SHOWN]
    ]
    more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    there = any(_THERE_ALREADY in str(each["appliedMessage"]) for _what, each in found)
    return Problem(
        what=f"{number_of(len({what for what, _each in found}), 'object')} could not be applied where a policy placed "
        f"{'it' if len(found) == 1 else 'them'}: {', '.join(told)}{more}",
        remedy="Karmada takes over what is there already if the policy has conflictResolution: Overwrite"
        if there
        else "",
        reason=Reason.OBJECT_NOT_APPLIED,
        severity=Severity.WARNING,
    )
