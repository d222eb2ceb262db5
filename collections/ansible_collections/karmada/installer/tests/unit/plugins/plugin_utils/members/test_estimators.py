# SPDX-License-Identifier: Apache-2.0
"""An estimator for each member: what it may do there, what leads schedulers to it, how its pods come and go."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.action import certificates as certificates_action
from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry, Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME, pod_components
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.members import estimators, registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.run.handover import Handover
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.estimators import (
    ON,
    ROW,
    Object,
    entry,
    nothing_of_them,
    pushed,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import EXTERNAL
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document, rendered, state


def cluster(name: str, *, ready: bool = True) -> Object:
    """A member as the control plane has it."""
    registered = registration.cluster(
        MemberEntry({**entry(name), "mode": "Push"}),
        OWNER,
        registration.Registration("id", f"https://{name}.example.com"),
    )
    condition = {"type": "Ready", "status": "True" if ready else "False", "reason": "r"}
    return {**registered, "status": {"conditions": [condition]}}


def credentials(name: str) -> list[Object]:
    held = registration.Credentials(f"all-of-{name}", "i", b"authority", f"read-{name}")
    return registration.secrets_in_control_plane(name, OWNER, held, "u")


def a_run(*names: str, on: bool = True, control_plane: FakeCluster | None = None, **known: Any) -> Run:
    """A run for a document with these members, all of which are joined and Ready unless there is a control plane."""
    members = [entry(name) for name in names]
    wanted = document({"components": ON if on else {}, "members": members, "endpoint": EXTERNAL})
    run = fake_run(wanted, FakeCluster("host cluster"), stored=state(**known))
    there = [each for name in names for each in (cluster(name), *credentials(name))]
    run.__dict__["control_plane"] = control_plane or FakeCluster("control plane", *there)
    run.__dict__["config_maps"] = {}
    return run


@contextmanager
def _writing(_run: Run, _step: str) -> Iterator[None]:
    yield


@pytest.fixture(autouse=True)
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "writing", _writing)
    monkeypatch.setattr(estimators, "wait_until", lambda *_, **__: None)


# -- on the member ---------------------------------------------------------------------------------------------------


def test_an_estimator_may_look_at_what_it_watches_and_at_nothing_else() -> None:
    made = {each["kind"]: each for each in registration.estimator_objects("m1", OWNER, "karmada/prod")}
    assert set(made) == {"ServiceAccount", "Secret", "ClusterRole", "ClusterRoleBinding"}
    rights = {
        (group, resource, verb)
        for rule in made["ClusterRole"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {verb for _, _, verb in rights} == {"get", "list", "watch"}
    assert {f"{group}/{resource}" for group, resource, _ in rights} == {
        *("/nodes", "/pods", "/resourcequotas", "apps/deployments", "apps/replicasets"),
    }
    subject = made["ClusterRoleBinding"]["subjects"][0]
    assert (subject["name"], subject["namespace"]) == (made["ServiceAccount"]["metadata"]["name"], "karmada-cluster")


def test_no_member_can_have_a_name_that_is_an_estimators() -> None:
    assert "." in registration.estimator_account("m1")
    assert "." in registration.estimator_secret("m1")


def test_its_kubeconfig_holds_its_own_token_and_not_that_of_the_control_plane() -> None:
    secrets = {each["metadata"]["name"]: each for each in credentials("m1")}
    config = yaml.safe_load(registration.estimator_access(cluster("m1"), secrets["m1.scheduler-estimator"]))
    assert config["users"][0]["user"] == {"token": "read-m1"}
    assert config["clusters"][0]["cluster"] == {
        "server": "https://m1.example.com",
        "certificate-authority-data": base64.b64encode(b"authority").decode(),
    }


def test_switched_off_its_account_goes_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = registration.objects_on_member("m1", OWNER, "karmada/prod", estimator=True)
    kube_system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "id"}}
    member = FakeCluster("member m1", kube_system, registration.namespace_on_member(OWNER), *everything)
    uids = {str(Ref.of(each)): each["metadata"]["uid"] for each in member.objects.values()}

    @contextmanager
    def connected(_run: Run, _entry: Any) -> Iterator[FakeCluster]:
        yield member

    monkeypatch.setattr(member_join, "connected", connected)
    monkeypatch.setattr(member_join, "wait_for_credentials", lambda *_: registration.Credentials("t", "i", b"c"))
    one = {**entry("m1"), "mode": "Push"}
    run = a_run("m1", on=False, owned={"member/m1": uids}, members={"m1": registration.record(MemberEntry(one))})
    registered = Clusters(m1=run.control_plane.get(registration.CLUSTER_API, "Cluster", "m1"))
    looked = member_join.Outcome("m1")
    member_join.survey_member(run, MemberEntry(one), registered, looked)
    assert member_join.needs_work(MemberEntry(one), looked, run.state)
    done = member_join.Outcome("m1")
    member_join.register_member(run, MemberEntry(one), registered, done)
    gone = {str(Ref.of(each)) for each in registration.estimator_objects("m1", OWNER, "karmada/prod")}
    assert {str(change.ref) for change in done.on_member if change.action == "deleted"} == gone
    left = {str(Ref.of(each)) for each in member.objects.values()}
    assert not gone & left
    found: State = member_join.recorded(run.state, MemberEntry(one), done.on_member)
    assert not gone & set(found.owned["member/m1"])
    assert set(found.owned["member/m1"]) >= {str(Ref.of(each)) for each in everything} - gone


# -- in the control plane ----------------------------------------------------------------------------------------------


def services(run: Run) -> dict[str, Object]:
    found = run.control_plane.list("v1", "Service", "karmada-system")
    return {each["metadata"]["name"]: each["spec"] for each in found}


def test_schedulers_find_an_estimator_by_a_name_that_is_in_its_certificate() -> None:
    run = a_run("m1")
    estimators.register(run, estimators.joined(run))
    (spec,) = services(run).values()
    assert (spec["type"], list(services(run))) == ("ExternalName", ["estimator-m1"])
    found = rendered({"components": ON, "members": [entry("m1")]})
    assert spec["externalName"] in found.layout.server_names["karmada-scheduler-estimator-m1"].dns
    (port,) = spec["ports"]
    flags = dict(each.split("=", 1) for each in BY_NAME["karmada-scheduler"].flags(found.spec, found.layout))
    assert str(port["port"]) == flags["--scheduler-estimator-port"]
    assert flags["--scheduler-estimator-service-prefix"] == "estimator"
    service = found.one("Service", "prod-scheduler-estimator-m1")
    assert port["targetPort"] == service["spec"]["ports"][0]["port"]
    assert service["metadata"]["name"] == spec["externalName"].split(".")[0]


def test_names_of_services_are_no_longer_than_a_name_can_be() -> None:
    """The longest names of an instance and of a member that the schema admits."""
    found = rendered({"components": ON, "members": [entry("m" * 48)]}, name="p" * 39)
    (name,) = (
        each["metadata"]["name"]
        for each in found.objects
        if each["kind"] == "Service" and "installer.karmada.io/member" in each["metadata"]["labels"]
    )
    assert len(name) == 63
    assert f"{name}.karmada.svc.cluster.local" in found.layout.server_names[f"{ROW}-{'m' * 48}"].dns
    assert len(f"estimator-{'m' * 48}") <= 63


@pytest.mark.parametrize("domain", ["cluster.local", "cluster.example"])
def test_the_domain_of_the_host_cluster_is_in_the_name(domain: str) -> None:
    wanted = document({"components": ON, "members": [entry("m1")], "hostCluster": {"domain": domain}})
    run = fake_run(wanted, FakeCluster("host cluster"), stored=state())
    (component,) = estimators.wanted_estimators(run)
    assert run.place.estimator_address(run.instance, component) == (
        f"prod-scheduler-estimator-m1.karmada.svc.{domain}",
        10352,
    )


def test_a_member_that_left_or_all_of_them_leave_nothing_in_the_control_plane() -> None:
    run = a_run("m1", "m2")
    estimators.register(run, estimators.joined(run))
    assert set(services(run)) == {"estimator-m1", "estimator-m2"}
    theirs = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "estimator-x", "namespace": "karmada-system"}}
    run.control_plane.put({**theirs, "spec": {}})
    for names, on in ((("m1",), True), (("m1", "m2"), False)):
        later = a_run(*names, on=on, control_plane=run.control_plane)
        estimators.register(later, estimators.joined(later))
        expected = set(names) if on else set()
        assert set(services(later)) == {"estimator-x", *(f"estimator-{name}" for name in expected)}
        secrets = {each["metadata"]["name"] for each in run.control_plane.list("v1", "Secret", "karmada-cluster")}
        assert secrets == {
            *("m1", "m2", "m1-impersonator", "m2-impersonator"),
            *(f"{name}.scheduler-estimator" for name in expected),
        }


def test_a_member_whose_credentials_are_none_keeps_no_other_from_its_estimator() -> None:
    run = a_run("m1", "m2")
    broken = run.control_plane.get("v1", "Secret", registration.estimator_secret("m1"), "karmada-cluster")
    assert broken
    run.control_plane.put({**broken, "data": {**broken["data"], "token": base64.b64encode(b"\xff").decode()}})
    said: list[str] = []
    run.say = said.append
    assert set(estimators.joined(run).access) == {"m2"}
    (line,) = said
    assert line.startswith("member m1 gets no estimator: ")
    assert "UnicodeDecodeError" in line


# -- as pods -----------------------------------------------------------------------------------------------------------


def test_members_that_are_not_joined_have_none_yet_and_others_are_not_kept_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[Ref] = []
    monkeypatch.setattr(estimators, "wait_until", lambda _cluster, refs, **_: waited.extend(refs))
    there = [cluster("m1"), *credentials("m1"), cluster("m2", ready=False), *credentials("m2")]
    run = a_run("m1", "m2", "m3", control_plane=FakeCluster("control plane", *there))
    estimators.in_pods(run, estimators.joined(run), 1)
    assert run.host_cluster.names("Deployment") == {"prod-scheduler-estimator-m1", "prod-scheduler-estimator-m2"}
    assert [ref.name for ref in waited] == ["prod-scheduler-estimator-m1"]


def test_pods_come_and_go_with_their_member_and_a_second_run_writes_nothing() -> None:
    run = a_run("m1", "m2")
    estimators.in_pods(run, estimators.joined(run), 1)
    kinds = {"Deployment", "Service", "Secret", "NetworkPolicy"}
    made = {name for kind in kinds for name in run.host_cluster.names(kind) if "estimator" in name}
    assert {name for name in made if "m2" in name}
    again = a_run("m1", "m2")
    again.place.__dict__["host_cluster"] = run.host_cluster
    run.host_cluster.log.clear()
    estimators.in_pods(again, estimators.joined(again), 1)
    assert run.host_cluster.log == []
    later = a_run("m1")
    later.place.__dict__["host_cluster"] = run.host_cluster
    estimators.in_pods(later, estimators.joined(later), 1)
    left = {name for kind in kinds for name in run.host_cluster.names(kind) if "estimator" in name}
    assert left == {name for name in made if "m2" not in name}


def steps_of_a_run(run: Run) -> None:
    """The steps of an install that have to do with estimators, and with their certificates."""
    run.apply_to_host_cluster("certificates", lambda: certificates_action._secrets(run))
    found = estimators.joined(run)
    estimators.register(run, found)
    estimators.in_pods(run, found, 1)


def next_run(before: Run, *members: Object, check: bool = False, **known: Any) -> Run:
    """A later run on the same clusters, for a document with these members."""
    wanted = document({"components": ON, "members": list(members), "endpoint": EXTERNAL})
    host: Any = before.host_cluster
    run = fake_run(wanted, host, check=check)
    run.__dict__["control_plane"] = before.control_plane
    run.__dict__["config_maps"] = {}
    run.go_on_with(replace(run.state, **known))
    return run


def written(run: Run) -> list[str]:
    """Writes to both clusters since ``forget_log``."""
    host, control_plane = cast("tuple[FakeCluster, FakeCluster]", (run.host_cluster, run.control_plane))
    return [*host.log, *control_plane.log]


def forget_log(run: Run) -> None:
    for each in cast("tuple[FakeCluster, FakeCluster]", (run.host_cluster, run.control_plane)):
        each.log.clear()


def of_estimators(run: Run) -> set[str]:
    """Names of all objects of estimators in the host cluster."""
    host = cast("FakeCluster", run.host_cluster)
    return {f"{kind} {name}" for _, kind, _, name in host.objects if "estimator" in name}


def test_a_member_that_cannot_be_joined_gets_no_certificate_and_a_second_run_writes_nothing() -> None:
    there = [cluster("m1"), *credentials("m1")]
    first = a_run("m1", "m9", control_plane=FakeCluster("control plane", *there))
    steps_of_a_run(first)
    assert "Secret prod-scheduler-estimator-m1-cert" in of_estimators(first)
    assert not {each for each in of_estimators(first) if "m9" in each}
    for _ in range(2):
        forget_log(first)
        run = next_run(first, entry("m1"), entry("m9"))
        assert not run.snapshot.issued.reasons
        steps_of_a_run(run)
        assert written(run) == []


def test_before_members_are_joined_what_estimators_would_be_can_be_shown_to_overlays() -> None:
    run = a_run("m1", control_plane=FakeCluster("control plane"))
    names = {f"{each['kind']} {each['metadata']['name']}" for each in run.host_cluster_objects()}
    assert {"Deployment prod-scheduler-estimator-m1", "Secret prod-scheduler-estimator-m1-cert"} <= names


def test_a_certificate_that_is_near_its_end_is_issued_again_for_members_that_are_joined() -> None:
    first = a_run("m1")
    steps_of_a_run(first)
    secret = ("v1", "Secret", first.namespace, "prod-scheduler-estimator-m1-cert")
    before = first.host_cluster.objects[secret]["data"]["tls.crt"]
    run = next_run(first, entry("m1"))
    run.now += timedelta(days=360)
    run.apply_to_host_cluster("certificates", lambda: certificates_action._secrets(run))
    assert f"{ROW}-m1" in run.snapshot.issued.reasons
    assert run.host_cluster.objects[secret]["data"]["tls.crt"] != before


def test_a_member_whose_mode_could_not_be_changed_keeps_its_estimator_and_certificate() -> None:
    first = a_run("m1", "m2", members={})
    steps_of_a_run(first)
    there, in_control_plane = of_estimators(first), services(first)
    forget_log(first)
    run = next_run(first, entry("m1"), {**entry("m2"), "mode": "Pull"}, **pushed("m2"))
    steps_of_a_run(run)
    assert written(run) == []
    assert (of_estimators(run), services(run)) == (there, in_control_plane)


def test_a_member_that_is_in_mode_pull_now_has_none_whatever_its_record_says() -> None:
    first = a_run("m1", "m2")
    steps_of_a_run(first)
    live = first.control_plane.get(registration.CLUSTER_API, "Cluster", "m2")
    first.control_plane.put({**live, "spec": {**live["spec"], "syncMode": "Pull"}})
    for listed in ("Pull", "Push"):
        run = next_run(first, entry("m1"), {**entry("m2"), "mode": listed}, **pushed("m2"))
        steps_of_a_run(run)
        assert not {each for each in of_estimators(run) if "m2" in each}
        assert set(services(run)) == {"estimator-m1"}
        secrets = run.control_plane.names("Secret")
        assert "m2.scheduler-estimator" not in secrets
        assert "m1.scheduler-estimator" in secrets


def test_a_check_tells_that_an_estimator_would_go_only_if_the_mode_would_change(tmp_path: Path) -> None:
    first = a_run("m1")
    steps_of_a_run(first)
    for worked_on in ([], ["m1"]):
        run = next_run(first, {**entry("m1"), "mode": "Pull"}, check=True, **pushed("m1"))
        run.place.handover = Handover(tmp_path)
        run.handover.worked_on = worked_on
        found = estimators.joined(run)
        changes = [*estimators.register(run, found), *estimators.in_pods(run, found, 1)]
        gone = {each.ref.name for each in changes if each.action == "deleted"}
        assert ({"estimator-m1", "prod-scheduler-estimator-m1"} <= gone) is bool(worked_on)


def test_a_new_token_replaces_the_pods_that_hold_the_old_one() -> None:
    def template(run: Run, access: bytes) -> Object:
        found = estimators.Joined({"m1": access})
        estimators.in_pods(run, found, 1)
        live = run.host_cluster.get("apps/v1", "Deployment", "prod-scheduler-estimator-m1", "karmada")
        assert live
        annotations: Object = live["spec"]["template"]["metadata"]["annotations"]
        return annotations

    run = a_run("m1")
    assert template(run, b"one") != template(run, b"two")


# -- a document without them -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policies", [False, True])
def test_without_them_no_object_of_the_host_cluster_knows_of_them(policies: bool) -> None:
    others: Object = {"karmadaDescheduler": {}, "karmadaSearch": {}, "karmadaMetricsAdapter": {}}
    found = rendered({"components": others, "members": [entry("m1")], "networkPolicies": {"enabled": policies}})
    assert nothing_of_them(found.objects)
    assert nothing_of_them(registration.objects_on_member("m1", OWNER, "karmada/prod"))


def test_without_them_the_step_reads_the_control_plane_and_writes_nothing() -> None:
    control_plane = FakeCluster("control plane", cluster("m1"), *credentials("m1")[:2])
    run = a_run("m1", on=False, control_plane=control_plane)
    found = estimators.joined(run)
    assert [*estimators.register(run, found), *estimators.in_pods(run, found, 1)] == []
    assert control_plane.log == []
    host: Any = run.host_cluster
    assert host.log == []


# -- an etcd on hosts beneath pods -------------------------------------------------------------------------------------


def test_above_an_etcd_on_hosts_they_are_pods() -> None:
    hosts = [{"name": name, "address": f"192.0.2.{number}", "roles": ["etcd"]} for number, name in enumerate("abc", 1)]
    wanted = document({"hosts": hosts, "components": ON, "members": [entry("m1")]})
    assert f"{ROW}-m1" in {each.name for each in pod_components(Spec(wanted["spec"]))}
    instance = rendered(wanted["spec"]).instance
    first = component_hosts.all_hosts(instance.spec)[0]
    assert [each.name for each in component_hosts.components_on(instance, first)] == ["etcd"]
