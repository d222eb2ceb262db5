# SPDX-License-Identifier: Apache-2.0
"""Seconds from the end of a component to the news of it, by a simulated clock and the probes as they are."""

from __future__ import annotations

import heapq
import random
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, Invalid, Unreachable
from karmada_operator import probes
from karmada_operator.health import Instance
from karmada_operator.probes import Finding, Probes
from karmada_operator.renewals import CONTROLLERS, place_of

PROD = Instance("a", "prod")
API, STORE = "karmada-apiserver", "etcd"
#: What of a control plane on one plain host may end, and the seconds after which it is told at the latest. Then there
#: are at most 2 s until the status is written.
WITHIN = {
    # Nothing listens any more; the same where it is a load balancer that has ended.
    API: 14,
    # It does not answer any more, as a host without power.
    STORE: 25,
    "karmada-aggregated-apiserver": 15,
    "karmada-webhook": 15,
    "karmada-search": 15,
    "karmada-metrics-adapter": 15,
    **dict.fromkeys(CONTROLLERS, 25),
}
PATHS = {
    "/apis/cluster.karmada.io": "karmada-aggregated-apiserver",
    "/apis/search.karmada.io": "karmada-search",
    "/apis/custom.metrics.k8s.io": "karmada-metrics-adapter",
}


class Simulation:
    """A control plane with a leader of each kind that renews each 2 s, and its probes, without a thread."""

    def __init__(self, seed: int, several: frozenset[str] = frozenset()) -> None:
        random.seed(seed)
        self.now, self.several = 0.0, several
        self.ends: dict[str, float] = {}
        #: When another process leads.
        self.follows: dict[str, float] = {}
        self.requests = 0
        self.told: list[tuple[float, Finding]] = []
        self.phase = random.uniform(0, 2)
        self.probes = Probes(lambda *_: self, clock=lambda: self.now)  # type: ignore[arg-type,return-value]
        self.probes.listen(lambda each: self.told.append((self.now, self.probes.finding(each))))
        self.probes.follow(PROD, "s", several)

    def until(self, end: float) -> None:
        """Let time pass, and probe when that is due."""
        while (due := self._next()) < end:
            self.now = max(self.now, due)
            target = self.probes._take()
            assert target
            self.probes._probe(target)
        self.now = max(self.now, end)

    def _next(self) -> float:
        """Moment of the next probe of what is followed still."""
        while self.probes._due[0][2] is not self.probes._targets[PROD]:
            heapq.heappop(self.probes._due)
        return self.probes._due[0][0]

    def _works(self, what: str) -> bool:
        return self.now < self.ends.get(what, 1e9)

    def _request(self) -> None:
        self.requests += 1
        self.now += random.uniform(0.005, 0.25)
        if not self._works(API):
            raise Unreachable("control plane", "GET", "/", 0, "", "connection refused")
        if not self._works(STORE):
            self.now += probes.PATIENCE
            raise Unreachable("control plane", "GET", "/", 0, "", "it does not answer")

    def some(self, *_: Any) -> list[Any]:
        self._request()
        return [
            {"metadata": {"namespace": place_of(each)[0], "name": each}, "spec": self._lease(each)}
            for each in CONTROLLERS
        ]

    def _lease(self, name: str) -> dict[str, Any]:
        begin, holder, end = 0.0, "one", self.ends.get(name, 1e9)
        if self.now > self.follows.get(name, 1e9):
            begin, holder, end = self.follows[name], "another", 1e9
        renewed = begin + (min(self.now, end) - begin - self.phase) // 2 * 2
        return {"holderIdentity": holder, "renewTime": f"{renewed - 3600:.6f}", "leaseDurationSeconds": 15}

    def get_raw(self, path: str, **_: Any) -> str:
        self._request()
        server = next((server for prefix, server in PATHS.items() if path.startswith(prefix)), "")
        if not self._works(server):
            raise ApiError("control plane", "GET", path, 503, "", "service unavailable")
        return "ok"

    def table(self, _version: str, kind: str) -> Any:
        self._request()
        if kind == "Cluster":
            return []
        return [
            {"Name": "v1alpha1.search.karmada.io", "Service": "karmada-system/karmada-search"},
            {"Name": "v1beta2.custom.metrics.k8s.io", "Service": "karmada-system/karmada-metrics-adapter"},
        ]

    def resource(self, *_: Any) -> object:
        return object()

    def apply(self, policy: Any, **_: Any) -> None:
        self._request()
        if not self._works("karmada-webhook"):
            raise ApiError("control plane", "PATCH", "/apis", 500, "", "failed calling webhook")
        if "placement" in policy["spec"]:
            raise Invalid("control plane", "PATCH", "/apis", 422, "", "both")

    def close(self) -> None:
        pass


@pytest.mark.parametrize("what", WITHIN)
def test_what_ends_is_told_in_time(what: str) -> None:
    """Whenever that is between two probes, or within one."""
    took = []
    for seed in range(150):
        found = Simulation(seed)
        found.until(70 + seed / 150 * 65)
        assert [each.trouble for _, each in found.told] == [""]
        found.ends[what] = ended = found.now + random.uniform(0, 10)
        found.until(ended + 40)
        moment, finding = found.told[1]
        assert finding.trouble
        assert (
            what in (API, STORE)
            or {"karmada-aggregated-apiserver": "aggregated API", "karmada-webhook": "webhook"}.get(what, what)
            in finding.trouble
        )
        took.append(moment - ended)
        assert len(found.told) == 2, "told once"
    assert max(took) <= WITHIN[what]


def test_a_control_plane_at_rest_is_asked_four_times_in_a_probe() -> None:
    """Leases, Clusters, a policy, and each further server; what rarely changes each minute."""
    found = Simulation(1)
    found.until(60)
    found.requests = 0
    found.until(660)
    assert 60 * 5 <= found.requests <= 66 * 5 + 11 * 4
    assert [each.trouble for _, each in found.told] == [""]


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_leader_that_ends_where_another_one_follows_is_a_sign_and_no_trouble(name: str) -> None:
    for seed in range(60):
        found = Simulation(seed, frozenset({name}))
        found.until(100 + seed)
        found.ends[name] = ended = found.now
        found.follows[name] = ended + random.uniform(13, 18)
        found.until(ended + 120)
        assert {each.trouble for _, each in found.told} == {""}
        moments = [moment for moment, each in found.told if each.suspicion]
        assert moments[0] - ended <= 25


def test_controllers_that_a_run_has_restarted_are_no_trouble() -> None:
    """They wait until the Leases of those before them are over."""
    for seed in range(100):
        found = Simulation(seed)
        found.until(50)
        found.probes.suspend(PROD)
        found.ends = dict.fromkeys(CONTROLLERS, 60.0 + seed / 10)
        found.follows = {each: found.ends[each] + random.uniform(13, 20) for each in CONTROLLERS}
        found.now = 62.0 + seed / 10
        found.probes.resume(PROD)
        found.until(200)
        assert {(each.trouble, each.suspicion) for _, each in found.told if each.trouble} == set()


def _blink(found: Simulation, server: str, begin: float, seconds: float) -> None:
    found.until(begin)
    found.ends[server] = begin
    found.until(begin + seconds)
    del found.ends[server]


@pytest.mark.parametrize("server", ["karmada-webhook", "karmada-aggregated-apiserver", API])
def test_what_does_not_answer_for_a_moment_is_not_told(server: str) -> None:
    for seed in range(60):
        found = Simulation(seed)
        for begin in range(50, 500, 20):
            _blink(found, server, begin + random.uniform(0, 9), 1.2)
        assert {each.trouble for _, each in found.told} == {""}
