# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import OUT_OF_RANGE
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import access, room
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import Cause, EndpointStatus, EtcdError
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.moments import Clock

MIB = 1024 * 1024


@dataclass
class FakeEtcd:
    """In the place of the client: three members, and what was asked of them."""

    members_by_url: dict[str, EndpointStatus]
    asked: list[str] = field(default_factory=list)
    #: what happens to a member when it is defragmented, instead of success
    breaks: str = ""
    url: str = ""
    #: revisions that were compacted to
    compacted: list[int] = field(default_factory=list)

    def at(self, url: str) -> FakeEtcd:
        return replace(self, url=url)

    def status(self) -> list[EndpointStatus]:
        return list(self.members_by_url.values())

    def members(self) -> Any:
        raise EtcdError(Cause.WRONG, "not asked here")

    def compact(self, revision: int) -> None:
        self.asked.append(f"compact {revision}")
        newest = max(each.revision for each in self.members_by_url.values())
        if revision in self.compacted or revision > newest:
            why = "has been compacted" if revision in self.compacted else "is a future revision"
            raise EtcdError(Cause.WRONG, f"it answers: mvcc: required revision {why}", OUT_OF_RANGE)
        self.compacted.append(revision)

    def defragment(self) -> None:
        self.asked.append(f"defragment {self.url}")
        found = self.members_by_url[self.url]
        if self.breaks:
            self.members_by_url[self.url] = replace(found, healthy=False, message=self.breaks)
        else:
            self.members_by_url[self.url] = replace(found, db_size=found.db_size_in_use)

    def disarm(self, identity: str, alarm: str) -> None:
        self.asked.append(f"disarm {identity} {alarm}")
        for url, each in self.members_by_url.items():
            self.members_by_url[url] = replace(each, alarms=(), healthy=True, message="")


def etcd(size: int, used: int, **changes: object) -> FakeEtcd:
    statuses = [
        EndpointStatus(
            url=str(number),
            healthy=True,
            db_size=size * MIB,
            db_size_in_use=used * MIB,
            db_quota=500 * MIB,
            cluster_id="c1",
            leader=number == 0,
            member_id=f"a{number}",
            revision=100,
            index=7,
        )
        for number in range(3)
    ]
    return FakeEtcd({each.url: replace(each, **changes) for each in statuses})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    found = fake_run(samples.document({}), FakeCluster("host cluster"), stored=samples.state())
    monkeypatch.setattr(room, "time", Clock())
    locks: list[str] = []
    monkeypatch.setattr(found.store, "take_lock", lambda: locks.append("taken"))
    monkeypatch.setattr(found.store, "require_lock", lambda: None)
    found.locks = locks  # type: ignore[attr-defined]
    return found


