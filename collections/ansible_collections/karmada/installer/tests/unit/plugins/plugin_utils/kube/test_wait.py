# SPDX-License-Identifier: Apache-2.0
"""Waiting for what pods of another cluster serve: the pods tell why it does not come."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import probes
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import causes, wait
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.causes import Servers
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import NotReady, wait_for, wait_until
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster
from ansible_collections.karmada.installer.tests.unit.support.moments import Clock

API = Ref("apiregistration.k8s.io/v1", "APIService", "v1alpha1.search.karmada.io", None)
SEARCH = Ref("apps/v1", "Deployment", "prod-search", "karmada")
IMAGE = "registry.example/karmada/karmada-search:v9"
REFUSED = "Available is False (FailedDiscoveryCheck: failing or missing response: connection refused)"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """No watches are followed: time passes by itself, and objects stay as they are."""
    found = Clock()
    monkeypatch.setattr(wait, "time", found)
    monkeypatch.setattr(wait._Follower, "start", lambda each: each._news.put(_all_of(each)))
    monkeypatch.setattr(wait._Waiting, "_take_news", _take_news)
    return found


def _all_of(follower: wait._Follower) -> wait._News:
    group = follower._group
    return wait._News(group, tuple(follower._cluster.list(*group)), whole=True)


def _take_news(waiting: wait._Waiting, seconds: float) -> None:
    while not waiting._news.empty():
        waiting._take(waiting._news.get())
    wait.time.sleep(seconds)


def api_service() -> dict[str, Any]:
    condition = {"type": "Available", "status": "False", "reason": "FailedDiscoveryCheck"}
    condition["message"] = "failing or missing response: connection refused"
    meta = {"name": API.name}
    return {"apiVersion": API.api_version, "kind": API.kind, "metadata": meta, "status": {"conditions": [condition]}}


def deployment(available: int = 0) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": SEARCH.name, "namespace": SEARCH.namespace, "generation": 1},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "search"}}},
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": available},
    }


def pod(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    status = {"name": "karmada-search", "image": IMAGE, "ready": False, "restartCount": 0, "state": state, **more}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "prod-search-x-y", "namespace": SEARCH.namespace, "labels": {"app": "search"}},
        "spec": {"containers": []},
        "status": {"phase": "Pending", "containerStatuses": [status]},
    }


UNPULLED = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}


def event(reason: str, message: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "type": "Warning",
        "reason": reason,
        "message": message,
        "metadata": {"name": f"e-{reason}", "namespace": SEARCH.namespace},
        "involvedObject": {"kind": "Pod", "name": "prod-search-x-y"},
    }


def control_plane() -> FakeCluster:
    return FakeCluster("control plane", api_service())


def wait_in_vain(host: FakeCluster, said: list[str] | None = None, timeout: float = 300) -> NotReady:
    with pytest.raises(NotReady) as caught:
        wait_until(
            control_plane(),
            [API],
            timeout=timeout,
            progress=(said if said is not None else []).append,
            served_by={API: Servers(host, (SEARCH,))},
        )
    return caught.value


# Texts of containerd 2.
@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (f'failed to resolve reference "{IMAGE}": {IMAGE}: not found', causes.REFUSED_PULL_SECONDS),
        ("failed to authorize: failed to fetch oauth token: 401 Unauthorized", causes.REFUSED_PULL_SECONDS),
        ('Head "https://registry.example/v2/": dial tcp: lookup registry.example: no such host', 25.0),
        ('Head "https://registry.example/v2/": dial tcp 192.0.2.1:443: connect: connection refused', 60.0),
        ('Head "https://registry.example/v2/": dial tcp: lookup registry.example: server misbehaving', 60.0),
    ],
)
def test_an_image_that_a_registry_refuses_is_given_up_sooner_than_a_registry_that_is_away(
    clock: Clock, answer: str, seconds: float
) -> None:
    refused = {"waiting": {"reason": "ErrImagePull", "message": answer}}
    # Also where the container ran before, and the kubelet fetches the image anew.
    told = wait_in_vain(FakeCluster("host", deployment(), pod(refused, restartCount=3))).reasons[SEARCH]
    assert seconds <= clock.now <= seconds + 10
    assert answer in told


def test_what_a_registry_said_holds_while_the_kubelet_says_only_that_it_tries_again() -> None:
    refused = {"waiting": {"reason": "ErrImagePull", "message": f"{IMAGE}: not found"}}
    of_search = causes.Causes(FakeCluster("host", deployment(), pod(refused)))
    of_search.look({SEARCH: deployment()})
    assert of_search.lost(SEARCH, deployment(), 0) is None
    of_search._related[SEARCH] = [pod(UNPULLED)]
    assert of_search.lost(SEARCH, deployment(), causes.REFUSED_PULL_SECONDS - 1) is None
    assert IMAGE in str(of_search.lost(SEARCH, deployment(), causes.REFUSED_PULL_SECONDS))
    # An image that comes after all, and is away later, has its whole time again.
    of_search._related[SEARCH] = []
    assert of_search.lost(SEARCH, deployment(), 30) is None
    of_search._related[SEARCH] = [pod(UNPULLED)]
    assert of_search.lost(SEARCH, deployment(), 40) is None
    assert of_search.give_up_at([SEARCH]) == 40 + causes.PULL_SECONDS


def test_an_api_whose_image_nobody_has_is_given_up_with_the_name_of_the_image(clock: Clock) -> None:
    """Not after the timeout, and not with words about a refused connection only."""
    said: list[str] = []
    error = wait_in_vain(FakeCluster("host", deployment(), pod(UNPULLED)), said)
    assert causes.PULL_SECONDS <= clock.now <= causes.PULL_SECONDS + 10
    first, second = error.reasons.items()
    assert first == (
        SEARCH,
        f"pod prod-search-x-y: container karmada-search: ImagePullBackOff of image {IMAGE} (Back-off pulling image)",
    )
    assert second == (API, REFUSED)
    assert said == [
        "[2/300 s] v1alpha1.search.karmada.io: Available is False (FailedDiscovery…",
        "[5/65 s] prod-search: cannot pull registry.example/…/karmada-search:v9",
        "[25/65 s] prod-search: cannot pull registry.example/…/karmada-search:v9",
        "[45/65 s] prod-search: cannot pull registry.example/…/karmada-search:v9",
    ]


def test_the_limit_that_is_shown_is_the_one_at_which_the_wait_ends(clock: Clock) -> None:
    """For a workload itself, too, and never more than the time of the whole wait."""
    for timeout, shown in ((300, 65), (20, 20)):
        clock.now = 0
        said: list[str] = []
        host = FakeCluster("host", deployment(), pod(UNPULLED))
        with pytest.raises(NotReady):
            wait_until(host, [SEARCH], timeout=timeout, progress=said.append)
        assert shown <= clock.now <= shown + 5
        pulls = [line.partition("] ")[0] for line in said if "cannot pull" in line]
        assert pulls
        assert all(line.endswith(f"/{shown} s") for line in pulls)


def test_a_trouble_that_passes_gives_the_wait_its_time_back(clock: Clock) -> None:
    host = FakeCluster("host", deployment(), pod(UNPULLED))
    said: list[str] = []

    def tell(line: str) -> None:
        said.append(line)
        if "cannot pull" in line:
            host.put(pod({"running": {}}))

    with pytest.raises(NotReady):
        wait_until(control_plane(), [API], timeout=300, progress=tell, served_by={API: Servers(host, (SEARCH,))})
    assert said[1].startswith("[5/65 s] prod-search: cannot pull")
    assert clock.now >= 300
    assert said[2:]
    assert all("/300 s]" in line for line in said[2:])


def test_an_api_without_known_servers_takes_its_time(clock: Clock) -> None:
    with pytest.raises(NotReady, match="not ready after 300 s"):
        wait_until(control_plane(), [API], timeout=300)


def test_pods_that_work_are_not_told_of(clock: Clock) -> None:
    error = wait_in_vain(FakeCluster("host", deployment(1)))
    assert (list(error.reasons), error.early) == ([API], False)


def test_a_server_that_crashes_is_waited_for_and_told_with_its_log(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it lacks may come."""
    crashes = {"waiting": {"reason": "CrashLoopBackOff"}}
    last = {"restartCount": 4, "lastState": {"terminated": {"exitCode": 2, "reason": "Error"}}}
    host = FakeCluster("host", deployment(), pod(crashes, **last))
    monkeypatch.setattr(FakeCluster, "logs", lambda *_args, **_more: "panic: no such flag\n", raising=False)
    said: list[str] = []
    error = wait_in_vain(host, said)
    assert clock.now >= 300
    assert not error.early
    assert "panic: no such flag" in error.reasons[SEARCH]
    assert "[5/300 s] prod-search: CrashLoopBackOff after 4 restarts, exit code 2" in said


