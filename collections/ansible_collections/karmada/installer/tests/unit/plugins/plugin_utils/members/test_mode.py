# SPDX-License-Identifier: Apache-2.0
"""A member changes between push and pull, or its connection does: wherever a run ends, and nobody leaves."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import member_join as join_action
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry, Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import FORMER_MODE
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import MEMBER_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import NotReady
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent, former_connections, registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import leave as member_leave
from ansible_collections.karmada.installer.plugins.plugin_utils.members import mode as member_mode
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.changing_member import (
    FOREVER,
    HOLDERS,
    MANAGER,
    ON_HOSTS,
    PULL,
    PUSH,
    Killed,
    Object,
    Site,
    SiteOnHosts,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster
from ansible_collections.karmada.installer.tests.unit.support.samples import document

BOTH_WAYS = pytest.mark.parametrize(
    ("before", "after"), [(PUSH, PULL), (PULL, PUSH), (PUSH, ON_HOSTS), (ON_HOSTS, PUSH)], ids=lambda each: each["mode"]
)


@BOTH_WAYS
def test_a_member_changes_its_mode_in_place_and_back(
    before: Object, after: Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(monkeypatch).joined(before)
    first = site.kept()
    foretold = site.run(after, check=True)
    assert (site.mode, site.kept()) == (before["mode"], first)
    changed = site.run(after)
    site.assert_in(after)
    assert site.run(after) == []
    assert site.kept() == first
    assert "changed Cluster m1" in foretold
    # A check knows no certificate that is asked for, and takes what would be made anew for changed.
    assert {each.partition(" ")[2] for each in foretold} == {each.partition(" ")[2] for each in changed}
    assert "created Deployment karmada/prod-controller-manager" in changed
    site.run(before)
    site.assert_in(before)
    assert site.run(before) == []
    assert site.kept() == first


@pytest.mark.parametrize("entry", [PUSH, PULL, ON_HOSTS], ids=["push", "pull", "on hosts"])
@pytest.mark.parametrize("filled", [True, False], ids=["tokens there", "tokens to come"])
def test_a_check_of_a_first_join_foretells_all_that_the_run_does(
    entry: Object, filled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tainted = {**entry, "taints": [{"key": "example.com/reserved", "effect": "NoSchedule"}]}
    site = Site(monkeypatch)
    if not filled:
        there = member_join._credentials
        monkeypatch.setattr(member_join, "_credentials", lambda *_: None)
        monkeypatch.setattr(member_join, "wait_for_credentials", there)
    foretold = site.run(tainted, check=True)
    assert (site.inside.objects, site.inside.log, site.member.log) == ({}, [], [])
    assert foretold == site.run(tainted)
    assert {"created Secret karmada-cluster/m1", "created Cluster m1"} <= {*foretold}
    if entry is PULL:
        assert "created ClusterRoleBinding system:karmada:m1:agent" in foretold


def writes_of(before: Object, after: Object, monkeypatch: pytest.MonkeyPatch, kind: type[Site] = Site) -> int:
    site = kind(monkeypatch).joined(before)
    site.run(after)
    return FOREVER - site.writes_left[0]


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        (Site, PUSH, PULL),
        (Site, PULL, PUSH),
        (SiteOnHosts, PUSH, ON_HOSTS),
        (SiteOnHosts, ON_HOSTS, PUSH),
        (SiteOnHosts, PULL, PUSH),
    ],
)
def test_killed_at_any_write_and_run_again_it_is_in_its_mode(
    kind: type[Site], before: Object, after: Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = writes_of(before, after, monkeypatch, kind)
    assert writes > 12
    for allowed in range(writes):
        site = kind(monkeypatch).joined(before)
        first = site.kept()
        site.writes_left[0] = allowed
        with pytest.raises(Killed):
            site.run(after)
        site.writes_left[0] = FOREVER
        site.run(after)
        site.assert_in(after)
        assert site.run(after) == [], f"killed after {allowed} writes"
        assert site.kept() == first


@pytest.mark.parametrize("entry", [PUSH, PULL, ON_HOSTS], ids=["push", "pull", "on hosts"])
@pytest.mark.parametrize("kind", [Site, SiteOnHosts])
def test_a_join_killed_at_any_write_has_recorded_the_member_before_anything_was_on_it(
    kind: type[Site], entry: Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that knows of it removes what is there, also when the document has forgotten the member."""
    site = kind(monkeypatch)
    site.writes_left[0] = FOREVER
    site.run(entry)
    site.assert_in(entry)
    writes, begun = FOREVER - site.writes_left[0], 0
    for allowed in range(writes):
        site = kind(monkeypatch)
        before = set(site.member.objects)
        site.writes_left[0] = allowed
        with pytest.raises(Killed):
            site.run(entry)
        if set(site.member.objects) == before:
            continue
        begun += 1
        assert site.remembered.members == {"m1": registration.record(MemberEntry(entry))}, f"after {allowed} writes"
    assert begun > 4


