# SPDX-License-Identifier: Apache-2.0
"""Every version of a status is in order and honest, whatever users, runs and operators do.

The scenarios judge by the same rules (``status_course``).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
import status_course
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi
from karmada_operator import reconcile, status_writer
from karmada_operator.executor import Outcome
from karmada_operator.probes import Finding, Member, Probes

from operator_tests.stand_ins import PREFIX, FakeExecutor, FakeRun, condition, edited, live, operating, widget

ROLES = tuple(f"karmada.installer.{each}" for each in ("preflight", "etcd", "control_plane", "members", "report"))
STEPS, OPERATORS = 8, 3


class Site:
    """An object whose every version is kept, its user, and the runs for it. ``seed`` decides what happens."""

    def __init__(self, api: StubApi, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api, self.chance = api, random.Random(seed)
        self.lines: list[dict[str, Any]] = []
        self.cuts: list[float] = []
        put: Callable[..., Any] = api.put

        def noted(prefix: str, obj: dict[str, Any], *more: Any) -> Any:
            found = put(prefix, obj, *more)
            if prefix == PREFIX:
                meta, status = live(api, "x")["metadata"], live(api, "x").get("status") or {}
                # One version is seen at a time, as by a watch.
                self.lines.append(
                    {"seen": time.time(), "metadata": {**meta, "uid": meta.get("uid", "u")}, "status": dict(status)}
                )
            return found

        monkeypatch.setattr(api, "put", noted)

    def report(self, run: FakeRun) -> dict[str, Any]:
        known = {"status": "True", "reason": "AllReady", "message": "", "observedGeneration": run.spec.generation}
        kinds = ("Ready", "ComponentsReady", "ControlPlaneReady", "MembersReady")
        return {
            "phase": "Completed",
            "installed": True,
            "observedGeneration": run.spec.generation,
            "conditions": [{"type": kind, **known} for kind in kinds],
            "members": [{"name": "m", "ready": True, "reason": "ClusterReady"}],
        }

    def happens(self, executor: FakeExecutor) -> None:
        """One thing: a user does something, or a run goes on or ends."""
        runs = [each for each in executor.under_way if not each.over]
        generation = live(self.api, "x")["metadata"]["generation"]
        what = self.chance.choice(("edit", "pause", "go on", "task", "task", "end", "end", "fail"))
        if what == "edit":
            edited(self.api, "x", generation=generation + 1)
        elif what in ("pause", "go on"):
            asked = {"installer.karmada.io/paused": "true"} if what == "pause" else {}
            edited(self.api, "x", annotations=asked)
        elif runs and what == "task":
            runs[-1].task(self.chance.choice(ROLES))
        elif runs and what == "end":
            runs[-1].end(report=self.report(runs[-1]))
        elif runs:
            runs[-1].end(Outcome.FAILED, message="no", failed_task="T", phase="Waiting")
        time.sleep(self.chance.choice((0.0, 0.02, 0.1)))


@pytest.mark.parametrize("seed", range(6))
def test_each_version_is_in_order_and_honest(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(status_writer, "BETWEEN", 0.01)
    monkeypatch.setattr(reconcile, "FIRST_RETRY", 0.02)
    # Members are seen between runs, too.
    seen = Finding(members=(Member("m", True, "ClusterReady"),))
    monkeypatch.setattr(Probes, "finding", lambda _self, _instance: seen)
    site = Site(api, seed, monkeypatch)
    api.put(PREFIX, widget("x"))
    for _ in range(OPERATORS):
        site.cuts.append(time.time())
        executor = FakeExecutor()
        with operating(cluster, executor):
            until(lambda: condition(api, "Progressing") != "", "a first word")
            for _ in range(STEPS):
                site.happens(executor)
    edited(api, "x", annotations={})
    site.cuts.append(time.time())
    executor = FakeExecutor()
    executor.at_once = lambda run: run.end(report=site.report(run))
    with operating(cluster, executor):
        last = live(api, "x")["metadata"]["generation"]
        until(lambda: live(api, "x")["status"].get("observedGeneration") == last, "the last edit is carried out")
        until(lambda: condition(api, "Progressing").startswith("False"), "its end")
    versions = [status_course.Version.of(line) for line in site.lines]
    assert len(versions) > 2 * OPERATORS
    assert list(status_course.wrong(versions, site.cuts)) == []
