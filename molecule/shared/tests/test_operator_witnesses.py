# SPDX-License-Identifier: Apache-2.0
"""The witnesses of runs of an operator notice what they are there to notice."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import audit_requests
import moments
import pytest
import status_course
import told
import turns
from ansible_collections.karmada.installer.tests.unit.support.moments import until


def _request(at: float, run: str, what: str, *, verb: str = "patch", code: int = 200, namespace: str = "a") -> str:
    resource, _, name = what.partition("/")
    stamp = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return (
        json.dumps(
            {
                "stage": "ResponseComplete",
                "verb": verb,
                "requestURI": f"/{what}",
                "userAgent": f"karmada-installer (run {run})" if run else "karmada-installer",
                "objectRef": {"resource": resource, "name": name, "namespace": namespace},
                "responseStatus": {"code": code},
                "requestReceivedTimestamp": stamp,
                "stageTimestamp": stamp,
            }
        )
        + "\n"
    )


def _turns(*lines: str) -> list[turns.Turn]:
    return turns.turns_of(audit_requests.requests_in(lines, audit_requests.OF_RUNS))


def test_turns_of_runs_follow_each_other() -> None:
    found = _turns(
        _request(1, "one", "leases/x", verb="create"),
        _request(2, "one", "secrets/x"),
        _request(2.5, "two", "leases/x", verb="get"),
        _request(3, "", "karmadadeployments/x"),
        _request(4, "two", "secrets/x"),
        _request(5, "three", "secrets/x", verb="get"),
    )
    assert [(each.run, each.writes) for each in found] == [("one", 2), ("two", 1), ("three", 0)]
    assert turns.at_once(found) == []


@pytest.mark.parametrize("late", [_request(5, "one", "secrets/x"), _request(5, "one", "leases/x", verb="update")])
def test_two_runs_that_write_at_a_time_are_found(late: str) -> None:
    found = _turns(_request(1, "one", "secrets/x"), _request(4, "two", "secrets/x"), late)
    assert [line.split(" s before")[0] for line in turns.at_once(found)] == ["run two began to write 1.000"]


def test_a_write_that_was_refused_is_none() -> None:
    found = _turns(
        _request(1, "one", "secrets/x"), _request(2, "two", "leases/x", code=409), _request(3, "one", "secrets/y")
    )
    assert turns.at_once(found) == []


COURSE = [
    _request(10, "one", "secrets/x", verb="get"),
    _request(12, "one", "leases/x", verb="create"),
    _request(14, "one", "statefulsets/etcd"),
    _request(15, "one", "statefulsets/etcd"),
    _request(20, "one", "deployments/api"),
    _request(21, "one", "secrets/of-others", namespace="b"),
    _request(30, "one", "leases/x", verb="update"),
]


def test_a_course_has_each_object_once() -> None:
    course, seconds = moments.course_of(audit_requests.requests_in(COURSE), "a")
    assert course == [(0.0, "the run"), (4.0, "statefulsets/etcd"), (10.0, "deployments/api")]
    assert seconds == 20.0


def test_a_course_of_two_writers_is_none() -> None:
    with pytest.raises(ValueError, match="2 runs have written"):
        moments.course_of(audit_requests.requests_in([*COURSE, _request(40, "two", "secrets/x")]), "a")


def _run_at(share: float, now: float, *lines: str, after: float = 0.0) -> str:
    course, seconds = moments.course_of(audit_requests.requests_in(COURSE), "a")
    progress = moments.Progress()
    for each in audit_requests.requests_in(lines):
        progress.add(each)
    return moments.Moment(course, seconds, share, after).has_come(progress, now)


def test_a_moment_comes_as_long_after_the_same_object() -> None:
    began = [_request(101, "two", "secrets/x", verb="get"), _request(110, "two", "statefulsets/etcd")]
    assert _run_at(0.35, 112.9, *began) == ""
    assert _run_at(0.35, 113.1, *began) == "two"
    assert _run_at(0.1, 102.0, *began[:1]) == ""
    assert _run_at(0.1, 103.1, *began[:1]) == "two"


def test_a_moment_comes_at_the_latest_with_the_next_object() -> None:
    began = [_request(101, "two", "statefulsets/etcd"), _request(102, "two", "deployments/api")]
    assert _run_at(0.45, 102.5, *began) == "two"


def test_a_moment_waits_for_a_run_that_has_begun_since_and_works() -> None:
    first = [_request(101, "two", "statefulsets/etcd")]
    assert _run_at(0.25, 500.0, *first, after=105) == ""
    waiting = [*first, _request(120, "three", "leases/x", verb="get")]
    assert _run_at(0.25, 130.0, *waiting, after=105) == "", "it waits for the lock of the one that was killed"
    assert _run_at(0.25, 141.1, *waiting, _request(140, "three", "leases/x", verb="update"), after=105) == "three"
    assert _run_at(0.25, 197.0, *waiting, after=105) == "three", (
        "a run that has nothing to write is killed all the same"
    )


def test_each_kill_is_told_with_the_run_that_followed() -> None:
    requests = audit_requests.requests_in(
        [*COURSE, _request(35, "two", "leases/x", verb="get"), _request(41, "two", "secrets/x")]
    )
    assert list(moments.told([(31.0, "kill 1"), (50.0, "kill 2")], list(requests))) == [
        ("kill 1", "the next run after 4 s, which wrote after 10 s"),
        ("kill 2", "the next run after - s, which wrote after - s"),
    ]


def test_lines_that_are_being_written_stay_for_the_next_look(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("one\ntw")
    with file.open(encoding="utf-8") as stream:
        assert list(moments.new_lines(stream)) == ["one\n"]
        with file.open("a", encoding="utf-8") as more:
            more.write("o\nthree\n")
        assert list(moments.new_lines(stream)) == ["two\n", "three\n"]


def test_documents_of_a_watch_are_cut_out() -> None:
    found, rest = status_course.documents('{"a": 1}\n{\n "b": {}\n}\n{"c"')
    assert found == [{"a": 1}, {"b": {}}]
    assert status_course.documents(rest + ": 2}")[0] == [{"c": 2}]


def _version(seen: float, phase: str, *, under_way: bool = True, run: str = "", **more: Any) -> status_course.Version:
    ready, since, told = more.get("ready", "False"), more.get("since", 0.0), more.get("told", 1)
    stamp = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": "Progressing", "status": str(under_way), "lastTransitionTime": "1970-01-01T00:00:00Z"},
        {"type": "Ready", "status": ready, "lastTransitionTime": stamp, "observedGeneration": told},
    ]
    status = {
        "phase": phase,
        "conditions": conditions,
        "lastRun": {"id": run},
        "installed": more.get("installed", True),
    }
    return status_course.Version.of(
        {
            "seen": seen,
            "metadata": {"uid": "u", "generation": more.get("generation", 1)},
            "status": {**status, "observedGeneration": more.get("observed", 1)},
        }
    )


def _wrong(*versions: status_course.Version, cuts: tuple[float, ...] = ()) -> list[str]:
    return [line.partition(" ")[2] for line in status_course.wrong(versions, cuts)]


def test_between_two_watches_conditions_may_have_changed_twice_and_nothing_goes_back(tmp_path: Path) -> None:
    file = tmp_path / "versions"

    def line(since: int, **more: Any) -> str:
        stamp = {"lastTransitionTime": f"1970-01-01T00:00:{since:02}Z", "observedGeneration": 1}
        conditions = [{"type": "Ready", "status": "True", **stamp}]
        status = {"installed": True, "observedGeneration": 1, "conditions": conditions, "phase": "Completed", **more}
        return json.dumps({"seen": 100.0, "metadata": {"uid": "u", "generation": 1}, "status": status})

    def judged(*lines: str) -> list[str]:
        (versions,) = status_course.read(lines).values()
        return [each.partition(" ")[2] for each in status_course.wrong(versions, ())]

    gap = json.dumps(status_course.GAP)
    assert judged(line(1), line(2)) == [
        "Ready stays True, and says that it has changed at 1970-01-01T00:00:02Z, not at 1970-01-01T00:00:01Z"
    ]
    assert judged(line(1), gap, line(2)) == []
    assert judged(line(1), gap, line(2), line(3)), "that is for the first version after it only"
    assert judged(line(2), gap, line(1)), "it goes back"
    assert judged(line(1), gap, line(1, observedGeneration=0)) == ["observedGeneration goes back from 1 to 0"]
    # A watch that is begun once more says so.
    status_course.watch(file, ["true"], "x", "x")
    assert file.read_text() == ""
    file.write_text(line(1) + "\n")
    status_course.watch(file, ["true"], "x", "x")
    assert file.read_text().splitlines() == [line(1), gap]


BACK = "the phase goes back within a run, from Waiting to Preflight"


def test_a_phase_may_go_back_where_a_run_begins_and_nowhere_else() -> None:
    begins, waits = _version(1, "Preflight"), _version(2, "Waiting")
    assert _wrong(begins, waits, _version(3, "Preflight")) == [BACK]
    assert _wrong(begins, waits, _version(4, "Preflight"), cuts=(3.0,)) == []
    assert _wrong(begins, waits, _version(4, "Preflight"), _version(5, "Waiting"), begins, cuts=(3.0,)) == [BACK]
    assert _wrong(begins, waits, _version(400, "Preflight"), cuts=(3.0,)) == [BACK], "that is too late"
    assert _wrong(begins, waits, _version(3, "Preflight", run="another")) == []
    assert _wrong(begins, _version(2, "Waiting", under_way=False), _version(3, "Preflight")) == []


@pytest.mark.parametrize(
    ("before", "now", "wrong"),
    [
        ({}, {"observed": 2}, "the status tells of generation 2, and the object has 1"),
        ({}, {"told": 2}, "Ready tells of generation 2, and the object has 1"),
        ({}, {"generation": 2, "told": 2}, "Ready tells of generation 2, and 1 is carried out"),
        ({}, {"told": 0}, "observedGeneration of Ready goes back from 1 to 0"),
        ({}, {"observed": 0}, "observedGeneration goes back from 1 to 0"),
        ({}, {"since": 1}, "Ready stays False, and says that it has changed at 1970-01-01T00:00:01Z, not at"),
        ({}, {"since": 60}, "which is still to come"),
        ({"since": 2}, {"ready": "True", "since": 1}, "before the change at"),
        ({}, {"ready": "True", "installed": False}, "Ready is true, although the first installation"),
        ({"ready": "True"}, {"ready": "False", "since": 3}, "Ready is lost"),
    ],
)
def test_what_is_not_honest_is_found(before: dict[str, Any], now: dict[str, Any], wrong: str) -> None:
    found = _wrong(_version(3, "Completed", **before), _version(4, "Completed", **now))
    assert any(wrong in line for line in found), found


def test_an_edit_may_make_it_unready_and_what_is_honest_is_not_called_wrong() -> None:
    ready = {"ready": "True", "since": 2.0}
    edited = _version(5, "Preflight", generation=2, ready="False", since=5)
    rests = _version(4, "Completed", under_way=False, **ready)
    assert _wrong(_version(3, "Completed", **ready), rests, edited) == []


#: In the place of kubectl: one object that stays, a pod that is started again, and logs which go on.
KUBECTL = """#!/bin/sh
# Its last word says what is asked for.
case "$*" in
*" get pods "*)
  for id in one two; do
    echo '{"type": "MODIFIED", "object": {"metadata": {"name": "op-1"}, "status": {"containerStatuses": ['
    echo '{"name": "operator", "containerID": "'$id'", "restartCount": '$(test $id = one; echo $?)'}]}}}'
  done ;;
