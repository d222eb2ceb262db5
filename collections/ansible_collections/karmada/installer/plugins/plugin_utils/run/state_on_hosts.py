# SPDX-License-Identifier: Apache-2.0
"""The installer's state where it lies on plain hosts: one step after another, and which one counts. No I/O.

Any of the hosts may lie, and a run may have been killed while it wrote. A run writes its next state to every host
before it does what that state records, so hosts that tell the truth differ by one step at the most. Therefore a state
counts that more than half of the hosts have, or had right before the one they have now. What one host says alone,
however new, does not; and a host whose state the others do not know is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ansible_collections.karmada.installer.plugins.module_utils.host_state import STATE_FOLDER, digest_of

from ..components.hosts import CONTROL_PLANE_ROLE, Host
from ..components.state import State, to_files
from ..document.recorded import read_state
from ..encoding import base64_files, files_of
from ..problems import Problem, ProblemsError, Reason

if TYPE_CHECKING:
    from .host_observation import HostObservation

#: How many states before the last one a host is known by, when it was away and comes back.
LINEAGE = 32


@dataclass(frozen=True)
class Stored:
    """A state as it lies on hosts; ``serial`` 0 is none at all. ``lineage``: digests before it, newest first."""

    serial: int = 0
    files: Mapping[str, str] | None = None
    lineage: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: Mapping[str, Any] | None) -> Stored:
        """From its plain form, ``{serial, files, lineage}``; an earlier version of this collection kept no lineage."""
        return cls(found["serial"], found["files"], tuple(found.get("lineage", ()))) if found else cls()

    @property
    def plain(self) -> dict[str, Any]:
        """Its plain form, with the digest that names it."""
        files = dict(self.files or {})
        return {"serial": self.serial, "files": files, "digest": self.digest, "lineage": list(self.lineage)}

    @property
    def without_files(self) -> dict[str, Any]:
        """What a host gets that only has to know which state it is: no key of any authority."""
        return {**self.plain, "files": {}}

    def for_host(self, host: Host) -> dict[str, Any]:
        """What a host of the control plane is to keep of it: keys of authorities beside API servers only."""
        return self.plain if CONTROL_PLANE_ROLE in host.roles else self.without_files

    def is_kept(self, host: Host, kept: Kept | None) -> bool:
        """Whether a host of the control plane keeps what it is to keep, and nothing else."""
        wanted = self.for_host(host)
        return kept is not None and kept.digest == wanted["digest"] and bool(kept.copies) == bool(wanted["files"])

    @cached_property
    def digest(self) -> str:
        """The name of the whole, its serial included; empty where there is none."""
        return digest_of(self.serial, dict(self.files or {})) if self.serial else ""

    def state(self) -> State | None:
        """What it says. Raises ProblemsError when it cannot be read."""
        if not self.serial:
            return None
        files = files_of(self.files)
        return read_state(files, f"{STATE_FOLDER} of the hosts")

    def after(self, state: State, *, on_hosts: bool = True) -> Stored:
        """The next one, or this one if nothing differs. ``on_hosts``: whether any host has got this one."""
        files = base64_files(to_files(state))
        if files == self.files:
            return self
        lineage = (self.digest, *self.lineage) if on_hosts and self.serial else self.lineage
        return Stored(self.serial + 1, files, lineage[:LINEAGE])


@dataclass(frozen=True)
class Kept:
    """What one host keeps: which state it has, those before that, and the copies it can give of them."""

    #: its own, without files where it keeps no copy, and the copy before that
    own: Stored = Stored()
    previous: Stored = Stored()
    #: the digest that the host told; that of a copy is computed here
    told: str = ""
    #: whether it noted what was before; an earlier version of this collection did not
    has_lineage: bool = False

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Kept:
        """From its plain form, which is what the host answered (``host_state.read_state``)."""
        own, previous = Stored.of(plain), Stored.of(plain.get("previous"))
        return cls(own, previous, plain.get("digest", ""), "lineage" in plain)

    @property
    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        previous = {"serial": self.previous.serial, "files": dict(self.previous.files or {})}
        found = {"serial": self.serial, "files": dict(self.own.files or {}), "digest": self.told, "previous": previous}
        return {**found, "lineage": list(self.lineage)} if self.has_lineage else found

    @property
    def serial(self) -> int:
        """The number of the state; 0 if it keeps none."""
        return self.own.serial

    @property
    def lineage(self) -> tuple[str, ...]:
        """Digests before it, newest first, as far as it noted them."""
        return self.own.lineage

    @property
    def is_first(self) -> bool:
        """Whether it is known that there was none before it."""
        return self.has_lineage and not self.lineage

    @property
    def digest(self) -> str:
        """The name of its state. A host cannot give something else than its copy under the name of a state."""
        return self.own.digest if self.own.files else self.told

    @cached_property
    def copies(self) -> tuple[Stored, ...]:
        """The states that it can give."""
        both = (self.own, replace(self.previous, lineage=self.lineage[1:]))
        return tuple(each for each in both if each.files)

    @property
    def vouches_for(self) -> set[str]:
        """The state it has, and the one right before."""
        return {self.digest, *self.lineage[:1]}

    def is_of_line(self, chosen: Stored) -> bool:
        """Whether this is the chosen state or one before it, or an unfinished step that followed on any of these."""
        if self.vouches_for & {chosen.digest, *chosen.lineage}:
            return True
        # Of two that are the first, one is of a run that was killed. Earlier versions noted nothing of what was before.
        return not chosen.lineage and (self.is_first or self.serial < chosen.serial)


def kept_by(observed: Mapping[str, HostObservation]) -> dict[str, Kept]:
    """Host → what it keeps, of the hosts that were looked at and keep anything."""
    return {name: each.stored for name, each in observed.items() if each.stored.serial}


def choose(kept: Mapping[str, Kept], instance: str) -> Stored:
    """The state to go on with. ``kept`` is what hosts of the control plane keep, of those that keep anything.

    Raises ProblemsError if more than half of them agree on none, or if some have one that the others do not know.
    """
    if not kept:
        return Stored()
    vouched = Counter(digest for each in kept.values() for digest in each.vouches_for)
    copies = [copy for each in kept.values() for copy in each.copies]
    agreed = [copy for copy in copies if 2 * vouched[copy.digest] > len(kept)]
    if not agreed and all(each.is_first for each in kept.values()):
        # The first state was on its way to the hosts when a run ended, perhaps more than once: nothing had begun.
        return Stored()
    if not agreed:
        raise ProblemsError(_disagreement(kept, instance))
    chosen = max(agreed, key=lambda copy: (copy.serial, len(copy.lineage)))
    if strangers := [name for name, each in kept.items() if not each.is_of_line(chosen)]:
        raise ProblemsError([_stranger(name, kept[name], chosen, instance) for name in strangers])
    return chosen


def _disagreement(kept: Mapping[str, Kept], instance: str) -> Problem:
    folder = f"{STATE_FOLDER}/{instance}"
    return Problem(
        what=f"the installer's states on the hosts differ, and no more than half agree on any ({_serials(kept)})",
        where="hosts",
        remedy=f"find out which of them is right, and remove {folder} from the hosts that have another one; they get "
        "it again from the others",
        reason=Reason.INVALID_STATE,
    )


def _stranger(name: str, kept: Kept, chosen: Stored, instance: str) -> Problem:
    return Problem(
        what=f"it has a state of the installer that the other hosts do not know (serial {kept.serial}; they have "
        f"{chosen.serial}): somebody has changed it there, or it was restored from a copy",
        where=f"host {name}",
        remedy=f"find out who did; then remove {STATE_FOLDER}/{instance} there, and it gets that of the other hosts",
        reason=Reason.INVALID_STATE,
    )


def _serials(kept: Mapping[str, Kept]) -> str:
    by_digest: dict[tuple[int, str], list[str]] = {}
    for name, each in sorted(kept.items()):
        by_digest.setdefault((each.serial, each.digest), []).append(name)
    return "; ".join(f"{', '.join(names)}: serial {serial}" for (serial, _digest), names in sorted(by_digest.items()))
