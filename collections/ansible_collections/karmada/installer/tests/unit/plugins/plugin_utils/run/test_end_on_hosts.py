# SPDX-License-Identifier: Apache-2.0
"""Where a run on plain hosts was interrupted is in the state of each of them, and the next run goes on to the end.

Ansible runs for real, with the modules as they are: each host is a folder of this machine in the place of its root.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils import run_process
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import Journal
from ansible_collections.karmada.installer.tests.unit.support.host_roots import BEGIN, NAMES, locks, site, started
from ansible_collections.karmada.installer.tests.unit.support.moments import until

#: A step on hosts that does not end.
WAIT = {
    "ansible.builtin.shell": "echo $PPID $$ > $HERE/$HOST.new; mv $HERE/$HOST.new $HERE/$HOST.pids; exec sleep 3600"
}
CLOSED = {"karmada.installer.journal": {"state": "closed"}, "run_once": True}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return site(tmp_path / "site")


def journals(here: Path) -> list[Journal]:
    """That of the state which each host keeps."""
    place = "var/lib/karmada-installer/prod/journal.json"
    return [Journal(**json.loads((here / "roots" / name / place).read_text())) for name in NAMES]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL], ids=lambda each: each.name
)
def test_every_host_says_where_a_run_was_interrupted_and_the_next_one_goes_on_to_the_end(
    number: signal.Signals, here: Path
) -> None:
    run = started("first", here, [*BEGIN, WAIT])
    try:
        waiting = [here / f"{name}.pids" for name in NAMES]
        until(lambda: all(each.exists() for each in waiting) or run.poll() is not None, "the step that waits")
        assert run.poll() is None, (here / "first.log").read_text()
        others = [int(pid) for each in waiting for pid in each.read_text().split()]
        run.send_signal(number)
        run.wait(300)
    finally:
        run.kill()
    for each in others:
        # What a step of Ansible's own has started may outlive a run that was killed.
        until(lambda each=each: run_process._start_time(each) is None or _killed(each), "the end of other processes")
    left = journals(here)
    assert len({each.run for each in left}) == 1
    assert all(each.interrupted for each in left)
    assert {(each.operation, each.step, each.finished) for each in left} == {("install", "hosts", "")}
    assert left[0].started
    # The hosts are as the run has left them: nobody who is not sure that it is dead may take them.
    assert len(locks(here)) == len(NAMES)

    goes_on = started("next", here, [*BEGIN, CLOSED])
    assert goes_on.wait(300) == 0, (here / "next.log").read_text()
    ended = journals(here)
    assert not any(each.interrupted for each in ended)
    assert all(each.finished for each in ended)
    assert {each.run for each in ended}.isdisjoint({each.run for each in left})
    assert locks(here) == []


def _killed(pid: int) -> bool:
    os.kill(pid, signal.SIGKILL)
    return False
