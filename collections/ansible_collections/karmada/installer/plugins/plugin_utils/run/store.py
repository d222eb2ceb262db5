# SPDX-License-Identifier: Apache-2.0
"""Where the installer's state is kept, and who may write it: a Secret with a Lease, or files on plain hosts."""

from __future__ import annotations

import base64
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from ..api_object import Object
from ..components.instance import Instance
from ..components.state import COLLECTION_VERSION, State, to_files
from ..components.table import clashing_names
from ..document.recorded import read_state
from ..kube import lease
from ..kube.cluster import Cluster
from ..kube.errors import Conflict
from ..kube.lease import Lock, LockLost
from ..problems import Problem, ProblemsError, Reason
from ..render import workloads
from . import state_on_hosts
from .facts import Facts
from .state_on_hosts import Kept, Stored

if TYPE_CHECKING:
    from .handover import Handover
    from .host_observation import HostObservation
    from .run import Run

#: How long a run waits for another one to end before it gives up.
LOCK_WAIT_SECONDS = 120
#: How often a write of the state may be refused although nobody has written it, 15 s in all.
REFUSALS = 12
#: In the place of an object's version: it must not be there. No object has this one, which is that of an empty etcd.
NOT_STORED: Mapping[str, str] = {"resourceVersion": "1"}


def version_of(live: Object) -> dict[str, str]:
    """Which object this is, and as who last wrote it; an apply that says so is refused when that has changed."""
    return {key: live["metadata"][key] for key in ("uid", "resourceVersion")}


class StateStore(ABC):
    """The state of one instance as it is kept, and the lock that goes with it.

    ``later`` says whether what is written here is only handed on, and reaches the place where it is kept with a later
    step.
    """

    later: ClassVar[bool] = False
    #: Told that the lock is about to be taken, or has been let go of.
    on_lock: Callable[[bool], None] = staticmethod(lambda _held: None)

    @cached_property
    def state(self) -> State | None:
        """The state as it was last read or written; None before the first install and after an uninstall."""
        return self._read()

    @abstractmethod
    def _read(self) -> State | None:
        """The state as it is now. Raises ProblemsError if it cannot be read."""

    @abstractmethod
    def write(self, state: State, instance: Instance) -> None:
        """Keep this. Only inside ``writing``. Raises LockLost if somebody else has written since it was read."""

    @abstractmethod
    def writing(self, run: Run, step: str) -> AbstractContextManager[None]:
        """The right to write, with the state as it is when nobody else may."""

    @property
    def stored(self) -> Stored | None:
        """The state in the form in which plain hosts keep it; None where they do not."""
        return None

    @property
    def kept_by_hosts(self) -> Mapping[str, Kept]:
        """What each plain host keeps of the state, of those that keep anything."""
        return {}

    @abstractmethod
    def require_lock(self) -> None:
        """Raise LockLost if the lock that this run holds was lost."""

    @abstractmethod
    def resume_lock(self) -> None:
        """Keep renewing the lock through this action if an earlier step of the same run took it."""

    @abstractmethod
    def release_lock(self) -> None:
        """Let go of the lock if this run holds it."""

    @abstractmethod
    def retire_lock(self) -> None:
        """The lock is among what is deleted next: do not miss it."""


