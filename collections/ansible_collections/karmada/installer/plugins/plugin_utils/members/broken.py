# SPDX-License-Identifier: Apache-2.0
"""Members that a run could not bring to the state of the document: reason and next step. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..problems import NOTHING_CHANGED, Problem, ProblemsError
from ..redaction import shown

#: Values of the option ``on_broken_member``: fail when all other members are done, or only report, so that the play
#: goes on and fails at its end.
FAIL, TELL = "fail", "tell"
OPTION: dict[str, Any] = {"type": "str", "default": FAIL, "choices": [FAIL, TELL]}
_RUN_AGAIN = "mend that and run again"


@dataclass(frozen=True)
class BrokenMember:
    """A member, why it is not in the wanted state, and the next step of a person. Contains no credentials.

    ``problems`` are the problems behind ``problem`` and ``next_step``, as data.
    """

    name: str
    problem: str
    next_step: str
    problems: Sequence[Problem] = ()

    @classmethod
    def of_problems(cls, name: str, problems: Sequence[Problem]) -> BrokenMember:
        """Broken member with these problems."""
        return cls(name, *reason_and_next_step(name, ProblemsError(problems)), tuple(problems))

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> BrokenMember:
        """Broken member from its ``plain`` form."""
        problems = tuple(map(Problem.of, plain.get("problems") or ()))
        return cls(str(plain["name"]), str(plain["problem"]), str(plain["next"]), problems)

    @property
    def plain(self) -> dict[str, Any]:
        """Form in results of actions, by which one step passes it to the next."""
        problems = {"problems": [each.plain for each in self.problems]} if self.problems else {}
        return {"name": self.name, "problem": self.problem, "next": self.next_step, **problems}


def reason_and_next_step(member: str, error: Exception) -> tuple[str, str]:
    """Reason and next step, for people, from the exception that ended the work on this member.

    They are shown after its name, which is left out where the error begins with it, too.
    """
    said = f"member {member}: "
    if not isinstance(error, ProblemsError):
        return shown(str(error).replace(said, "")), _RUN_AGAIN
    reasons = [(f"{each.where}: {each.what}" if each.where else each.what).replace(said, "") for each in error.problems]
    if error.consequence != NOTHING_CHANGED:
        reasons.append(error.consequence)
    remedies = dict.fromkeys(each.remedy.rstrip(".") for each in error.problems if each.remedy)
    return shown("; ".join(reasons)), "; ".join([*remedies, "then run again"]) if remedies else _RUN_AGAIN


def listing(broken: Iterable[BrokenMember]) -> list[str]:
    """Lines for people: two for each member, with its reason and its next step."""
    return [line for each in broken for line in (f"  - {each.name}: {each.problem}", f"    next: {each.next_step}")]
