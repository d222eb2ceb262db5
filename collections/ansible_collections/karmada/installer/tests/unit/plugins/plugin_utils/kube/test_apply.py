# SPDX-License-Identifier: Apache-2.0
"""Many objects at once: what is written, what is left alone, and what is said."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.recorded import findings
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import causes, progress, wait
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import cluster as kube
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import errors as api_errors
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import (
    ApplyFailed,
    Change,
    apply_all,
    delete_all,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import NotReady, wait_until
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.faulty_answers import ESCAPES
from ansible_collections.karmada.installer.tests.unit.support.moments import FastClock, until
from ansible_collections.karmada.installer.tests.unit.support.samples import state
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi
from hypothesis import given
from hypothesis.strategies import from_regex

LABELS = {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": "me"}


def thing(name: str, value: str = "1", kind: str = "ConfigMap", namespace: str = "ns") -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "labels": dict(LABELS)}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, "data": {"k": value}}


def actions(changes: list[Change]) -> list[str]:
    return [one.action for one in changes]


def test_a_second_run_sends_no_write(cluster: Cluster, api: StubApi) -> None:
    wanted = [thing(f"c{index}") for index in range(6)] + [thing("s", kind="Secret")]
    first = apply_all(cluster, wanted)
    assert actions(first) == ["created"] * 7
    assert [one.ref for one in first] == [Ref.of(one) for one in wanted]
    assert all(one.uid for one in first)
    api.requests.clear()
    assert actions(apply_all(cluster, wanted)) == ["unchanged"] * 7
    assert api.writes() == []
    # One list for the six of a kind, one get for the single one.
    assert len(api.requests) == 2


@pytest.mark.parametrize("uid", [ESCAPES, "two\nlines", "two words", "", "x" * 129, 7], ids=ascii)
def test_what_answers_with_a_uid_that_is_none_is_told_of_before_that_goes_on_record(uid: Any) -> None:
    """A state that holds it would be refused by every later run, whomever that run is about."""
    with pytest.raises(ProblemsError, match="ConfigMap ns/a: what answers gives it a UID that is none"):
        Change(Ref.of(thing("a")), "created", uid)


@given(from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", fullmatch=True))
def test_every_other_uid_is_one_that_a_state_may_hold(uid: str) -> None:
    change = Change(Ref.of(thing("a")), "created", uid)
    assert list(findings(state().with_owned("member/a", {str(change.ref): change.uid or ""}))) == []


def test_only_what_differs_is_written_and_shown(cluster: Cluster, api: StubApi) -> None:
    apply_all(cluster, [thing("a"), thing("b")])
    api.requests.clear()
    changes = apply_all(cluster, [thing("a"), thing("b", "2")])
    assert actions(changes) == ["unchanged", "changed"]
    assert "k: '1'" in changes[1].diff["before"]
    assert "k: '2'" in changes[1].diff["after"]
    assert [path.split("?")[0].rpartition("/")[2] for _, path in api.writes()] == ["b"]


def test_a_field_that_somebody_changed_is_set_again(cluster: Cluster, api: StubApi) -> None:
    apply_all(cluster, [thing("a")])
    cluster.patch_merge("v1", "ConfigMap", "a", "ns", {"data": {"k": "theirs"}})
    assert actions(apply_all(cluster, [thing("a")])) == ["changed"]
    assert (cluster.get("v1", "ConfigMap", "a", "ns") or {})["data"] == {"k": "1"}


def test_the_server_decides_when_our_comparison_is_too_strict(cluster: Cluster, api: StubApi) -> None:
    wanted = thing("a")
    apply_all(cluster, [wanted])
    key = ("api/v1/configmaps", "ns", "a")
    real = cluster.apply
    cluster.patch_merge("v1", "ConfigMap", "a", "ns", {"data": {"k": "normalised"}})

    def normalising(obj: Any, **options: Any) -> Any:
        assert options.get("dry_run")
        return kube.Applied(api.objects[key], False)

    cluster.apply = normalising  # type: ignore[method-assign]
    assert actions(apply_all(cluster, [wanted])) == ["unchanged"]
    cluster.apply = real  # type: ignore[method-assign]


def test_check_mode_writes_nothing_and_predicts(cluster: Cluster, api: StubApi) -> None:
    apply_all(cluster, [thing("a"), thing("b")])
    api.requests.clear()
    wanted = [thing("a"), thing("b", "2"), thing("c"), thing("d", namespace="later")]
    changes = apply_all(cluster, wanted, check=True)
    assert actions(changes) == ["unchanged", "changed", "created", "created"]
    assert "k: '2'" in changes[1].diff["after"]
    assert "namespace: later" in changes[3].diff["after"]
    assert api.writes() == []


def test_one_worker_is_the_thread_that_asks(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    apply_all(cluster, [thing("a"), thing("b")])
    real, asked = cluster.get, []

    def get(*which: Any) -> Any:
        asked.append(threading.current_thread())
        return real(*which)

    monkeypatch.setattr(cluster, "get", get)
    assert actions(apply_all(cluster, [thing("a"), thing("b", "2"), thing("c")], workers=1)) == [
        "unchanged",
        "changed",
        "created",
    ]
    assert asked == [threading.current_thread()] * 3


@pytest.mark.parametrize("workers", [1, 8])
def test_pods_are_started_when_what_they_mount_is_there(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    happened: list[str] = []
    real = Cluster.apply

    def told(self: Cluster, obj: Any, **more: Any) -> Any:
        happened.append(f"begin {obj['kind']}")
        found = real(self, obj, **more)
        happened.append(f"end {obj['kind']}")
        return found

    monkeypatch.setattr(Cluster, "apply", told)
    pods = {**thing("a", kind="Deployment"), "apiVersion": "apps/v1", "spec": {"replicas": 1}}
    changes = apply_all(cluster, [pods, thing("b"), thing("c", kind="Secret")], workers=workers)
    assert [each.ref.kind for each in changes] == ["Deployment", "ConfigMap", "Secret"]
    assert happened[4:] == ["begin Deployment", "end Deployment"]


@pytest.mark.parametrize("labels", [{}, {**LABELS, "installer.karmada.io/owner": "another"}])
def test_what_is_not_ours_stops_everything_unless_adopted(
    cluster: Cluster, api: StubApi, labels: dict[str, str]
) -> None:
    foreign = thing("theirs", "x")
    foreign["metadata"]["labels"] = labels
    api.put("api/v1/configmaps", foreign)
    wanted = [thing("mine"), thing("theirs")]
    with pytest.raises(ProblemsError, match="ConfigMap ns/theirs in host cluster: it exists and"):
        apply_all(cluster, wanted)
    assert api.writes() == []
    assert actions(apply_all(cluster, wanted, treat=lambda _live: "adopt")) == ["created", "changed"]


def test_all_failures_are_told_and_the_rest_is_done(cluster: Cluster, api: StubApi) -> None:
    api.faults += [
        Fault("status", path="/bad1", status=422, method="PATCH"),
        Fault("status", path="/bad2?", status=403),
    ]
    with pytest.raises(ApplyFailed) as caught:
        apply_all(cluster, [thing("bad1"), thing("good"), thing("bad2")])
    assert "could not apply 2 of 3 objects" in str(caught.value)
    assert "ConfigMap ns/bad1" in str(caught.value)
    assert "ConfigMap ns/bad2" in str(caught.value)
    assert [one.ref.name for one in caught.value.changes] == ["good"]
    assert cluster.get("v1", "ConfigMap", "good", "ns")


def test_only_the_object_with_the_recorded_uid_is_deleted(cluster: Cluster, api: StubApi) -> None:
    first = apply_all(cluster, [thing("a"), thing("b")])
    targets = [
        (first[0].ref, first[0].uid),
        (first[1].ref, "of an earlier one"),
        (Ref("v1", "ConfigMap", "no", "ns"), "u"),
    ]
    assert actions(delete_all(cluster, targets, check=True)) == ["deleted", "unchanged", "unchanged"]
    assert cluster.get("v1", "ConfigMap", "a", "ns")
    done = delete_all(cluster, targets)
    assert actions(done) == ["deleted", "unchanged", "unchanged"]
    assert "left alone" in done[1].note
    assert "k: '1'" in done[0].diff["before"]
    assert cluster.get("v1", "ConfigMap", "a", "ns") is None
    assert cluster.get("v1", "ConfigMap", "b", "ns")


def test_deletion_waits_until_the_object_is_gone(cluster: Cluster, api: StubApi) -> None:
    stuck = thing("a")
    stuck["metadata"]["finalizers"] = ["example.com/later"]
    uid = api.put("api/v1/configmaps", stuck)["metadata"]["uid"]
    with pytest.raises(ApplyFailed, match=r"still there.*example.com/later"):
        delete_all(cluster, [(Ref.of(stuck), uid)], timeout=0.3)
    looks = 0

    def remove_at_the_fifth_look(_method: str, _path: str) -> None:
        nonlocal looks
        looks += 1
        if looks == 5:
            api.remove("api/v1/configmaps", "ns", "a")

    api.on_request = remove_at_the_fifth_look
    assert actions(delete_all(cluster, [(Ref.of(stuck), uid)], timeout=60)) == ["deleted"]
    assert looks >= 5


def test_many_that_stay_are_told_of_in_one_line(
    cluster: Cluster, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress, "CHANGE_SECONDS", 0.0)
    wanted = [thing(f"c{index}") for index in range(3)]
    for each in wanted:
        each["metadata"]["finalizers"] = ["a.io/wait"]
    made = [(one.ref, one.uid) for one in apply_all(cluster, wanted)]
    said: list[str] = []

    def let_them_go(line: str) -> None:
        said.append(line.partition("] ")[2])
        if "2 more" in line:
            for each in wanted:
                api.remove("api/v1/configmaps", "ns", each["metadata"]["name"])

    delete_all(cluster, made, progress=let_them_go)
    assert len([line for line in said if "2 more" in line]) == 1
    for line in said:
        assert re.fullmatch(r"ConfigMap c\d (is|and [12] more are) not gone: finalizers: a.io/wait", line)


@pytest.mark.parametrize("workers", [1, 8])
def test_the_token_of_an_account_is_deleted_before_the_cluster_does_it(
    cluster: Cluster, api: StubApi, workers: int
) -> None:
    """A member's token controller deletes what belongs to an account that has gone; the same is counted each time."""
    made = apply_all(cluster, [thing("a", kind="ServiceAccount"), thing("a", kind="Secret"), thing("b", kind="Secret")])
    api.requests.clear()

    def as_the_token_controller(method: str, path: str) -> None:
        if method == "DELETE" and path.partition("?")[0].endswith("/serviceaccounts/a"):
            with suppress(KeyError):
                api.remove("api/v1/secrets", "ns", "a")

    api.on_request = as_the_token_controller
    done = delete_all(cluster, [(one.ref, one.uid) for one in made], workers=workers)
    assert actions(done) == ["deleted"] * 3
    assert [one.ref for one in done] == [one.ref for one in made]


