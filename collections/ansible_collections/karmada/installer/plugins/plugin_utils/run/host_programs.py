# SPDX-License-Identifier: Apache-2.0
"""Programs that the plain hosts of an instance lack: checking that they can be had, and fetching them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from concurrent import futures
from concurrent.futures import Future
from math import inf
from typing import NamedTuple

from ansible_collections.karmada.installer.plugins.module_utils import host_lock

from ..artifacts import programs
from ..artifacts.programs import ARCHITECTURES, Program
from ..artifacts.tools import ETCDUTL
from ..components.image_pins import Held
from ..components.table import ETCD, ON_HOSTS
from ..components.types import Component
from ..kube.limits import SAY_SECONDS
from ..kube.progress import Progress
from ..problems import Problem, ProblemsError, Reason
from ..render import units
from .host_observation import Brought
from .run import Run

#: Seconds in which the lock of each host is looked after once while programs are fetched: a fifth of the silence after
#: which another run may take the host.
ROUND_SECONDS = host_lock.LOCK_SILENCE // 5
#: Seconds after which a fetch of all programs is given up; one file has its own limit, a build none.
LONGEST_SECONDS = 4 * 3600

#: Host name → its architecture → components whose program is not there as installed.
Lacking = Mapping[str, Mapping[str, Iterable[Component]]]


def missing(run: Run, hosts: Iterable[str] | None = None) -> dict[str, dict[str, list[Component]]]:
    """Programs missing on hosts: host name → its architecture → components whose program is not there as installed.

    Covers ``hosts``, or all that could be looked at and have not been given up since.
    """
    found: dict[str, dict[str, list[Component]]] = {}
    for name in run.observed if hosts is None else hosts:
        observed = run.observed[name]
        if observed.facts is None or observed.trouble:
            continue
        architecture = ARCHITECTURES.get(observed.facts.architecture, observed.facts.architecture)
        lacking = {
            path: component
            for component in [*run.on_host(name).components(ON_HOSTS), *_tools(run, name)]
            if (path := units.program(run.instance, component)) not in observed.programs
        }
        if lacking:
            # Several components may run one program.
            found[name] = {architecture: list(lacking.values())}
    return found


def _tools(run: Run, host: str) -> list[Component]:
    """Programs beside those of components that a run is about to start on a host."""
    restore = run.state.restore if run.operation == "restore" else None
    if restore is None or restore.prepared or not run.on_host(host).components([ETCD.name]):
        return []
    return [ETCDUTL]


def problems(run: Run, hosts: Iterable[str]) -> list[Problem]:
    """Problems with programs that these hosts lack and that cannot be had."""
    held = _held(run.state.digests, run.confirmed_images, {})
    return [
        problem
        for architecture, lacking in _by_architecture(missing(run, hosts)).items()
        for problem in programs.check(
            run.instance.release, architecture, lacking, run.spec, run.artifact_source, held=held
        )
    ]


class Fetching:
    """Fetch of the programs that hosts lack, in a thread of its own, while the process renews the locks of hosts."""

    def __init__(self, run: Run) -> None:
        self.lacking_of = missing(run)
        self._started = time.monotonic()
        #: shows a line, in the name of the turn that waits
        self.say = run.say
        self._told = Progress(self._tell, self._started, LONGEST_SECONDS, quiet=SAY_SECONDS)
        self._stopped = threading.Event()
        self._fetched: Future[_Fetched] = Future()
        release, spec, source = run.instance.release, run.spec, run.artifact_source
        # The run of this step is closed before the thread ends.
        recorded, confirmed = run.state.digests, run.confirmed_images
        access = programs.access_to(source).until(self._stopped.is_set)

        def fetch() -> _Fetched:
            brought, seen = {}, dict[str, str]()
            for architecture, lacking in _by_architecture(self.lacking_of).items():
                # One tag must lead to one digest on all architectures, even if it moves between two fetches.
                held = _held(recorded, confirmed, seen)
                brought[architecture] = programs.programs(
                    release, architecture, lacking, spec, source, access=access, held=held
                )
                seen |= {each.origin: each.digest for each in brought[architecture].values() if each.digest}
            return _Fetched(brought, seen)

        def work() -> None:
            try:
                self._fetched.set_result(fetch())
            except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
                self._fetched.set_exception(error)

        threading.Thread(target=work, name="programs", daemon=True).start()

    def _tell(self, line: str) -> None:
        self.say(line)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until everything is there or has failed, at most so long; returns whether it is.

        Raises ProblemsError when it has taken ``LONGEST_SECONDS``.
        """
        until = inf if seconds is None else time.monotonic() + seconds
        # Turns of a loop say nothing of themselves, and many short ones are one long wait.
        while not (done := futures.wait([self._fetched], max(0.0, min(1.0, until - time.monotonic()))).done):
            now = time.monotonic()
            self._told.tell("fetching the programs that hosts lack", now)
            if now >= until:
                break
        if not done and time.monotonic() - self._started > LONGEST_SECONDS:
            raise ProblemsError([_endless()])
        return bool(done)

    def stop(self) -> None:
        """End the fetch soon; its result is not used."""
        self._stopped.set()

    def hand_on(self, run: Run) -> dict[str, dict[str, Brought]]:
        """Record the digests to which tags led, and return the files: host name → path there → file here.

        Raises ProblemsError with all programs that could not be fetched. No host may get a program before this.
        """
        fetched = self._fetched.result()
        run.hold_to(fetched.digests)
        return _of_hosts(run, self.lacking_of, fetched.programs)


