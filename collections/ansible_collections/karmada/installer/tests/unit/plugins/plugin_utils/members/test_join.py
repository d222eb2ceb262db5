# SPDX-License-Identifier: Apache-2.0
"""Joining as a run finds a member: what is there already, what is on record, and what is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.member_join import ActionModule
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import NotReady
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import ready as member_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import taints as member_taints
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, count_requests, fake_run
from ansible_collections.karmada.installer.tests.unit.support.karmada_in_memory import Api, Killed
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document, state

M1 = {"name": "m1", "mode": "Push", "secretRef": {"name": "m1"}}
NAMESPACE = Ref("v1", "Namespace", "karmada-cluster")
MADE_BY_APPLY = [{"manager": "karmada-installer", "operation": "Apply", "time": "2026-01-01T00:00:00Z"}]


def surveyed(namespace: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch) -> member_join.Outcome:
    """What a look at a member finds that has nothing of ours but, perhaps, this namespace."""
    member = FakeCluster("member m1", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
    if namespace:
        member.put(namespace)

    @contextmanager
    def connected(_run: Run, _entry: Any) -> Iterator[FakeCluster]:
        yield member

    monkeypatch.setattr(member_join, "connected", connected)
    outcome = member_join.Outcome("m1")
    run = fake_run(document(), FakeCluster("host cluster"), stored=state())
    member_join.survey_member(run, MemberEntry(M1), Clusters(), outcome)
    return outcome


@pytest.mark.parametrize(("patience", "seconds"), [(None, 90), (5, 5), (500, 90)])
def test_requests_are_tried_again_for_as_long_as_the_member_has_time(
    patience: float | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    member: Any = FakeCluster("member m1")
    member.retry_seconds = 90
    monkeypatch.setattr(member_join, "cluster_from_secret", lambda *_, **__: member)
    monkeypatch.setattr(Run, "secret", lambda *_: {})
    run = fake_run(document(), FakeCluster("host cluster"))
    with member_join.connected(run, MemberEntry(M1), patience) as found:
        assert found.retry_seconds == seconds


def of_namespace(outcome: member_join.Outcome) -> list[tuple[str, bool]]:
    return [(change.action, change.uid is not None) for change in outcome.on_member if change.ref == NAMESPACE]


def test_a_namespace_that_is_missing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_namespace(surveyed(None, monkeypatch)) == [("created", False)]


def test_a_namespace_that_a_run_of_ours_made_before_it_was_killed_is_put_on_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = registration.namespace_on_member(OWNER)
    ours["metadata"]["managedFields"] = MADE_BY_APPLY
    outcome = surveyed(ours, monkeypatch)
    assert of_namespace(outcome) == [("unchanged", True)]
    (uid,) = [change.uid for change in outcome.on_member if change.ref == NAMESPACE]
    assert member_join.recorded(state(), MemberEntry(M1), outcome.on_member).uids("member/m1") == {uid}


@pytest.mark.parametrize("owner", [OWNER, "another"], ids=["only labelled", "of another control plane"])
def test_a_namespace_of_others_is_used_and_not_put_on_record(owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = registration.namespace_on_member(owner)
    if owner != OWNER:
        theirs["metadata"]["managedFields"] = MADE_BY_APPLY
    assert of_namespace(surveyed(theirs, monkeypatch)) == []


@pytest.mark.parametrize(("known", "due"), [({"Namespace karmada-cluster": "u"}, False), ({}, True)])
def test_a_member_is_due_while_something_of_ours_there_is_not_on_record(known: dict[str, str], due: bool) -> None:
    joined: State = state(members={"m1": {"mode": "Push", "secretRef": {"name": "m1"}}}, owned={"member/m1": known})
    outcome = member_join.Outcome("m1", on_member=[Change(NAMESPACE, "unchanged", "u")])
    assert member_join.needs_work(MemberEntry(M1), outcome, joined) is due


@pytest.mark.parametrize(
    ("entry", "due"),
    [
        (M1, False),
        ({**M1, "onLeave": "Retain"}, False),
        ({**M1, "onLeave": "Delete"}, True),
        ({**M1, "secretRef": {"name": "other"}}, True),
        ({**M1, "context": "other"}, True),
    ],
)
def test_a_member_is_due_while_the_record_of_how_it_leaves_is_another(entry: dict[str, Any], due: bool) -> None:
    """An earlier version did not record what leaving means: it means that workloads stay."""
    old = {"mode": "Push", "secretRef": {"name": "m1"}, "context": None}
    known = state(members={"m1": old}, owned={"member/m1": {"Namespace karmada-cluster": "u"}})
    outcome = member_join.Outcome("m1", on_member=[Change(NAMESPACE, "unchanged", "u")])
    assert member_join.needs_work(MemberEntry(entry), outcome, known) is due


# -- the stages of the action --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("all", ["saved with m1", "register m1", "saved with m1", "wait for m1"]),
        ("registration", ["saved with m1", "register m1", "saved with m1"]),
        ("readiness", ["wait for m1"]),
    ],
)
def test_what_was_put_on_members_is_on_record_before_they_are_waited_for(
    stage: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    run = fake_run(document({"members": [M1]}), FakeCluster("host cluster"), stored=state())
    run.__dict__["control_plane"] = FakeCluster("control plane")

    def register(_run: Run, entry: Any, _registered: Any, outcome: member_join.Outcome) -> None:
        outcome.on_member.append(Change(NAMESPACE, "created", "u"))
        done.append(f"register {entry.name}")

    @contextmanager
    def writing(_step: str) -> Iterator[None]:
        yield

    def waits(_run: Run, entries: Any, _timeout: float) -> list[member_join.Outcome]:
        done.extend(f"wait for {entry.name}" for entry in entries)
        return [member_join.Outcome(entry.name) for entry in entries]

    def save(saved: State) -> None:
        done.append(f"saved with {', '.join(saved.members)}")

    monkeypatch.setattr(member_join, "survey_member", lambda *_: None)
    monkeypatch.setattr(member_join, "register_member", register)
    monkeypatch.setattr(member_ready, "wait_ready", waits)
    monkeypatch.setattr(run, "writing", writing)
    monkeypatch.setattr(run, "save", save)
    action: Any = ActionModule
    arguments = {"stage": stage, "noted": False, "timeout": 600, "broken": [], "on_broken_member": "fail"}
    found = action.perform(None, run, arguments)
    assert done == expected
    assert found["changed"] is (stage != "readiness")


# -- members that are broken ---------------------------------------------------------------------------------


def joined(
    monkeypatch: pytest.MonkeyPatch,
    identities: dict[str, str],
    broken: list[dict[str, str]],
    on_broken_member: str,
    selected: tuple[str, ...] = (),
) -> tuple[dict[str, Any], list[str]]:
    """What the action makes of these members, and which of them it registered."""
    done: list[str] = []
    entries = [{"name": name, "mode": "Push", "secretRef": {"name": name}} for name in identities]
    run = fake_run(document({"members": entries}), FakeCluster("host cluster"), stored=state())
    run.__dict__["control_plane"] = FakeCluster("control plane")
    run.selected = selected

    def survey(_run: Run, entry: Any, _registered: Any, outcome: member_join.Outcome, _inside: Any) -> None:
        outcome.cluster_id = identities[entry.name]
        if not outcome.cluster_id:
            raise Unreachable("member", "GET", "/", 0, "Unreachable", "no answer")

    @contextmanager
    def writing(_step: str) -> Iterator[None]:
        yield

    monkeypatch.setattr(member_join, "survey_member", survey)
    monkeypatch.setattr(member_join, "register_member", lambda _run, entry, *_: done.append(entry.name))
    monkeypatch.setattr(member_ready, "wait_ready", lambda *_: [])
    monkeypatch.setattr(run, "writing", writing)
    monkeypatch.setattr(run, "save", lambda _state: None)
    action: Any = ActionModule
    arguments = {"stage": "all", "noted": False, "timeout": 600, "broken": broken, "on_broken_member": on_broken_member}
    return action.perform(None, run, arguments), done


def test_broken_members_stop_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {"name": "m1", "problem": "its clock is wrong", "next": "set it"}
    found, done = joined(monkeypatch, {"m1": "1", "m2": "", "m3": "3"}, [refused], "tell")
    assert done == ["m3"]
    assert "failed" not in found
    assert [each["name"] for each in found["broken_members"]] == ["m1", "m2"]
    assert found["broken_members"][0] == refused
    assert "no answer" in found["broken_members"][1]["problem"]
    assert [each["joined"] for each in found["members"]] == [False, False, True]


def test_members_that_were_not_selected_are_neither_asked_nor_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    found, done = joined(monkeypatch, {"m1": "", "m2": "2", "m3": "3"}, [], "fail", selected=("m3",))
    assert done == ["m3"]
    assert "failed" not in found
    assert [each["name"] for each in found["members"]] == ["m3"]


def test_broken_members_make_the_step_fail_that_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found, done = joined(monkeypatch, {"m1": "", "m2": "2"}, [], "fail")
    assert (found["failed"], done) == (True, ["m2"])
    assert "1 of 2 members are not joined" in found["msg"]
    assert "next: mend that and run again" in found["msg"]


def test_one_cluster_that_is_listed_twice_is_not_joined_under_either_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found, done = joined(monkeypatch, {"m1": "1", "m2": "2", "m3": "1"}, [], "tell")
    assert done == ["m2"]
    assert [each["problem"] for each in found["broken_members"]] == [
        "spec.members[m1]: this cluster is listed as m3, too",
        "spec.members[m3]: this cluster is listed as m1, too",
    ]


# -- what changes in place -----------------------------------------------------------------------------------


class WithWriters(Api):
    """Says of each object who has made it, as an API server does."""

    def apply(self, obj: dict[str, Any], *, dry_run: bool = False, **more: Any) -> Any:
        found = super().apply(obj, dry_run=dry_run, **more)
        if not dry_run:
            self.objects[self._key(obj)]["metadata"]["managedFields"] = MADE_BY_APPLY
        return found


class Site:
    """A control plane and a member that fills the tokens of its accounts, in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "id-1"}}
        self.member = WithWriters("member m1", system)
        self.inside = WithWriters("control plane")
        # Both count the writes of the run, which ends when none is left.
        self.inside.shared = self.member
        self.state = state()
        self.token = "t"
        self.said: list[str] = []
        monkeypatch.setattr(member_join, "_credentials", self._credentials)
        monkeypatch.setattr(member_join, "connected", self._connected)

    @contextmanager
    def _connected(self, _run: Run, _entry: Any) -> Iterator[Api]:
        yield self.member

    def _credentials(self, *_: Any) -> registration.Credentials:
        return registration.Credentials(self.token, "t", b"c")

    def run(self, entry: dict[str, Any]) -> list[str]:
        """What one run of the step changes, on the member and in the control plane."""
        run = fake_run(document(), FakeCluster("host cluster"), stored=self.state)
        run.__dict__["control_plane"] = self.inside
        run.say = self.said.append
        registered = member_join.registered_clusters(run)
        survey, outcome = member_join.Outcome("m1"), member_join.Outcome("m1")
        member_join.survey_member(run, MemberEntry(entry), registered, survey)
        if not member_join.needs_work(MemberEntry(entry), survey, self.state):
            return []
        # How it is reached is on record before it is touched, what was made there only afterwards.
        self.state = member_join.recorded(self.state, MemberEntry(entry), [])
        member_join.register_member(run, MemberEntry(entry), registered, outcome)
        self.state = member_join.recorded(self.state, MemberEntry(entry), outcome.on_member)
        return sorted(f"{change.action} {change.ref}" for change in outcome.changes)

    @property
    def cluster(self) -> dict[str, Any]:
        found = self.inside.get(registration.CLUSTER_API, "Cluster", "m1")
        assert found
        return found


