# SPDX-License-Identifier: Apache-2.0
"""Probes of control planes: what is told when one does not answer, when its members change, when it is well again."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import (
    ApiError,
    Invalid,
    NotFound,
    Unreachable,
)
from ansible_collections.karmada.installer.tests.unit.support import moments
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from karmada_operator import probes, renewals
from karmada_operator.health import Instance
from karmada_operator.probes import Finding, Member, Probes
from karmada_operator.renewals import CONTROLLERS, place_of

PROD, TEST = Instance("a", "prod"), Instance("a", "test")


class ControlPlane:
    """Client of a control plane that answers as the test says."""

    def __init__(self) -> None:
        self.trouble = ""
        self.unavailable = self.webhook = ""
        self.asleep: set[str] = set()
        self.moments = itertools.count()
        self.clusters: list[Any] = []
        self.closed = self.lists = self.heartbeats = 0
        self.asked: set[str] = set()
        self.search: ApiError | None = None

    def get_raw(self, path: str, **_: Any) -> str:
        self.asked.add(path)
        if self.trouble:
            raise Unreachable("control plane", "GET", "/readyz", 0, "", self.trouble)
        if self.unavailable and path.startswith("/apis/cluster"):
            raise Unreachable("control plane", "GET", "/apis", 0, "", self.unavailable)
        if self.search and path == "/apis/search.karmada.io/v1alpha1":
            raise self.search
        return "ok"

    def lease(self, name: str) -> dict[str, Any]:
        renewed = "never" if name in self.asleep else f"at {next(self.moments)}"
        spec = {"renewTime": renewed, "leaseDurationSeconds": 0.5, "holderIdentity": "one"}
        return {"metadata": {"namespace": place_of(name)[0], "name": name}, "spec": spec}

    def some(self, _version: str, kind: str, most: int) -> list[Any]:
        assert kind == "Lease"
        if self.trouble:
            raise Unreachable("control plane", "GET", "/apis", 0, "", self.trouble)
        self.lists += 1
        others = [{"metadata": {"namespace": "karmada-cluster", "name": f"m{n}"}} for n in range(self.heartbeats)]
        return [*others, *map(self.lease, CONTROLLERS[:3])][:most]

    def get(self, _version: str, kind: str, name: str, *_: Any) -> Any:
        if kind == "Lease":
            return self.lease(name) if name in CONTROLLERS[:3] else None
        return next(each for each in self.clusters if each["metadata"]["name"] == name)

    def table(self, _version: str, kind: str) -> Any:
        if kind == "APIService":
            return [
                {"Name": "v1.apps", "Service": "Local", "Available": "True"},
                {"Name": "v1alpha1.search.karmada.io", "Service": "karmada-system/karmada-search"},
                {"Name": "v1.of.somebody.else", "Service": "karmada-system/something"},
            ]

        def row(each: Any) -> dict[str, Any]:
            conditions = each.get("status", {}).get("conditions", [{}])
            return {"Name": each["metadata"]["name"], "Ready": conditions[0].get("status"), "Age": "1m"}

        return [row(each) for each in self.clusters]

    def resource(self, *_: Any) -> object:
        return object()

    def apply(self, policy: Any, **_: Any) -> None:
        if self.webhook:
            raise ApiError("control plane", "PATCH", "/apis", 500, "", self.webhook)
        if "placement" in policy["spec"]:
            raise Invalid("control plane", "PATCH", "/apis", 422, "", "both")

    def close(self) -> None:
        self.closed += 1


def cluster(name: str, status: str, reason: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": status, "reason": reason}
    return {"metadata": {"name": name}, "status": {"conditions": [ready]}}


class Site:
    """Probes of control planes, and what they tell."""

    def __init__(self) -> None:
        self.planes = {PROD: ControlPlane(), TEST: ControlPlane()}
        self.opened: list[tuple[Instance, str]] = []
        self.news: queue.Queue[Instance] = queue.Queue()
        self.probes = Probes(self._open)
        self.probes.listen(self.news.put)
        self.probes.start()

    def _open(self, instance: Instance, secret: str) -> Any:
        self.opened.append((instance, secret))
        return self.planes[instance]

    def told(self, instance: Instance) -> Finding:
        """Finding of the next news, which are about this instance."""
        assert self.news.get(timeout=moments.IN_VAIN_SECONDS) == instance
        return self.probes.finding(instance)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in ("EVERY", "SELDOM", "AGAIN"):
        monkeypatch.setattr(probes, name, 0.01)
    # As much less as the pauses are.
    monkeypatch.setattr(renewals, "DURATION", 0.0)
    made = Site()
    yield made
    made.probes.stop()


def test_members_are_told_as_they_change(site: Site) -> None:
    site.planes[PROD].clusters = [cluster("m2", "False", "ClusterNotReachable"), cluster("m1", "True", "ClusterReady")]
    site.probes.follow(PROD, "prod-admin-config")
    members = (Member("m1", True, "ClusterReady"), Member("m2", False, "ClusterNotReachable"))
    assert site.told(PROD) == Finding("", members)
    assert site.opened[0] == (PROD, "prod-admin-config")
    site.planes[PROD].clusters = [cluster("m1", "True", "ClusterReady"), {"metadata": {"name": "m3"}}]
    assert site.told(PROD).members == (Member("m1", True, "ClusterReady"), Member("m3", False, "Unknown"))


def test_trouble_is_told_when_it_lasts_and_so_is_its_end(site: Site) -> None:
    plane = site.planes[PROD]
    site.probes.follow(PROD, "s")
    assert site.told(PROD) == Finding("", ())
    plane.trouble = "cannot reach it"
    assert site.told(PROD) == Finding("control plane: cannot reach it (GET /apis)", ())
    # Its kubeconfig may be another one by now, so it is read again.
    until(lambda: plane.closed >= 2 and len(site.opened) >= 3, "another client")
    plane.trouble = ""
    assert site.told(PROD) == Finding("", ())


def test_one_failure_is_no_news(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "FAILURES", 10**9)
    plane = site.planes[PROD]
    site.probes.follow(PROD, "s")
    site.told(PROD)
    plane.trouble = "cannot reach it"
    until(lambda: len(site.opened) > 5, "several failures")
    assert site.probes.finding(PROD).trouble == ""
    assert site.news.empty()


def test_an_aggregated_api_or_a_webhook_that_does_not_answer_is_trouble(site: Site) -> None:
    plane = site.planes[PROD]
    site.probes.follow(PROD, "s")
    site.told(PROD)
    plane.unavailable = "no endpoints"
    assert site.told(PROD).trouble.startswith("the aggregated API does not answer: control plane: no endpoints")
    plane.unavailable = ""
    assert site.told(PROD).trouble == ""
    plane.webhook = "failed calling webhook"
    words = "the admission webhook does not judge policies: control plane: failed calling webhook"
    assert site.told(PROD).trouble.startswith(words)
    plane.webhook = ""
    assert site.told(PROD).trouble == ""


def test_a_controller_that_does_not_renew_its_lease_is_not_at_work(site: Site) -> None:
    """By a clock of our own: the texts of their times mean nothing here."""
    plane = site.planes[PROD]
    site.probes.follow(PROD, "s")
    assert site.told(PROD) == Finding("", ())
    plane.asleep = {"karmada-scheduler", "kube-controller-manager"}
    words = "at work no more, by their Leases: kube-controller-manager, karmada-scheduler"
    assert site.told(PROD).trouble == words
    plane.asleep = set()
    assert site.told(PROD).trouble == ""


@pytest.mark.parametrize("late", [False, True])
def test_of_one_that_an_earlier_operator_has_probed_nothing_good_is_told_before_its_controllers_were_seen_at_work(
    site: Site, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """It may have told that they are not, which is seen half a minute later only."""
    monkeypatch.setattr(renewals, "DURATION", 1e9)
    plane = site.planes[PROD]
    plane.asleep = {"karmada-scheduler"}
    site.probes.begin(PROD, "s", frozenset())
    until(lambda: plane.lists > 5, "several probes")
    assert site.probes.finding(PROD) == Finding()
    if late:
        monkeypatch.setattr(renewals, "DURATION", 0.0)
        assert site.told(PROD) == Finding("at work no more, by their Leases: karmada-scheduler", ())
    else:
        plane.asleep = set()
        assert site.told(PROD) == Finding("", ())


def test_where_there_are_many_leases_each_is_read_alone(site: Site) -> None:
    """Of those that the first page would not have."""
    plane = site.planes[PROD]
    plane.heartbeats = probes.FEW
    site.probes.follow(PROD, "s")
    assert site.told(PROD) == Finding("", ())
    plane.asleep = {"karmada-scheduler"}
    assert site.told(PROD).trouble == "at work no more, by their Leases: karmada-scheduler"
    assert plane.lists == 1


def test_a_further_server_of_an_aggregated_api_that_does_not_answer_is_trouble(site: Site) -> None:
    """Those of others are theirs."""
    plane = site.planes[PROD]
    site.probes.follow(PROD, "s")
    assert site.told(PROD) == Finding("", ())
    plane.search = ApiError("control plane", "GET", "/apis", 503, "", "service unavailable")
    assert site.told(PROD).trouble.startswith("karmada-search does not answer: control plane: service unavailable")
    plane.search = NotFound("control plane", "GET", "/apis", 404, "", "taken away")
    assert site.told(PROD).trouble == ""
    assert not [each for each in plane.asked if "somebody" in each]


def test_all_that_is_wrong_is_told_at_once(site: Site) -> None:
    plane = site.planes[PROD]
    site.probes.follow(PROD, "s")
    site.told(PROD)
    plane.unavailable, plane.webhook = "no endpoints", "failed calling webhook"
    assert [each.split()[1] for each in site.told(PROD).trouble.split("; ")] == ["aggregated", "admission"]


def test_one_that_cannot_be_reached_from_here_is_left_to_runs(site: Site) -> None:
    """Such as a ClusterIP of another cluster: nothing is concluded from that."""
    plane = site.planes[PROD]
    plane.trouble = "no route to host"
    site.probes.follow(PROD, "s")
    until(lambda: len(site.opened) > 5, "several attempts")
    assert site.news.empty()
    plane.trouble = ""
    assert site.told(PROD) == Finding("", ())


def test_what_a_run_changes_is_not_probed_until_it_has_ended(site: Site) -> None:
    site.probes.follow(PROD, "s")
    site.told(PROD)
    site.probes.suspend(PROD)
    assert site.probes.finding(PROD) == Finding()
    site.probes.resume(PROD)
    assert site.told(PROD) == Finding("", ())
    site.probes.forget(PROD)
    site.probes.resume(PROD)
    assert PROD not in site.probes._targets


def test_a_control_plane_that_answers_nonsense_keeps_no_other_from_being_looked_at(site: Site) -> None:
    site.planes[PROD].clusters = ["nonsense"]
    site.probes.follow(PROD, "s")
    site.probes.follow(TEST, "s")
    assert site.told(TEST) == Finding("", ())


def test_what_is_forgotten_is_not_asked_any_more(site: Site) -> None:
    plane = site.planes[PROD]
    site.probes.follow(PROD, "s")
    site.told(PROD)
    site.probes.forget(PROD)
    assert plane.closed == 1
    plane.clusters = [cluster("m1", "True", "ClusterReady")]
    site.probes.follow(TEST, "s")
    site.told(TEST)
    assert site.news.empty()
    assert site.probes.finding(PROD) == Finding()


def test_an_instance_without_a_kubeconfig_beside_it_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EVERY", "SELDOM"):
        monkeypatch.setattr(probes, name, 0.01)
    asked: queue.Queue[str] = queue.Queue()
    found = Probes(lambda _instance, secret: asked.put(secret))
    news: list[Instance] = []
    found.listen(news.append)
    found.start()
    found.follow(PROD, "s")
    for _ in range(3):
        assert asked.get(timeout=moments.IN_VAIN_SECONDS) == "s"
    found.stop()
    assert found.finding(PROD) == Finding()
    assert news == []


class NoAnswer(ControlPlane):
    """Client of a control plane that drops packets: each request waits for its whole time, here until a test ends."""

    def __init__(self, over: threading.Event) -> None:
        super().__init__()
        self.over, self.waits = over, False

    def some(self, *_: Any) -> list[Any]:
        self.waits = True
        self.over.wait(moments.IN_VAIN_SECONDS)
        raise Unreachable("control plane", "GET", "/apis", 0, "", "it does not answer")


@pytest.mark.parametrize(("failures", "at_once"), [(1, probes.WORKERS - 1), (probes.FAILURES, probes.WORKERS // 2)])
def test_those_that_do_not_answer_keep_no_other_one_from_being_probed(
    monkeypatch: pytest.MonkeyPatch, failures: int, at_once: int
) -> None:
    for name, seconds in (("EVERY", 0.02), ("SELDOM", 0.05), ("AGAIN", 0.01)):
        monkeypatch.setattr(probes, name, seconds)
    over, well = threading.Event(), ControlPlane()
    away = {Instance("a", f"away{number}"): NoAnswer(over) for number in range(16)}
    found = Probes(lambda instance, _secret: away.get(instance, well))  # type: ignore[arg-type,return-value]
    for instance in away:
        found.follow(instance, "s")
        found._targets[instance].failures = failures
        found._targets[instance].heard = True
    found.start()
    try:
        until(lambda: sum(each.waits for each in away.values()) == at_once, "the first of them")
        found.follow(PROD, "s")
        until(lambda: well.lists > 20, "probes of the one that answers")
        assert sum(each.waits for each in away.values()) == at_once
        # They are not forgotten: each is probed, as soon as there is room.
        over.set()
        until(lambda: all(each.waits for each in away.values()), "a probe of each")
        until(lambda: all("does not answer" in found.finding(each).trouble for each in away), "what is told of them")
        assert found.finding(PROD).trouble == ""
    finally:
        over.set()
        found.stop()
        for each in found.threads:
            each.join(300)