def fetch(run: Run) -> dict[str, dict[str, Brought]]:
    """Fetch the programs that hosts lack: host name → path there → file here; in check mode without a file."""
    return without_files(run) if run.check else Fetching(run).hand_on(run)


def without_files(run: Run) -> dict[str, dict[str, Brought]]:
    """Programs that hosts lack, before any is fetched: host name → path there."""
    return _of_hosts(run, missing(run), {})


def locked(run: Run) -> list[str]:
    """Names of the hosts that this run has locked: not of those that it could not look at, or has given up."""
    names = [*run.hosts, *run.leaving]
    seen = run.handover.all_observed(names)
    return [name for name in names if seen[name].is_looked_at and not seen[name].refusal and not seen[name].trouble]


def turns(run: Run) -> list[str]:
    """Names of hosts in the order in which their locks are looked after while programs are fetched, over and over.

    A round of all hosts takes ``ROUND_SECONDS``, all turns longer than ``LONGEST_SECONDS``. Empty if nothing is to be
    fetched.
    """
    if run.check or not missing(run):
        return []
    return locked(run) * (int(LONGEST_SECONDS / ROUND_SECONDS) + 2)


class _Fetched(NamedTuple):
    """Architecture → component → its program, and image → digest that its tag led to."""

    programs: Mapping[str, Mapping[str, Program]]
    digests: Mapping[str, str]


def _of_hosts(
    run: Run, lacking_of: Lacking, fetched: Mapping[str, Mapping[str, Program]]
) -> dict[str, dict[str, Brought]]:
    def of(architecture: str, component: Component) -> Brought:
        program = fetched.get(architecture, {}).get(component.name)
        return Brought(program.sha256, str(program.path)) if program else Brought()

    return {
        name: {
            units.program(run.instance, component): of(architecture, component)
            for architecture, lacking in each.items()
            for component in lacking
        }
        for name, each in lacking_of.items()
    }


def _endless() -> Problem:
    return Problem(
        f"the programs that hosts lack were not here after {LONGEST_SECONDS // 3600} hours",
        "spec.artifacts.source",
        "see what holds it up, or take them from a source that is nearer; what has arrived is kept for the next run",
        reason=Reason.ARTIFACT_NOT_AVAILABLE,
    )


def _held(recorded: Mapping[str, str], confirmed: Iterable[str], more: Mapping[str, str]) -> Held:
    """Digests that tags of images must lead to: the recorded ones, and those that this step has found already."""
    return Held({**recorded, **more}, set(confirmed) - set(more))


def _by_architecture(missing: Lacking) -> dict[str, list[Component]]:
    found: dict[str, dict[str, Component]] = {}
    for each in missing.values():
        for architecture, lacking in each.items():
            found.setdefault(architecture, {}).update({component.name: component for component in lacking})
    return {architecture: list(lacking.values()) for architecture, lacking in found.items()}
