# SPDX-License-Identifier: Apache-2.0
"""Queries of JMESPath over plain data. The package is looked for when a query is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .libraries import missing_library
from .problems import Problem, ProblemsError, Reason

#: What gives members where their names say too little.
_WHOLE = (
    "Have it give the members themselves: [?ready] in place of [?ready].name. One by its name: "
    "[?namespace == 'karmada-prod' && instance == 'prod' && name == 'member1']"
)


def search(expression: str, data: Any, where: str) -> Any:
    """Answer of an expression over data. ``where`` names it in messages. Raises ProblemsError."""
    try:
        import jmespath  # noqa: PLC0415 - only who asks needs it
        from jmespath.exceptions import JMESPathError  # noqa: PLC0415
    except ImportError as error:
        raise missing_library("jmespath", "queries of JMESPath") from error
    try:
        return jmespath.search(expression, data)
    except (JMESPathError, ValueError, TypeError, AttributeError) as error:
        told = " ".join(str(error).split())
        remedy = "Write an expression of JMESPath: https://jmespath.org/tutorial.html"
        raise ProblemsError(
            Problem(f"{expression!r} cannot be evaluated: {told}", where, remedy, reason=Reason.INVALID_ARGUMENT)
        ) from error


def chosen(
    expression: str, items: list[dict[str, Any]], where: str, identity: Sequence[str], *, names: bool
) -> set[Any]:
    """Choice of an expression among items: names, and for each whole item the values of its identity.

    The expression gives a list of items or, if ``names`` are unique, of these. Raises ProblemsError if it gives
    something else.
    """
    found = search(expression, items, where)
    wanted: set[Any] = set()
    for each in found if isinstance(found, list) else [None]:
        if isinstance(each, str) and names:
            wanted.add(each)
        elif isinstance(each, str):
            what = f"{expression!r} gives names, and members of several control planes may have the same one"
            raise ProblemsError(Problem(what, where, _WHOLE, reason=Reason.INVALID_ARGUMENT))
        elif isinstance(each, dict) and all(isinstance(each.get(key), str) for key in identity):
            wanted.add(tuple(each[key] for key in identity))
        else:
            kind = "a list of something else" if isinstance(found, list) else f"{type(found).__name__}, and no list"
            or_names = ", or of their names" if names else ""
            remedy = f"It has to give a list of members{or_names}: [?member.labels.tier == 'prod']"
            raise ProblemsError(Problem(f"{expression!r} gives {kind}", where, remedy, reason=Reason.INVALID_ARGUMENT))
    return wanted
