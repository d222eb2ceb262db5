# SPDX-License-Identifier: Apache-2.0
"""What a run decides by itself, and when it writes."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components import endpoint
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import removal
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import (
    Connection,
    cluster_from_secret,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Conflict
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.lease import LockLost
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
from ansible_collections.karmada.installer.plugins.plugin_utils.run import store as store_module
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import (
    FakeCluster,
    fake_run,
    ingress_class,
    node,
    storage_class,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    OWNER,
    document,
    etcd,
    passage,
    rendered,
    state,
)


def fresh(spec: dict[str, Any] | None = None, *objects: Any) -> Run:
    return fake_run(document(spec), FakeCluster("host cluster", *objects))


# -- decided once ------------------------------------------------------------------------------------------------------


def test_etcd_gets_a_claim_where_there_is_a_default_class_and_memory_where_there_is_none() -> None:
    assert fresh({}, storage_class("standard")).state.etcd.storage == "volumeClaim"
    assert fresh({}, storage_class("standard", default=False)).state.etcd.storage == "emptyDir"
    assert fresh(etcd(volumeData={"emptyDir": {}}), storage_class("standard")).state.etcd.storage == "emptyDir"
    assert fresh(etcd(volumeData={"volumeClaim": {"size": "1Gi"}})).state.etcd.storage == "volumeClaim"


def test_what_was_decided_stays_decided() -> None:
    stored = state(version="v1.18.1", endpoint_host="192.0.2.2")
    spec = {"endpoint": {"type": "NodePort"}}
    run = fake_run(document(spec), FakeCluster("host", node("192.0.2.1"), node("192.0.2.2")), stored=stored)
    assert run.instance.release.karmada == "v1.18.1"
    assert run.state.etcd.storage == "volumeClaim", "though there is no class any more"
    assert run.endpoint_host == "192.0.2.2"
    gone = fake_run(document(spec), FakeCluster("host", node("192.0.2.1")), stored=stored)
    assert gone.endpoint_host == "192.0.2.1", "an address that no node has leads nowhere"


def test_two_first_states_have_nothing_in_common() -> None:
    one, two = fresh().state, fresh().state
    assert one.owner != two.owner
    assert one.etcd.token != two.etcd.token
    assert not {pair.key for pair in one.authorities.values()} & {pair.key for pair in two.authorities.values()}


def test_steps_of_a_check_run_show_one_owner() -> None:
    """Each step makes a state of its own, which is never stored."""
    one, two = (fake_run(document({}), FakeCluster("host cluster"), check=True) for _ in range(2))
    assert one.state.owner == two.state.owner
    assert len({one.state.owner, one.state.etcd.token}) == 2
    two._state, two.holder = None, "another run"
    assert one.state.owner != two.state.owner


def test_a_run_that_was_killed_after_it_made_the_namespace_is_gone_on_from() -> None:
    labels = {
        "app.kubernetes.io/managed-by": "karmada-installer",
        "app.kubernetes.io/instance": "prod",
        "installer.karmada.io/owner": OWNER,
    }
    ours = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada", "labels": labels}}
    assert fresh({}, ours).state.owner == OWNER
    other = {**ours, "metadata": {"name": "karmada", "labels": {**labels, "app.kubernetes.io/instance": "test"}}}
    assert fresh({}, other).state.owner != OWNER


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "https://prod-apiserver.karmada.svc.cluster.local:5443"),
        ({"type": "NodePort", "port": 32001, "host": "karmada.example.com"}, "https://karmada.example.com:32001"),
        ({"type": "NodePort", "port": 32001, "host": "2001:db8::1"}, "https://[2001:db8::1]:32001"),
        ({"type": "NodePort", "port": 32001}, "https://192.0.2.1:32001"),
        ({"type": "Ingress", "host": "karmada.example.com"}, "https://karmada.example.com:443"),
        ({"type": "Ingress", "host": "karmada.example.com", "port": 8443}, "https://karmada.example.com:8443"),
        ({"type": "Route", "host": "karmada.example.com"}, "https://karmada.example.com:443"),
        ({"type": "External", "host": "karmada.example.com"}, "https://karmada.example.com:5443"),
    ],
)
def test_where_people_outside_find_the_api_server(settings: dict[str, Any], url: str) -> None:
    assert fresh({"endpoint": settings}, node("192.0.2.1")).public_url == url


def router(host: str, status: str = "True", **more: Any) -> dict[str, Any]:
    return {"routerName": "default", "host": host, "conditions": [{"type": "Admitted", "status": status, **more}]}


def test_the_name_that_a_router_gives_is_kept_while_it_gives_none() -> None:
    spec = {"endpoint": {"type": "Route"}}
    admitted = {**passage(spec), "status": {"ingress": [router("other", "False"), router("prod.apps.example.com")]}}
    assert fresh(spec, admitted).public_url == "https://prod.apps.example.com:443"
    stored = state(endpoint_host="prod.apps.example.com", endpoint_type="Route")
    for live in ([], [passage(spec)]):
        assert fake_run(document(spec), FakeCluster("host", *live), stored=stored).endpoint_host == stored.endpoint_host


def test_an_address_of_another_type_is_not_kept() -> None:
    stored = state(endpoint_host="192.0.2.10", endpoint_type="LoadBalancer")
    spec = {"endpoint": {"type": "Route"}}
    assert fake_run(document(spec), FakeCluster("host"), stored=stored).endpoint_host == ""
    written_by_the_first_version = replace(stored, endpoint_type="")
    same = {"endpoint": {"type": "LoadBalancer"}}
    assert (
        fake_run(document(same), FakeCluster("host"), stored=written_by_the_first_version).endpoint_host == "192.0.2.10"
    )


def test_a_router_that_refuses_says_why() -> None:
    live = passage({"endpoint": {"type": "Route"}})
    assert endpoint.reason_without_address(live) == "no router has admitted it yet"
    refused = router("prod.apps.example.com", "False", reason="HostAlreadyClaimed", message="route a in b has it")
    live["status"] = {"ingress": [refused]}
    assert endpoint.reason_without_address(live) == "router default refuses it: route a in b has it"
    live["status"]["ingress"].append(router("prod.inner.example.com"))
    assert endpoint.reason_without_address(live) is None


# -- writing -----------------------------------------------------------------------------------------------------------


class NoLock:
    """Stands for the Lease, which has tests of its own; ``taken`` counts, ``lost`` says that another run has it."""

    taken = 0
    lost = False

    def acquire(self, *_: Any) -> None:
        NoLock.taken += 1

    def check(self) -> None:
        if NoLock.lost:
            raise LockLost("lost the lock")

    def held(self, *, release: bool) -> Any:  # noqa: ARG002
        return nullcontext()

    def release(self) -> None:
        pass


@pytest.fixture
def unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    NoLock.taken, NoLock.lost = 0, False
    monkeypatch.setattr(store_module, "Lock", lambda *_, **_named: NoLock())


def webhook() -> list[dict[str, Any]]:
    found = rendered()
    return [found.one("Deployment", "prod-webhook"), found.one("Service", "prod-webhook")]


@pytest.mark.usefixtures("unlocked")
def test_a_second_run_sends_nothing_and_takes_no_lock() -> None:
    objects = webhook()
    host = FakeCluster("host", storage_class("standard"))
    run = fake_run(document(), host, stored=state())
    assert {change.action for change in run.apply_to_host_cluster("start", lambda: objects)} == {"created"}
    assert NoLock.taken == 1
    host.log.clear()
    again = fake_run(document(), host)
    assert {change.action for change in again.apply_to_host_cluster("start", lambda: objects)} == {"unchanged"}
    assert host.log == []
    assert NoLock.taken == 1


@pytest.mark.usefixtures("unlocked")
def test_everything_that_was_created_is_recorded_with_its_uid() -> None:
    host = FakeCluster("host", storage_class("standard"))
    run = fake_run(document(), host, stored=state())
    run.apply_to_host_cluster("start", webhook)
    again = fake_run(document(), host)
    live = host.get("apps/v1", "Deployment", "prod-webhook", "karmada")
    assert live
    assert again.state.owned["host"]["Deployment karmada/prod-webhook"] == live["metadata"]["uid"]
    assert again.state.owned["host"]["Namespace karmada"], "and the namespace, because this run made it"


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize(("manager", "ours"), [("karmada-installer", True), ("kubectl", False)])
def test_a_namespace_that_a_killed_run_made_is_recorded_by_the_next_one(manager: str, ours: bool) -> None:
    host = FakeCluster("host", storage_class("standard"))
    namespace = workloads.namespace(rendered().instance)
    namespace["metadata"]["managedFields"] = [
        {"manager": manager, "operation": "Apply", "time": "2026-01-01T00:00:00Z"}
    ]
    uid = host.put(namespace)["metadata"]["uid"]
    run = fake_run(document(), host)
    run.apply_to_host_cluster("start", webhook)
    recorded = fake_run(document(), host).state.owned["host"]
    assert recorded.get("Namespace karmada") == (uid if ours else None)


@pytest.mark.usefixtures("unlocked")
def test_the_journal_is_written_before_the_first_object() -> None:
    host = FakeCluster("host", storage_class("standard"))
    fake_run(document(), host).apply_to_host_cluster("start the webhook", webhook)
    order = [line.split()[-1] for line in host.log]
    assert order[:2] == ["karmada", "prod-installer-state"], host.log
    assert order.index("prod-installer-state") < order.index("prod-webhook")
    journal = fake_run(document(), host).state.journal
    assert (journal.operation, journal.step) == ("test", "start the webhook")
    assert journal.interrupted


# -- two writers -------------------------------------------------------------------------------------------------------

STATE = ("v1", "Secret", "karmada", "prod-installer-state")


def read_by_two(host: FakeCluster) -> tuple[Run, Run]:
    """Two runs that have both taken the lock, the second while the first stood still."""
    runs = fake_run(document(), host), fake_run(document(), host)
    for run, holder in zip(runs, ("first", "second"), strict=True):
        run.holder = holder
    return runs


@pytest.mark.usefixtures("unlocked")
def test_who_lost_the_lock_unawares_replaces_no_state_of_another_run() -> None:
    host = FakeCluster("host", storage_class("standard"))
    first, second = read_by_two(host)
    fake_run(document(), host, stored=state())
    with first.writing("begins"):
        with second.writing("takes over"):
            second.save(replace(second.state, endpoint_host="192.0.2.9"))
        written = json.dumps(host.objects[STATE])
        with pytest.raises(LockLost, match=r"somebody else has written Secret karmada/prod-installer-state\. It was"):
            first.save(replace(first.state, endpoint_host="192.0.2.1"))
    assert json.dumps(host.objects[STATE]) == written
    assert fake_run(document(), host).state.endpoint_host == "192.0.2.9"


@pytest.mark.usefixtures("unlocked")
def test_of_two_first_installs_one_has_its_keys_stored_and_the_other_writes_none() -> None:
    host = FakeCluster("host", storage_class("standard"))
    first, second = read_by_two(host)
    assert (first.stored_state, second.stored_state) == (None, None)
    second.save(second.state)
    with pytest.raises(LockLost):
        first.save(first.state)
    assert fake_run(document(), host).state.authorities == second.state.authorities


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize("again", [False, True], ids=["gone", "there again"])
def test_a_state_that_was_removed_meanwhile_is_not_brought_back(again: bool) -> None:
    host = FakeCluster("host", storage_class("standard"))
    run = fake_run(document(), host, stored=state())
    with run.writing("begins"):
        gone = host.objects.pop(STATE)
        if again:
            host.put({**gone, "metadata": {**gone["metadata"], "uid": "of another instance"}})
        with pytest.raises(LockLost):
            run.save(replace(run.state, endpoint_host="192.0.2.1"))
    assert (STATE in host.objects) is again


@pytest.mark.usefixtures("unlocked")
def test_a_write_that_is_refused_although_nobody_wrote_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy, or an API server that was asked twice."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    host = FakeCluster("host", storage_class("standard"))
    run = fake_run(document(), host, stored=state())
    real, refusals = host.apply, [2]

    def apply(obj: Any, **more: Any) -> Any:
        if obj["kind"] == "Secret" and refusals[0]:
            refusals[0] -= 1
            raise Conflict("host", "PATCH", "/", 409, "Conflict", "somebody else was faster")
        return real(obj, **more)

    monkeypatch.setattr(host, "apply", apply)
    with run.writing("begins"):
        refusals[0] = 2
        run.save(replace(run.state, endpoint_host="192.0.2.1"))
    assert fake_run(document(), host).state.endpoint_host == "192.0.2.1"
    with run.writing("goes on"):
        refusals[0] = 100
        with pytest.raises(Conflict):
            run.save(replace(run.state, endpoint_host="192.0.2.2"))


@pytest.mark.usefixtures("unlocked")
def test_each_write_of_a_run_goes_on_from_its_last_one() -> None:
    host = FakeCluster("host", storage_class("standard"))
    run = fake_run(document(), host)
    with run.writing("begins"):
        for passage_of in ("Ingress", "Route"):
            run.save(replace(run.state, passages=(passage_of,)))
    with run.writing("goes on"):
        assert run.state.passages == ("Route",)


class Unheard(FakeCluster):
    """The answer to the next apply of a Secret is lost; it is sent again, as the client does."""

    lost = False

    def apply(self, obj: dict[str, Any], **options: Any) -> Any:
        if self.lost and obj["kind"] == "Secret":
            self.lost = False
            super().apply(obj, **options)
        return super().apply(obj, **options)


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize("stored", [None, state()], ids=["first", "later"])
def test_a_write_that_got_through_unheard_is_taken_for_ours(stored: Any) -> None:
    host = Unheard("host", storage_class("standard"))
    run = fake_run(document(), host, stored=stored)
    host.lost = True
    with run.writing("begins"):
        assert not host.lost
        run.save(replace(run.state, endpoint_host="192.0.2.1"))
    assert fake_run(document(), host).state.endpoint_host == "192.0.2.1"


def lease(name: str, holder: str = "another run") -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": f"{name}-installer", "namespace": "karmada"},
        "spec": {"holderIdentity": holder},
    }


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize(("ours", "theirs"), [("prod", "prod-kube"), ("prod-aggregated", "prod")])
@pytest.mark.parametrize("installed", [True, False])
def test_of_two_first_installs_whose_names_meet_one_gives_way(ours: str, theirs: str, installed: bool) -> None:
    host = FakeCluster("host", storage_class("standard"), lease(theirs, "" if installed else "another run"))
    if installed:
        metadata = {"name": f"{theirs}-installer-state", "namespace": "karmada"}
        host.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    with pytest.raises(ProblemsError, match=f"nothing was installed:\n.*control plane {theirs} is being installed"):
        fake_run(document(name=ours), host).apply_to_host_cluster("start", webhook)
    assert not host.names("Deployment")
    assert f"{ours}-installer-state" not in host.names("Secret")


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize("there", [lease("prod-kube", ""), lease("other")], ids=["gave way", "another name"])
def test_a_first_install_goes_on_beside_others(there: dict[str, Any]) -> None:
    host = FakeCluster("host", storage_class("standard"), there)
    fake_run(document(), host).apply_to_host_cluster("start", webhook)
    assert "prod-webhook" in host.names("Deployment")


@pytest.mark.usefixtures("unlocked")
def test_an_instance_that_is_there_gives_way_to_none() -> None:
    host = FakeCluster("host", storage_class("standard"), lease("prod-kube"))
    fake_run(document(), host, stored=state()).apply_to_host_cluster("start", webhook)
    assert "prod-webhook" in host.names("Deployment")


@pytest.mark.usefixtures("unlocked")
def test_an_operation_that_came_to_its_end_is_closed_once() -> None:
    host = FakeCluster("host", storage_class("standard"))
    run = fake_run(document(), host, stored=state())
    run.apply_to_host_cluster("start", webhook)
    assert run.finish() is True
    after = fake_run(document(), host)
    assert not after.state.journal.interrupted
    assert after.state.document == document()
    assert after.finish() is False


def scheduler_pod(digest: str, node: str = "node1") -> dict[str, Any]:
    image = "docker.io/karmada/karmada-scheduler"
    labels = {"app.kubernetes.io/instance": "prod"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"prod-scheduler-{node}", "namespace": "karmada", "labels": labels},
        "spec": {"containers": [{"name": "karmada-scheduler", "image": f"{image}:v1.18.2"}], "nodeName": node},
        "status": {"containerStatuses": [{"name": "karmada-scheduler", "imageID": f"{image}@{digest}"}]},
    }


@pytest.mark.usefixtures("unlocked")
def test_what_images_of_pods_turned_out_to_be_is_recorded_once_and_anew_by_name() -> None:
    image, one, two = "docker.io/karmada/karmada-scheduler:v1.18.2", f"sha256:{1:064}", f"sha256:{2:064}"
    host = FakeCluster("host", storage_class("standard"), scheduler_pod(one))
    run = fake_run(document(), host, stored=state())
    run.apply_to_host_cluster("start", webhook)
    assert run.finish() is True
    assert fake_run(document(), host).state.digests == {image: one}
    host.put(scheduler_pod(two))
    other = document({"components": {"karmadaScheduler": {"replicas": 2}}})
    assert fake_run(other, host).finish() is True
    assert fake_run(other, host).state.digests == {image: one}, "the first is kept, and the report tells of the other"
    again = fake_run(other, host)
    again.confirmed_images = {image}
    assert again.finish() is True
    assert fake_run(other, host).state.digests == {image: two}
    host.log.clear()
    again = fake_run(other, host)
    again.confirmed_images = {image}
    assert again.finish() is False
    assert host.log == []


@pytest.mark.usefixtures("unlocked")
def test_nodes_that_run_different_things_from_the_start_are_no_record() -> None:
    host = FakeCluster("host", scheduler_pod(f"sha256:{1:064}"), scheduler_pod(f"sha256:{2:064}", "node2"))
    fake_run(document(), host, stored=state()).finish()
    assert fake_run(document(), host).state.digests == {}


def applied_endpoint(run: Run) -> list[str]:
    changes = run.apply_to_host_cluster(
        "endpoint", lambda: workloads.passage(run.instance, run.place.ingress_controller)
    )
    changes += run.remove_former_passages()
    return [f"{change.action} {change.ref.kind}" for change in changes]


@pytest.mark.usefixtures("unlocked")
def test_the_object_of_the_former_type_goes_when_that_of_the_new_one_is_there() -> None:
    host = FakeCluster("host", storage_class("standard"), ingress_class("nginx", "k8s.io/ingress-nginx", default=True))
    ingress, route = {"endpoint": {"type": "Ingress", "host": "karmada.example.com"}}, {"endpoint": {"type": "Route"}}
    assert applied_endpoint(fake_run(document(ingress), host)) == ["created Ingress"]
    assert applied_endpoint(fake_run(document(ingress), host)) == ["unchanged Ingress"]
    assert applied_endpoint(fake_run(document(route), host, check=True)) == ["created Route", "deleted Ingress"]
    assert host.names("Ingress")
    assert applied_endpoint(fake_run(document(route), host)) == ["created Route", "deleted Ingress"]
    assert applied_endpoint(fake_run(document(), host)) == ["deleted Route"]
    host.log.clear()
    assert applied_endpoint(fake_run(document(), host)) == []
    assert host.log == []


@pytest.mark.usefixtures("unlocked")
def test_what_a_killed_run_made_for_a_type_that_the_document_no_longer_has_is_found() -> None:
    host = FakeCluster("host", storage_class("standard"), ingress_class("nginx", "k8s.io/ingress-nginx", default=True))
    killed = fake_run(document({"endpoint": {"type": "Ingress", "host": "karmada.example.com"}}), host)
    with killed.writing("endpoint"):
        (ingress,) = workloads.passage(killed.instance, killed.place.ingress_controller)
        fields = [{"manager": "karmada-installer", "operation": "Apply"}]
        host.put({**ingress, "metadata": {**ingress["metadata"], "managedFields": fields}})
    assert applied_endpoint(fake_run(document(), host)) == ["deleted Ingress"]


@pytest.mark.usefixtures("unlocked")
def test_an_uninstall_takes_the_passage_along() -> None:
    host = FakeCluster("host", storage_class("standard"), ingress_class("nginx", "k8s.io/ingress-nginx", default=True))
    spec = {"endpoint": {"type": "Ingress", "host": "karmada.example.com"}}
    applied_endpoint(fake_run(document(spec), host))
    # by a document that says something else by now
    removal.remove_control_plane(fake_run(document(), host))
    assert not host.names("Ingress")


@pytest.mark.usefixtures("unlocked")
def test_every_cluster_of_a_run_asks_the_lock_before_it_writes() -> None:
    run = fake_run(document(), FakeCluster("host", storage_class("standard")), stored=state())
    member = FakeCluster("member m1")
    run.attend(member)  # type: ignore[arg-type]
    NoLock.lost = True
    member.before_write()
    NoLock.lost = False
    with run.writing("start"):
        member.before_write()
        NoLock.lost = True
        with pytest.raises(LockLost):
            member.before_write()
        NoLock.lost = False


@pytest.mark.usefixtures("unlocked")
def test_a_check_run_writes_nothing() -> None:
    host = FakeCluster("host", storage_class("standard"))
    run = fake_run(document(), host, check=True)
    assert {change.action for change in run.apply_to_host_cluster("start", webhook)} == {"created"}
    assert host.log == []
    assert NoLock.taken == 0
    with pytest.raises(AssertionError, match="check run"), run.writing("start"):
        pass


# -- Secrets -----------------------------------------------------------------------------------------------------------


def test_a_directory_stands_for_the_secrets_of_a_file_run(tmp_path: Path) -> None:
    (tmp_path / "m1").mkdir()
    (tmp_path / "m1" / "kubeconfig").write_text("content")
    run = fresh()
    run.connection = Connection(secrets=str(tmp_path))
    assert run.secret("m1", "here") == {"kubeconfig": b"content"}
    for name in ("m2", "../m1", "m1/../m1", "/etc", "m1/kubeconfig"):
        with pytest.raises(ProblemsError, match=r"there is no directory|is not a name that a Secret can have"):
            run.secret(name, "here")


def test_without_a_directory_a_secret_that_is_not_there_is_told_with_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = {"name": "m1", "namespace": "karmada-system"}
    there = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"kubeconfig": "Y29udGVudA=="}}
    monkeypatch.setattr(Run, "_home", FakeCluster("home cluster", there))
    run = fresh()
    run.deployment["metadata"]["namespace"] = "karmada-system"
    assert run.secret("m1", "here") == {"kubeconfig": b"content"}
    with pytest.raises(ProblemsError, match=r"spec\.x: there is no Secret karmada-system/m2"):
        run.secret("m2", "spec.x")


def test_a_directory_stands_for_the_config_maps_of_a_file_run(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "policy.yaml").write_text("text")
    for name, expected in (("own", {"own": {"policy.yaml": "text"}}), ("other", {})):
        run = fake_run(document({"audit": {"configMapRef": {"name": name}}}), FakeCluster("host"))
        run.connection = Connection(config_maps=str(tmp_path))
        assert run.config_maps == expected
    assert fresh().config_maps == {}


def test_without_a_directory_config_maps_are_read_where_the_document_is(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own", "namespace": "karmada"}}
    home = FakeCluster("home cluster", {**there, "data": {"policy.yaml": "text"}})
    monkeypatch.setattr(Run, "_home", home)
    for name, expected in (("own", {"own": {"policy.yaml": "text"}}), ("other", {})):
        run = fake_run(document({"audit": {"configMapRef": {"name": name}}}), FakeCluster("host"))
        assert run.config_maps == expected


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"kubeconfig": b"\xff"},
        {"kubeconfig": b"- 1"},
        {"kubeconfig": b"{"},
        {"server": b"https://x", "token": b"t"},
    ],
)
def test_a_secret_that_describes_no_cluster_is_refused_without_showing_it(files: dict[str, bytes]) -> None:
    with pytest.raises(ProblemsError) as refused:
        cluster_from_secret(files, None, "member m1", "spec.members[m1].secretRef")
    assert refused.value.problems[0].where.startswith("spec.members[m1].secretRef")


# -- members -----------------------------------------------------------------------------------------------------------


def registered(**ids: str) -> Clusters:
    return Clusters.of({"metadata": {"name": name}, "spec": {"id": each}} for name, each in ids.items())


def test_one_cluster_has_one_name_and_one_name_one_cluster() -> None:
    here = registration.Registration("id-1", "https://192.0.2.1")
    member_join.check_identity("m1", here, Clusters())
    member_join.check_identity("m1", here, registered(m1="id-1", m2="id-2"))
    with pytest.raises(ProblemsError, match="registered already, as m2"):
        member_join.check_identity("m1", here, registered(m2="id-1"))
    with pytest.raises(ProblemsError, match="belongs to another cluster"):
        member_join.check_identity("m1", here, registered(m1="id-2"))


def test_one_member_that_fails_spoils_no_other() -> None:
    def work(entry: Any, outcome: member_join.Outcome) -> None:
        outcome.on_member.append(member_join.Change(Any, "created"))  # type: ignore[arg-type]
        if entry.name == "m2":
            raise ProblemsError(member_join.Problem("no answer", "m2", "mend it", reason=Reason.MEMBER_UNREACHABLE))

    found = member_join.of_each([MemberEntry({"name": f"m{number}"}) for number in (1, 2, 3)], work)
    assert [outcome.name for outcome in found] == ["m1", "m2", "m3"]
    assert [bool(outcome.problem) for outcome in found] == [False, True, False]
    assert all(outcome.changes for outcome in found), "what was changed before it failed stays known"


@pytest.mark.parametrize(
    "error",
    [
        RecursionError("maximum recursion depth exceeded"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ValueError("month must be in 1..12"),
        KeyError("status"),
        AttributeError("'str' object has no attribute 'get'"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_goes_wrong_with_one_member_is_its_own_problem(error: Exception) -> None:
    traces: list[str] = []

    def work(entry: Any, outcome: member_join.Outcome) -> None:
        outcome.on_member.append(member_join.Change(Any, "created"))  # type: ignore[arg-type]
        if entry.name == "m2":
            raise error

    found = member_join.of_each([MemberEntry({"name": f"m{number}"}) for number in (1, 2, 3)], work, traces.append)
    assert [bool(outcome.problem) for outcome in found] == [False, True, False]
    assert found[1].problem.startswith("member m2: ")
    assert type(error).__name__ in found[1].problem
    assert "-vvv" in found[1].next_step
    assert found[1].changes, "what was changed before it failed stays known"
    (trace,) = traces
    assert "in work" in trace, "whoever looks for a defect finds where it is"


def test_what_an_error_quotes_is_shown_without_secrets_and_without_what_a_terminal_obeys() -> None:
    def work(_entry: Any, _outcome: Any) -> None:
        raise ValueError("\x1b]0;owned\x07cannot read password=hunter22\r\n" + "x" * 5000)

    traces: list[str] = []
    (found,) = member_join.of_each([MemberEntry({"name": "m1"})], work, traces.append)
    assert "cannot read password=<redacted>" in found.problem
    assert found.problem.isprintable()
    assert len(found.problem) < 1000
    assert "hunter22" not in traces[0] + found.problem
    assert "\x1b" not in traces[0]


def test_a_lock_that_is_lost_is_of_the_whole_run() -> None:
    def work(_entry: Any, _outcome: Any) -> None:
        raise LockLost("somebody else has it")

    with pytest.raises(LockLost):
        member_join.of_each([MemberEntry({"name": "m1"})], work)


def test_how_a_member_was_joined_is_remembered() -> None:
    entry = {"name": "m1", "mode": "Push", "secretRef": {"name": "s"}, "context": "c", "labels": {"a": "b"}}
    reference = member_join.Ref("v1", "Secret", "x", "karmada-cluster")
    after = member_join.recorded(state(), MemberEntry(entry), [member_join.Change(reference, "created", "uid-1")])
    assert after.members == {"m1": {"mode": "Push", "secretRef": {"name": "s"}, "context": "c", "onLeave": "Retain"}}
    assert after.uids("member/m1") == {"uid-1"}
    assert json.dumps(after.members)


def test_a_cluster_is_known_by_its_system_namespace() -> None:
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "id-1"}}
    found = member_join.registration_of(FakeCluster("m1", system, server="https://192.0.2.9:6443"))  # type: ignore[arg-type]
    assert found == registration.Registration("id-1", "https://192.0.2.9:6443")
    with pytest.raises(ProblemsError, match="no namespace kube-system"):
        member_join.registration_of(FakeCluster("m1"))  # type: ignore[arg-type]