class SecretStore(StateStore):
    """A Secret in the instance's namespace of the host cluster, and a Lease beside it that admits one writing run."""

    def __init__(self, facts: Facts, cluster: Callable[[], Cluster]) -> None:
        self._facts, self._cluster_of = facts, cluster
        self._lock_kept = False
        #: as what object the state was read or written
        self._version = NOT_STORED

    @property
    def _cluster(self) -> Cluster:
        return self._cluster_of()

    @cached_property
    def _lock(self) -> Lock:
        facts = self._facts
        return Lock(self._cluster, facts.namespace, f"{facts.name}-installer", facts.holder)

    def _read(self) -> State | None:
        name, namespace = f"{self._facts.name}-installer-state", self._facts.namespace
        found = self._cluster.get("v1", "Secret", name, namespace)
        self._version = version_of(found) if found else NOT_STORED
        if found is None:
            return None
        files = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
        return read_state(files, f"Secret {namespace}/{name} of the host cluster")

    # -- the lock --------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self, run: Run, step: str) -> Iterator[None]:
        """The lock is taken and the state read again. ``step`` goes into the journal before anything is done."""
        created = run.ensure_namespace()
        self._hold_lock()
        self.state = self._read()
        run.look_again(self.state)
        if self.state is None:
            self._make_way_for_clashing_instance()
        run.save(run.journaled(step), namespace_uid=created)
        yield
        self._lock.check()

    def _make_way_for_clashing_instance(self) -> None:
        """Preflight refuses names that are taken; two first installs at the same moment take none from each other yet.

        Each has put its name into its Lease before it looks for the other's, so at least one of them sees it. Raises
        ProblemsError, with the lock released.
        """
        cluster, namespace = self._cluster, self._facts.namespace
        for other in clashing_names(self._facts.name):
            found = cluster.get(lease.API_VERSION, lease.KIND, f"{other}-installer", namespace)
            if found is None:
                continue
            held = (found.get("spec") or {}).get("holderIdentity")
            if held or cluster.get("v1", "Secret", f"{other}-installer-state", namespace):
                self._lock.release()
                raise ProblemsError(
                    Problem(
                        what=f"control plane {other} is being installed here, and some objects of both would have "
                        "the same names",
                        where=f"namespace {namespace} of the host cluster",
                        remedy=f"choose another metadata.name or namespace, or run again when {other} is uninstalled",
                        reason=Reason.OTHER_CONTROL_PLANE,
                    ),
                    "nothing was installed",
                )

    def _hold_lock(self) -> None:
        if self._lock_kept:
            self._lock.check()
            return
        self.on_lock(True)
        self._lock.acquire(LOCK_WAIT_SECONDS, self._facts.say)
        # Not released at the end of a step: the run as a whole excludes others.
        self._facts.until_closed(self._lock.held(release=False))
        self._lock_kept = True

    def require_lock(self) -> None:
        """Raise LockLost if the lock that this run holds was lost."""
        if self._lock_kept:
            self._lock.check()

    def resume_lock(self) -> None:
        """Keep renewing the lock through this action if an earlier step of the same run took it."""
        if not self._facts.check and self._lock.is_ours():
            self._hold_lock()

    def release_lock(self) -> None:
        """Let go of the lock if this run holds it."""
        self._lock.release()
        self.on_lock(False)

    def retire_lock(self) -> None:
        """The lock is among what is deleted next: do not miss it."""
        if self._lock_kept:
            self._lock.retire()

    # -- the Secret ------------------------------------------------------------------------------------------------

    def write(self, state: State, instance: Instance) -> None:
        """Store the state.

        The lock says who may write, and a machine that stood still for a while may not know yet that it was lost; so
        only what was read under the lock is replaced. Raises LockLost if something else is there by now.
        """
        state = replace(state, collection=COLLECTION_VERSION)
        secret = workloads.secret(instance, "installer", "installer-state", to_files(state))
        self._version = version_of(self._written(secret))
        self.state = state

    def _written(self, secret: Object) -> Object:
        """The state as it is there when it was written. Raises LockLost if something else is there by now."""
        wanted = {**secret, "metadata": {**secret["metadata"], **self._version}}
        for tried in range(REFUSALS):
            try:
                return self._cluster.apply(wanted).object
            except Conflict:
                if live := self._written_unheard(secret):
                    return live
            # Something on the way refused it, and what was read is there yet: the same write is as right as before.
            time.sleep(min(2.0, 0.05 * 2**tried))
        return self._cluster.apply(wanted).object

    def _written_unheard(self, secret: Object) -> Object | None:
        """The state as it is there, if that is what we meant to write: an attempt that we heard nothing of got through.

        Nobody else writes the same, since the journal in it names this run. None if nobody has written anything; raises
        LockLost otherwise.
        """
        live = self._cluster.get("v1", "Secret", secret["metadata"]["name"], self._facts.namespace)
        uid = self._version.get("uid")
        if live and live.get("data") == secret["data"] and uid in (None, live["metadata"]["uid"]):
            return live
        if (version_of(live) if live else NOT_STORED) == self._version:
            return None
        stem = f"{self._facts.namespace}/{self._facts.name}-installer"
        raise LockLost(
            f"lost the lock {stem} in {self._cluster.name}: since this run read the state, somebody else has written "
            f"Secret {stem}-state. It was left as it is; run again when no other run is at work there"
        )


class HostFiles(StateStore):
    """Files on the plain hosts of the control plane, which Ansible's connections alone reach.

    What lies there is read by the first step of a run, goes on through its ``Handover``, and is written back by steps
    that do nothing else. The lock is held on the hosts, from the first step to the last.
    """

    later = True

    def __init__(self, instance: str, observed: Mapping[str, HostObservation], handover: Handover) -> None:
        #: of the hosts that keep the state, or know which one it is: not of those of members
        self._kept = state_on_hosts.kept_by(observed)
        self._instance, self._handover = instance, handover

    @property
    def stored(self) -> Stored:
        """The state that this run goes on with: the one that the hosts agree on, until a step has handed on another."""
        found = self._handover.stored
        return state_on_hosts.choose(self._kept, self._instance) if found is None else Stored.of(found)

    @property
    def kept_by_hosts(self) -> Mapping[str, Kept]:
        """What each host of the control plane keeps of the state, of those that keep anything."""
        return self._kept

    def _read(self) -> State | None:
        return self.stored.state()

    def write(self, state: State, instance: Instance) -> None:
        """Hand the state on; the next step that writes to the hosts writes it there."""
        del instance
        before = self.stored
        on_hosts = any(each.digest == before.digest for each in self.kept_by_hosts.values())
        self._handover.stored = before.after(state, on_hosts=on_hosts).plain
        self.state = state

    @contextmanager
    def writing(self, run: Run, step: str) -> Iterator[None]:
        """Nothing to take, and nobody else has written: the journal is opened when the work on hosts begins."""
        del run, step
        yield

    def require_lock(self) -> None:
        """The modules that change a host ask for its lock."""

    def resume_lock(self) -> None:
        """It is renewed by these modules."""

    def release_lock(self) -> None:
        """A step of its own lets go of each host."""

    def retire_lock(self) -> None:
        """It goes with the files."""