def made(run: Run, client: FakeEtcd, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(access, "connect", lambda _run: client)
    monkeypatch.setattr(access, "names", lambda _run: {url: f"m{url}" for url in client.members_by_url})
    return room.make_room(run, 30)


def test_without_need_nothing_is_asked_but_how_they_are(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    client = etcd(400, 300)
    assert made(run, client, monkeypatch) == []
    assert client.asked == []
    assert run.locks == []  # type: ignore[attr-defined]


def test_free_space_is_given_back_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    client = etcd(400, 100)
    assert made(run, client, monkeypatch) == [
        "compacted Etcd prod",
        "defragmented EtcdMember m1",
        "defragmented EtcdMember m2",
        "defragmented EtcdMember m0",
    ]
    assert client.asked == ["compact 100", "defragment 1", "defragment 2", "defragment 0"]
    assert run.locks == ["taken"]  # type: ignore[attr-defined]
    assert made(run, client, monkeypatch) == []


def test_a_full_etcd_takes_writes_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    client = etcd(500, 200, alarms=("NOSPACE",), healthy=False, message="alarm:NOSPACE")
    assert made(run, client, monkeypatch)[-1] == "disarmed Etcd prod"
    assert client.asked[-3:] == ["disarm a0 NOSPACE", "disarm a1 NOSPACE", "disarm a2 NOSPACE"]


def test_a_full_etcd_that_stays_full_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    client = etcd(500, 499, alarms=("NOSPACE",), healthy=False, message="alarm:NOSPACE")
    with pytest.raises(ProblemsError, match="full of what is in use, and takes no writes: m0 499 of 500 MiB") as caught:
        made(run, client, monkeypatch)
    assert "defragmented EtcdMember m0" in str(caught.value)
    assert not any(each.startswith("disarm") for each in client.asked)


def test_an_alarm_that_is_raised_again_at_once_is_cleared_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    client = etcd(500, 470, alarms=("NOSPACE",), healthy=False, message="alarm:NOSPACE")

    def disarm(each: FakeEtcd, identity: str, _alarm: str) -> None:
        each.asked.append(f"disarm {identity}")
        assert len(each.asked) < 50, "a loop without end"

    monkeypatch.setattr(FakeEtcd, "disarm", disarm)
    with pytest.raises(ProblemsError, match="full of what is in use, and takes no writes: m0 470 of 500 MiB"):
        made(run, client, monkeypatch)
    assert client.asked[-3:] == ["disarm a0", "disarm a1", "disarm a2"]
    assert client.asked.count("disarm a0") == 1


def test_one_that_was_full_takes_writes_again_with_a_larger_quota(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    client = etcd(500, 499, alarms=("NOSPACE",), healthy=False, message="alarm:NOSPACE")
    with pytest.raises(ProblemsError, match="full of what is in use"):
        made(run, client, monkeypatch)
    # Nobody has written since, so its revision is the one that was compacted to.
    for url, each in client.members_by_url.items():
        client.members_by_url[url] = replace(each, db_quota=1000 * MIB)
    assert made(run, client, monkeypatch) == [
        "defragmented EtcdMember m1",
        "defragmented EtcdMember m2",
        "defragmented EtcdMember m0",
        "disarmed Etcd prod",
    ]
    assert client.asked.count("compact 100") == 2


def test_another_refusal_of_a_compaction_ends_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    client = etcd(400, 100)
    compact = FakeEtcd.compact
    monkeypatch.setattr(FakeEtcd, "compact", lambda each, revision: compact(each, revision + 1))
    with pytest.raises(ProblemsError, match=r"m0 does not compact: .* required revision is a future revision"):
        made(run, client, monkeypatch)
    assert client.asked == ["compact 101"]


def test_it_stops_at_the_first_member_that_is_not_well_afterwards(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    client = etcd(400, 100)
    client.breaks = "it knows no leader"
    with pytest.raises(ProblemsError, match="m1: it knows no leader") as caught:
        made(run, client, monkeypatch)
    assert client.asked == ["compact 100", "defragment 1"]
    assert "done until then: compacted Etcd prod, defragmented EtcdMember m1" in str(caught.value)


def test_it_does_not_begin_while_a_member_is_away(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    client = etcd(400, 100)
    client.members_by_url["2"] = EndpointStatus("2", message="connection refused", cause=Cause.WRONG)
    with pytest.raises(ProblemsError, match="m2 does not answer: connection refused"):
        made(run, client, monkeypatch)
    assert client.asked == []


def test_a_check_says_what_it_would_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    client = etcd(500, 200, alarms=("NOSPACE",), healthy=False, message="alarm:NOSPACE")
    run.check = True
    assert made(run, client, monkeypatch) == [
        "compacted Etcd prod",
        "defragmented EtcdMember m1",
        "defragmented EtcdMember m2",
        "defragmented EtcdMember m0",
        "disarmed Etcd prod",
    ]
    assert client.asked == []


def test_the_document_says_from_when_on(run: Run) -> None:
    assert room.limits(run) == room.Limits(100 * MIB, 50, 2048 * MIB)
    maintenance = {"minimumSize": "1Gi", "freePercent": 30}
    local = {"etcd": {"local": {"maintenance": maintenance, "extraArgs": {"quota-backend-bytes": str(500 * MIB)}}}}
    own = fake_run(samples.document({"components": local}), FakeCluster("host cluster"), stored=samples.state())
    assert room.limits(own) == room.Limits(1024 * MIB, 30, 500 * MIB)
