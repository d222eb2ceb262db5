# SPDX-License-Identifier: Apache-2.0
"""Members of etcd on plain hosts get room one after the other, asked on their host, and only while all are well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import etcd_maintenance, etcd_member, etcd_room_on_host
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.plugins.module_utils.test_host_lock_asked import Asking
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered, seen

MIB = 1024 * 1024
MEMBERS = {"cp1": "1", "etcd1": "2", "etcd2": "3"}
FULL = "memberID:1 alarm:NOSPACE "
SEEN = {"state": "seen", "changing": False, "replace": []}


def status(
    member: str, *, used: int = 100, errors: tuple[str, ...] = (), leader: str = "1", quota: int = 2048
) -> dict[str, Any]:
    """Answer of a member with 400 MiB, of which so many are in use, and a quota in MiB."""
    listed = [
        {"id": identity, "name": name, "peer_urls": [f"https://{name}:2380"], "client_urls": [], "learner": False}
        for name, identity in MEMBERS.items()
    ]
    return {
        "message": "",
        "data": True,
        "status": {
            "header": {"cluster_id": "10", "member_id": member, "revision": "70"},
            "version": "3.6.16",
            "leader": leader,
            "isLearner": False,
            "errors": list(errors),
            "raftIndex": "99",
            "raftTerm": "2",
            "dbSize": str(400 * MIB),
            "dbSizeInUse": str(used * MIB),
            "dbSizeQuota": str(quota * MIB),
        },
        "known": {"cluster_id": "a", "members": listed},
    }


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    runs = Runs(tmp_path / "run")
    runs.see_all(seen(Stored().after(remembered(), on_hosts=False)))
    runs.see(**{host: {"etcd": status(member)} for host, member in MEMBERS.items()})
    return runs


def decided(runs: Runs, state: str = "decided", *, check: bool = False) -> dict[str, Any]:
    action: Any = object.__new__(etcd_maintenance.ActionModule)
    found: dict[str, Any] = action.perform(runs.step(check=check), {"state": state, "timeout": 5})
    return found


def asked(runs: Runs, *, check: bool = False, **arguments: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Result of a step on cp1, and what its modules were asked, without what each of them is told."""
    asking = Asking(etcd_room_on_host.ActionModule, runs, check=check)
    asking.answer = {"changed": True}
    result = asking.action.perform({"revision": 0, "identities": [], **arguments})
    return result, asking.asked


def test_what_is_due_is_decided_with_the_leader_last(runs: Runs) -> None:
    found = decided(runs)
    assert (found["due"], found["by"], found["revision"]) == (True, "cp1", 70)
    assert found["order"] == ["etcd1", "etcd2", "cp1"]
    runs.see(**{host: {"etcd": status(member, used=390)} for host, member in MEMBERS.items()})
    assert decided(runs) == {"changed": False, "due": False, "order": [], "by": "", "revision": 0}


def test_nothing_is_decided_while_a_member_is_not_well(runs: Runs) -> None:
    runs.see(etcd2={"etcd": {"message": "connection refused", "data": True}})
    with pytest.raises(ProblemsError) as refused:
        decided(runs)
    assert refused.value.problems[0].reason is Reason.ETCD_UNHEALTHY
    with pytest.raises(ProblemsError):
        asked(runs, state="defragmented")


def test_members_are_asked_again_until_all_are_well(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pauses = [1000.0], list[float]()
    monkeypatch.setattr(etcd_maintenance.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(etcd_maintenance.time, "sleep", pauses.append)

    def again(*, check: bool = False) -> bool:
        return bool(decided(runs, "well", check=check)["again"])

    assert not again()
    # It answers after it was defragmented and knows a leader, and another one has not heard of that yet.
    runs.see(etcd2={"etcd": status("3", leader="0", errors=("etcdserver: no leader",))})
    assert not again(check=True), "where nothing was changed there is nothing to wait for"
    assert again()
    clock[0] += 4.0
    assert again()
    clock[0] += 1.0
    assert not again(), "the next step refuses"
    assert pauses == [0.3, 0.5], "the later, the longer until the next look"
    # Of a later step it is a wait of its own.
    assert again()
    runs.see(etcd2={"etcd": status("3")})
    assert not again()


def test_a_member_is_defragmented_in_the_name_of_the_run(runs: Runs) -> None:
    result, requests = asked(runs, state="defragmented")
    assert result == {"changed": True, "changes": ["defragmented EtcdMember cp1"]}
    (first,) = requests
    assert (first["module"], first["state"], first["name"], first["holder"]) == (
        "_etcd_room",
        "defragmented",
        "prod",
        "me@here",
    )
    assert first["url"] == "https://192.0.2.1:2379"


def test_an_alarm_is_cleared_for_each_member_that_raises_it(runs: Runs) -> None:
    runs.see(**{host: {"etcd": status(member, errors=(FULL,))} for host, member in MEMBERS.items()})
    found = decided(runs, "concluded")
    assert found["identities"]
    _, requests = asked(runs, state="disarmed", identities=found["identities"])
    disarmed = [each["member"] for each in requests if each["module"] == "_etcd_room"]
    assert disarmed == found["identities"]


def test_a_check_tells_that_the_alarm_of_a_full_etcd_is_to_be_cleared(runs: Runs) -> None:
    full = {host: {"etcd": status(member, errors=(FULL,), quota=400)} for host, member in MEMBERS.items()}
    runs.see(**full)
    assert decided(runs, "concluded", check=True)["identities"] == list(MEMBERS.values())
    with pytest.raises(ProblemsError, match="full of what is in use"):
        decided(runs, "concluded")


def test_a_check_asks_for_no_change(runs: Runs) -> None:
    _, requests = asked(runs, check=True, state="compacted", revision=70)
    assert [(each["module"], each["checks"], each["revision"]) for each in requests] == [("_etcd_room", True, 70)]


def test_a_host_that_refuses_is_told_and_nothing_more_is_asked(runs: Runs) -> None:
    asking = Asking(etcd_room_on_host.ActionModule, runs)
    asking.answer = {"failed": True, "msg": "this run has lost the lock of prod on this host"}
    found = asking.action.perform({"state": "defragmented", "revision": 0, "identities": []})
    assert found["failed"]
    assert len(asking.asked) == 1


def test_what_a_member_answers_is_handed_on(runs: Runs) -> None:
    asking = Asking(etcd_member.ActionModule, runs)
    asking.answer = {"changed": False, "answer": status("1", used=5), "ansible_facts": {"x": "y"}}
    assert asking.action.perform(SEEN) == {"changed": False, "asked": True}
    assert runs.handover.observed("cp1").etcd == status("1", used=5)
    asking.answer = {"changed": False, "answer": {"status": "<script>"}}
    assert asking.action.perform(SEEN) == {"changed": False, "asked": False}
    assert "form" in runs.handover.observed("cp1").etcd["message"]