def test_deletion_can_be_asked_for_without_waiting(cluster: Cluster, api: StubApi) -> None:
    stuck = thing("a")
    stuck["metadata"]["finalizers"] = ["example.com/later"]
    uid = api.put("api/v1/configmaps", stuck)["metadata"]["uid"]
    assert actions(delete_all(cluster, [(Ref.of(stuck), uid)], timeout=0, wait=False)) == ["deleted"]
    live = cluster.get("v1", "ConfigMap", "a", "ns")
    assert live
    assert live["metadata"]["deletionTimestamp"]


# -- waiting -----------------------------------------------------------------------------------------------------------

DEPLOYMENTS = "apis/apps/v1/deployments"


def deployment(name: str, available: int) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "ns", "generation": 1},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}},
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": available},
    }


def pod(name: str, app: str, waiting: dict[str, str]) -> dict[str, Any]:
    state = {"name": "c", "image": "x:1", "ready": False, "restartCount": 3, "state": {"waiting": waiting}}
    state["lastState"] = {"terminated": {"exitCode": 2, "reason": "Error"}}
    meta = {"name": name, "namespace": "ns", "labels": {"app": app}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": []},
        "status": {"phase": "Running", "containerStatuses": [state]},
    }


def ref(name: str) -> Ref:
    return Ref("apps/v1", "Deployment", name, "ns")


