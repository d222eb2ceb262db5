# SPDX-License-Identifier: Apache-2.0
"""Versions of the installer's state on plain hosts, and the choice of the valid one. No I/O.

Any of the hosts may lie, and a run may have been killed while it wrote. A run writes its next state to every host
before it does what that state records, so the states of honest hosts differ by at most one version. Therefore a state
is valid if more than half of the hosts that keep one have it, or had it directly before their current one; a host whose
state the others do not know is named. Hosts that keep none have no say, so that one survivor of three is followed, and
one host that grows to three.

At least one host with an API server must be among those who have it, because these get the keys of all authorities
anyway, and others are to have none: a host that only stores or balances load must not choose them. If no host with an
API server keeps a state, because the role has moved as a whole, more than half of all hosts must have it.
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

#: Number of earlier states by which a host is recognised when it comes back after an absence.
LINEAGE = 32


@dataclass(frozen=True)
class Stored:
    """State as stored on hosts; ``serial`` 0 means none. ``lineage`` has the digests before it, newest first."""

    serial: int = 0
    files: Mapping[str, str] | None = None
    lineage: tuple[str, ...] = ()

    @classmethod
    def of(cls, found: Mapping[str, Any] | None) -> Stored:
        """State from its plain form, ``{serial, files, lineage}``; our earlier versions kept no lineage."""
        return cls(found["serial"], found["files"], tuple(found.get("lineage", ()))) if found else cls()

    @property
    def plain(self) -> dict[str, Any]:
        """Plain form, with the digest that identifies it."""
        files = dict(self.files or {})
        return {"serial": self.serial, "files": files, "digest": self.digest, "lineage": list(self.lineage)}

    @property
    def without_files(self) -> dict[str, Any]:
        """Plain form for a host that only needs to identify the state: without any key of an authority."""
        return {**self.plain, "files": {}}

    def for_host(self, host: Host) -> dict[str, Any]:
        """Plain form for a host of the control plane; only hosts with an API server get the keys of authorities."""
        return self.plain if CONTROL_PLANE_ROLE in host.roles else self.without_files

    def is_kept(self, host: Host, kept: Kept | None) -> bool:
        """Return whether a host of the control plane keeps exactly what ``for_host`` gives it."""
        wanted = self.for_host(host)
        return kept is not None and kept.digest == wanted["digest"] and bool(kept.copies) == bool(wanted["files"])

    @cached_property
    def digest(self) -> str:
        """Digest of the whole, including its serial; empty if there is no state."""
        return digest_of(self.serial, dict(self.files or {})) if self.serial else ""

    def state(self) -> State | None:
        """Parse the state; None if there is none. Raises ProblemsError when it cannot be read."""
        if not self.serial:
            return None
        files = files_of(self.files)
        return read_state(files, f"{STATE_FOLDER} of the hosts")

    def after(self, state: State, *, on_hosts: bool = True) -> Stored:
        """Next version, or this one if nothing differs.

        ``on_hosts``: whether any host already has this one. One that no host has is replaced, under its serial, so that
        serials of states on hosts have no gaps.
        """
        files = base64_files(to_files(state))
        if files == self.files:
            return self
        if self.serial and not on_hosts:
            return replace(self, files=files)
        lineage = (self.digest, *self.lineage) if self.serial else ()
        return Stored(self.serial + 1, files, lineage[:LINEAGE])


@dataclass(frozen=True)
class Kept:
    """Record of one host: its state, the digests before that, and the copies that it holds."""

    #: its own state, without files if it keeps no copy, and the copy before that
    own: Stored = Stored()
    previous: Stored = Stored()
    #: digest that the host reported; that of a copy is computed here
    told: str = ""
    #: whether it keeps digests of earlier states; an earlier version of this collection did not
    has_lineage: bool = False

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Kept:
        """Record from its plain form, the answer of the host (``host_state.read_state``)."""
        own, previous = Stored.of(plain), Stored.of(plain.get("previous"))
        return cls(own, previous, plain.get("digest", ""), "lineage" in plain)

    @property
    def plain(self) -> dict[str, Any]:
        """JSON form."""
        previous = {"serial": self.previous.serial, "files": dict(self.previous.files or {})}
        found = {"serial": self.serial, "files": dict(self.own.files or {}), "digest": self.told, "previous": previous}
        return {**found, "lineage": list(self.lineage)} if self.has_lineage else found

    @property
    def serial(self) -> int:
        """Serial of the state; 0 if the host keeps none."""
        return self.own.serial

    @property
    def lineage(self) -> tuple[str, ...]:
        """Digests before it, newest first, as far as the host keeps them."""
        return self.own.lineage

    @property
    def is_first(self) -> bool:
        """True if it is known to be the first state."""
        return self.has_lineage and not self.lineage

    @property
    def digest(self) -> str:
        """Digest of its state; computed from its copy, if any, so it cannot pass off other content under a digest."""
        return self.own.digest if self.own.files else self.told

    @cached_property
    def copies(self) -> tuple[Stored, ...]:
        """States of which it holds a copy."""
        both = (self.own, replace(self.previous, lineage=self.lineage[1:]))
        return tuple(each for each in both if each.serial and each.files)

    @property
    def vouches_for(self) -> set[str]:
        """Digests of its state and of the one directly before."""
        return {self.digest, *self.lineage[:1]}

    def unlike(self, chosen: Stored) -> str:
        """Sentence about a state that is accepted and is not the chosen one; empty if there is nothing to say.

        A run that was killed leaves such states, and nobody can tell them from those that somebody has put there.
        """
        if not chosen.serial or not self.serial or self.digest == chosen.digest:
            return ""
        others = f"the state of the others, serial {chosen.serial}, is written over it"
        if self.digest in chosen.lineage:
            return (
                f"it has an older state of the installer, serial {self.serial}: it was away when the others got "
                f"theirs, a run ended while it wrote, or somebody put an old copy back; {others}"
            )
        return (
            f"it has a state of the installer, serial {self.serial}, which the others do not have: a run ended while "
            f"it wrote, or somebody changed it there; {others}"
        )

    def is_of_line(self, chosen: Stored) -> bool:
        """Return whether its state is the chosen one, an earlier one, or an unfinished successor of one of these."""
        if self.vouches_for & {chosen.digest, *chosen.lineage}:
            return self.serial <= chosen.serial + 1
        # Of two first states, one is of a run that was killed. Earlier versions of the collection kept no lineage.
        return not chosen.lineage and (self.is_first or self.serial < chosen.serial)


def kept_by(observed: Mapping[str, HostObservation]) -> dict[str, Kept]:
    """Host → record, of the hosts that were looked at and keep a state."""
    return {name: each.stored for name, each in observed.items() if each.stored.serial}


def choose(kept: Mapping[str, Kept], hosts: Mapping[str, Host], instance: str) -> Stored:
    """Choose the state to continue with.

    ``kept`` has the records of the hosts that keep one, ``hosts`` all hosts of the control plane, whether they were
    reached or not. Raises ProblemsError if no state counts (see above), or if some hosts have one that the others do
    not know.
    """
    if not kept:
        return Stored()
    vouched = Counter(digest for each in kept.values() for digest in each.vouches_for)
    with_api_server = [each for name, each in kept.items() if CONTROL_PLANE_ROLE in hosts[name].roles]
    known = {digest for each in with_api_server or kept.values() for digest in each.vouches_for}
    voters = len(kept if with_api_server else hosts)
    copies = [copy for each in kept.values() for copy in each.copies]
    agreed = [copy for copy in copies if copy.digest in known and 2 * vouched[copy.digest] > voters]
    if not agreed and not with_api_server and (misplaced := [name for name, each in kept.items() if each.copies]):
        raise ProblemsError([_misplaced(name, kept[name], instance) for name in misplaced])
    if not agreed and all(each.is_first for each in kept.values()):
        # Runs ended, perhaps repeatedly, while they distributed a first state: nothing had begun.
        return Stored()
    if not agreed and not copies:
        raise ProblemsError(_no_copy(kept, instance))
    if not agreed:
        raise ProblemsError(_disagreement(kept, instance))
    chosen = max(agreed, key=lambda copy: (copy.serial, len(copy.lineage)))
    if strangers := [name for name, each in kept.items() if not each.is_of_line(chosen)]:
        raise ProblemsError([_stranger(name, kept[name], chosen, instance) for name in strangers])
    return chosen


def _misplaced(name: str, kept: Kept, instance: str) -> Problem:
    """Problem of a copy where no run leaves one, while no host has one where it belongs."""
    return Problem(
        what=f"it has a copy of the installer's state (serial {kept.serial}), but not the role {CONTROL_PLANE_ROLE}, "
        "and no host that has the role knows this state",
        where=f"host {name}",
        remedy=f"if nothing was installed here before, find out who has put it there, and remove {STATE_FOLDER}/"
        f"{instance} there; if it had the role before, give it back beside the new hosts, install, and take it away "
        "with the next run",
        reason=Reason.INVALID_STATE,
    )


def _no_copy(kept: Mapping[str, Kept], instance: str) -> Problem:
    """Problem of hosts that only know which state there was: all that had a copy are lost, or are not listed."""
    names = ", ".join(sorted(kept))
    return Problem(
        what=f"no host has a copy of the installer's state, and some know that there is one ({_serials(kept)}): those "
        f"with the role {CONTROL_PLANE_ROLE} that had it are not listed, are new, or were emptied",
        where="hosts",
        remedy=f"list those that have it; if all of them are lost, a backup has it: remove {STATE_FOLDER}/{instance} "
        f"from {names} to take the control plane over from that, or, if etcd has its data, put the state of the "
        "backup back on the hosts with the role",
        reason=Reason.INVALID_STATE,
    )


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
