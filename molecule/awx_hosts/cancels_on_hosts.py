# SPDX-License-Identifier: Apache-2.0
"""Jobs of an AWX that are canceled while they change plain hosts, and the next ones, which go on."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from awx_runner import Done
from awx_site import Site, Unseen, answered, created, time_of, until
from cancels import Ended, Ending, nothing_in_memory, says_who_has_the_lock
from figures import keep_figure
from interrupt import Course, Trigger, within_course

#: Shares of an install's time between which it is canceled: before, there is no change; after, nothing left to do.
BETWEEN = (0.2, 0.75)
#: Ways in which jobs end, which take turns: by deletion of the pod, and on a node of AWX without containers.
POD, NODE = False, True
WAYS = (POD, POD, NODE)
#: Seconds from a cancel to the first change of the next job: the goal, beside which the figure is told.
GOAL_SECONDS = 60.0
#: How often a job is started again that meets a step of the one before on a host.
MOST_ATTEMPTS = 5
_STEP_AT_WORK = "a step of another run is at work there"
_LOCKED = "another run works on this control plane"
_CHANGES = frozenset({"runner_on_ok", "runner_item_on_ok"})


@dataclass
class Found:
    """Findings about cancels: the last job that was canceled, and whether another was ``refused`` since, seconds until
    the next ones changed something, and the processes of all that were canceled.
    """

    before: Ended | None = None
    refused: bool = False
    waits: list[float] = field(default_factory=list)
    after_refusal: list[float] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)


def moments(times: int, seed: str) -> list[float]:
    """Shares of an install's time at which it is canceled: one in each of as many stretches."""
    drawn = random.Random(f"{seed} hosts")  # noqa: S311 - moments are no secret
    begin, end = BETWEEN
    return [begin + (end - begin) * (each + drawn.random()) / times for each in range(times)]


def cancel(site: Site, times: int, seed: str) -> None:
    """Cancel an install again and again; each next job goes on from there, and the last one comes to the end.

    The job after the first cancel is not told that this one is dead: it refuses, and says whose lock it is.
    """
    print(f"SEED={seed} CANCELS={times}")
    course: Course = [(at, line) for at, line in json.loads(site.course.read_text(encoding="utf-8"))]
    found = Found()
    for number, share in enumerate(moments(times, seed)):
        bare = WAYS[number % len(WAYS)]
        if not _canceled(site, within_course(course, share), found, bare=bare):
            # A job that goes on is faster than the one whose course it was, and had nothing left to do.
            site.succeeded("uninstall", answered("uninstall", {"karmada_confirm": site.name}))
            found.before = None
            if not _canceled(site, within_course(course, share), found, bare=bare):
                raise Unseen("a job that began with nothing came to its end before it was canceled")
        if number == 0:
            _refused(site, found)
    done, _ending = _goes_on(site, found, bare=found.before is not None and found.before.bare)
    if done.rc != 0:
        raise Unseen(f"job {done.number} did not come to its end:\n{done.output[-6000:]}")
    if site.succeeded("install").changed:
        raise Unseen("something was left to do")
    nothing_in_memory(found.processes)
    for what, seconds in (("", found.waits), (", after one that was refused,", found.after_refusal)):
        if seconds:
            figure = f"{len(seconds)} times, median {statistics.median(seconds):.1f} s, longest {max(seconds):.1f} s"
            step = f"from the cancel of an install to the first change of the next job{what} that takes its lock"
            keep_figure(site.figures, step, f"{figure}; goal {GOAL_SECONDS:.0f} s" if not what else figure)
            print(f"{step}: {figure}")


# -- inside ------------------------------------------------------------------------------------------------------------


