# SPDX-License-Identifier: Apache-2.0
"""Moments at which installs of an AWX are canceled, and what comes after each."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

SCENARIO = Path(__file__).parents[2] / "awx"
sys.path.append(str(SCENARIO))

import cancels  # noqa: E402
from awx_site import Unseen  # noqa: E402

COURSE = [(float(each), f"TASK [step {each}]") for each in range(11)]


@pytest.mark.parametrize("times", [1, 3, 20])
@pytest.mark.parametrize("seed", ["1", "2"])
def test_moments_are_spread_over_an_install(times: int, seed: str) -> None:
    found = {part: cancels.moments(part, times, seed) for part in cancels.PARTS}
    assert sum(map(len, found.values())) == times
    for part, (begin, end) in cancels.PARTS.items():
        shares = found[part]
        assert shares == sorted(shares) == cancels.moments(part, times, seed)
        for number, share in enumerate(shares):
            stretch = (end - begin) / len(shares)
            assert begin + stretch * number <= share <= begin + stretch * (number + 1)


@dataclass
class Machine:
    """Site whose jobs end as they are told: ``canceled``, ``ended`` before that, or canceled when all was ``done``."""

    work: Path
    ends: list[str]
    ran: list[str] = field(default_factory=list)
    figures: Path = Path()
    audit_log: Path = Path()
    name: str = "prod"
    finished: bool = False

    def __post_init__(self) -> None:
        self.course, self.canceled = self.work / "course.json", self.work / "canceled.json"
        self.figures = self.work / "figures.json"
        self.course.write_text(json.dumps(COURSE))

    def awx(self, *, bare: bool = False) -> bool:
        return bare

    def run(self, verb: str, *, awx: bool, watch: Any) -> Any:
        end = self.ends.pop(0)
        self.ran.append(f"{verb} {end} {'here' if awx else 'elsewhere'}")
        self.finished = end == "done"
        watch.__self__.ended = [] if end == "ended" else [cancels.datetime.now(cancels.UTC)]
        return SimpleNamespace(number=len(self.ran), rc=0 if end == "ended" else None, output="")

    def succeeded(self, verb: str, _variables: Any = None, *, awx: bool = False) -> Any:
        self.ran.append(verb)
        return SimpleNamespace(number=len(self.ran), rc=0, output="", awx=awx)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def went_on(_site: Any, before: Any, _done: Any, _since: str, *, bare: bool) -> cancels.Wait:
        return cancels.Wait(10.0 + before.number, bare and before.bare)

    monkeypatch.setattr(cancels.audit, "mark", lambda _log: "")
    monkeypatch.setattr(cancels, "_went_on", went_on)
    monkeypatch.setattr(cancels, "_is_finished", lambda site: site.finished)


def test_each_next_job_of_the_first_half_is_canceled_too(tmp_path: Path) -> None:
    site = Machine(tmp_path, ["canceled"] * 3)
    cancels.cancel(site, cancels.FIRST, 5, "1")
    assert site.ran == ["install canceled here", "install canceled here", "install canceled elsewhere"]
    assert json.loads(site.canceled.read_text())[0]["number"] == 3, "from which the two jobs at once go on"
    figures = json.loads(site.figures.read_text())
    assert list(figures.values()) == [
        "1 times, median 11.0 s, longest 11.0 s, goal 45 s",
        "1 times, median 12.0 s, longest 12.0 s, goal 45 s",
    ]


def test_an_install_of_the_second_half_comes_to_its_end(tmp_path: Path) -> None:
    site = Machine(tmp_path, ["canceled"] * 2)
    cancels.cancel(site, cancels.SECOND, 4, "1")
    assert site.ran == ["install canceled elsewhere", "install canceled here", "install"]
    assert len(json.loads(site.figures.read_text())) == 2


@pytest.mark.parametrize("end", ["ended", "done"])
def test_a_job_that_had_nothing_left_to_do_is_followed_by_one_that_has(tmp_path: Path, end: str) -> None:
    site = Machine(tmp_path, ["canceled", end, "canceled"])
    cancels.cancel(site, cancels.SECOND, 4, "1")
    assert site.ran == [
        *("install canceled elsewhere", f"install {end} here", "uninstall", "install canceled here", "install"),
    ]


def test_one_that_begins_with_nothing_has_to_be_canceled(tmp_path: Path) -> None:
    site = Machine(tmp_path, ["ended", "ended"])
    with pytest.raises(Unseen, match="came to its end before it was canceled"):
        cancels.cancel(site, cancels.SECOND, 4, "1")


def test_a_next_job_that_takes_longer_than_the_goal_is_a_figure_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancels, "_went_on", lambda *_given, bare: cancels.Wait(46.0, bare))
    site = Machine(tmp_path, ["canceled"])
    cancels.cancel(site, cancels.SECOND, 2, "1")
    (figure,) = json.loads(site.figures.read_text()).values()
    assert figure == "1 times, median 46.0 s, longest 46.0 s, goal 45 s"
