# SPDX-License-Identifier: Apache-2.0
"""What holds members since a restore, with Karmada's own type of a Work at a real API server."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_restore
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import crd_files
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import Source
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.members import works as member_works
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import held, on_hosts, partial
from ansible_collections.karmada.installer.plugins.plugin_utils.run import store
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer, running_api_server
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock

FINALIZER = "karmada.io/execution-controller"
REFUSED = "this member is held since a restore"
ADMISSION = "admissionregistration.k8s.io/v1"
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One for these tests alone: they hold every cluster that they do not name."""
    with running_api_server(tmp_path_factory.mktemp("parts")) as found:
        yield found


@pytest.fixture
def control_plane(server: ApiServer) -> Iterator[Cluster]:
    with Cluster.from_kubeconfig(str(server.kubeconfig), name="control plane") as found:
        crds = crd_files.crds(releases.newest().karmada, Source("GoModules"))
        found.apply(next(each for each in crds if each["metadata"]["name"] == "works.work.karmada.io"))
        # A CRD is there a moment before its resource is served.
        until = time.monotonic() + 60
        while found.resource(member_works.WORK_API, "Work") is None and time.monotonic() < until:
            time.sleep(0.2)
        yield found


@pytest.fixture
def run(control_plane: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    @contextmanager
    def servers(_run: Run) -> Iterator[list[Cluster]]:
        yield [control_plane]

    monkeypatch.setattr(store, "Lock", lambda *_, **__: NoLock())
    monkeypatch.setattr(partial, "_api_servers", servers)
    found = fake_run(samples.document(), FakeCluster("host cluster"), stored=samples.state(), operation="release")
    found.control_plane = control_plane
    yield found
    # Nothing is held by the next test.
    partial.settle(found, held.EVERYTHING, 60)
    found.close()


@pytest.fixture
def clusters(control_plane: Cluster) -> list[str]:
    """Two of them, with execution namespaces."""
    names = [f"m{next(_NUMBERS)}-{time.time_ns() % 10**6}" for _ in range(2)]
    for name in names:
        metadata = {"name": member_works.execution_namespace(name)}
        control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return names


def asking(run: Run) -> partial.Asking:
    return lambda names: partial.admitting(run, names)


def on_a_host(server: ApiServer, names: list[str]) -> dict[str, bool]:
    """Clusters: whether the API server takes their Works, as a host asks its own."""
    files = (server.ca, server.client_certificate, server.client_key)
    requests = {name: {"path": partial.probe_path(name), "body": partial.probe(name)} for name in names}
    found = host_restore.answers(server.url, *(each.read_text() for each in files), requests)
    return {name: on_hosts.takes_works("here", name, found[name]) for name in names}


def work(cluster: str, name: str, *manifests: dict[str, Any], **spec: Any) -> dict[str, Any]:
    found = list(manifests) or [manifest(name)]
    metadata = {"name": name, "namespace": member_works.execution_namespace(cluster), "finalizers": [FINALIZER]}
    return {
        "apiVersion": member_works.WORK_API,
        "kind": "Work",
        "metadata": metadata,
        "spec": {**spec, "workload": {"manifests": found}},
    }


def manifest(name: str, namespace: str | None = "shop", kind: str = "ConfigMap") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def live(control_plane: Cluster, wanted: dict[str, Any]) -> dict[str, Any] | None:
    return control_plane.get(*Ref.of(wanted))


def as_controllers_write(control_plane: Cluster, wanted: dict[str, Any]) -> None:
    """The whole spec anew, without suspension."""
    there = live(control_plane, wanted)
    assert there is not None
    control_plane.replace({**there, "spec": {**wanted["spec"], "suspendDispatching": False}})


def release(run: Run, clusters: list[str], *released: str, namespaces: tuple[str, ...] = (), **more: Any) -> Any:
    parts = {name: namespaces for name in clusters if name in released}
    others = {name: () for name in partial.clusters(run) if name not in clusters}
    return partial.settle(run, {**parts, **others}, 60, **more)


def test_nothing_reaches_a_held_member_whoever_writes_and_released_ones_are_not_concerned(
    run: Run, control_plane: Cluster, clusters: list[str]
) -> None:
    free, kept = clusters
    for name in clusters:
        control_plane.create(work(name, "app", suspendDispatching=False))
    assert release(run, clusters, free).suspended == 1

    with pytest.raises(Forbidden, match=REFUSED):
        as_controllers_write(control_plane, work(kept, "app"))
    with pytest.raises(Forbidden, match=REFUSED):
        control_plane.create(work(kept, "new"))
    with pytest.raises(Forbidden, match=REFUSED):
        control_plane.delete(*Ref.of(work(kept, "app")))
    with pytest.raises(Forbidden, match=REFUSED):
        control_plane.patch_merge(*Ref.of(work(kept, "app")), {"spec": {"suspendDispatching": None}})
    # An agent tells how objects are, and a Work that is suspended may be changed.
    there = live(control_plane, work(kept, "app"))
    assert there
    control_plane.replace({**there, "status": {"conditions": []}}, subresource="status")
    control_plane.create(work(kept, "by-design", suspendDispatching=True))

    as_controllers_write(control_plane, work(free, "app"))
    control_plane.create(work(free, "new"))
    assert control_plane.delete(*Ref.of(work(free, "new")))


def test_a_host_that_asks_its_own_api_server_hears_what_holds(
    run: Run, control_plane: Cluster, clusters: list[str], server: ApiServer
) -> None:
    free, kept = clusters
    parts = {name: () for name in partial.clusters(run) if name != kept}
    assert on_a_host(server, clusters) == {free: True, kept: True}
    partial.begin(run, parts)
    deadline = time.monotonic() + 30
    while (told := on_a_host(server, clusters)) != {free: True, kept: False} and time.monotonic() < deadline:
        time.sleep(0.2)
    assert told == {free: True, kept: False}
    assert not partial.admitting(run, [kept]), "whoever asks from elsewhere hears the same"
    created = control_plane.list(member_works.WORK_API, "Work", member_works.execution_namespace(free))
    assert created == [], "a dry run makes nothing"
    with pytest.raises(ApiError, match="not found"):
        on_a_host(server, ["nobody"])


def test_all_works_of_a_namespace_at_once_are_not_deleted(
    run: Run, control_plane: Cluster, clusters: list[str]
) -> None:
    """As the controller for namespaces does it, when somebody deletes the Cluster."""
    _free, kept = clusters
    control_plane.create(work(kept, "app"))
    release(run, clusters, _free)
    path = control_plane._path(member_works.WORK_API, "Work", member_works.execution_namespace(kept))
    with pytest.raises(Forbidden, match=REFUSED):
        control_plane._request("delete", "DELETE", path)
    assert live(control_plane, work(kept, "app"))


def test_works_get_back_exactly_what_they_had(run: Run, control_plane: Cluster, clusters: list[str]) -> None:
    free, kept = clusters
    before = {
        "absent": work(kept, "absent"),
        "false": work(kept, "false", suspendDispatching=False),
        "by-design": work(kept, "by-design", suspendDispatching=True),
    }
    for each in before.values():
        control_plane.create(each)
    made = {name: live(control_plane, each) for name, each in before.items()}
    release(run, clusters, free)
    there = [live(control_plane, each) for each in before.values()]
    assert all(each and held.is_suspended(each) for each in there)

    assert release(run, clusters, *clusters).resumed == 2
    for name, each in before.items():
        found, was = live(control_plane, each), made[name]
        assert found
        assert was
        assert found["spec"] == was["spec"]
        assert not found["metadata"].get("annotations")
    space = control_plane.get("v1", "Namespace", member_works.execution_namespace(kept))
    assert space
    assert held.LABEL not in space["metadata"]["labels"]


def test_what_is_settled_is_settled_and_the_last_release_leaves_no_policy(
    run: Run, control_plane: Cluster, clusters: list[str]
) -> None:
    free, kept = clusters
    control_plane.create(work(kept, "app"))
    assert release(run, clusters, free).changes
    version = (live(control_plane, work(kept, "app")) or {})["metadata"]["resourceVersion"]
    again = release(run, clusters, free)
    assert (again.changes, again.suspended, again.resumed) == ([], 0, 0)
    assert (live(control_plane, work(kept, "app")) or {})["metadata"]["resourceVersion"] == version

    assert partial.settle(run, held.EVERYTHING, 60).changes
    for each in held.policies(run.state.owner):
        assert control_plane.get(*Ref.of(each)) is None
    again = partial.settle(run, held.EVERYTHING, 60)
    assert (again.changes, again.suspended, again.resumed) == ([], 0, 0)


def test_of_a_member_some_namespaces_are_released(run: Run, control_plane: Cluster, clusters: list[str]) -> None:
    free, kept = clusters
    mixed = [manifest("a", "shop"), manifest("b", "bank")]
    works = {
        "shop": work(kept, "shop"),
        "space": work(kept, "space", manifest("shop", None, "Namespace")),
        "bank": work(kept, "bank", manifest("x", "bank")),
        "mixed": work(kept, "mixed", *mixed),
        "role": work(kept, "role", manifest("shop", None, "ClusterRole")),
        "nothing": work(kept, "nothing"),
    }
    works["nothing"]["spec"]["workload"]["manifests"] = []
    for each in works.values():
        control_plane.create(each)
    release(run, clusters, free)
    release(run, clusters, *clusters, namespaces=("shop",))
    there = {name: live(control_plane, each) for name, each in works.items()}
    assert {name for name, each in there.items() if each and not held.is_suspended(each)} == {"shop", "space"}
    for name, each in works.items():
        if name in ("shop", "space"):
            as_controllers_write(control_plane, each)
            assert control_plane.delete(*Ref.of(each))
        else:
            with pytest.raises(Forbidden, match=REFUSED):
                as_controllers_write(control_plane, each)
            with pytest.raises(Forbidden, match=REFUSED):
                control_plane.delete(*Ref.of(each))
        # What is refused is what this collection takes for held.
        assert held.holds_work({kept: ("shop",)}, each) == (name not in ("shop", "space"))


@pytest.mark.parametrize("broken", ["policy", "binding", "label", "work"])
def test_what_does_not_hold_any_more_is_seen(
    run: Run, control_plane: Cluster, clusters: list[str], broken: str
) -> None:
    free, kept = clusters
    parts = {name: () for name in partial.clusters(run) if name != kept}
    control_plane.create(work(kept, "app"))
    release(run, clusters, free)
    assert partial.wrong(run, parts, asking(run)) == []
    if broken in ("policy", "binding"):
        kind = f"ValidatingAdmissionPolicy{'Binding' if broken == 'binding' else ''}"
        control_plane.delete(ADMISSION, kind, held.POLICY)
    else:
        space = member_works.execution_namespace(kept)
        control_plane.patch_merge("v1", "Namespace", space, None, {"metadata": {"labels": {held.LABEL: None}}})
    if broken == "work":
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                as_controllers_write(control_plane, work(kept, "app"))
                break
            except Forbidden:
                time.sleep(0.2)
        patch = {"metadata": {"labels": {held.LABEL: held.HELD}}}
        control_plane.patch_merge("v1", "Namespace", space, None, patch)
    deadline = time.monotonic() + 30
    while not (told := partial.wrong(run, parts, asking(run))) and time.monotonic() < deadline:
        time.sleep(0.2)
    said = {"label": "has not the label", "work": "is not suspended"}.get(broken, "does not refuse Works")
    assert said in told[0]
    release(run, clusters, free)
    assert partial.wrong(run, parts, asking(run)) == []


def test_what_was_being_deleted_is_decided_by_name_first(run: Run, control_plane: Cluster, clusters: list[str]) -> None:
    free, kept = clusters
    for name in ("stays", "goes"):
        control_plane.create(work(kept, name))
        control_plane.delete(*Ref.of(work(kept, name)))
    space = member_works.execution_namespace(kept)
    version = (control_plane.get("v1", "Namespace", space) or {})["metadata"]["resourceVersion"]
    with pytest.raises(ProblemsError) as refused:
        release(run, clusters, free, kept=[f"{kept}/stays"])
    assert f'restore_let_go": ["{kept}/goes"]' in str(refused.value)
    assert f"{kept}/stays" not in str(refused.value)
    assert "nothing more was released" in str(refused.value)
    assert (control_plane.get("v1", "Namespace", space) or {})["metadata"]["resourceVersion"] == version

    release(run, clusters, free, kept=[f"{kept}/stays"], let_go=[f"{kept}/goes"])
    assert live(control_plane, work(kept, "stays")) is None
    going = live(control_plane, work(kept, "goes"))
    assert going
    # Decided once.
    assert not release(run, clusters, free).changes
    # As Karmada's controller or an agent finishes it.
    control_plane.replace({**going, "metadata": {**going["metadata"], "finalizers": []}})
    assert live(control_plane, work(kept, "goes")) is None


def test_a_cluster_without_an_execution_namespace_gets_one_that_is_held(
    run: Run, control_plane: Cluster, clusters: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Karmada would make it, and Works in it."""
    known, new = partial.clusters, f"new-{next(_NUMBERS)}-{time.time_ns() % 10**6}"
    monkeypatch.setattr(partial, "clusters", lambda run: sorted({*known(run), new}))
    parts = {name: () for name in partial.clusters(run) if name != new}
    partial.settle(run, parts, 60)
    with pytest.raises(Forbidden, match=REFUSED):
        control_plane.create(work(new, "app"))
    assert clusters
