# SPDX-License-Identifier: Apache-2.0
"""What a run decides by itself, when it writes, and what it records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components import endpoint
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import removal
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
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
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock, fresh, webhook

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
def test_a_check_run_writes_nothing() -> None:
    host = FakeCluster("host", storage_class("standard"))
    run = fake_run(document(), host, check=True)
    assert {change.action for change in run.apply_to_host_cluster("start", webhook)} == {"created"}
    assert host.log == []
    assert NoLock.taken == 0
    with pytest.raises(AssertionError, match="check run"), run.writing("start"):
        pass