def test_waiting_ends_with_the_event_and_says_what_it_waits_for(
    cluster: Cluster, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress, "CHANGE_SECONDS", 0.0)
    api.put(DEPLOYMENTS, deployment("a", 0))
    said: list[str] = []

    def help_with_what_is_missing(text: str) -> None:
        said.append(text.partition("] ")[2])
        if "0/2 ready; a: 0 of 1 replicas are available" in text:
            api.put(DEPLOYMENTS, deployment("b", 1))
        elif "1/2 ready; a: 0 of 1 replicas are available" in text:
            api.put(DEPLOYMENTS, deployment("a", 1))

    wait_until(cluster, [ref("a"), ref("b")], timeout=60, progress=help_with_what_is_missing)
    assert said == [
        "0/2 ready; a: no answer from the API server yet",
        "0/2 ready; a: 0 of 1 replicas are available",
        "1/2 ready; a: 0 of 1 replicas are available",
    ]
    assert cluster.counts["list"] == 1
    until(lambda: not [one for one in threading.enumerate() if one.name.startswith("wait ")], "the end of its threads")


def test_waiting_survives_a_watch_that_is_too_old(cluster: Cluster, api: StubApi) -> None:
    api.put(DEPLOYMENTS, deployment("a", 0))
    api.faults.append(Fault("status", path="watch=1", status=410))
    lists = 0

    def ready_at_the_second_list(_method: str, path: str) -> None:
        nonlocal lists
        lists += "watch=1" not in path
        if lists == 2:
            api.put(DEPLOYMENTS, deployment("a", 1))

    api.on_request = ready_at_the_second_list
    wait_until(cluster, [ref("a")], timeout=60)
    assert cluster.counts["list"] == 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FastClock:
    """Fifty times as fast; who waits for news waits for so much less."""
    found, take_news = FastClock(50), wait._Waiting._take_news
    monkeypatch.setattr(wait, "time", found)
    monkeypatch.setattr(wait._Waiting, "_take_news", lambda each, seconds: take_news(each, seconds / found.speed))
    return found


