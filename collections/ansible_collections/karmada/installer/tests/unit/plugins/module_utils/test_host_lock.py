# SPDX-License-Identifier: Apache-2.0
"""The lock of a host: one run at a time, from its first step to its last, also of a step that outlives its run."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_lock
from ansible_collections.karmada.installer.plugins.module_utils.host_lock import LockedError
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System

ANNA, BEN = "one/b/1/1", "two/b/2/2"
TRIES = 500


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(str(tmp_path))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds since the boot of the machine, as a test has them go by; steps of others are waited for in no time."""
    now = [1000.0]
    monkeypatch.setattr(host_lock, "clock", lambda: now[0])
    monkeypatch.setattr(host_lock, "STEP_SECONDS", 0.05)
    return now


def file_of(system: System, instance: str = "prod") -> Path:
    return system.path(f"{host_lock.LOCK_FOLDER}/{instance}.lock")


def renewed(system: System) -> float:
    found: float = json.loads(file_of(system).read_text())["renewed"]
    return found


# -- taking it ---------------------------------------------------------------------------------------------------------


TAKER = """
import sys
from ansible_collections.karmada.installer.plugins.module_utils import host_lock
from ansible_collections.karmada.installer.plugins.module_utils.host_system import System
system, holder = System(sys.argv[1]), sys.argv[2]
for _line in sys.stdin:
    try:
        host_lock.take(system, "prod", holder)
        print(holder, flush=True)
    except host_lock.LockedError as error:
        print("refused by", error.holder, flush=True)
"""


@pytest.fixture
def takers(system: System) -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes that try to take the lock for each line that they get, and say how it went."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with contextlib.ExitStack() as ends:
        found = []
        for holder in (ANNA, BEN):
            command = [sys.executable, "-c", TAKER, str(system.root), holder]
            taker = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, bufsize=1
            )
            found.append(ends.enter_context(taker))
            ends.callback(taker.kill)
        yield found


@pytest.mark.parametrize("before", ["nothing", "a silent one"])
def test_of_two_that_come_at_the_same_moment_one_gets_it(
    system: System, takers: list[subprocess.Popen[str]], before: str
) -> None:
    """Many times, by two processes; whoever got it lets go, and with it goes the folder."""
    for _ in range(TRIES):
        if before == "a silent one":
            host_lock.take(system, "prod", "three/b/3/3", now=host_lock.clock() - host_lock.LOCK_SILENCE)
        for taker in takers:
            assert taker.stdin
            taker.stdin.write("now\n")
        answers = sorted(taker.stdout.readline().strip() for taker in takers if taker.stdout)
        winner = json.loads(file_of(system).read_text())["holder"]
        assert answers == sorted([winner, f"refused by {winner}"])
        host_lock.release(system, "prod", winner)
        assert not file_of(system).parent.exists()


def test_one_holder_at_a_time_until_it_lets_go_or_falls_silent(system: System) -> None:
    host_lock.take(system, "prod", ANNA, now=1000)
    host_lock.take(system, "prod", ANNA, now=1500)
    with pytest.raises(HostError, match=rf"{ANNA} .*\(last seen 100 s ago, free after 500 s more of silence\)"):
        host_lock.take(system, "prod", BEN, now=1600)
    host_lock.take(system, "test", BEN, now=1600)
    host_lock.release(system, "prod", BEN)
    with pytest.raises(HostError):
        host_lock.take(system, "prod", BEN, now=1600)
    host_lock.take(system, "prod", BEN, now=1500 + host_lock.LOCK_SILENCE)
    host_lock.release(system, "prod", BEN)
    host_lock.take(system, "prod", ANNA, now=3000)


def test_who_is_refused_is_told_by_whom_and_takes_over_only_from_the_dead_one_that_it_names(system: System) -> None:
    host_lock.take(system, "prod", ANNA, now=1000)
    for dead in ("", "carl@three"):
        with pytest.raises(LockedError) as error:
            host_lock.take(system, "prod", BEN, dead, now=1001)
        assert error.value.holder == ANNA
    host_lock.take(system, "prod", BEN, ANNA, now=1001)
    with pytest.raises(LockedError) as error:
        host_lock.take(system, "prod", ANNA, now=1002)
    assert error.value.holder == BEN


@pytest.mark.parametrize("content", ['{"holder": "one/b/1/1"', "", "[]", '{"holder": "one/b/1/1", "renewed": null}'])
def test_half_a_lock_is_nobodys(system: System, content: str) -> None:
    host_lock.take(system, "prod", ANNA, now=1000)
    file_of(system).write_text(content)
    host_lock.take(system, "prod", BEN, now=1001)
    with pytest.raises(LockedError, match=f"{BEN} is working"):
        host_lock.take(system, "prod", ANNA, now=1001)


def test_a_time_of_another_clock_holds_nobody_up_for_ever(system: System) -> None:
    """Earlier versions wrote the time of day."""
    host_lock.take(system, "prod", ANNA, now=1765000000.0)
    host_lock.take(system, "prod", BEN, now=1000)


def test_the_clock_counts_the_time_that_a_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(host_lock.time, "clock_gettime", lambda which: asked.append(which) or 1.0)
    assert host_lock.clock() == 1.0
    assert asked == [host_lock.time.CLOCK_BOOTTIME]
    monkeypatch.delattr(host_lock.time, "CLOCK_BOOTTIME")
    host_lock.clock()
    assert asked[-1] == host_lock.time.CLOCK_MONOTONIC


