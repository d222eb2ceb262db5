# SPDX-License-Identifier: Apache-2.0
"""From measurements to figures, and what the committed files are made of."""

from __future__ import annotations

import json

import pytest
from karmada_bench.__main__ import ROUNDS, changed_tasks, files
from karmada_bench.clusters import writes_in_log
from karmada_bench.command import BenchError
from karmada_bench.figures import CASES, figures, longest_tasks, results, table
from karmada_bench.page import page, rows


def measured(case, side, *values):
    return [{"round": at, "side": side, "case": case, "value": value} for at, value in enumerate(values, 1)]


def figure(measurements, key):
    return next(each for each in figures(measurements) if each.case.key == key)


def test_a_figure_is_the_median_with_its_spread():
    found = figure(measured("install", "ours", 9, 30, 10) + measured("install", "peer", 50, 40, 45), "install")
    assert (found.ours.median, found.ours.least, found.ours.greatest) == (10, 9, 30)
    assert found.ratio == 0.22
    assert found.reached


@pytest.mark.parametrize(("ours", "reached"), [(18, True), (19, False)])
def test_a_goal_is_the_most_that_a_ratio_may_be(ours, reached):
    found = figure(measured("install", "ours", ours) + measured("install", "peer", 40), "install")
    assert found.reached is reached


def test_the_second_installation_is_compared_with_our_own_first():
    found = figure(
        measured("install", "ours", 20) + measured("install", "peer", 60) + measured("again", "ours", 3), "again"
    )
    assert found.ratio == 0.15
    assert found.peer is None


@pytest.mark.parametrize(("left", "reached"), [(0, True), (1, False)])
def test_what_is_absolute_has_no_ratio_and_ours_is_compared_with_the_goal(left, reached):
    found = figure(measured("left_objects", "ours", left) + measured("left_objects", "peer", 6), "left_objects")
    assert found.ratio is None
    assert found.reached is reached


def test_an_installation_on_plain_hosts_is_compared_with_that_of_the_peer():
    found = figure(measured("install", "peer", 60) + measured("one_host", "ours", 15), "one_host")
    assert (found.peer, found.ratio, found.reached) == (None, 0.25, True)


def test_a_goal_without_anything_to_compare_is_not_called_reached():
    assert figure(measured("install", "ours", 20), "install").reached is None


def test_results_have_the_agreed_fields():
    [found] = results(measured("join", "ours", 3) + measured("join", "peer", 4))
    assert found == {
        "case": "join a member until it is Ready",
        "ours": 3,
        "peer": 4,
        "unit": "s",
        "ratio": 0.75,
        "goal": 1.0,
        "ours_cpu": None,
        "peer_cpu": None,
    }


def test_the_time_of_processors_stands_beside_that_of_a_clock():
    ours = [
        each | {"cpu_seconds": spent} for each, spent in zip(measured("join", "ours", 3, 4, 9), (5, 6, 1), strict=True)
    ]
    peer = measured("join", "peer", 4)
    assert (figure(ours + peer, "join").ours_cpu.median, figure(ours + peer, "join").peer_cpu) == (5, None)
    [found] = results(ours + peer)
    assert (found["ours_cpu"], found["peer_cpu"]) == (5, None)
    [_, row] = rows(figures(ours + peer))
    assert row[2:6] == ("4 (3 to 9)", "5 (1 to 6)", "4", "")


def test_an_uninstall_is_compared_with_the_same_end():
    found = figure(measured("uninstall", "ours", 12) + measured("uninstall", "peer", 20), "uninstall")
    assert (found.ratio, found.case.goal, found.reached) == (0.6, 0.6, True)


def test_times_of_a_task_that_is_there_twice_count_together():
    tasks = [
        {"round": number, "run": "install", "task": task, "seconds": seconds}
        for number, task, seconds in [(1, "a", 1), (1, "a", 2), (1, "b", 2.5), (2, "a", 5), (2, "b", 0.5)]
    ]
    tasks.append({"round": 1, "run": "join", "task": "c", "seconds": 9})
    assert longest_tasks(tasks, "install") == [("a", 4), ("b", 1.5)]
    assert longest_tasks(tasks, "install", number=1) == [("a", 4)]


def test_columns_stand_under_each_other():
    assert table([("case", "s"), ("join", "10.5")]) == ["case     s", "join  10.5"]


def test_each_case_has_its_own_key_and_title():
    assert len({each.key for each in CASES}) == len({each.title for each in CASES}) == len(CASES)


def event(agent, verb, uri):
    return json.dumps(
        {
            "kind": "Event",
            "stage": "ResponseComplete",
            "requestURI": uri,
            "verb": verb,
            "userAgent": agent,
            "requestReceivedTimestamp": "2026-01-02T03:04:05.000000Z",
        },
        separators=(",", ":"),
    )


def test_writes_of_the_installer_are_found_between_other_lines_of_a_log():
    log = [
        "I0102 03:04:05 1 server.go:1] begun",
        event("karmada-installer", "patch", "/api/v1/namespaces/a?fieldManager=karmada-installer"),
        event("karmada-installer", "patch", "/api/v1/namespaces/a?dryRun=All"),
        event("karmada-installer", "get", "/api/v1/namespaces/a"),
        event("kubectl", "create", "/api/v1/namespaces"),
    ]
    assert len(list(writes_in_log("\n".join(log)))) == 1


def test_changed_tasks_of_all_hosts_are_counted():
    assert changed_tasks("karmada_control : ok=32 changed=13 failed=0\nlocalhost : ok=1 changed=1 failed=0") == 14
    with pytest.raises(BenchError):
        changed_tasks("ERROR! no hosts matched")


def record(rounds, *facts):
    return {
        "began": "2026-01-02 03:04 UTC",
        "rounds": rounds,
        "machine": {"Processor": "2 cores"},
        "measurements": measured("install", "ours", 10, 12) + measured("install", "peer", 40, 41),
        "facts": [{"round": number, "text": text} for number, text in facts],
        "tasks": [{"round": 1, "run": "install", "task": "karmada.installer.etcd : Wait", "seconds": 1.5}],
    }


def test_a_page_shows_figures_machine_facts_and_tasks():
    text = page(record(2, (1, "It failed."), (2, "It failed."), (2, "Once.")))
    assert "| install | s | 11 (10 to 12) |  | 40.5 (40 to 41) |  | 0.27 | 0.45 | yes |" in text
    assert "- Processor: 2 cores" in text
    assert "- It failed.\n" in text
    assert "- Once. (round 2)\n" in text
    assert "| install | Wait | 1.5 |" in text


def test_committed_files_are_those_that_are_made_of_the_rounds():
    made = files(json.loads(ROUNDS.read_text(encoding="utf-8")))
    stale = [path.name for path, content in made.items() if path.read_text(encoding="utf-8") != content]
    assert stale == [], "run `make reference`"
