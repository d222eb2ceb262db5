# SPDX-License-Identifier: Apache-2.0
"""Joining what is joined already, by a run of ours or by hand: changed in place, adopted, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import taints as member_taints
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, count_requests, fake_run
from ansible_collections.karmada.installer.tests.unit.support.joined_members import M1, MADE_BY_APPLY
from ansible_collections.karmada.installer.tests.unit.support.karmada_in_memory import Api, Killed
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document, state

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
