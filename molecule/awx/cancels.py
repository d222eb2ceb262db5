# SPDX-License-Identifier: Apache-2.0
"""Jobs of an AWX that are canceled, and the next ones: they go on in their time, and never write beside another."""

from __future__ import annotations

import itertools
import json
import random
import statistics
import subprocess
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import audit
import awx_runner
from awx_runner import Done
from awx_site import UNTIL_NEXT_SECONDS, Site, Unseen, answered, output, time_of, until
from figures import keep_figure
from interrupt import Trigger, within_course
from kill_tree import descendants

FIRST, SECOND = "first", "second"
#: Part of an install → between which shares of its time it is canceled. After the first part there is enough to do for
#: as long as it takes two more jobs to start.
PARTS = {FIRST: (0.1, 0.5), SECOND: (0.5, 0.9)}
#: Seconds for which a job waits that may not wait long, and the number of the job that it waits for.
SHORT_WAIT_SECONDS, HOLDING_JOB = 3, 4711


def moments(part: str, times: int, seed: str) -> list[float]:
    """Shares of an install's time at which it is canceled in this part: half of ``times``, the odd one in the first.

    The part is divided into as many stretches, and a moment is drawn in each.
    """
    drawn = random.Random(f"{seed} {part}")  # noqa: S311 - moments are no secret
    begin, end = PARTS[part]
    number = times // 2 if part == SECOND else times - times // 2
    return [begin + (end - begin) * (each + drawn.random()) / number for each in range(number)]


def cancel(site: Site, part: str, times: int, seed: str) -> None:
    """However a job of an install ends, the next goes on in its time, and reads whose lock it waits for.

    Of the second part the install comes to its end; of the first it is left to whoever is next.
    """
    shares = moments(part, times, seed)
    print(f"SEED={seed} CANCELS={times}: {len(shares)} in the {part} half")
    course = [(at, line) for at, line in json.loads(site.course.read_text(encoding="utf-8"))]
    found = Found()
    for number, share in enumerate(shares):
        # The kinds take turns, and each half begins with another one.
        bare = number % 3 != (2 if part == FIRST else 0)
        if not _canceled(site, within_course(course, share), found, bare=bare):
            # A job that goes on is faster than the one whose course it was, and had nothing left to do.
            site.succeeded("uninstall", answered("uninstall", {"karmada_confirm": site.name}))
            found.before = None
            if not _canceled(site, within_course(course, share), found, bare=bare):
                raise Unseen("a job that began with nothing came to its end before it was canceled")
    earlier = json.loads(site.canceled.read_text(encoding="utf-8"))[1] if site.canceled.exists() else []
    if part == SECOND:
        since = audit.mark(site.audit_log)
        done = site.succeeded("install", awx=site.awx(bare=True))
        if found.before:
            found.waits.append(_went_on(site, found.before, done, since, bare=True))
        nothing_in_memory(found.processes)
    left = asdict(found.before) if found.before else {}
    site.canceled.write_text(json.dumps([left, earlier + found.processes]), encoding="utf-8")
    _keep_waits(site, part, len(shares), found.waits)


@dataclass
class Found:
    """Findings about cancels: the last job that was canceled and that no other has gone on from, how long the next ones
    took to write, and the processes of all of them.
    """

    before: Ended | None = None
    waits: list[Wait] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)


def _canceled(site: Site, moment: tuple[str, float], found: Found, *, bare: bool) -> bool:
    """Run an install that is canceled so long after the beginning of a task; returns False if it was done before."""
    task, after = moment
    since = audit.mark(site.audit_log)
    ending = Ending(site, since, Trigger(task=task, after=after), bare)
    done = site.run("install", awx=site.awx(bare=bare), watch=ending.watch)
    until(lambda: not ending.alive(), "the processes of the job to end")
    found.processes += ending.processes
    if found.before:
        found.waits.append(_went_on(site, found.before, done, since, bare=bare))
    if done.rc == 0:
        print(f"job {done.number} came to its end before it was canceled")
        return False
    if not ending.ended:
        raise Unseen(f"job {done.number} failed before it was canceled:\n{done.output[-3000:]}")
    if _is_finished(site):
        print(f"job {done.number} was canceled after its work was done")
        return False
    print(f"job {done.number} {'was canceled' if bare else 'lost its pod'} {after} s after {task}")
    found.before = Ended(done.number, ending.ended[0].isoformat(), bare)
    return True


def _keep_waits(site: Site, part: str, times: int, waits: Sequence[Wait]) -> None:
    """Keep how long the next jobs took to write."""
    print(f"{times} cancels; the next job wrote after {', '.join(f'{each.seconds:.1f}' for each in waits)} s")
    for seen_dead, where in ((True, "on the same machine"), (False, "elsewhere")):
        seconds = [each.seconds for each in waits if each.seen_dead == seen_dead]
        if not seconds:
            continue
        figure = (
            f"{len(seconds)} times, median {statistics.median(seconds):.1f} s, longest {max(seconds):.1f} s, "
            f"goal {UNTIL_NEXT_SECONDS:.0f} s"
        )
        step = f"cancels in the {part} half of an install: until the next job, {where}, writes"
        keep_figure(site.figures, step, figure)


