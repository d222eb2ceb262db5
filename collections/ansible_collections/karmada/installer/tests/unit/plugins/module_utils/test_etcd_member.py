# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import etcd_member, etcd_requests, host_lock
from ansible_collections.karmada.installer.plugins.module_utils.etcd_member import MemberError
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System
from ansible_collections.karmada.installer.plugins.modules import _host_state
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import Cause
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_answer
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored

STATUS = {
    "header": {"cluster_id": "10", "member_id": "255", "revision": "40", "raft_term": "2"},
    "version": "3.6.16",
    "dbSize": "4096",
    "dbSizeInUse": "2048",
    "dbSizeQuota": "8192",
    "leader": "255",
    "raftIndex": "77",
    "raftTerm": "2",
}
MEMBERS = {
    "header": {"cluster_id": "10"},
    "members": [{"ID": "255", "name": "h1", "peerURLs": ["https://h1:2380"], "clientURLs": ["https://[::1]:2379"]}],
}
ANSWERS = {
    "/v3/maintenance/status": STATUS,
    "/v3/cluster/member/list": MEMBERS,
    "/v3/kv/range": {"count": "3"},
    "/v3/maintenance/hashkv": {"hash": 4294967295, "hash_revision": "40", "compact_revision": "7"},
}


def post(path: str, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    del body, seconds
    return ANSWERS[path]


def refusing(code: int, message: str) -> Any:
    def refused(*_: Any) -> dict[str, Any]:
        raise MemberError(f"it answers: {message}", code)

    return refused


def refusal(answer: dict[str, Any]) -> str:
    return host_answer.of_module("_etcd_member", {}, {"changed": False, "answer": answer}).refusal


def test_what_a_member_tells_arrives_as_it_was_told() -> None:
    answer = {**etcd_member.look(post), "data": True, **etcd_member.hash_at(post, 40)}
    answer |= etcd_member.counted_at(post, 40, {"works": ["YQ==", "Yg=="]})
    assert refusal(answer) == ""
    seen = on_hosts._seen("h1", "https://h1:2379", answer, "")
    assert (seen.status.healthy, seen.status.leader, seen.status.version) == (True, True, "3.6.16")
    assert (seen.status.db_size, seen.status.db_size_in_use, seen.status.db_quota) == (4096, 2048, 8192)
    assert (seen.status.index, seen.status.term, seen.status.revision, seen.status.member_id) == (77, 2, 40, "ff")
    assert seen.known is not None
    assert [(each.id, each.name) for each in seen.known.members] == [("ff", "h1")]
    assert seen.hash is not None
    assert (seen.hash.revision, seen.hash.value, seen.hash.compacted) == (40, 4294967295, 7)
    assert seen.counted == etcd_requests.Counted(40, {"works": 3})
    assert seen.disk is True


def test_a_member_that_does_not_answer_still_tells_the_folders_with_data_beside_its_own(tmp_path: Path) -> None:
    for name in ("gen-1", "gen-1-8e9e"):
        (tmp_path / "data" / name / "member" / "wal").mkdir(parents=True)
    answer = etcd_member.answered(System(str(tmp_path)), "https://192.0.2.1:2379", "/none", "/data/gen-1-8e9e")
    assert (answer["data"], [each["name"] for each in answer["folders"]]) == (True, ["gen-1", "gen-1-8e9e"])
    assert refusal(answer) == ""
    assert refusal({**answer, "folders": [{"name": "../gen-1"}]}) != ""


def test_keys_are_counted_as_the_member_itself_had_them_at_a_revision() -> None:
    asked = list[Mapping[str, Any]]()

    def noting(_path: str, body: Mapping[str, Any], _seconds: float) -> dict[str, Any]:
        asked.append(body)
        return {"count": "3"}

    etcd_member.counted_at(noting, 40, {"works": ["YQ==", "Yg=="]})
    assert asked == [{"key": "YQ==", "range_end": "Yg==", "count_only": True, "revision": "40", "serializable": True}]
    gone = refusing(11, "etcdserver: mvcc: required revision has been compacted")
    assert etcd_member.counted_at(gone, 40, {"works": ["YQ==", "Yg=="]}) == {}


def test_a_member_that_does_not_answer_is_told_with_its_reason() -> None:
    answer = etcd_member.look(refusing(0, "connection refused"))
    assert answer == {"message": "it answers: connection refused"}
    seen = on_hosts._seen("h1", "https://h1:2379", {**answer, "data": False}, "")
    assert (seen.answers, seen.status.cause, seen.disk) == (False, Cause.WRONG, False)
    assert "connection refused" in seen.status.message
    assert on_hosts._seen("h1", "https://h1:2379", {}, "no route to host").status.message == "no route to host"


def test_a_compaction_that_somebody_else_has_done_changes_nothing() -> None:
    done = "etcdserver: mvcc: required revision has been compacted"
    assert etcd_member.compact(refusing(11, done), 5) is False
    with pytest.raises(MemberError):
        etcd_member.compact(refusing(11, "required revision is a future revision"), 5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": {**etcd_member.look(post)["status"], "version": "<script>"}},
        {"status": {**etcd_member.look(post)["status"], "dbSize": "-1"}},
        {"status": {**etcd_member.look(post)["status"], "dbSize": "9" * 21}},
        {"status": {}},
        {"message": "x" * 2000},
        {"message": "\u001b[2J"},
        {"hash": {"revision": 1, "value": 2**32, "compacted": 0}},
        {"known": {"cluster_id": "zz", "members": []}},
        {
            "known": {
                "cluster_id": "a",
                "members": [{"id": "a", "name": "", "peer_urls": ["ftp://x"], "client_urls": [], "learner": False}],
            }
        },
    ],
)
def test_another_form_of_answer_is_refused(wrong: dict[str, Any]) -> None:
    assert refusal(wrong) != ""


