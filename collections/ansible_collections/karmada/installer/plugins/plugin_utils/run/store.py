# SPDX-License-Identifier: Apache-2.0
"""Storage of the installer's state, with its lock: a Secret with a Lease, or files on plain hosts."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from ..api_object import Object
from ..components.hosts import Host
from ..components.instance import Instance
from ..components.state import COLLECTION_VERSION, State, to_files
from ..components.table import clashing_names
from ..document.recorded import read_state
from ..encoding import files_of
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

#: Retries of a state write that is refused although nobody else has written, 15 s in total.
REFUSALS = 12
#: Version of an object that must not exist: resourceVersion 1 is that of an empty etcd, and no object has it.
NOT_STORED: Mapping[str, str] = {"resourceVersion": "1"}


def version_of(live: Object) -> dict[str, str]:
    """UID and resourceVersion of an object; an apply with these is refused if the object has changed since."""
    return {key: live["metadata"][key] for key in ("uid", "resourceVersion")}


class StateStore(ABC):
    """Store of one instance's state, and of the lock that goes with it.

    ``later``: writes are only handed on, and a later step brings them to where the state is kept.

    What hosts keep of a state (``stored``, ``agreed``, ``kept_by_hosts``, ``may_be_unseen``) is asked of every store,
    and a Secret answers that they keep nothing. Preflight and steps on plain hosts ask it, and hosts may be below pods,
    whose state is in a Secret. The place, which chooses the store, could only pass these questions on.
    """

    later: ClassVar[bool] = False
    #: Called with True before the lock is taken, and with False after its release.
    on_lock: Callable[[bool], None] = staticmethod(lambda _held: None)

    @cached_property
    def state(self) -> State | None:
        """State as last read or written; None before the first install and after an uninstall."""
        return self._read()

    @abstractmethod
    def _read(self) -> State | None:
        """Read the current state. Raises ProblemsError if it cannot be read."""

    @abstractmethod
    def write(self, state: State, instance: Instance) -> None:
        """Store the state; only inside ``writing``. Raises LockLost if somebody else has written since it was read."""

    @abstractmethod
    def writing(self, run: Run, step: str) -> AbstractContextManager[None]:
        """Context with the right to write, and with the state as read under the lock."""

    @property
    def may_be_unseen(self) -> bool:
        """True if there may be a state although none was read: not every place of one could be looked at."""
        return False

    @property
    def stored(self) -> Stored | None:
        """State in the form of plain hosts; None where these do not keep it."""
        return None

    @property
    def agreed(self) -> Stored | None:
        """State that the plain hosts agree on now; None where these do not keep it. Raises ProblemsError if they do
        not agree.
        """
        return None

    @property
    def kept_by_hosts(self) -> Mapping[str, Kept]:
        """Records of the plain hosts that keep a state, by host."""
        return {}

    @abstractmethod
    def recording(self, run: Run) -> AbstractContextManager[None]:
        """Context to note something beside the operation of the journal, which stays as it is.

        Otherwise as ``writing``; a lock that was taken for this alone is released at the end.
        """

    def read_again(self, run: Run) -> None:
        """Continue with the state as it is now, in a run that had let go of the lock and has it again.

        Nothing to do where the lock is taken and the state is read in one.
        """
        del run

    @abstractmethod
    def take_lock(self) -> None:
        """Take the lock for the rest of the run, where nothing of the state is to be written."""

    @abstractmethod
    def require_lock(self) -> None:
        """Raise LockLost if the lock that this run held is lost."""

    @abstractmethod
    def resume_lock(self) -> None:
        """Keep renewing the lock through this action if an earlier step of the run took it."""

    @abstractmethod
    def release_lock(self) -> None:
        """Release the lock if this run holds it."""

    @abstractmethod
    def retire_lock(self) -> None:
        """Expect the deletion of the lock, which is deleted with other objects next."""


class SecretStore(StateStore):
    """Secret in the instance's namespace of the host cluster, with a Lease beside it that admits one writing run."""

    def __init__(self, facts: Facts, cluster: Callable[[], Cluster]) -> None:
        self._facts, self._cluster_of = facts, cluster
        self._lock_kept = False
        #: version of the Secret as last read or written
        self._version = NOT_STORED

    @property
    def _cluster(self) -> Cluster:
        return self._cluster_of()

    @cached_property
    def _lock(self) -> Lock:
        facts = self._facts
        return Lock(self._cluster, facts.namespace, f"{facts.name}-installer", facts.holder, dead=facts.confirmed_dead)

    def _read(self) -> State | None:
        name, namespace = f"{self._facts.name}-installer-state", self._facts.namespace
        found = self._cluster.get("v1", "Secret", name, namespace)
        self._version = version_of(found) if found else NOT_STORED
        if found is None:
            return None
        return read_state(files_of(found.get("data")), f"Secret {namespace}/{name} of the host cluster")

    # -- the lock --------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self, run: Run, step: str) -> Iterator[None]:
        """Take the lock and read the state again; ``step`` is in the journal before anything changes."""
        created = run.ensure_namespace()
        self._hold_lock()
        try:
            self.state = self._read()
            run.look_again(self.state)
            if self.state is None:
                self._make_way_for_clashing_instance()
            journaled = run.journaled(step)
        except ProblemsError:
            # Who may not write need not keep others from it.
            self._lock.release()
            raise
        run.save(journaled, namespace_uid=created)
        yield
        self._lock.check()

    @contextmanager
    def recording(self, run: Run) -> Iterator[None]:
        """Hold the lock, taken for this alone if no step of the run has it, and read the state again."""
        # Before the lock, which would be made anew where everything is gone.
        self._read_installed(run)
        with nullcontext() if self._lock_kept else self._held_meanwhile():
            self.state = self._read_installed(run)
            run.look_again(self.state)
            yield
            self._lock.check()

    def _read_installed(self, run: Run) -> State:
        """Current state; what is uninstalled meanwhile must not come back by a note about it. Raises ProblemsError."""
        if found := self._read():
            return found
        what, remedy = "it has been uninstalled meanwhile", "look who has done that, and when"
        raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.NOT_INSTALLED))

    @contextmanager
    def _held_meanwhile(self) -> Iterator[None]:
        self.on_lock(True)
        try:
            self._lock.acquire(self._facts.lock_wait, self._facts.say)
            with self._lock.held():
                self._lock_kept = True
                yield
        finally:
            self._lock_kept = False
            self.on_lock(False)

    def _make_way_for_clashing_instance(self) -> None:
        """Resolve two first installs, with names that clash, that start at the same moment.

        Preflight refuses names that are taken, and neither has taken one yet. Each has written its Lease before it
        looks for the other's, so at least one sees the other. Raises ProblemsError, upon which the lock is released.
        """
        cluster, namespace = self._cluster, self._facts.namespace
        for other in clashing_names(self._facts.name):
            found = cluster.get(lease.API_VERSION, lease.KIND, f"{other}-installer", namespace)
            if found is None:
                continue
            held = (found.get("spec") or {}).get("holderIdentity")
            if held or cluster.get("v1", "Secret", f"{other}-installer-state", namespace):
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
        self._lock.acquire(self._facts.lock_wait, self._facts.say)
        # Not released at the end of a step: the lock belongs to the run as a whole.
        self._facts.until_closed(self._lock.held(release=False))
        self._lock_kept = True

    def take_lock(self) -> None:
        """Take the Lease."""
        self._hold_lock()

    def require_lock(self) -> None:
        """Raise LockLost if the lock that this run held is lost."""
        if self._lock_kept:
            self._lock.check()

    def resume_lock(self) -> None:
        """Keep renewing the lock through this action if an earlier step of the run took it."""
        if not self._facts.check and self._lock.is_ours():
            self._hold_lock()

    def release_lock(self) -> None:
        """Release the lock if this run holds it."""
        self._lock.release()
        self.on_lock(False)

    def retire_lock(self) -> None:
        """Expect the deletion of the lock, which is deleted with other objects next."""
        if self._lock_kept:
            self._lock.retire()

    # -- the Secret ------------------------------------------------------------------------------------------------

    def write(self, state: State, instance: Instance) -> None:
        """Store the state.

        The lock decides who may write, but a machine that was suspended may not know yet that it lost the lock; so only
        the version read under the lock is replaced. Raises LockLost if the Secret has changed since.
        """
        state = replace(state, collection=COLLECTION_VERSION)
        secret = workloads.secret(instance, "installer", "installer-state", to_files(state))
        self._version = version_of(self._written(secret))
        self.state = state

    def _written(self, secret: Object) -> Object:
        """Write the Secret; returns it as stored. Raises LockLost if it has changed since it was read."""
        wanted = {**secret, "metadata": {**secret["metadata"], **self._version}}
        for tried in range(REFUSALS):
            try:
                return self._cluster.apply(wanted).object
            except Conflict:
                if live := self._written_unheard(secret):
                    return live
            # Something on the way refused the write, and the version read is still there, so the write may be repeated.
            time.sleep(min(2.0, 0.05 * 2**tried))
        return self._cluster.apply(wanted).object

    def _written_unheard(self, secret: Object) -> Object | None:
        """Stored Secret, if it has the content that we meant to write: an attempt whose answer was lost succeeded.

        Nobody else wrote it: the journal in it names this run. None if nobody has written; raises LockLost otherwise.
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
    """Files on the plain hosts of the control plane, which only Ansible's connections reach.

    The first step of a run reads them, the ``Handover`` carries the state on, and steps that do nothing else write it
    back. The lock is held on the hosts, from the first step to the last.
    """

    later = True

    def __init__(
        self, instance: str, hosts: Mapping[str, Host], observed: Mapping[str, HostObservation], handover: Handover
    ) -> None:
        #: hosts of the control plane, and the records of those that keep a state; hosts of members have no say
        self._hosts = {name: host for name, host in hosts.items() if not host.is_of_members}
        self._kept = state_on_hosts.kept_by({name: observed[name] for name in self._hosts})
        self._instance, self._observed, self._handover = instance, observed, handover

    @property
    def may_be_unseen(self) -> bool:
        """True if none was read, and a host could not be looked at."""
        return not self.state and any(each.refusal for each in self._observed.values())

    @property
    def stored(self) -> Stored:
        """State that this run continues with: the one that the hosts agree on, until a step has handed on another."""
        found = self._handover.stored
        return self.agreed if found is None else Stored.of(found)

    @property
    def agreed(self) -> Stored:
        """State that the hosts agree on, whatever this run has handed on since."""
        return state_on_hosts.choose(self._kept, self._hosts, self._instance)

    @property
    def kept_by_hosts(self) -> Mapping[str, Kept]:
        """Records of the hosts of the control plane that keep a state, by host."""
        return self._kept

    def _read(self) -> State | None:
        return self.stored.state()

    def write(self, state: State, instance: Instance) -> None:
        """Hand the state on; the next step that writes to the hosts stores it there."""
        del instance
        before = self.stored
        on_hosts = any(each.digest == before.digest for each in self.kept_by_hosts.values())
        self._handover.stored = before.after(state, on_hosts=on_hosts).plain
        self.state = state

    @contextmanager
    def writing(self, run: Run, step: str) -> Iterator[None]:
        """No lock to take, and no other writer: the journal is opened when the work on hosts begins."""
        del run, step
        yield

    @contextmanager
    def recording(self, run: Run) -> Iterator[None]:
        """No lock to take, and no other writer."""
        del run
        yield

    def read_again(self, run: Run) -> None:
        """Continue with what the hosts had when they were locked; what an earlier step has handed on is there."""
        self._handover.stored = None
        self.state = self._read()
        run.look_again(self.state)

    def take_lock(self) -> None:
        """Nothing to take: each host was locked by the first step on it."""

    def require_lock(self) -> None:
        """Nothing to check: the modules that change a host check its lock."""

    def resume_lock(self) -> None:
        """Nothing to resume: these modules renew the lock."""

    def release_lock(self) -> None:
        """Nothing to release: a step of its own releases the lock of each host."""

    def retire_lock(self) -> None:
        """Nothing to expect: the lock is deleted with the files."""