def together(site: Site) -> None:
    """Two jobs on one control plane never write at a time."""
    since = audit.mark(site.audit_log)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(site.run, "install", awx=site.awx(bare=True))
        until(lambda: site.first_write(since) or first.done(), "the first job to write", 300)
        second = pool.submit(site.run, "install", awx=site.awx("joe"), account="second")
    done = [each.result() for each in (first, second)]
    before, processes = json.loads(site.canceled.read_text(encoding="utf-8"))
    wait = _went_on(site, Ended(**before), done[0], since, bare=True)
    step = "the job after the last cancel, beside another template's: until it writes"
    keep_figure(site.figures, step, f"{wait.seconds:.1f} s")
    if [each.rc for each in done] != [0, 0]:
        outputs = "\n\n".join(each.output[-3000:] for each in done)
        raise Unseen(f"they ended with {[each.rc for each in done]}:\n{outputs}")
    writers = [account for _when, account in site.writes(since)]
    turns = [account for account, _writes in itertools.groupby(writers)]
    print(f"{len(writers)} writes; who wrote, one after the other: {', '.join(turns)}")
    if turns not in (["first"], ["first", "second"]):
        raise Unseen("two have written at once")
    # Private files of runs that were killed on this machine are gone when a later one there has ended.
    nothing_in_memory(processes)


def refused(site: Site) -> None:
    """A job that may not wait long is refused without a write, and names the job that has the lock; the next mends."""
    kubectl = [site.kubectl, f"--kubeconfig={site.kubeconfig}", f"--namespace={site.namespace}"]
    # So that a job has something to do, and asks for the lock.
    output([*kubectl, "delete", "deployment", f"{site.name}-scheduler"])
    # As another job has it that has just renewed it, somewhere that nobody here can look into.
    holder = f"elsewhere/0/1/1/awx-job-{HOLDING_JOB}.install@jane"
    held = {"holderIdentity": holder, "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    lease = [*kubectl, "patch", "lease", f"{site.name}-installer", "--type=merge"]
    output([*lease, "--patch", json.dumps({"spec": held})])
    since = audit.mark(site.audit_log)
    done = site.run("install", {"karmada_lock_wait": str(SHORT_WAIT_SECONDS)}, awx=site.awx("ann"), account="second")
    if done.rc == 0 or "another run is writing" not in " ".join(done.output.split()):
        raise Unseen(f"job {done.number} was not refused:\n{done.output[-3000:]}")
    says_who_has_the_lock(done, HOLDING_JOB)
    if written := list(site.writes(since)):
        raise Unseen(f"job {done.number} has written {len(written)} times")
    output([*lease, "--patch", json.dumps({"spec": {"holderIdentity": None, "renewTime": None}})])
    if not site.succeeded("install").changed:
        raise Unseen("the next job has mended nothing")


# -- inside ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """A job that was ended: its number, when (ISO 8601), and whether it ran on the machine itself."""

    number: int
    when: str
    bare: bool


class Ending:
    """Watches a job and ends it when it is time, but not before it has written since a mark."""

    def __init__(self, site: Site, since: str, trigger: Trigger, bare: bool) -> None:
        self._written: Callable[[], object] = lambda: site.first_write(since)
        self._trigger, self._end = trigger, awx_runner.canceled if bare else awx_runner.deleted
        self._began = False
        #: when it was ended
        self.ended: list[datetime] = []
        #: of its worker, at that moment
        self.processes: list[int] = []

    def watch(self, event: Mapping[str, Any], worker: subprocess.Popen[bytes]) -> None:
        """Take note of an event of the job."""
        if not self._began:
            self._began = True
            threading.Thread(target=self._wait, args=(worker,), daemon=True).start()
        if event["event"] == "playbook_on_task_start":
            self._trigger.see(f"TASK [{event['event_data']['task']}]")

    def alive(self) -> list[int]:
        """Processes of the job that are there although it was ended."""
        return [each for each in self.processes if Path(f"/proc/{each}").exists()]

    def _wait(self, worker: subprocess.Popen[bytes]) -> None:
        while worker.poll() is None and not (self._trigger.due() and self._written()):
            time.sleep(0.2)
        if worker.poll() is None:
            self.processes = descendants(worker.pid)
            self.ended.append(datetime.now(UTC))
            self._end(worker)


@dataclass(frozen=True)
class Wait:
    """Seconds from the end of a job to the first write of the next; ``seen_dead`` if that could see its processes."""

    seconds: float
    seen_dead: bool


def _went_on(site: Site, before: Ended, done: Done, since: str, *, bare: bool) -> Wait:
    """Wait for the next job's first write, and for the lock of the one before."""
    first = site.first_write(since)
    if first is None:
        raise Unseen(f"job {done.number} has written nothing:\n{done.output[-3000:]}")
    seconds = (first - time_of(before.when)).total_seconds()
    print(f"from the end of job {before.number} to the first write of job {done.number}: {seconds:.1f} s")
    # On the same machine a run is seen to be dead.
    seen_dead = bare and before.bare
    if not seen_dead:
        says_who_has_the_lock(done, before.number)
    return Wait(seconds, seen_dead)


def _is_finished(site: Site) -> bool:
    """Return whether the state of the control plane says that the last operation came to its end."""
    asked = ["get", "secret", f"{site.name}-installer-state", r"--output=jsonpath={.data.journal\.json}"]
    found = output([site.kubectl, f"--kubeconfig={site.kubeconfig}", f"--namespace={site.namespace}", *asked])
    return bool(json.loads(b64decode(found))["finished"])


def nothing_in_memory(processes: Collection[int]) -> None:
    """Raise Unseen if private folders are there of runs with these processes, after a later one on this machine."""
    found = Path("/dev/shm").glob("karmada-installer-*-*-*")  # noqa: S108 - only looked at
    if left := [each for each in found if int(each.name.split("-")[-2]) in processes]:
        raise Unseen(f"in memory: {', '.join(map(str, left))}")


def says_who_has_the_lock(done: Done, holder: int) -> None:
    held = f"AWX job {holder} (install, started by jane)"
    if held not in " ".join(done.output.split()):
        raise Unseen(f"job {done.number} does not say that {held} has the lock:\n{done.output[-3000:]}")