@pytest.mark.parametrize(
    "entry",
    [
        M1,
        {**M1, "labels": {"tier": "prod"}, "taints": [{"key": "example.com/reserved", "effect": "NoSchedule"}]},
        {**M1, "scopedRights": [{"apiGroup": "apps", "resources": ["deployments"]}]},
    ],
)
def test_killed_at_any_write_and_run_again_it_is_joined_as_if_it_had_not_been(
    entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = Site(monkeypatch)
    undisturbed.member.writes_left = 1000
    undisturbed.run(entry)
    writes = 1000 - undisturbed.member.writes_left
    assert writes > 10
    for allowed in range(writes):
        site = Site(monkeypatch)
        site.member.writes_left = allowed
        with pytest.raises(Killed):
            site.run(entry)
        site.member.writes_left = None
        site.run(entry)
        for name in ("member", "inside"):
            found, expected = (getattr(each, name).objects for each in (site, undisturbed))
            assert found.keys() == expected.keys(), f"killed after {allowed} writes"
        # What is not on record is not removed when the member leaves.
        owned, expected = (each.state.owned["member/m1"] for each in (site, undisturbed))
        assert owned.keys() == expected.keys(), f"killed after {allowed} writes"
        assert site.cluster["spec"] == undisturbed.cluster["spec"]
        assert site.run(entry) == []


def test_a_look_at_one_that_is_as_it_should_be_asks_for_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run(M1)
    asked = count_requests(monkeypatch)
    assert site.run(M1) == []
    # Its identity, its namespace, lists of accounts and tokens, rights; lists of Clusters and of their credentials.
    assert asked.items() >= {"member m1": 6, "control plane": 2}.items()


@pytest.mark.parametrize(
    "change",
    [{"labels": {"tier": "prod"}}, {"provider": "p"}, {"region": "eu"}, {"zones": ["a", "b"]}],
    ids=["labels", "provider", "region", "zones"],
)
def test_what_the_document_says_of_a_member_changes_in_place_and_back(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(monkeypatch)
    assert len(site.run(M1)) > 8
    uid = site.cluster["metadata"]["uid"]
    assert site.run(M1) == []
    assert site.run({**M1, **change}) == ["changed Cluster m1"]
    assert site.run({**M1, **change}) == []
    assert site.run(M1) == ["changed Cluster m1"]
    assert site.cluster["metadata"]["uid"] == uid
    assert not [line for line in (*site.inside.log, *site.member.log) if line.startswith("delete")]


def taints_of(site: Site) -> list[str]:
    return [member_taints.name_of(each) for each in site.cluster["spec"].get("taints") or []]


def test_taints_of_the_document_come_change_and_go_and_those_of_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    tainted = {**M1, "taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]}
    assert "created Cluster m1" in site.run(tainted)
    assert taints_of(site) == ["a:NoSchedule", "b:NoExecute"]
    assert site.run(tainted) == []
    live = site.inside.objects[registration.CLUSTER_API, "Cluster", None, "m1"]
    others = [{"key": "cluster.karmada.io/not-ready", "effect": "NoSchedule"}, {"key": "z", "effect": "NoExecute"}]
    live["spec"]["taints"] = [others[0], *live["spec"]["taints"], others[1]]
    live["spec"]["taints"][2]["timeAdded"] = "2026-01-01T00:00:00Z"
    assert site.run(tainted) == []
    valued = {**M1, "taints": [{"key": "a", "value": "x", "effect": "NoSchedule"}]}
    assert site.run(valued) == ["changed Cluster m1"]
    assert taints_of(site) == ["cluster.karmada.io/not-ready:NoSchedule", "a:NoSchedule", "z:NoExecute"]
    assert site.cluster["spec"]["taints"][1]["value"] == "x"
    assert site.run(M1) == ["changed Cluster m1"]
    assert site.cluster["spec"]["taints"] == others
    assert site.run(M1) == []


def test_rights_are_scoped_in_place_and_given_back_and_nobody_acts_for_an_administrator_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(monkeypatch)
    listed = [{"apiGroup": "apps", "resources": ["deployments"]}]
    scoped = {**M1, "scopedRights": listed}
    site.run(M1)
    by_karmada = {
        "labels": {"karmada.io/managed": "true"},
        "annotations": {"work.karmada.io/namespace": "karmada-es-m1"},
    }
    rbac = "rbac.authorization.k8s.io/v1"
    for kind, metadata in (("ClusterRole", by_karmada), ("ClusterRoleBinding", by_karmada)):
        site.member.put({"apiVersion": rbac, "kind": kind, "metadata": {"name": "karmada-impersonator", **metadata}})
    role = "ClusterRole karmada-controller-manager:karmada-m1"
    assert site.run(scoped) == [
        f"changed {role}",
        "deleted ClusterRole karmada-impersonator",
        "deleted ClusterRoleBinding karmada-impersonator",
    ]
    # while it could do everything, Karmada would make them again
    changed, *_, last = [line for line in site.member.log if role in line or line.startswith("delete")][1:]
    assert (changed, last) == (f"apply {role}", "delete ClusterRole karmada-impersonator")
    assert site.run(scoped) == []
    somebody = {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "karmada-impersonator"}}
    site.member.put(somebody)
    assert site.run(scoped) == [], "what others have put there for users of their choice"
    assert site.run(M1) == [f"changed {role}"]
    assert site.run(M1) == []


def test_another_address_of_the_same_cluster_becomes_that_of_the_control_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run(M1)
    site.member.access.server = "https://192.0.2.9:6443"
    assert site.run(M1) == ["changed Cluster m1"]
    assert site.cluster["spec"]["apiEndpoint"] == "https://192.0.2.9:6443"


@pytest.mark.parametrize("change", [{"secretRef": {"name": "other"}}, {"context": "other"}, {"onLeave": "Delete"}])
def test_how_it_is_reached_and_leaves_is_recorded_without_touching_it(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(monkeypatch)
    site.run(M1)
    assert site.run({**M1, **change}) == []
    assert site.state.members["m1"] == registration.record(MemberEntry({**M1, **change}))


def test_a_member_that_is_being_removed_is_not_joined_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run(M1)
    site.inside.objects[registration.CLUSTER_API, "Cluster", None, "m1"]["metadata"]["deletionTimestamp"] = "2026-01-01"
    with pytest.raises(ProblemsError, match="is being deleted"):
        site.run(M1)


# -- adoption ------------------------------------------------------------------------------------------------


def by_hand(site: Site) -> None:
    """As other tools leave it: the same objects, without our labels."""
    site.run(M1)
    site.state = state()
    for cluster in (site.inside, site.member):
        for each in cluster.objects.values():
            each["metadata"].update(labels={}, annotations={})


def test_one_that_was_joined_by_hand_becomes_ours_when_it_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    by_hand(site)
    uid = site.cluster["metadata"]["uid"]
    assert "changed Cluster m1" in site.run(M1)
    assert site.cluster["metadata"]["uid"] == uid
    assert site.cluster["metadata"]["labels"]["installer.karmada.io/owner"] == OWNER
    assert {each["metadata"]["uid"] for each in site.member.objects.values() if each["kind"] == "ClusterRole"} <= (
        site.state.uids("member/m1")
    )
    assert site.run(M1) == []


def test_one_that_was_half_adopted_is_adopted_by_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Cluster comes last, by which the next run sees that there is something left to do."""
    site = Site(monkeypatch)
    by_hand(site)
    apply = FakeCluster.apply

    def dies(self: FakeCluster, obj: Any, **more: Any) -> Any:
        if obj["kind"] == "Cluster":
            raise KeyboardInterrupt
        return apply(self, obj, **more)

    monkeypatch.setattr(FakeCluster, "apply", dies)
    with pytest.raises(KeyboardInterrupt):
        site.run(M1)
    monkeypatch.setattr(FakeCluster, "apply", apply)
    assert "changed Cluster m1" in site.run(M1)


def test_what_another_installer_holds_is_not_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    by_hand(site)
    labels = {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": "another"}
    site.inside.objects[registration.CLUSTER_API, "Cluster", None, "m1"]["metadata"]["labels"] = labels
    with pytest.raises(ProblemsError, match="was not made by this installer"):
        site.run(M1)


def test_one_that_is_registered_in_another_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    by_hand(site)
    site.inside.objects[registration.CLUSTER_API, "Cluster", None, "m1"]["spec"]["syncMode"] = "Pull"
    with pytest.raises(ProblemsError, match="registered in mode Pull"):
        site.run(M1)


@pytest.mark.parametrize("pulls", [False, True])
def test_a_member_that_nobody_looks_at_is_told_with_what_ails_karmada_itself(
    pulls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Ready of a member in mode Push comes from karmada-controller-manager, that of another one from its agent."""
    entry = MemberEntry({**M1, "mode": "Pull" if pulls else "Push"})
    manager = Ref("apps/v1", "Deployment", "prod-controller-manager", "karmada")
    asked: dict[Ref, Any] = {}

    def wait_until(_cluster: Any, targets: Any, *, served_by: Any, **_: Any) -> None:
        asked.update(served_by)
        (cluster,) = targets
        raise NotReady({manager: "cannot pull it", cluster: "Ready is not reported yet"}, 65, early=True)

    monkeypatch.setattr(member_ready, "wait_until", wait_until)
    monkeypatch.setattr(member_ready, "of_each", lambda *_: [])
    run = fake_run(document({"members": [M1]}), FakeCluster("host cluster"), stored=state())
    run.__dict__["control_plane"] = FakeCluster("control plane")
    (outcome,) = member_ready.wait_ready(run, [entry], 300)
    assert ("cannot pull it" in outcome.problem) is not pulls
    assert "Ready is not reported yet" in outcome.problem
    assert outcome.unready
    assert [server for each in asked.values() for server in each.workloads] == ([] if pulls else [manager])