def in_vain(cluster: Cluster, clock: FastClock) -> NotReady:
    """Of a wait whose time is over once it has been said why the Deployment is not ready."""

    def hear(text: str) -> None:
        if "replicas" in text:
            clock.ahead = 10_000

    with pytest.raises(NotReady, match="not ready after") as caught:
        wait_until(cluster, [ref("a")], timeout=10_000, progress=hear)
    return caught.value


def test_a_timeout_says_why_with_the_last_lines_of_what_crashes(
    cluster: Cluster, api: StubApi, clock: FastClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.put(DEPLOYMENTS, deployment("a", 0))
    api.put("api/v1/pods", pod("a-x-y", "a", {"reason": "CrashLoopBackOff", "message": "back-off"}))
    monkeypatch.setattr(cluster, "logs", lambda *_args, **_options: "panic: no such flag\n")
    reason = in_vain(cluster, clock).reasons[ref("a")]
    for part in (
        "0 of 1 replicas",
        "pod a-x-y: container c: CrashLoopBackOff after 3 restarts",
        "exit code 2",
        "no such flag",
    ):
        assert part in reason


def seconds_until_given_up(error: NotReady) -> int:
    found = re.match(r"cannot become ready \(found after (\d+) s\)", str(error))
    assert found, error
    return int(found[1])


def test_what_cannot_become_ready_is_given_up_early(cluster: Cluster, api: StubApi, clock: FastClock) -> None:
    api.put(DEPLOYMENTS, deployment("a", 0))
    api.put("api/v1/pods", pod("a-x-y", "a", {"reason": "InvalidImageName"}))
    with pytest.raises(NotReady, match=r"InvalidImageName of image x:1") as caught:
        wait_until(cluster, [ref("a")], timeout=10_000)
    assert seconds_until_given_up(caught.value) >= causes.GRACE_SECONDS


def test_an_image_that_is_pulled_in_vain_is_given_up_after_a_while(
    cluster: Cluster, api: StubApi, clock: FastClock
) -> None:
    """Later than what never mends itself, long before the timeout; with what the kubelet says of it."""
    api.put(DEPLOYMENTS, deployment("a", 0))
    api.put(DEPLOYMENTS, deployment("b", 0))
    old = pod("a-old-y", "a", {"reason": "ImagePullBackOff"})
    old["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    api.put("api/v1/pods", old)
    api.put("api/v1/pods", pod("a-x-y", "a", {"reason": "ErrImagePull", "message": "connection refused"}))
    with pytest.raises(NotReady) as caught:
        wait_until(cluster, [ref("b"), ref("a")], timeout=10_000)
    assert seconds_until_given_up(caught.value) >= causes.PULL_SECONDS
    assert list(caught.value.reasons) == [ref("a"), ref("b")]
    assert "pod a-x-y: container c: ErrImagePull of image x:1" in caught.value.reasons[ref("a")]
    assert "0 of 1 replicas" in caught.value.reasons[ref("b")]


def test_secrets_in_the_logs_of_others_are_not_told(
    cluster: Cluster, api: StubApi, clock: FastClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.put(DEPLOYMENTS, deployment("a", 0))
    api.put("api/v1/pods", pod("a-x-y", "a", {"reason": "CrashLoopBackOff"}))
    monkeypatch.setattr(cluster, "logs", lambda *_args, **_options: "flag: --token=abcdef0123456789\n")
    told = str(in_vain(cluster, clock))
    assert "flag: --token=<redacted>" in told
    assert "0123456789" not in told


def test_not_being_allowed_to_look_is_an_error(cluster: Cluster, api: StubApi) -> None:
    api.faults.append(Fault("status", path="deployments", status=403, times=9))
    with pytest.raises(api_errors.Forbidden):
        wait_until(cluster, [ref("a")], timeout=60)