def test_a_startup_probe_that_is_refused_does_not_look_like_an_error(clock: Clock) -> None:
    """An API server answers 403 until its rights are there; the message stands in the error of a wait in vain."""
    host = FakeCluster(
        "host",
        deployment(),
        pod({"running": {}}),
        event("Unhealthy", "Startup probe failed: HTTP probe failed with statuscode: 403"),
    )
    said: list[str] = []
    error = wait_in_vain(host, said)
    assert "statuscode: 403" in error.reasons[SEARCH]
    assert said
    assert not [line for line in said if "403" in line or "probe" in line]


def test_an_event_that_tells_why_a_pod_does_not_begin_is_told(clock: Clock) -> None:
    host = FakeCluster(
        "host",
        deployment(),
        pod({"waiting": {"reason": "ContainerCreating"}}),
        event("FailedMount", 'secret "prod-search-cert" not found'),
    )
    said: list[str] = []
    wait_in_vain(host, said)
    assert '[5/300 s] prod-search: FailedMount: secret "prod-search-cert" not found' in said


def test_a_host_cluster_that_does_not_answer_does_not_disturb_the_wait(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = FakeCluster("host")

    def silent(*_: Any, **__: Any) -> Any:
        raise Unreachable("host", "GET", "/", 0, "Unreachable", "no answer in time")

    monkeypatch.setattr(host, "get", silent)
    monkeypatch.setattr(host, "list", silent)
    assert list(wait_in_vain(host).reasons) == [API]


# -- probes ------------------------------------------------------------------------------------------------------------


def test_a_function_that_is_there_is_not_waited_for(clock: Clock) -> None:
    assert wait_for(lambda: None, "it", timeout=10) is None
    assert clock.now == 0


@pytest.mark.parametrize("probe", [probes.aggregated_api_answers, probes.webhook_judges])
def test_a_probe_ends_with_the_reason_of_the_pods_that_serve_it(
    probe: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("not_listed", "not_judged"):
        monkeypatch.setattr(probes, each, lambda _cluster: "connection refused")
    said: list[str] = []
    host = FakeCluster("host", deployment(), pod(UNPULLED))
    with pytest.raises(
        NotReady, match=rf"cannot become ready[^\n]*\n  - {SEARCH}: .*ImagePullBackOff of image {IMAGE}"
    ) as caught:
        probe(control_plane(), 300, said.append, Servers(host, (SEARCH,)))
    assert [each.reason for each in caught.value.problems] == [Reason.IMAGE_NOT_AVAILABLE]
    assert causes.PULL_SECONDS <= clock.now <= causes.PULL_SECONDS + 10
    assert said[1:] == [
        "[5/65 s] prod-search: cannot pull registry.example/…/karmada-search:v9",
        "[25/65 s] prod-search: cannot pull registry.example/…/karmada-search:v9",
        "[45/65 s] prod-search: cannot pull registry.example/…/karmada-search:v9",
    ]


def test_a_probe_in_vain_tells_what_ails_its_pods(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "not_judged", lambda _cluster: "connection refused")
    host = FakeCluster("host", deployment(), pod({"running": {}}))
    with pytest.raises(ProblemsError) as caught:
        probes.webhook_judges(control_plane(), 60, lambda _line: None, Servers(host, (SEARCH,)))
    told = str(caught.value)
    assert "waited 60 s in vain until the admission webhook judges policies: connection refused" in told
    assert f"{SEARCH}: 0 of 1 replicas are available; pod prod-search-x-y: container karmada-search: runs" in told


@pytest.mark.parametrize("targets", [1, 3])
def test_part_of_an_error_is_about_its_target_and_what_serves_that(targets: int) -> None:
    refs = [Ref("v1", "Cluster", f"m{number}") for number in range(targets)]
    error = NotReady({SEARCH: "no image", **dict.fromkeys(refs, "not seen")}, 65, early=True)
    assert {each.reason for each in error.problems} == {Reason.NOT_READY_IN_TIME}, "that is no word of a container"
    served = error.about(refs[0], Servers(None, (SEARCH,)))
    assert (served.reasons, served.early) == ({SEARCH: "no image", refs[0]: "not seen"}, True)
    alone = error.about(refs[0], None)
    assert (alone.reasons, alone.early) == ({refs[0]: "not seen"}, False)