def test_data_is_there_with_its_log(tmp_path: Path) -> None:
    system = System(tmp_path)
    assert not etcd_member.has_data(system, "/var/lib/karmada/prod/etcd/gen-1")
    (tmp_path / "var/lib/karmada/prod/etcd/gen-1/member/snap").mkdir(parents=True)
    assert not etcd_member.has_data(system, "/var/lib/karmada/prod/etcd/gen-1")
    (tmp_path / "var/lib/karmada/prod/etcd/gen-1/member/wal").mkdir()
    assert etcd_member.has_data(system, "/var/lib/karmada/prod/etcd/gen-1")
    assert not etcd_member.has_data(system, "/var/lib/karmada/prod/etcd/gen-1-abc"), "that of another member is none"


class Answering:
    """etcd that answers requests by their path, and remembers them; a number is the gRPC code of a refusal."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.asked = answers, list[tuple[str, Any]]()

    def __call__(self, path: str, body: Any, _seconds: float) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        self.asked.append((name, dict(body)))
        found = self.answers[name]
        if isinstance(found, int):
            raise etcd_member.MemberError("it answers: no", found)
        return dict(found)


LISTED = {
    "header": {"cluster_id": "16"},
    "members": [{"ID": "10", "name": "etcd1", "peerURLs": ["https://192.0.2.1:2380"], "clientURLs": []}],
}


def test_a_member_is_added_and_told_by_its_id_with_all_others() -> None:
    etcd = Answering(add={**LISTED, "member": {"ID": "11", "peerURLs": ["https://192.0.2.2:2380"], "isLearner": True}})
    found = etcd_member.change(etcd, "added", peer_url="https://192.0.2.2:2380")
    assert etcd.asked == [("add", {"peerURLs": ["https://192.0.2.2:2380"], "isLearner": True})]
    assert (found["changed"], found["added"]) == (True, "b")
    assert [each["id"] for each in found["known"]["members"]] == ["a"]


@pytest.mark.parametrize(
    ("state", "path", "body"),
    [
        ("promoted", "promote", {"ID": "10"}),
        ("removed", "remove", {"ID": "10"}),
        ("led", "transfer-leadership", {"targetID": "10"}),
    ],
)
def test_a_change_is_one_request_about_one_member(state: str, path: str, body: dict[str, str]) -> None:
    etcd = Answering(**{path: LISTED})
    assert etcd_member.change(etcd, state, identity="a")["changed"] is True
    assert etcd.asked == [(path, body)]


@pytest.mark.parametrize("code", [*sorted(etcd_requests.LATER), 0])
def test_what_etcd_cannot_do_yet_is_said_and_is_no_change(code: int) -> None:
    etcd = Answering(promote=code)
    assert etcd_member.change(etcd, "promoted", identity="a") == {"changed": False, "later": "it answers: no"}


def test_a_member_is_added_as_soon_as_the_others_have_been_connected_for_long_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(etcd_member.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(etcd_member.time, "sleep", lambda seconds: clock.append(clock.pop() + seconds))
    asked = list[float]()

    def until(seconds: float, message: str) -> Any:
        def answer(_path: str, _body: Any, _seconds: float) -> dict[str, Any]:
            asked.append(clock[0])
            if clock[0] < 100.0 + seconds:
                raise MemberError(f"it answers: {message}", etcd_requests.UNAVAILABLE)
            return {**LISTED, "member": {"ID": "11"}}

        return answer

    soon = "etcdserver: unhealthy cluster"
    assert etcd_member.change(until(3, soon), "added", peer_url="https://b:2380", seconds=10)["added"] == "b"
    assert 103.0 <= clock[0] < 103.5
    clock[0] = 100.0
    assert "unhealthy" in etcd_member.change(until(30, soon), "added", peer_url="https://b:2380", seconds=10)["later"]
    assert clock[0] < 110.5
    # Another refusal may come after etcd has done it.
    clock[0] = 100.0
    asked.clear()
    unknown = until(3, "etcdserver: request timed out")
    assert "timed out" in etcd_member.change(unknown, "added", peer_url="https://b:2380", seconds=10)["later"]
    assert asked == [100.0]


def test_a_refusal_that_will_not_pass_is_an_error() -> None:
    with pytest.raises(etcd_member.MemberError, match="no"):
        etcd_member.change(Answering(promote=etcd_requests.NOT_FOUND), "promoted", identity="a")


def test_one_that_is_no_member_any_more_counts_as_removed() -> None:
    found = etcd_member.change(Answering(remove=etcd_requests.NOT_FOUND), "removed", identity="a")
    assert found == {"changed": False}


def test_a_certificate_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cannot be used"):
        etcd_member.poster(System(tmp_path), "https://127.0.0.1:2379", "/etc/karmada/prod/etcd/pki/server")


def test_a_member_is_asked_when_its_host_has_the_state(tmp_path: Path) -> None:
    system = System(str(tmp_path))
    host_lock.take(system, "prod", "me")
    member = {"url": "https://192.0.2.1:2379", "folder": "/etc/none", "data": "/var/lib/none/gen-1"}
    content = json.dumps(Stored(1, {"key": ""}).plain)
    wanted: dict[str, Any] = {"name": "prod", "holder": "me", "state": "written", "content": content, "expected": ""}
    found = _host_state._perform(system, {**wanted, "member": member}, False)
    assert found["changed"] is True
    assert "cannot be used" in found["answer"]["message"]
    assert host_answer.of_module("_host_state", wanted, found) == (found, "")
    assert host_answer.of_module("_host_state", wanted, {**found, "answer": {"message": 1}}).refusal != ""
    # Whoever has lost the lock writes nothing, and asks nobody.
    with pytest.raises(host_lock.LockedError):
        _host_state._perform(system, {**wanted, "holder": "you", "member": member}, False)
    assert "answer" not in _host_state._perform(system, {**wanted, "expected": Stored(1, {"key": ""}).digest}, False)