def test_only_root_sees_it_and_a_link_in_its_place_leads_nowhere(system: System, tmp_path: Path) -> None:
    host_lock.take(system, "prod", ANNA)
    assert file_of(system).stat().st_mode & 0o777 == 0o600
    assert file_of(system).parent.stat().st_mode & 0o777 == 0o700
    other = tmp_path / "other"
    other.write_text("of somebody")
    file_of(system).unlink()
    file_of(system).symlink_to(other)
    with pytest.raises(HostError, match=r"prod\.lock cannot be written"):
        host_lock.take(system, "prod", BEN)
    assert other.read_text() == "of somebody"


def test_letting_go_of_what_is_not_there_is_nothing(system: System) -> None:
    host_lock.release(system, "prod", ANNA)
    host_lock.take(system, "prod", ANNA)
    host_lock.take(system, "test", ANNA)
    host_lock.release(system, "prod", ANNA)
    host_lock.release(system, "prod", ANNA)
    assert [each.name for each in file_of(system).parent.iterdir()] == ["test.lock"]


# -- working under it --------------------------------------------------------------------------------------------------


def test_who_has_it_works_and_renews_it_before_and_after(system: System, clock: list[float]) -> None:
    host_lock.take(system, "prod", ANNA)
    clock[0] += 10
    with host_lock.working(system, "prod", ANNA):
        assert renewed(system) == 1010
        clock[0] += 5000
    assert renewed(system) == 6010
    clock[0] += 1
    with pytest.raises(KeyError), host_lock.working(system, "prod", ANNA):
        raise KeyError
    assert renewed(system) == 6011
    clock[0] += 7
    host_lock.renew(system, "prod", ANNA)
    assert renewed(system) == 6018


def test_who_says_beforehand_that_it_will_be_silent_for_long_is_not_taken_for_dead(
    system: System, clock: list[float]
) -> None:
    """As while packages are installed, which takes as long as it takes."""
    host_lock.take(system, "prod", ANNA)
    with host_lock.working(system, "prod", ANNA, 3000):
        clock[0] += 10
    clock[0] += 2900
    with pytest.raises(LockedError, match=r"last seen 2900 s ago, free after 100 s more of silence"):
        host_lock.take(system, "prod", BEN)
    # It was said of that work, not of what comes after it.
    host_lock.renew(system, "prod", ANNA)
    clock[0] += host_lock.LOCK_SILENCE
    host_lock.take(system, "prod", BEN)


@pytest.mark.parametrize(
    ("silence", "counts"), [(1e9, host_lock.LONGEST_SILENCE), (1, host_lock.LOCK_SILENCE), (float("nan"), 600)]
)
def test_no_record_keeps_a_host_for_ever_or_gives_it_away_at_once(
    system: System, clock: list[float], silence: float, counts: float
) -> None:
    host_lock.take(system, "prod", ANNA)
    file_of(system).write_text(json.dumps({"holder": ANNA, "renewed": clock[0], "silence": silence}))
    clock[0] += counts - 1
    with pytest.raises(LockedError, match="free after 1 s more"):
        host_lock.take(system, "prod", BEN)
    clock[0] += 1
    host_lock.take(system, "prod", BEN)


def test_who_has_lost_it_changes_nothing(system: System, clock: list[float]) -> None:
    host_lock.take(system, "prod", ANNA)
    clock[0] += host_lock.LOCK_SILENCE
    # Nobody wanted it meanwhile.
    host_lock.renew(system, "prod", ANNA)
    clock[0] += host_lock.LOCK_SILENCE
    host_lock.take(system, "prod", BEN)
    with (
        pytest.raises(
            LockedError, match=rf"this run has lost the lock of prod .*: {BEN} has it; .* run again"
        ) as error,
        host_lock.working(system, "prod", ANNA),
    ):
        raise AssertionError("it works all the same")
    assert error.value.holder == BEN
    host_lock.release(system, "prod", BEN)
    with (
        pytest.raises(
            LockedError, match=r"lost the lock of prod .*: the host was booted, or another run .*; run again"
        ),
        host_lock.working(system, "prod", ANNA),
    ):
        raise AssertionError("it works all the same")
    assert not file_of(system).exists()


def test_however_long_a_step_lasts_nobody_takes_it_meanwhile(system: System, clock: list[float]) -> None:
    """Also not where its run is known to be dead: what only its connection was cut from is at work yet."""
    host_lock.take(system, "prod", ANNA)
    with host_lock.working(system, "prod", ANNA):
        clock[0] += 2 * host_lock.LOCK_SILENCE
        for dead in ("", ANNA):
            with pytest.raises(LockedError, match=f"{ANNA} has a step at work on prod here") as error:
                host_lock.take(system, "prod", BEN, dead)
            assert error.value.holder == ANNA
    host_lock.take(system, "prod", BEN, ANNA)
    with pytest.raises(LockedError, match="has lost the lock"):
        host_lock.renew(system, "prod", ANNA)


def test_a_step_that_ends_is_waited_for(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    host_lock.take(system, "prod", ANNA)
    works = host_lock.working(system, "prod", ANNA)
    works.__enter__()
    monkeypatch.setattr(host_lock.time, "sleep", lambda _seconds: works.__exit__(None, None, None))
    host_lock.take(system, "prod", BEN, dead=ANNA)
    assert json.loads(file_of(system).read_text())["holder"] == BEN


def test_a_step_that_was_killed_keeps_nobody_waiting(system: System, clock: list[float]) -> None:
    host_lock.take(system, "prod", ANNA)
    step = os.fork()
    if not step:
        with host_lock.working(system, "prod", ANNA):
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(step, 0)[1]) == 7
    clock[0] += 1
    host_lock.take(system, "prod", BEN, dead=ANNA)