class EndingOnHosts(Ending):
    """Watches a job and ends it when it is time, but not before it has changed something."""

    def __init__(self, site: Site, moment: tuple[str, float] | None, *, bare: bool) -> None:
        task, after = moment or ("never", 0.0)
        super().__init__(site, "", Trigger(task=task, after=after), bare)
        self._changed = threading.Event()
        self._written = self._changed.is_set

    def watch(self, event: Mapping[str, Any], worker: subprocess.Popen[bytes]) -> None:
        """Take note of an event of the job."""
        if _has_changed(event):
            self._changed.set()
        super().watch(event, worker)


def _has_changed(event: Mapping[str, Any]) -> bool:
    """Return whether an event tells of a step that has changed something."""
    result = (event.get("event_data") or {}).get("res")
    return event.get("event") in _CHANGES and isinstance(result, Mapping) and bool(result.get("changed"))


def _first_change(done: Done) -> datetime | None:
    """When the first step of a job that changed something had ended, which is after its first write."""
    return next((created(each) for each in done.events if _has_changed(each)), None)


def _canceled(site: Site, moment: tuple[str, float], found: Found, *, bare: bool) -> bool:
    """Run an install that is canceled so long after the beginning of a task; returns False if it was done before."""
    done, ending = _goes_on(site, found, moment, bare=bare)
    found.processes += ending.processes
    if done.rc == 0:
        print(f"job {done.number} came to its end before it was canceled")
        return False
    if not ending.ended:
        raise Unseen(f"job {done.number} failed before it was canceled:\n{done.output[-6000:]}")
    until(lambda: not ending.alive(), "the processes of the job to end")
    print(f"job {done.number} {'was canceled' if bare else 'lost its pod'} {moment[1]} s after {moment[0]}")
    found.before, found.refused = Ended(done.number, ending.ended[0].isoformat(), bare), False
    return True


def _goes_on(
    site: Site, found: Found, moment: tuple[str, float] | None = None, *, bare: bool
) -> tuple[Done, EndingOnHosts]:
    """Run an install after a job that was canceled, of which the answer of the survey says that it is dead.

    On the machine where that one ran a job sees so itself. This job is canceled at ``moment``, if there is one.
    """
    before = found.before
    dead = {} if before is None or (bare and before.bare) else {"karmada_confirm_dead": _name_of(before)}
    for _attempt in range(MOST_ATTEMPTS):
        ending = EndingOnHosts(site, moment, bare=bare)
        done = site.run("install", answered("install", dead), awx=site.awx(bare=bare), watch=ending.watch)
        if done.rc in (0, None) or _STEP_AT_WORK not in " ".join(done.output.split()):
            break
        print(f"job {done.number} met a step of job {before.number if before else 0}, which ends by itself")
    if before is not None:
        changed = _first_change(done)
        if changed is None:
            raise Unseen(f"job {done.number} has changed nothing:\n{done.output[-6000:]}")
        seconds = (changed - time_of(before.when)).total_seconds()
        print(f"from the end of job {before.number} to the first change of job {done.number}: {seconds:.1f} s")
        (found.after_refusal if found.refused else found.waits).append(seconds)
    return done, ending


def _refused(site: Site, found: Found) -> None:
    """A job that nobody has told that the other one is dead changes nothing, says whose lock it is, and what to do."""
    before = found.before
    if before is None:
        raise ValueError("no job was canceled")
    for _attempt in range(MOST_ATTEMPTS):
        done = site.run("install", answered("install", {}), awx=site.awx("ann"))
        said = " ".join(done.output.split())
        if _STEP_AT_WORK not in said:
            break
    if done.rc == 0 or done.changed or _LOCKED not in said:
        raise Unseen(f"job {done.number} was not refused:\n{done.output[-3000:]}")
    says_who_has_the_lock(done, before.number)
    # Where a line of the output ends is for the eye.
    if _name_of(before) not in "".join(done.output.split()).partition("karmada_confirm_dead=")[2]:
        raise Unseen(f"job {done.number} does not say what to answer:\n{done.output[-3000:]}")
    found.refused = True


def _name_of(job: Ended) -> str:
    """Name of a canceled job as holder of a lock, by the id of its run."""
    return f"awx-job-{job.number}.install@jane"