*" get "*) echo '{"type": "ADDED", "object": {"metadata": {"name": "prod"}}}' ;;
*" logs "*) echo "op-1 says this" ;;
esac
exec sleep 600
"""


def test_what_is_told_is_kept_until_it_is_to_end(tmp_path: Path) -> None:
    kubectl, folder = tmp_path / "kubectl", tmp_path / "told"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o700)
    folder.mkdir()
    (tmp_path / "told.keeping").touch()
    tool = [sys.executable, str(Path(told.__file__))]
    words = ["keep", str(folder), f"--kubectl={kubectl}", "--kubeconfig=x", "--namespace=a", "--kind=jobs"]
    with subprocess.Popen([*tool, *words]) as keeps:
        for name, text in (("jobs.told", "prod"), ("op-1-0.log", "says this"), ("op-1-1.log", "says this")):
            until(lambda file=folder / name, text=text: file.exists() and text in file.read_text(), name)
        ended = subprocess.run(
            [*tool, "end", str(folder), "--expect=jobs", "--expect=op-1", "--expect=events"],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert ended.returncode == 1
        assert ended.stdout.splitlines()[-1] == "nothing was told in events"
        assert keeps.wait(60) == 0
    assert sorted(each.name for each in folder.iterdir()) == ["jobs.told", "op-1-0.log", "op-1-1.log", "pods.told"]
    assert told.end(folder, ["jobs", "op-1"]) == 0
