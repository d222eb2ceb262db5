# SPDX-License-Identifier: Apache-2.0
"""Locks of hosts are looked after while programs for them are downloaded to the controller."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.karmada.installer.plugins.action import programs as action
from ansible_collections.karmada.installer.plugins.module_utils import host_lock
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import programs
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.programs import Access, Program
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_action, host_programs
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.plugins.module_utils.test_host_lock_asked import Asking
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import NAMES, Runs, seen

LOST = {"failed": True, "msg": "this run has lost the lock of prod on this host"}


class Download:
    """Download in the place of the real one: it goes on until a test, or a run that has ended, lets it end."""

    def __init__(self) -> None:
        self.arrives, self.stopped = threading.Event(), threading.Event()
        self.refused: Problem | None = None

    def programs(self, *what: Any, held: Any, access: Access) -> dict[str, Program]:
        del held
        while not self.arrives.wait(0.01):
            if access.stopped():
                self.stopped.set()
                raise ProblemsError(Problem("stopped", reason=Reason.ARTIFACT_NOT_AVAILABLE))
        if self.refused:
            raise ProblemsError(self.refused)
        return {each.name: Program(Path("/cache") / each.name, "0" * 64, 1, "v1", "here") for each in what[2]}


class Turns:
    """Turns of one task, each on a host."""

    def __init__(self, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs, self.asked, self.download, self.now = runs, [], Download(), 1000.0
        self.answer: dict[str, Any] = {"changed": False}
        monkeypatch.setattr(programs, "programs", self.download.programs)
        monkeypatch.setattr(host_programs, "ROUND_SECONDS", 0.1)
        monkeypatch.setattr(host_lock, "clock", lambda: self.now)
        monkeypatch.setattr(action, "_FETCHING", [])

    def take(self, host: str, **arguments: Any) -> dict[str, Any]:
        asking = Asking(action.ActionModule, self.runs)
        asking.answer = self.answer
        asking.action._task.delegate_to = host
        try:
            found: dict[str, Any] = asking.action._performed(asking.action.karmada, {"state": "brought", **arguments})
        finally:
            self.asked += [(host, each["module"], each["state"]) for each in asking.asked]
        return found


@pytest.fixture
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    runs = Runs(tmp_path / "run")
    runs.see_all({**seen(Stored()), "answered": 1.0, "renewed": 1000.0})
    run = runs.step()
    run.save(run.state)
    turns = Turns(runs, monkeypatch)
    yield turns
    turns.download.arrives.set()


def test_a_long_download_keeps_the_lock_of_every_host(turns: Turns) -> None:
    first = turns.take("cp1", state="looked_for")
    assert first["turns"][: len(NAMES) + 1] == [*NAMES, "cp1"]
    assert set(first["lacking"]) == set(NAMES)
    for _round in range(3):
        for host in NAMES:
            assert turns.take(host) == {"brought": False, "changed": False}
        turns.now += host_action.RENEW_SECONDS
    # Nothing was asked in the first round: the locks had just been renewed.
    assert turns.asked == [(host, "_host_state", "kept") for host in NAMES] * 2
    assert turns.runs.step().observed["cp2"].renewed == 1000.0 + 2 * host_action.RENEW_SECONDS
    turns.download.arrives.set()
    found = turns.take("cp1")
    assert found["brought"]
    lacking = turns.runs.step().observed["etcd1"].lacking
    assert [Path(path).name for path in lacking] == ["etcd"]
    assert [each.file for each in lacking.values()] == ["/cache/etcd"]


def test_a_lost_lock_ends_the_run_and_the_download(turns: Turns) -> None:
    turns.take("cp1")
    turns.now += host_action.RENEW_SECONDS
    turns.answer = LOST
    found = turns.take("cp2")
    assert (found["failed"], found["msg"], found["brought"]) == (True, LOST["msg"], False)
    assert turns.download.stopped.wait(5)
    assert turns.runs.step().observed["cp2"].lacking == {}


def test_a_host_that_is_not_reached_ends_them_too(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise AnsibleConnectionFailure("no route to host")

    monkeypatch.setattr(host_action.HostAction, "on_host", gone)
    turns.now += host_action.RENEW_SECONDS
    with pytest.raises(AnsibleConnectionFailure):
        turns.take("cp2")
    assert turns.download.stopped.wait(5)
    lost = turns.runs.step().observed["cp2"].lost
    assert lost is not None
    assert lost.reason == "no route to host"


def test_what_cannot_be_had_is_refused_by_the_turn_that_learns_it(turns: Turns) -> None:
    turns.take("cp1")
    turns.download.refused = Problem("no such image", reason=Reason.ARTIFACT_NOT_FOUND)
    turns.download.arrives.set()
    with pytest.raises(ProblemsError, match="no such image"):
        turns.take("cp2")


def test_a_download_without_end_is_given_up(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_programs, "LONGEST_SECONDS", 0)
    with pytest.raises(ProblemsError, match="were not here after"):
        turns.take("cp1")
    assert turns.download.stopped.wait(5)


def test_there_is_a_turn_until_the_download_is_given_up(turns: Turns) -> None:
    taken = turns.take("cp1", state="looked_for")["turns"]
    rounds = len(taken) / len(NAMES)
    assert rounds * host_programs.ROUND_SECONDS > host_programs.LONGEST_SECONDS


def test_nothing_is_fetched_and_nobody_asked_where_nothing_lacks(turns: Turns) -> None:
    for host in NAMES:
        run = turns.runs.step()
        lacking = host_programs.missing(run)[host]["amd64"]
        paths = {host_programs.units.program(run.instance, each): "0" * 64 for each in lacking}
        turns.runs.see(**{host: {"programs": paths}})
    assert turns.take("cp1", state="looked_for") == {"changed": False, "turns": [], "lacking": {}}
    assert turns.asked == []


def test_a_host_that_is_not_ours_has_no_turn(turns: Turns) -> None:
    turns.runs.see(etcd2={"refusal": "no route to host"})
    assert set(turns.take("cp1", state="looked_for")["turns"]) == set(NAMES) - {"etcd2"}


def test_a_long_download_is_told(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(host_programs, "SAY_SECONDS", 0.05)
    step = turns.runs.step

    def saying(*given: Any, **more: Any) -> Any:
        run = step(*given, **more)
        run.say = said.append
        return run

    monkeypatch.setattr(turns.runs, "step", saying)
    monkeypatch.setattr(host_programs, "ROUND_SECONDS", 0.6)
    turns.take("cp1")
    # A busy machine comes to it in its second second.
    assert [re.sub(r"^\[\d+/", "[N/", each) for each in said] == ["[N/14400 s] fetching the programs that hosts lack"]
