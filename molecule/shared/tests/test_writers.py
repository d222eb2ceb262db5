# SPDX-License-Identifier: Apache-2.0
"""Two writers of one instance are noticed, and how soon another operator has taken over."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import audit_requests
import writers

LEASE = "karmada-system/karmada-installer"
ONE, TWO = "prod-0123456789ab", "prod-ba9876543210"


def line(at, pod, run="", resource="deployments", verb="patch", name="prod-webhook", *, code=200, took=0.01, query=""):
    def clock(seconds):
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    resource, _, subresource = resource.partition("/")
    namespace, _, name = name.rpartition("/")
    event = {
        "stage": "ResponseComplete",
        "verb": verb,
        "requestURI": f"/x{query}",
        "userAgent": f"karmada-installer (run {run})" if run else "karmada-installer",
        "user": {"extra": {"authentication.kubernetes.io/pod-name": [pod]}},
        "objectRef": {
            "resource": resource,
            "subresource": subresource,
            "namespace": namespace or "team-a",
            "name": name,
        },
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": clock(at),
        "stageTimestamp": clock(at + took),
    }
    return json.dumps(event) + "\n"


def leads(at, pod, code=200):
    return line(at, pod, resource="leases", verb="update", name=LEASE, code=code)


def tells(at, pod):
    return line(at, pod, resource="karmadadeployments/status", name="prod")


def found(*lines):
    return list(writers.writes_of(lines))


def second(*lines):
    return list(writers.second_writers(found(*lines)))


def test_one_run_after_the_other_is_no_second_writer():
    assert second(line(1, "a", ONE), line(2, "a", ONE), line(3, "b", TWO), line(4, "b", TWO)) == []


def test_a_run_that_writes_after_another_one_has_begun_is_one():
    told = second(line(1, "a", ONE), line(3, "b", TWO), line(4, "a", ONE), line(5, "b", TWO))
    assert len(told) == 1
    assert ONE in told[0]
    assert f"after {TWO} had begun to write" in told[0]


def test_a_run_that_writes_before_the_last_answer_to_another_one_is_one():
    assert len(second(line(1, "a", ONE, took=5), line(3, "b", TWO))) == 1


def test_what_had_no_effect_is_no_write():
    late = [line(4, "a", ONE, code=409), line(5, "a", ONE, query="?dryRun=All"), line(6, "a", ONE, verb="get")]
    assert second(line(1, "a", ONE), line(3, "b", TWO), *late) == []


def test_lines_of_others_and_half_of_one_are_left_out():
    of_another = line(1, "a", ONE).replace("karmada-installer", "kubectl")
    assert found(of_another, line(2, "a", ONE)[:-20]) == []


def test_what_a_run_asks_and_what_the_operator_asks_by_itself_are_told_apart():
    by_itself = leads(7, "a")
    of_run = line(60.25, "b", ONE, resource="deployments/scale", took=2)
    asked = line(5, "b", ONE, verb="get")
    own, run = found(by_itself, of_run, asked)
    assert (own.run, own.instance, own.pod, own.lease) == ("", "", "a", LEASE)
    assert (run.run, run.instance, run.what, run.lease) == (ONE, "prod", "deployments/prod-webhook/scale", "")
    assert str(run) == f"00:01:00.250 {ONE} patch deployments/scale team-a/prod-webhook"
    assert run.answered - run.asked == 2
    of_runs = audit_requests.requests_in([by_itself, of_run, asked], audit_requests.OF_RUNS)
    assert [(each.asked, each.wrote) for each in of_runs] == [(60.25, True), (5.0, False)]
    assert audit_requests.clock_of(run.asked) == "00:01:00"


def test_who_tells_of_an_object_is_who_leads():
    def told(*lines):
        return list(writers.second_leaders(found(*lines), LEASE, ["prod"]))

    assert told(leads(1, "a"), tells(2, "a"), leads(3, "b"), tells(4, "b"), leads(5, "a"), tells(6, "a")) == []
    assert told(leads(1, "a"), leads(3, "b"), leads(3.5, "a", code=409), tells(4, "b")) == []
    assert len(told(leads(1, "a"), leads(3, "b"), tells(4, "a"))) == 1


def test_a_takeover_is_what_another_pod_does_after_the_disturbance():
    before = [leads(1, "a"), line(2, "a", ONE), tells(3, "a")]
    late = [leads(11, "a", code=409), tells(12, "a")]
    after = [
        leads(25, "b"),
        tells(26, "b"),
        line(40, "b", TWO, resource="leases", name="team-a/prod-installer", verb="update"),
        line(41, "b", TWO),
    ]
    seen = found(*before, *late, *after)
    assert writers.takeover(seen, 10, "prod", LEASE) == (15.0, 16.0, 31.0)
    assert writers.takeover(seen[:-1], 10, "prod", LEASE) == (15.0, 16.0, None)
    assert writers.takeover(seen[:4], 10, "prod", LEASE) == (None, None, None)


def test_a_pod_whose_process_was_killed_may_take_over_from_itself():
    before = [leads(1, "a"), line(2, "a", ONE), tells(3, "a")]
    seen = found(*before, leads(25, "a"), tells(26, "a"), line(41, "a", TWO))
    assert writers.takeover(seen, 10, "prod", LEASE) == (None, None, None)
    assert writers.takeover(seen, 10, "prod", LEASE, restarts=True) == (15.0, 16.0, 31.0)
    assert writers.takeover(seen[:-1], 10, "prod", LEASE, restarts=True) == (15.0, 16.0, None)


def test_both_judgements_fail_when_there_is_nothing_to_be_seen(tmp_path, monkeypatch, capsys):
    log = tmp_path / "audit.log"
    log.write_text(line(1, "a", ONE))

    def judged(*words):
        monkeypatch.setattr("sys.argv", ["writers.py", words[0], str(log), "--since=0:0", *words[1:]])
        return writers.main()

    assert judged("alone", "--instance=prod") == 0
    assert judged("alone", "--instance=prod", "--at-least=2") == 1
    assert judged("alone", "--instance=other") == 1
    assert judged("alone", "--instance=prod", f"--lease={LEASE}") == 1
    takeover = ("takeover", "--at=0", "--instance=prod", f"--lease={LEASE}", "--patience=0")
    assert judged(*takeover) == 1
    log.write_text(leads(1, "a") + line(2, "a", ONE) + leads(20, "b") + line(30, "b", TWO))
    figures = tmp_path / "figures.json"
    last = ("takeover", "--at=10", *takeover[2:], f"--figures={figures}", "--step=killed")
    assert judged(*last) == 0
    assert "goes on after 20.0 s" in json.loads(figures.read_text())["killed"]
    log.write_text(leads(1, "a") + line(2, "a", ONE) + leads(20, "a") + line(30, "a", TWO))
    assert judged(*last) == 1
    assert judged(*last, "--restarts") == 0
