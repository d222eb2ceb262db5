# SPDX-License-Identifier: Apache-2.0
"""How long writes take is measured from when they were due, and a write that fails is an error."""

from __future__ import annotations

import itertools
import threading
import time

import latency
from latency import Times, figure_of, written


def test_the_slowest_but_one_of_a_hundred_is_told_beside_that_without_the_command():
    without, during = Times([0.01] * 90 + [0.1] * 10), Times([0.02] * 98 + [0.3] * 2)
    assert without.percentile(0.99) == 0.1
    assert during.percentile(0.5) == 0.02
    assert figure_of(without, during, 100) == (
        "100 writes a second, of 100 the slowest but one 300 ms, without it 100 ms (3.00 x); median 20 and 10 ms; "
        "100 and 100 writes"
    )
    assert Times().percentile(0.99) == 0.0


def test_writes_that_wait_for_a_stalled_server_count_from_when_they_were_due():
    """With one that is stalled for a second, every write that was due in it is late, not only those under way."""
    stalled = threading.Event()

    def write(_number):
        stalled.wait()

    threading.Timer(1.0, stalled.set).start()
    begun = itertools.count()
    times = written(write, 100, lambda: next(begun) >= 100)
    assert len(times.took) == 100
    assert sum(each > 0.4 for each in times.took) > latency.WRITERS


def test_a_write_that_fails_is_told_and_is_no_time():
    def write(number):
        if number % 2:
            raise ValueError("409 somebody else")
        time.sleep(0)

    begun = itertools.count()
    times = written(write, 1000, lambda: next(begun) >= 10)
    assert (len(times.took), times.failed) == (5, ["ValueError 409 somebody else"] * 5)
