# SPDX-License-Identifier: Apache-2.0
"""What is refused before the first change; each refusal with a place and a remedy."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import crd_files
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import TakeOverState
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.answer import OF_A_MEMBER
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden, Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import findings, member_checks
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.plugins.module_utils import test_host_reach
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.preflight_samples import SYSTEM, host, installed, problems
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    OPTIONAL,
    SETTINGS,
    Rendered,
    document,
    etcd,
    state,
)


@pytest.fixture(autouse=True)
def no_crds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crd_files, "crds", lambda *_: [])


def test_a_host_cluster_that_can_take_it() -> None:
    assert problems(fake_run(document(), host())) == []
    assert problems(installed()) == []


def test_an_old_host_cluster_is_refused() -> None:
    cluster = host()
    cluster.minor = "31+"
    (problem,) = problems(fake_run(document(), cluster))
    assert "1.32 is the oldest" in problem.what


def test_everything_is_told_at_once() -> None:
    cluster = host()
    cluster.minor = "20"
    spec = {"version": "v1.0.0", **etcd(volumeData={"volumeClaim": {"size": "1Gi", "storageClassName": "gold"}})}
    found = [problem.what for problem in problems(fake_run(document(spec), cluster))]
    assert len(found) == 3
    assert "there is no StorageClass gold (there are: standard)" in found


def test_rights_that_are_missing_are_all_named() -> None:
    cluster = host()
    cluster.denied = {("create", "secrets"), ("patch", "statefulsets"), ("create", "pods")}
    (problem,) = problems(fake_run(document(), cluster))
    assert "secrets" in problem.what
    assert "statefulsets" in problem.what


def test_a_namespace_that_is_there_needs_no_right_to_make_one() -> None:
    cluster = host()
    cluster.denied = {("create", "namespaces")}
    assert problems(fake_run(document(), cluster)) == []
    (problem,) = problems(fake_run(document(namespace="other"), cluster))
    assert "namespaces" in problem.what


def test_without_a_namespace_nothing_is_looked_for_in_it_and_without_the_right_to_look_that_is_what_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = host()
    cluster.delete("v1", "Namespace", "karmada")
    cluster.log.clear()
    assert problems(fake_run(document(), cluster)) == []
    get = FakeCluster.get

    def refusing(cluster: FakeCluster, version: str, kind: str, *arguments: Any) -> Any:
        if kind == "Namespace":
            raise Forbidden("host cluster", "GET", "/", 403, "Forbidden", "no")
        return get(cluster, version, kind, *arguments)

    monkeypatch.setattr(FakeCluster, "get", refusing)
    cluster.denied = {("get", "namespaces")}
    (problem,) = problems(fake_run(document(), cluster))
    assert "may not: get namespaces karmada" in problem.what


def test_a_host_cluster_that_does_not_answer_is_one_problem_and_no_traceback() -> None:
    cluster = host()
    cluster.dead = True
    found = findings.findings(fake_run(document(), cluster)).all
    assert [problem.where for problem in found] == ["host cluster"]


@pytest.mark.parametrize(
    ("later", "path"),
    [
        (etcd(volumeData={"emptyDir": {}}), "spec.components.etcd.local.volumeData"),
        (
            {"components": {"karmadaAPIServer": {"serviceSubnet": "10.112.0.0/16"}}},
            "spec.components.karmadaAPIServer.serviceSubnet",
        ),
        (
            {"components": {"karmadaAPIServer": {"serviceSubnet": "10.96.0.0/12,fd00::/112"}}},
            "spec.components.karmadaAPIServer.serviceSubnet",
        ),
        ({"encryption": {"provider": "identity"}}, "spec.encryption.provider"),
        ({"hostCluster": {"domain": "cluster.example"}}, "spec.hostCluster.domain"),
        ({"version": "v1.18.1"}, "spec.version"),
    ],
)
def test_what_data_or_addresses_hang_on_cannot_be_changed(later: dict[str, Any], path: str) -> None:
    (problem,) = problems(installed(None, later))
    assert problem.where == path


@pytest.mark.parametrize(
    "later",
    [
        {"endpoint": {"type": "NodePort"}},
        {"deletion": {"policy": "Retain"}},
        {"installCRD": False},
        {"certificates": {"validity": "4380h"}},
        {"components": {"karmadaWebhook": {"replicas": 3}}},
        {"components": OPTIONAL},
        {"components": {"etcd": {"local": SETTINGS}}},
    ],
)
def test_everything_else_can_be_changed(later: dict[str, Any]) -> None:
    assert problems(installed(None, later)) == []


def test_rights_that_were_taken_back_are_not_given_back() -> None:
    def generation(number: int) -> dict[str, Any]:
        return {"certificates": {"administratorGeneration": number}}

    (problem,) = problems(installed(generation(3), generation(2)))
    assert problem.where == "spec.certificates.administratorGeneration"
    assert "Set it to 3 or higher" in str(problem)
    assert len(problems(installed(generation(2), {}))) == 1
    assert problems(installed(generation(2), generation(3))) == []


def test_crds_can_be_taken_over_later() -> None:
    assert problems(installed({"installCRD": False}, {})) == []


def test_a_state_that_cannot_be_used_stops_everything() -> None:
    broken = replace(state(), authorities={})
    found = problems(fake_run(document(), host(), stored=broken))
    assert len([problem for problem in found if "authority" in problem.what]) == 4


@pytest.mark.parametrize(("seconds", "what"), [(31, "31 s ahead of"), (-95, "95 s behind")])
def test_clocks_that_are_far_apart_are_told(seconds: int, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = host()
    cluster.ahead = timedelta(seconds=seconds)
    (problem,) = problems(fake_run(document(), cluster))
    assert (problem.where, f"its clock is {what} the clock of this machine") == ("host cluster", problem.what)
    slow = member("m2")
    slow.ahead = timedelta(seconds=seconds)
    (problem,) = problems(with_members(monkeypatch, m1=member("m1"), m2=slow))
    assert problem.where == "member m2"
    slow.ahead = timedelta(seconds=29)
    assert problems(with_members(monkeypatch, m1=member("m1"), m2=slow)) == []


def test_a_host_cluster_newer_than_any_that_was_tried_is_said() -> None:
    cluster, said = host(), []
    cluster.minor = "99"
    run = fake_run(document(), cluster)
    run.say = said.append
    assert problems(run) == []
    assert "newest that was tried" in said[0]


SPEC = {"members": [{"name": "m1", "secretRef": {"name": "m1"}}, {"name": "m2", "secretRef": {"name": "m2"}}]}


def with_members(monkeypatch: pytest.MonkeyPatch, **clusters: FakeCluster) -> Run:
    class connected:  # noqa: N801 - stands for the function of that name
        def __init__(self, _run: Run, entry: Any, patience: float) -> None:
            self.found = clusters[entry.name]
            self.found.retry_seconds = min(self.found.retry_seconds, patience)

        def __enter__(self) -> FakeCluster:
            return self.found

        def __exit__(self, *_: object) -> None:
            self.found.close()

    monkeypatch.setattr(member_join, "connected", connected)
    return fake_run(document(SPEC), host())


def member(name: str, identity: str = "", **more: Any) -> FakeCluster:
    system = {**SYSTEM, "metadata": {"name": "kube-system", "uid": identity or f"id-{name}"}}
    return FakeCluster(f"member {name}", system, **more)


def test_what_is_wrong_with_a_member_is_its_own_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = member("m1")
    dead.dead = True
    found = findings.findings(with_members(monkeypatch, m1=dead, m2=member("m2")))
    assert (found.problems, list(found.members)) == ([], ["m1"])
    assert found.all == found.members["m1"]


def test_no_answer_that_takes_all_the_time_it_may_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody else waits for it, and one that answers a byte a second does so whenever it is asked."""
    one = member("m1")
    findings.findings(with_members(monkeypatch, m1=one, m2=member("m2")))
    assert one.retry_seconds < OF_A_MEMBER.answer_seconds


