# SPDX-License-Identifier: Apache-2.0
"""Changes that the steps of a run have made, or in check mode would make, as one list for its report. No I/O.

Steps return their changes as words: ``created Deployment karmada/prod-scheduler`` for an object of an API server,
``restart karmada-prod-apiserver.service`` for something of a host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

#: First word of a change as steps on hosts tell it → the form in reports; other steps tell theirs in it.
DONE = {
    "create": "created",
    "change": "changed",
    "set": "changed",
    "remove": "deleted",
    "start": "started",
    "stop": "stopped",
    "restart": "restarted",
    "reload": "reloaded",
    "enable": "enabled",
    "disable": "disabled",
    "hold": "held",
    "compact": "compacted",
    "defragment": "defragmented",
    "disarm": "disarmed",
}
#: The other way round: the form in reports → what a check says that a run would do. Of two, the first one is general.
DUE = {**{done: verb for verb, done in reversed(DONE.items())}, "deleted": "delete"}
#: Kinds of things on hosts that are named in words, and their form in reports. Of others, paths are files.
_KINDS = {"user": "User", "directory": "Directory", "unit": "Unit", "etcd": "Etcd", "member": "EtcdMember"}
_RIGHTS = "set owner and mode of "


@dataclass(frozen=True)
class StepChange:
    """Change of one thing. ``member`` or ``host`` is set for what a step did for a member, or on a plain host."""

    action: str
    kind: str
    name: str
    member: str = ""
    host: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Change from its plain form."""
        return cls(**given)

    def __str__(self) -> str:
        where = self.member or self.host
        # The Cluster of a member has its name.
        place = f" ({where})" if where not in ("", self.name) else ""
        return f"{self.action} {self.kind} {self.name}{place}"

    @property
    def plain(self) -> dict[str, str]:
        """JSON form, without fields that are empty."""
        return {key: value for key, value in vars(self).items() if value}


def of_step(result: Mapping[str, Any], host: str = "") -> list[StepChange]:
    """Changes in the result of a step; ``host`` is the plain host that it ran for."""
    if not result.get("changed"):
        return []
    told = [str(each) for each in result.get("changes") or ()]
    if host:
        programs = [f"create {path}" for path in result.get("installed") or ()]
        programs += [f"remove {path}" for path in result.get("removed") or ()]
        return [_on_host(each, host) for each in [*told, *programs]]
    members = [(str(each["name"]), str(change)) for each in _members(result) for change in each.get("changes") or ()]
    rest = Counter(told) - Counter(change for _, change in members)
    return [*(_of_object(change, name) for name, change in members), *map(_of_object, rest.elements())]


def due(change: StepChange) -> str:
    """Change that a check predicts, as what is still to be done: ``create Deployment karmada/prod-scheduler``."""
    return str(replace(change, action=DUE.get(change.action, change.action)))


def merged(changes: Iterable[StepChange]) -> list[StepChange]:
    """Changes in their order, each thing that was created or changed several times only once."""
    found: dict[tuple[str, ...], StepChange] = {}
    for each in changes:
        first = (each.kind, each.name, each.member, each.host)
        if each.action == "changed" and (*first, "created") in found:
            continue
        found.setdefault((*first, each.action), each)
    return list(found.values())


def _members(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in result.get("members") or () if isinstance(each, Mapping)]


def _of_object(told: str, member: str = "") -> StepChange:
    action, _, what = told.partition(" ")
    kind, _, name = what.partition(" ")
    return StepChange(action, kind, name, member)


def _on_host(told: str, host: str) -> StepChange:
    verb, what = told.split(" ", 1)
    what = told.removeprefix(_RIGHTS) if told.startswith(_RIGHTS) else what
    first, _, rest = what.partition(" ")
    kind = _KINDS.get(first) if rest else None
    other = "File" if what.startswith("/") else "Unit"
    return StepChange(DONE.get(verb, "changed"), kind or other, rest if kind else what, host=host)
