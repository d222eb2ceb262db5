# SPDX-License-Identifier: Apache-2.0
"""Objects of a control plane beside its workloads: that one is gone or edited starts a run, and nothing else does."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import KINDS, Fault, StubApi
from karmada_operator import course, health, reconcile, status_writer
from karmada_operator.course import Piece
from karmada_operator.health import Health, Instance, Verdict, host_clusters
from karmada_operator.kinds import Key
from karmada_operator.orders import HostCluster

from operator_tests.stand_ins import FINALIZER, PREFIX, Operator, condition, live, operating, widget
from operator_tests.test_health import DEPLOYMENTS, READY, X, watched, workload, written

SERVICES, CONFIG_MAPS, SECRETS = (f"api/v1/{name}" for name in ("services", "configmaps", "secrets"))
BUDGETS = "apis/policy/v1/poddisruptionbudgets"
POLICIES = "apis/networking.k8s.io/v1/networkpolicies"
OTHERS = (SERVICES, CONFIG_MAPS, SECRETS, BUDGETS, POLICIES)
WITH_GENERATION = (BUDGETS, POLICIES)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_writer, "BETWEEN", 0.02)
    monkeypatch.setattr(reconcile, "FIRST_RETRY", 0.05)
    monkeypatch.setattr(health, "SETTLE", 0.0)


def kind_of(prefix: str) -> str:
    return KINDS[prefix.rpartition("/")[2]]


def other(prefix: str, name: str, moment: int = 1, **meta: Any) -> dict[str, Any]:
    """An object as a run has written it at this second; like a server, it counts generations of two kinds only."""
    found = workload(name, moment, **meta)
    if prefix not in WITH_GENERATION:
        del found["metadata"]["generation"]
    content = {"data": {"key": "c2VjcmV0"}} if prefix in (SECRETS, CONFIG_MAPS) else {"spec": {"of": "no matter"}}
    return {"apiVersion": "v1", "kind": kind_of(prefix), "metadata": found["metadata"], **content}


def put_all(api: StubApi, moment: int = 1, **meta: Any) -> None:
    for prefix in OTHERS:
        api.put(prefix, other(prefix, "x-one", moment, **meta))


def all_are_seen(operator: Operator, number: int, instance: Instance = X) -> Callable[[], bool]:
    return lambda: len(operator.controller._health._there.get(instance, {})) == number


def settled(api: StubApi) -> None:
    until(lambda: condition(api, "Progressing") == "False Idle")
    until(lambda: condition(api, "Drifted") == "False AsTheDocumentSays")


@pytest.mark.parametrize("prefix", OTHERS)
def test_what_is_deleted_or_made_anew_starts_a_run_and_what_that_writes_starts_none(
    prefix: str, api: StubApi, cluster: Cluster
) -> None:
    kind = kind_of(prefix)
    api.put(PREFIX, widget("x"))
    api.put(DEPLOYMENTS, workload("x-webhook"))
    put_all(api)
    with operating(cluster) as operator:
        until(all_are_seen(operator, 6))
        operator.executor.next().end(report=READY)
        settled(api)
        api.remove(prefix, "a", "x-one")
        run = operator.executor.next()
        # What the run writes: that one anew, and all others once more.
        put_all(api, 2)
        until(all_are_seen(operator, 6))
        there = operator.controller._health._there[X]
        until(lambda: [there[Key(kind_of(each), "a", "x-one")].generation for each in WITH_GENERATION] == [2, 2])
        run.end(report=READY)
        settled(api)
        assert operator.executor.started.empty()
        api.put(prefix, other(prefix, "x-one", 2, uid="another"))
        again = operator.executor.next()
        assert operator.controller._health._there[X][Key(kind, "a", "x-one")].uid == "another"
        again.end(report=READY)
        settled(api)
        assert operator.executor.started.empty()


@pytest.mark.parametrize("prefix", OTHERS)
def test_what_it_would_be_told_of_it(prefix: str, api: StubApi, cluster: Cluster) -> None:
    kind = kind_of(prefix)
    put_all(api)
    with watched(api, cluster, [10.0]) as found:
        found.settle(X)
        assert found.verdict(X) == Verdict()
        # Others write labels, a status, and what an API server counts no generation of.
        api.put(prefix, other(prefix, "x-one", **{**written(1), "finalizers": ["somebody/else"]}))
        api.put(prefix, other(prefix, "x-later"))
        until(lambda: Key(kind, "a", "x-later") in found._there[X])
        assert found.verdict(X) == Verdict()
        api.put(prefix, other(prefix, "x-one", 2, **written(1)))
        changed = (f"{kind} x-one was changed",) if prefix in WITH_GENERATION else ()
        api.put(prefix, other(prefix, "x-last"))
        until(lambda: Key(kind, "a", "x-last") in found._there[X])
        assert found.verdict(X) == Verdict(drifted=changed)
        api.remove(prefix, "a", "x-one")
        # It runs on: whether it still answers is for probes to say.
        until(lambda: found.verdict(X) == Verdict(drifted=(f"{kind} x-one was deleted",)))
        verdict = found.verdict(X)
        assert verdict
        assert verdict.parts == ()


def test_no_content_is_asked_for_or_kept(api: StubApi, cluster: Cluster) -> None:
    def asked() -> list[str]:
        found = zip(list(api.requests), list(api.headers), strict=False)
        return [headers["Accept"] for (_, path), headers in found if path.partition("?")[0].strip("/") in OTHERS]

    put_all(api)
    with watched(api, cluster, [10.0]) as found:
        api.put(SECRETS, other(SECRETS, "x-later"))
        until(lambda: Key("Secret", "a", "x-later") in found._there[X])
        until(lambda: len(asked()) >= 2 * len(OTHERS), "a list and a watch of each kind")
        pieces = [*found._there[X].values()]
    # Without another form to fall back to, a server sends nothing else.
    forms = {f"application/json;as=PartialObjectMetadata{each};g=meta.k8s.io;v=v1" for each in ("", "List")}
    assert set(asked()) == forms
    assert len(pieces) == 6
    assert "c2VjcmV0" not in repr(pieces)


def test_what_is_kept_of_an_object_without_a_generation_changes_with_nothing_but_its_uid() -> None:
    def piece(moment: int, **meta: Any) -> Piece:
        return course.piece_of(other(SECRETS, "x-one", moment, **{"uid": "u", **meta}))

    assert piece(1) == piece(2, resourceVersion="7")
    assert piece(1) != piece(1, uid="v")
    budget = {**other(BUDGETS, "x-one", uid="u")}
    after = {**other(BUDGETS, "x-one", 2, uid="u")}
    assert course.piece_of(budget) != course.piece_of(after)


@pytest.mark.parametrize("denied", ["list", "watch"])
def test_without_a_right_to_see_some_the_rest_is_watched(denied: str, api: StubApi, cluster: Cluster) -> None:
    api.put(DEPLOYMENTS, workload("x-webhook"))
    put_all(api)
    path = {"list": "api/v1/secrets?limit", "watch": "api/v1/secrets?watch"}[denied]
    api.faults.append(Fault("status", "GET", path, 403, times=100))
    with watched(api, cluster, [10.0]) as found:
        until(lambda: len(found._there[X]) >= 5)
        until(lambda: api.faults[0].times < 100, "the request that is refused")
        found.settle(X)
        api.remove(SECRETS, "a", "x-one")
        api.remove(SERVICES, "a", "x-one")
        until(lambda: found.verdict(X) == Verdict(drifted=("Service x-one was deleted",)))
    assert api.faults[0].times == 99, "it is not asked for again and again"


def admin_config(uid: str = "") -> dict[str, Any]:
    return other(SECRETS, "x-admin-config", **({"uid": uid} if uid else {}))


@pytest.mark.parametrize("place", ["beside its object", "another cluster", "plain hosts"])
def test_a_kubeconfig_that_is_deleted_comes_back(place: str, api: StubApi, cluster: Cluster) -> None:
    with StubApi() as remote:
        data = {"kubeconfig": b64encode(json.dumps(remote.kubeconfig()).encode()).decode()}
        api.put(SECRETS, {"kind": "Secret", "metadata": {"name": "remote", "namespace": "a"}, "data": data})
        spec = {
            "beside its object": {},
            "another cluster": {"hostCluster": {"secretRef": {"name": "remote"}, "insecureSkipTLSVerification": True}},
            "plain hosts": {"mode": "Binary"},
        }[place]
        api.put(SECRETS, admin_config())
        if place == "another cluster":
            remote.put(SERVICES, other(SERVICES, "x-apiserver"))
        api.put(PREFIX, {**widget("x"), "spec": spec})
        with operating(cluster) as operator:
            watching = operator.controller._health
            until(all_are_seen(operator, 1))
            operator.executor.next().end(report=READY)
            settled(api)
            until(lambda: X.kubeconfig in watching._baselines.get(X, {}))
            if place == "another cluster":
                until(lambda: len(watching._baselines[X]) == 2)
            api.remove(SECRETS, "a", "x-admin-config")
            run = operator.executor.next()
            api.put(SECRETS, admin_config("second"))
            until(all_are_seen(operator, 1))
            run.end(report=READY)
            settled(api)
            assert operator.executor.started.empty()


def test_one_that_was_deleted_while_nobody_watched_elsewhere_keeps_no_other_from_being_watched(
    api: StubApi, cluster: Cluster
) -> None:
    """An operator that starts knows of a control plane in another namespace before all is listed."""
    status = {**READY, "installed": True, "observedGeneration": 1}
    host = {"hostCluster": {"namespace": "b"}}
    api.put(PREFIX, {**widget("x", finalizers=[FINALIZER]), "spec": host, "status": status})
    api.put(SERVICES, other(SERVICES, "x-apiserver", namespace="b"))
    found = Health(cluster, ["a"], lambda: 10.0, opened=host_clusters(cluster))
    told: list[Instance] = []
    found.listen(told.append)
    place = HostCluster(namespace="b")
    found.begin(X, place)
    assert X not in found._baselines
    for each in found.watchers:
        each.start()
    until(lambda: X in told)
    found.begin(X, place)
    until(lambda: found._baselines.get(X, {}).keys() == {Key("Service", "b", "x-apiserver")})
    assert live(api, "x")
    found.stop()
    for each in found.watchers:
        each.stop()