def test_a_member_that_hosts_have_not_recorded_is_left_alone_until_the_next_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = SiteOnHosts(monkeypatch)
    before, run = set(site.member.objects), site.of(PUSH)
    # It could not be looked at when the others were recorded.
    found = join_action._registration(run, list(run.spec.members), noted=True)
    assert found
    assert "only after the hosts had recorded" in found["m1"].problem
    assert found["m1"].next_step == "see that it answers each time; then run again"
    assert set(site.member.objects) == before
    assert site.inside.names("Cluster") == set()


@pytest.mark.parametrize("moved", [False, True], ids=["at its address", "at a new address"])
@pytest.mark.parametrize(("kind", "there"), [(Site, PULL), (SiteOnHosts, ON_HOSTS)], ids=["on the member", "on hosts"])
def test_it_comes_back_to_push_killed_at_any_write_on_the_way(
    kind: type[Site], there: Object, moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There and back: with what the first way has left, and its API server perhaps elsewhere by then."""

    def gone_there() -> Site:
        site = kind(monkeypatch).joined(PUSH)
        site.run(there)
        site.assert_in(there)
        if moved:
            reached_anew(site, "address")
        return site

    site = gone_there()
    before = site.writes_left[0]
    site.run(PUSH)
    writes = before - site.writes_left[0]
    assert writes > 12
    for allowed in range(writes):
        site = gone_there()
        first = site.kept()
        site.writes_left[0] = allowed
        with pytest.raises(Killed):
            site.run(PUSH)
        site.writes_left[0] = FOREVER
        site.run(PUSH)
        site.assert_in(PUSH)
        assert connection_of(site)[0] == site.member.access.server, f"killed after {allowed} writes"
        assert site.remembered.restarts_due == ()
        assert site.run(PUSH) == [], f"killed after {allowed} writes"
        assert site.kept() == first


@pytest.mark.parametrize(("before", "after"), [(PUSH, PULL), (PULL, PUSH)], ids=lambda each: each["mode"])
def test_killed_at_any_write_and_taken_back_it_is_in_the_mode_it_had(
    before: Object, after: Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for allowed in range(writes_of(before, after, monkeypatch)):
        site = Site(monkeypatch).joined(before)
        first = site.kept()
        site.writes_left[0] = allowed
        with pytest.raises(Killed):
            site.run(after)
        site.writes_left[0] = FOREVER
        site.run(before)
        site.assert_in(before)
        assert site.run(before) == [], f"killed after {allowed} writes"
        assert site.kept() == first


def test_an_agent_does_not_come_while_karmada_controller_manager_has_not_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(monkeypatch).joined(PUSH)
    site.dead = {"prod-controller-manager"}
    with pytest.raises(NotReady):
        site.run(PULL)
    assert (site.mode, site.agent_acts, site.remembered.restarts_due) == ("Pull", False, (MANAGER,))
    site.dead = set()
    site.run(PULL)
    site.assert_in(PULL)


def test_one_that_somebody_has_set_to_the_other_mode_is_brought_back_by_one_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(monkeypatch).joined(PULL)
    del site.member.objects["apps/v1", "Deployment", "karmada-cluster", agent.ROW.name]
    site.inside.objects[registration.CLUSTER_API, "Cluster", None, "m1"]["spec"]["syncMode"] = "Push"
    site.written()
    site.run(PULL)
    site.assert_in(PULL)
    assert site.run(PULL) == []


# -- who leaves in the middle ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(PUSH, PULL), (PULL, PUSH)], ids=lambda each: each["mode"])
def test_killed_at_any_write_it_can_leave_with_its_workloads_seen_to(
    before: Object, after: Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever the Cluster says sees to the Works is there to do so when they go."""
    withdrawn: list[bool] = []

    def withdraw(run: Run, _entry: Any, cluster: Object, *_: Any) -> None:
        assert site.mode == member_mode.of_cluster(cluster)
        withdrawn.append(site.agent_acts if site.mode == "Pull" else not site.agent_acts)
        run.control_plane.delete(registration.CLUSTER_API, "Cluster", "m1")

    monkeypatch.setattr(member_leave, "_withdraw", withdraw)
    monkeypatch.setattr(member_leave, "_remove_remains", lambda *_: [])
    monkeypatch.setattr(member_leave, "wait_until", lambda *_, **__: None)
    writes = writes_of(before, after, monkeypatch)
    for allowed in range(writes):
        site = Site(monkeypatch).joined(before)
        site.writes_left[0] = allowed
        with pytest.raises(Killed):
            site.run(after)
        site.writes_left[0] = FOREVER
        run = site.of(after)
        # Its entry is gone from the document.
        run.spec = Spec({**run.spec.plain, "members": []})
        (entry,) = member_leave.entries(run, ["m1"])
        outcome = member_join.Outcome("m1")
        member_leave.leave(run, entry, run.control_plane.get(registration.CLUSTER_API, "Cluster", "m1"), 60, outcome)
        left = {(each["kind"], each["metadata"]["name"]) for each in site.member.objects.values()}
        assert left == {("Namespace", "kube-system"), ("Deployment", "web")}, f"killed after {allowed} writes"
        assert not {"ClusterRoleBinding", "RoleBinding"} & {kind for _, kind, _, _ in site.inside.objects}
    assert withdrawn == [True] * writes


def test_a_check_of_leaving_in_the_middle_says_that_the_cluster_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch).joined(PUSH)
    site.dead = {"prod-controller-manager"}
    with pytest.raises(NotReady):
        site.run(PULL)
    monkeypatch.setattr(member_leave, "_withdraw", lambda *_: None)
    run = site.of(PULL, check=True)
    run.spec = Spec({**run.spec.plain, "members": []})
    (entry,) = member_leave.entries(run, ["m1"])
    outcome = member_join.Outcome("m1")
    member_leave.leave(run, entry, run.control_plane.get(registration.CLUSTER_API, "Cluster", "m1"), 60, outcome)
    assert "changed Cluster m1" in [f"{each.action} {each.ref}" for each in outcome.in_control_plane]
    assert site.mode == "Pull"


