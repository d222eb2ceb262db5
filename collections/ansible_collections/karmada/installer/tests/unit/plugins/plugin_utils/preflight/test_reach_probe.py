# SPDX-License-Identifier: Apache-2.0
"""Pods that try what is reached: how they are made, what their words mean, and that nothing of them is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_reach as kinds
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import KARMADA_CONTROLLER_MANAGER
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, Forbidden, Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.members.registration import NAMESPACE_ON_MEMBER
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import (
    member_checks,
    pod_security,
    probe_pods,
    reach_from_hosts,
    reach_from_pods,
    reach_probe,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.reach import Fault, Target
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import FULL_SPEC, document, rendered, state

Object = dict[str, Any]
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada"}}
ERROR = (
    '{{"level":"warn","error":"rpc error: code = DeadlineExceeded desc = latest balancer error: {}"}}\nError: context'
)
DIAL = 'connection error: desc = \\"transport: Error while dialing: dial tcp{}\\"'
HANDSHAKE = 'connection error: desc = \\"transport: authentication handshake failed: {}\\"'
REFUSED = ERROR.format(DIAL.format(" 192.0.2.7:6443: connect: connection refused"))
REACHED = "rpc error: code = PermissionDenied desc = unexpected HTTP status code received from server: 403 (Forbidden)"
FROM_POD, REMEDY = "a pod in namespace karmada does not reach", reach_from_hosts.REMEDY_OF_PLACE
CA = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"


def target(name: str = "m1", authority: str = CA) -> Target:
    return Target.of_url(name, f"https://{name}.example.com:6443", authority)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_pods, "pause", lambda _: None)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (REFUSED, kinds.REFUSED),
        (ERROR.format(DIAL.format(" 192.0.2.7:6443: i/o timeout")), kinds.SILENT),
        (ERROR.format("context deadline exceeded while waiting for connections to become ready"), kinds.SILENT),
        (ERROR.format(DIAL.format(" 192.0.2.7:6443: connect: no route to host")), kinds.NO_ROUTE),
        (ERROR.format(DIAL.format(": lookup m1.example.com on 192.0.2.53:53: no such host")), kinds.UNKNOWN_NAME),
        (ERROR.format(DIAL.format(": lookup m1.example.com on 192.0.2.53:53: i/o timeout")), kinds.UNKNOWN_NAME),
        (ERROR.format(HANDSHAKE.format("tls: first record does not look like a TLS handshake")), kinds.NOT_TLS),
        (ERROR.format(HANDSHAKE.format("x509: certificate signed by unknown authority")), kinds.OTHER_AUTHORITY),
        (ERROR.format(HANDSHAKE.format("x509: certificate is valid for a, not b")), kinds.OTHER_NAME),
        (ERROR.format(HANDSHAKE.format("something new")), kinds.OTHER),
        ("panic: no idea", kinds.OTHER),
        (REACHED, ""),
        (ERROR.format(HANDSHAKE.format("credentials: cannot check peer: missing selected ALPN property.")), ""),
        (ERROR.format("connection error: desc = remote error: tls: certificate required"), ""),
    ],
)
def test_what_the_client_of_etcd_says_is_told_as_hosts_tell_it(said: str, kind: str) -> None:
    found = reach_probe.fault_of(said)
    assert (found.kind if found else "") == kind


def test_what_is_not_known_is_told_in_its_own_words() -> None:
    found = reach_probe.fault_of(ERROR.format(HANDSHAKE.format("something new")))
    assert found == Fault(kinds.OTHER, "authentication handshake failed: something new")
    assert reach_probe.fault_of("panic: no idea") == Fault(kinds.OTHER, "panic: no idea")
    assert reach_probe.fault_of("") == Fault(kinds.OTHER, "")


def test_a_proxy_is_reached_whatever_it_says() -> None:
    assert reach_probe.fault_of(REFUSED, tls=False) == Fault(kinds.REFUSED)
    said = ERROR.format('connection error: desc = \\"error reading server preface: http2: frame too large\\"')
    assert reach_probe.fault_of(said, tls=False) is None


@pytest.mark.parametrize("spec", [{}, FULL_SPEC], ids=["empty", "full"])
@pytest.mark.parametrize("component", [KARMADA_CONTROLLER_MANAGER, agent.ROW], ids=lambda each: each.name)
def test_its_pod_is_admitted_everywhere_and_reads_nothing_of_the_instance(spec: Object, component: Any) -> None:
    instance = rendered(spec).instance
    targets = [target("m1"), target("m2", ""), Target.of_proxy("m3", "http://proxy.example.com:3128")]
    pod = reach_probe.pod(instance, component, "somewhere", targets, 60)
    assert pod_security.violations(pod["spec"]) == []
    assert [each["command"][3:] for each in pod["spec"]["containers"]] == [
        [
            "--endpoints=https://m1.example.com:6443",
            "--dial-timeout=5s",
            "--command-timeout=5s",
            "--cacert=/etc/reach/0.pem",
        ],
        [
            "--endpoints=https://m2.example.com:6443",
            "--dial-timeout=5s",
            "--command-timeout=5s",
            "--insecure-skip-tls-verify",
        ],
        ["--endpoints=http://proxy.example.com:3128", "--dial-timeout=5s", "--command-timeout=5s"],
    ]
    assert {each["image"].partition(":")[0] for each in pod["spec"]["containers"]} == {
        workload["spec"]["template"]["spec"]["containers"][0]["image"].partition(":")[0]
        for workload in rendered(spec).workloads
        if workload["kind"] == "StatefulSet"
    }
    (volume,) = pod["spec"]["volumes"]
    (file,) = volume["downwardAPI"]["items"]
    (key,) = [each for each in pod["metadata"]["annotations"] if each in file["fieldRef"]["fieldPath"]]
    assert (file["path"], pod["metadata"]["annotations"][key]) == ("0.pem", CA)
    assert pod["metadata"]["namespace"] == "somewhere"
    assert pod["spec"]["activeDeadlineSeconds"] == 90
    assert len(pod["metadata"]["name"]) <= 63


def test_an_address_of_ipv6_stands_in_brackets() -> None:
    found = reach_probe.pod(
        rendered().instance, agent.ROW, "x", [Target.of_url("m1", "https://[2001:db8::7]:6443/path", CA)], 60
    )
    assert "--endpoints=https://[2001:db8::7]:6443" in found["spec"]["containers"][0]["command"]


def test_a_pod_has_so_many_targets_and_certificates_as_it_can_hold() -> None:
    many = [target(f"m{number}") for number in range(23)]
    assert [len(each) for each in reach_probe.batches(many)] == [10, 10, 3]
    large = [target(f"m{number}", "x" * 90_000) for number in range(3)]
    assert [len(each) for each in reach_probe.batches(large)] == [2, 1]
    assert list(reach_probe.batches([])) == []


# -- from the host cluster -------------------------------------------------------------------------------------------


def ended(*messages: str) -> Object:
    """Containers that have ended with these words; empty: well."""
    return {
        "containerStatuses": [
            {"name": f"target-{number}", "state": {"terminated": {"exitCode": int(bool(said)), "message": said}}}
            for number, said in enumerate(messages)
        ]
    }


def state_of(**state: Object) -> Object:
    """The first container is like this."""
    return {"containerStatuses": [{"name": "target-0", "state": state}]}


class Nodes(FakeCluster):
    """A host cluster whose pods end like this."""

    status: Object = ended("")

    def create(self, obj: Object, **_: Any) -> Object:
        super().create(obj)
        return self.put({**obj, "status": self.status} if obj["kind"] == "Pod" else obj)


MEMBERS = [{"name": name, "mode": "Push", "secretRef": {"name": name}} for name in ("m1", "m2")]
ENDPOINT = "https://karmada.example.com:5443"
PULLING = [{"name": "p1", "mode": "Pull", "secretRef": {"name": "p1"}}]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    found = fake_run(document({"members": MEMBERS}), Nodes("host cluster", NAMESPACE))
    monkeypatch.setattr(reach_from_hosts, "targets", lambda *_: [target(each["name"]) for each in MEMBERS])
    monkeypatch.setattr(member_checks, "registered_clusters", lambda _run: Clusters())
    return found


def test_what_a_pod_does_not_reach_is_the_problem_of_that_member(run: Run) -> None:
    run.host_cluster.status = ended(REACHED, REFUSED)  # type: ignore[attr-defined]
    assert {name: [str(each) for each in found] for name, found in reach_from_pods.problems(run, 5).items()} == {
        "m2": [f"spec.members[m2].secretRef: {FROM_POD} https://m2.example.com:6443: connection refused. {REMEDY}"]
    }
    assert run.host_cluster.names("Pod") == set()  # type: ignore[attr-defined]


def test_one_that_ends_well_or_reaches_all_has_nothing_to_tell(run: Run) -> None:
    run.host_cluster.status = ended("", REACHED)  # type: ignore[attr-defined]
    assert reach_from_pods.problems(run, 5) == {}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (
            {
                "containerStatuses": [
                    {"name": "target-0", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}
                ]
            },
            "tried: no",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "target-0",
                        "state": {"terminated": {"reason": "StartError", "message": "etcdctl: not found"}},
                    }
                ]
            },
            "etcdctl: not found",
        ),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({"conditions": [{"status": "False", "message": "0/1 nodes are available"}]}, "0 s (0/1 nodes are available)"),
        ({}, "nothing is known after 0 s"),
    ],
)
def test_where_it_cannot_be_told_that_is_told_and_no_pod_is_left(run: Run, status: Object, why: str) -> None:
    run.host_cluster.status = status  # type: ignore[attr-defined]
    with pytest.raises(ProblemsError, match="cannot be tried") as caught:
        reach_from_pods.problems(run, 0 if "0 s" in why else 5)
    assert why in str(caught.value)
    assert "karmada_preflight_reach_members" in str(caught.value)
    assert run.host_cluster.names("Pod") == set()  # type: ignore[attr-defined]


def test_it_needs_the_namespace_and_the_right(run: Run) -> None:
    run.host_cluster.denied = {("create", "pods")}  # type: ignore[attr-defined]
    with pytest.raises(ProblemsError, match="create pods"):
        reach_from_pods.problems(run, 5)
    run.host_cluster.delete("v1", "Namespace", "karmada")
    with pytest.raises(ProblemsError, match="it does not exist"):
        reach_from_pods.problems(run, 5)


def test_pods_of_a_killed_run_go_and_those_of_strangers_stay(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: Any = run.host_cluster
    cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "of-a-stranger", "namespace": "karmada"}})
    left = {"name": "left", "namespace": "karmada", "labels": run.instance.labels(reach_probe.PROBE)}
    cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": left})

    def broken(*_: Any, **__: Any) -> Any:
        raise Unreachable("host cluster", "POST", "/", 0, "Unreachable", "no answer")

    monkeypatch.setattr(cluster, "create", broken)
    with pytest.raises(ApiError):
        reach_from_pods.problems(run, 5)
    assert cluster.names("Pod") == {"of-a-stranger"}


def test_the_account_of_a_new_namespace_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Nodes("member p1")
    cluster.status = ended(REFUSED)
    refusals = ['error looking up service account x/default: serviceaccount "default" not found'] * 2
    create = Nodes.create

    def slow(self: Nodes, obj: Object, **more: Any) -> Object:
        if refusals:
            raise Forbidden("member p1", "POST", "/", 403, "Forbidden", refusals.pop())
        return create(self, obj, **more)

    monkeypatch.setattr(Nodes, "create", slow)
    pod = reach_probe.pod(rendered().instance, agent.ROW, "x", [target()], 5)
    assert reach_probe.look(cluster, pod, [target()], 5) == {"m1": Fault(kinds.REFUSED)}
    refusals.append("pods is forbidden")
    with pytest.raises(Forbidden):
        reach_probe.look(cluster, pod, [target()], 5)


# -- from a member ---------------------------------------------------------------------------------------------------


class Site:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, installed: bool = True) -> None:
        self.member, self.said = Nodes("member p1"), list[str]()
        spec = {"members": PULLING, "endpoint": {"type": "External", "host": "karmada.example.com"}}
        stored = state() if installed else None
        self.run = fake_run(document(spec), Nodes("host cluster", NAMESPACE), stored=stored)
        self.run.say = self.said.append
        monkeypatch.setattr(Run, "control_plane_exists", installed)
        monkeypatch.setattr(Run, "public_url", ENDPOINT)
        monkeypatch.setattr(member_checks, "registered_clusters", lambda _run: Clusters())

        @contextmanager
        def connected(_run: Run, _entry: Any) -> Iterator[FakeCluster]:
            yield self.member

        monkeypatch.setattr(member_join, "connected", connected)

    def problems(self) -> list[str]:
        found = reach_from_pods.problems(self.run, 5)
        assert set(found) <= {"p1"}
        return [str(each) for each in found.get("p1", [])]


def test_a_member_that_does_not_reach_the_control_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.member.status = ended(ERROR.format(DIAL.format(" 192.0.2.9:5443: i/o timeout")))
    (told,) = site.problems()
    assert told.startswith(f"spec.members[p1]: a pod on p1 does not reach {ENDPOINT}: connection timed out. Let them")
    assert "apply Namespace karmada-installer-reach-probe" in site.member.log
    assert site.member.names("Namespace") == set()
    site.member.status = ended(ERROR.format(HANDSHAKE.format("x509: certificate is valid for a, not b")))
    (told,) = site.problems()
    assert "the certificate is not for karmada.example.com. See who answers" in told
    site.run.selected = ("m1",)
    assert site.problems() == [], "it was not selected"
    site.run.selected = ()
    site.member.status = ended(REACHED)
    assert site.problems() == []
    assert site.said == []


def test_before_there_is_a_control_plane_it_is_said_that_this_cannot_be_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch, installed=False)
    assert site.problems() == []
    assert site.said == ["hint: whether p1 reach the control plane cannot be tried before there is one"]
    assert site.member.log == []


def test_what_cannot_be_told_on_a_member_is_its_problem_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.member.status = {"phase": "Failed", "reason": "Evicted"}
    (told,) = site.problems()
    assert "cannot be tried: Evicted" in told
    assert site.member.names("Namespace") == set()


def test_a_namespace_of_a_killed_run_makes_way_and_one_of_a_stranger_is_not_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(monkeypatch)
    site.member.status = ended(REACHED)
    name = {"name": NAMESPACE_ON_MEMBER}
    labels = {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": state().owner}
    made = {"managedFields": [{"manager": "karmada-installer", "operation": "Apply", "time": "2026-01-01T00:00:00Z"}]}
    site.member.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {**name, **made, "labels": labels}})
    assert site.problems() == []
    assert site.member.names("Namespace") == set()
    for strange in ({}, made, {"labels": labels}):
        site.member.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {**name, **strange}})
        (told,) = site.problems()
        assert "it is there and not of this control plane" in told
        assert site.member.names("Namespace") == {NAMESPACE_ON_MEMBER}


def test_members_that_are_ready_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    conditions = [{"type": "Ready", "status": "True"}]
    ready = {"kind": "Cluster", "metadata": {"name": "p1"}, "status": {"conditions": conditions}}
    monkeypatch.setattr(member_checks, "registered_clusters", lambda _run: Clusters(p1=ready))
    assert site.problems() == []
    assert site.member.log == []