def test_a_member_that_was_not_selected_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = member("m1")
    dead.dead = True
    run = with_members(monkeypatch, m1=dead, m2=member("m2"))
    run.selected = ("m2",)
    assert findings.findings(run).all == []
    assert dead.closed == 0, "nobody was connected to it"
    run.selected = ("m2", "m3")
    (problem,) = findings.findings(run).problems
    assert problem.what == "there is no member m3 in the document, and none that would leave"
    monkeypatch.setattr(
        member_checks, "registered_clusters", lambda _run: Clusters({"m3": {"metadata": {}, "spec": {}}})
    )
    assert findings.findings(run).all == []


@pytest.mark.parametrize(
    ("registered", "broken"),
    [
        ({}, {"m1": "listed as m2, too", "m2": "listed as m1, too"}),
        ({"m1": "one"}, {"m2": "registered already, as m1"}),
        ({"m1": "another"}, {"m1": "listed as m2, too", "m2": "listed as m1, too"}),
    ],
)
def test_one_cluster_under_two_names(
    registered: dict[str, str], broken: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = with_members(monkeypatch, m1=member("m1", "one"), m2=member("m2", "one"))
    clusters = {
        name: {"metadata": {"name": name}, "spec": {"id": identity, "syncMode": "Push"}}
        for name, identity in registered.items()
    }
    monkeypatch.setattr(member_checks, "registered_clusters", lambda _run: Clusters(clusters))
    found = findings.findings(run)
    assert found.problems == []
    assert {name: broken[name] in str(problems[-1]) for name, problems in found.members.items()} == dict.fromkeys(
        broken, True
    )


def test_a_member_that_is_registered_in_another_mode_or_as_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    run = with_members(monkeypatch, m1=member("m1"), m2=member("m2"))
    clusters = {
        "m1": {"metadata": {"name": "m1"}, "spec": {"id": "id-m1", "syncMode": "Pull"}},
        "m2": {"metadata": {"name": "m2"}, "spec": {"id": "another", "syncMode": "Push"}},
    }
    monkeypatch.setattr(member_checks, "registered_clusters", lambda _run: Clusters(clusters))
    one, two = problems(run)
    assert "registered in mode Pull" in one.what
    assert "the name m2 belongs to another cluster" in two.what


def test_a_control_plane_that_does_not_answer_keeps_no_member_from_being_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Mute:
        def with_patience(self, **_: Any) -> Any:
            raise Unreachable("control plane", "GET", "/", 0, "Unreachable", "no answer")

    run = with_members(monkeypatch, m1=member("m1"), m2=member("m2"))
    run.store.state = state()
    run.__dict__["control_plane"] = Mute()
    monkeypatch.setattr(Run, "control_plane_exists", True)
    assert problems(run) == []


def test_a_host_cluster_that_does_not_answer_is_told_once_however_many_members_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unread(_run: Run) -> None:
        raise Unreachable("host cluster", "GET", "/secrets", 0, "Unreachable", "no answer")

    run = with_members(monkeypatch, m1=member("m1"), m2=member("m2"))
    run.host_cluster.dead = True
    monkeypatch.setattr(Run, "stored_state", property(unread))
    (problem,) = problems(run)
    assert problem.where == "host cluster"


def test_a_member_that_does_not_answer_is_told_and_the_others_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    dead, loopback = member("m1"), member("m2", server="https://127.0.0.1:6443")
    dead.dead = True
    found = problems(with_members(monkeypatch, m1=dead, m2=loopback))
    assert [problem.where for problem in found] == ["spec.members[m1].secretRef", "spec.members[m2].secretRef"]
    assert "m1" not in found[0].what, "its place names it already"
    assert "another machine" in found[1].what


def test_a_member_that_shows_a_certificate_of_another_authority_than_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Karmada would not get in, though the kubeconfig works."""
    ours, theirs = test_host_reach.AUTHORITY.certificate.decode(), test_host_reach.OTHER.certificate.decode()
    published = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": ours}}
    metadata = {"name": "kube-root-ca.crt", "namespace": "kube-system"}
    with test_host_reach.server(test_host_reach.certificate(test_host_reach.OTHER)) as port:
        # A loopback address is refused for another reason.
        one = member("m1", server=f"https://ip6-localhost:{port}")
        monkeypatch.setattr(test_host_reach.socket, "getaddrinfo", test_host_reach.always("127.0.0.1"))
        one.access.ca_pem = theirs
        run = with_members(monkeypatch, m1=one, m2=member("m2"))
        assert problems(run) == []
        one.put({**published, "metadata": metadata})
        (problem,) = problems(run)
        assert problem.where == "spec.members[m1].secretRef"
        assert "is of another CA than the one that it hands to its accounts" in problem.what
        conditions = [{"type": "Ready", "status": "True"}]
        live = {"kind": "Cluster", "metadata": {"name": "m1"}, "spec": {"id": "id-m1", "syncMode": "Push"}}
        ready = {**live, "status": {"conditions": conditions}}
        monkeypatch.setattr(member_checks, "registered_clusters", lambda _run: Clusters(m1=ready))
        assert problems(run) == []
        monkeypatch.setattr(member_checks, "registered_clusters", lambda _run: Clusters())
        for harmless in ({"insecure": True}, {"proxy": "http://192.0.2.3"}, {"ca_pem": ours}):
            vars(one.access).update(harmless)
            assert problems(run) == []
            vars(one.access).update(insecure=False, proxy=None, ca_pem=theirs)
        one.put({**published, "metadata": metadata, "data": {"ca.crt": ours + theirs}})
        assert problems(run) == []


def test_a_member_whose_kubeconfig_ends_soon_is_said_and_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one, told = member("m1"), []
    run = with_members(monkeypatch, m1=one, m2=member("m2"))
    one.access.expiry = lambda: run.now.timestamp() + 86_400
    run.say = told.append
    assert problems(run) == []
    assert [each.partition(" on ")[0] for each in told] == ["warning: member m1: its kubeconfig expires"]


@pytest.mark.parametrize(("minor", "said"), [("25", True), ("26", False), ("35", False), ("36", True), ("35+", False)])
def test_a_member_of_a_version_that_nobody_has_tried_is_said(
    monkeypatch: pytest.MonkeyPatch, minor: str, said: bool
) -> None:
    one, told = member("m1"), []
    one.minor = minor
    run = with_members(monkeypatch, m1=one, m2=member("m2"))
    run.say = told.append
    assert problems(run) == []
    assert [each.startswith("hint: member m1 runs Kubernetes v1.") for each in told] == [True] * said


def test_rights_on_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    weak = member("m1")
    weak.denied = {("patch", "clusterroles")}
    (problem,) = problems(with_members(monkeypatch, m1=weak, m2=member("m2")))
    assert problem.where == "member m1"


@pytest.mark.parametrize("moves", [False, True], ids=["stays", "moves here"])
def test_whoever_takes_a_control_plane_over_has_to_delete_the_tokens_of_the_other_place(
    monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    weak = member("m1")
    weak.denied = {("delete", "secrets")}
    run = with_members(monkeypatch, m1=weak, m2=member("m2"))
    taken = TakeOverState("disk", "prod-b1", "there/prod") if moves else None
    run.store.state = replace(state(), taken_over=taken)
    run.operation = "restore"
    told = [each.what for each in problems(run) if each.where == "member m1"]
    assert told == moves * ["the account may not: delete secrets in namespace karmada-cluster"]


def test_who_joins_a_member_with_scoped_rights_needs_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    weak = member("m1")
    weak.denied = {("*", "*")}
    run = with_members(monkeypatch, m1=weak, m2=member("m2"))
    (problem,) = problems(run)
    assert problem.what == "the account may not: * *.*"
    listed = [{"apiGroup": "apps", "resources": ["deployments"]}]
    run.deployment["spec"]["members"][0]["scopedRights"] = listed
    weak.resources_of = lambda _group: {"deployments": set()}
    assert problems(run) == []
    weak.denied |= {("update", "deployments")}
    (problem,) = problems(run)
    assert problem.what == "the account may not: update deployments.apps"


def test_a_member_of_another_control_plane_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = member("m1")
    taken.put(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "karmada-controller-manager:karmada-m1"},
        }
    )
    (problem,) = problems(with_members(monkeypatch, m1=taken, m2=member("m2")))
    assert "another control plane" in problem.what


@pytest.mark.parametrize("name", ["m1", "here-it-is-called-otherwise"])
def test_the_control_plane_that_holds_a_member_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    taken = member("m1")
    for each in registration.objects_on_member(name, "somebody-else", "tenant-a/prod"):
        taken.put(each)
    (problem,) = problems(with_members(monkeypatch, m1=taken, m2=member("m2")))
    assert problem.where == "member m1"
    assert "which control plane tenant-a/prod has put there" in problem.what


def test_our_own_member_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = member("m1")
    for each in registration.objects_on_member("m1", state().owner, "karmada/prod"):
        ours.put(each)
    run = with_members(monkeypatch, m1=ours, m2=member("m2"))
    run.store.state = state()
    assert problems(run) == []


def test_an_uninstall_asks_for_the_host_cluster_and_the_rights_there() -> None:
    cluster = host()
    cluster.denied = {("delete", "secrets"), ("patch", "clusterroles"), ("list", "storageclasses")}
    (problem,) = findings.uninstall_problems(fake_run(document(), cluster))
    assert problem.what == "the account may not: delete secrets in namespace karmada"


def test_an_uninstall_of_what_is_there_or_not_has_no_problem() -> None:
    assert findings.uninstall_problems(fake_run(document(), host())) == []
    assert findings.uninstall_problems(installed()) == []


def test_an_uninstall_fails_at_once_where_the_host_cluster_does_not_answer_in_the_words_of_an_install() -> None:
    cluster = host()
    cluster.dead = True
    run = fake_run(document(), cluster)
    assert findings.uninstall_problems(run) == findings.findings(run).all != []
    assert cluster.patience == [5, 5]


def test_an_uninstall_refuses_a_state_that_it_cannot_read() -> None:
    run = installed()
    secret = run.host_cluster.objects["v1", "Secret", "karmada", "prod-installer-state"]
    del secret["data"]["owned.json"]
    (problem,) = findings.uninstall_problems(run)
    assert "state cannot be read" in problem.what


def test_a_document_from_before_a_field_existed_counts_with_its_default() -> None:
    """Else an update of the collection would refuse every control plane that it finds."""
    was = document()
    del was["spec"]["encryption"]
    found = Rendered(document(), state=state(document=was))
    assert problems(fake_run(document(), host(*found.objects), stored=found.remembered)) == []