# -- a new token or address --------------------------------------------------------------------------------------------


def reached_anew(site: Site, what: str) -> None:
    if what == "token":
        site.token = "another"
    else:
        site.member.access.server = "https://192.0.2.9:6443"


@pytest.mark.parametrize(
    ("entry", "what", "holders"),
    [
        (PUSH, "token", HOLDERS),
        (PUSH, "address", [MANAGER, "karmada-search"]),
        # karmada-controller-manager has no connection to it, and others connect where they can.
        (PULL, "token", ["karmada-metrics-adapter", "karmada-search"]),
        (PULL, "address", ["karmada-search"]),
    ],
)
def test_who_holds_a_former_connection_starts_again_one_after_the_other(
    entry: Object, what: str, holders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(monkeypatch).joined(entry)
    site.run({**entry, "region": "eu"})
    assert (site.said, site.remembered.restarts) == ([], {})
    reached_anew(site, what)
    foretold = [each for each in site.run({**entry, "region": "eu"}, check=True) if "Deployment karmada/" in each]
    site.host.log.clear()
    site.said.clear()
    changed = [each for each in site.run({**entry, "region": "eu"}) if "Deployment karmada/" in each]
    names = [f"prod-{name.removeprefix('karmada-')}" for name in holders]
    assert foretold == changed == [f"created Deployment karmada/{name}" for name in names]
    assert [line for line in site.host.log if "Deployment" in line] == [f"apply Deployment {name}" for name in names]
    assert [line.partition(" ")[0] for line in site.said] == holders
    assert site.run({**entry, "region": "eu"}) == []
    # Once more for another change, and nobody else.
    site.token = "a third"
    site.run({**entry, "region": "eu"})
    assert site.remembered.restarts[holders[-1]] == 2


@pytest.mark.parametrize("moved", [False, True], ids=["at its address", "at a new address"])
@BOTH_WAYS
def test_with_another_mode_they_start_again_whose_connection_is_another_one(
    before: Object, after: Object, moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """karmada-controller-manager for the mode, and karmada-search, which watches members of both modes, for the way."""
    site = Site(monkeypatch).joined(before)
    if moved:
        reached_anew(site, "address")
    site.run(after)
    started = {name for name, times in site.remembered.restarts.items() if times}
    assert started == {MANAGER, *(["karmada-search"] if moved else [])}


def test_an_account_for_an_estimator_is_no_new_token_of_the_control_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch).joined(PUSH)

    def credentials(member: FakeCluster, name: str, estimator: bool) -> registration.Credentials | None:
        account = registration.estimator_account(name)
        if estimator and not member.get("v1", "Secret", account, MEMBER_NAMESPACE):
            return None
        return registration.Credentials(site.token, "t", b"c", "e" if estimator else "")

    monkeypatch.setattr(member_join, "_credentials", credentials)
    monkeypatch.setattr(member_join, "has_estimators", lambda _spec: True)
    changed = site.run(PUSH)
    assert "created Secret karmada-cluster/m1.scheduler-estimator" in changed
    assert (site.said, site.remembered.restarts) == ([], {})


@pytest.mark.parametrize(
    ("kind", "what"), [(Site, "token"), (Site, "address"), (SiteOnHosts, "token"), (SiteOnHosts, "address")]
)
def test_killed_at_any_write_they_start_again_after_the_connection_has_changed(
    kind: type[Site], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = kind(monkeypatch).joined(PUSH)
    reached_anew(site, what)
    site.run(PUSH)
    writes = FOREVER - site.writes_left[0]
    assert writes > 4
    for allowed in range(writes):
        site = kind(monkeypatch).joined(PUSH)
        reached_anew(site, what)
        site.writes_left[0] = allowed
        with pytest.raises(Killed):
            site.run(PUSH)
        started = dict(site.started)
        changed = connection_of(site)
        site.writes_left[0] = FOREVER
        site.run(PUSH)
        fresh = connection_of(site)
        assert site.started[MANAGER], f"killed after {allowed} writes"
        assert changed == fresh or site.started[MANAGER] != started[MANAGER], f"killed after {allowed} writes"
        assert site.remembered.restarts_due == ()
        assert site.run(PUSH) == []


def connection_of(site: Site) -> tuple[str, str]:
    """What the control plane has of the way to the member: address and token."""
    cluster = site.inside.objects[registration.CLUSTER_API, "Cluster", None, "m1"]
    return cluster["spec"]["apiEndpoint"], site.inside.objects["v1", "Secret", "karmada-cluster", "m1"]["data"]["token"]


def test_a_component_that_the_document_does_not_have_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch).joined(PUSH)
    run = site.of(PUSH)
    run.spec = Spec({**run.spec.plain, "components": document()["spec"]["components"]})
    noted = former_connections.noted(run, run.state, HOLDERS)
    assert (noted.restarts, noted.restarts_due) == ({MANAGER: 1}, (MANAGER,))


# -- records -----------------------------------------------------------------------------------------------------------


def test_the_record_says_which_mode_a_member_had_until_it_has_nothing_of_it_any_more() -> None:
    pushed = registration.changed_record(None, MemberEntry(PUSH))
    assert FORMER_MODE not in pushed
    going = registration.changed_record(MemberEntry(pushed), MemberEntry(PULL))
    assert (going["mode"], going[FORMER_MODE]) == ("Pull", "Push")
    assert registration.changed_record(MemberEntry(going), MemberEntry(PULL)) == going
    back = registration.changed_record(MemberEntry(going), MemberEntry(PUSH))
    assert (back["mode"], back[FORMER_MODE]) == ("Push", "Pull"), "what was made for it has to be looked for"
    assert registration.settled(back) == pushed
    assert registration.may_have_agent(MemberEntry(back))
    assert registration.may_have_agent(MemberEntry(PUSH), MemberEntry(going))
    assert not registration.may_have_agent(MemberEntry(PUSH), MemberEntry(pushed))
