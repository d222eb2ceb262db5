# SPDX-License-Identifier: Apache-2.0
"""When what one member of etcd has is gone on with: which one, what is refused, and what is told of the loss."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import Cause, EndpointStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.render import etcd_survivor
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import new_data, survivor, survivor_copy
from ansible_collections.karmada.installer.tests.unit.support import samples
from hypothesis import given
from hypothesis import strategies as st

NAMES = tuple(f"prod-etcd-{number}" for number in range(5))
NOW = samples.NOW
ALONE = EndpointStatus(
    "u",
    version="3.6.16",
    cluster_id="c",
    member_id="a0",
    revision=40,
    term=3,
    index=90,
    message="etcdserver: no leader",
)
GONE = EndpointStatus("u", message="connection refused", cause=Cause.WRONG)
LED = EndpointStatus("u", healthy=True, version="3.6.16", cluster_id="c", member_id="a1", revision=40)
ETCD = EtcdState("t", bootstrapped=True, members=(EtcdMemberState(NAMES[0], id="a0"), EtcdMemberState(NAMES[1])))


def whats(found: Any) -> list[str]:
    problems = list(found)
    assert all(each.reason is Reason.RESTORE_IMPOSSIBLE and each.remedy for each in problems)
    return [each.what for each in problems]


def statuses(*found: EndpointStatus) -> dict[str, EndpointStatus]:
    return dict(zip(NAMES, found, strict=False))


@given(st.lists(st.sampled_from(["led", "alone", "gone"]), min_size=1, max_size=5))
def test_one_is_gone_on_with_only_where_no_majority_is_there(kinds: list[str]) -> None:
    of = {"led": LED, "alone": ALONE, "gone": GONE}
    refused = whats(survivor.not_lost(NAMES[0], statuses(*(of[each] for each in kinds)), "here"))
    majority = sum(each != "gone" for each in kinds) * 2 > len(kinds)
    assert bool(refused) is ("led" in kinds or majority)
    assert len(refused) <= 1


def test_a_learner_that_knows_a_leader_is_no_majority() -> None:
    learner = EndpointStatus("u", healthy=True, learner=True)
    assert not survivor.has_majority(statuses(ALONE, learner, GONE))
    assert survivor.has_majority(statuses(ALONE, LED, GONE))


def test_one_that_nobody_knows_is_told_with_those_there_are() -> None:
    (problem,) = survivor.not_lost("prod-etcd-9", statuses(ALONE, GONE, GONE), "here")
    assert problem.what == "prod-etcd-9 is no member of etcd"
    assert all(name in problem.remedy for name in NAMES[:3])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, ""),
        ({"member_id": ""}, ""),
        ({"member_id": "ff"}, "is not that of the member on record (ff, not a0)"),
        ({"learner": True}, "has not come to its vote"),
        ({"revision": 1}, "has no data"),
        ({"version": "3.5.9"}, "runs etcd 3.5.9, and the control plane has v3.6.16"),
    ],
)
def test_data_that_is_none_of_this_etcd_is_refused(fields: dict[str, Any], said: str) -> None:
    found = whats(survivor.unfit(ETCD, NAMES[0], EndpointStatus(**{**vars(ALONE), **fields}), "v3.6.16", "here"))
    assert len(found) == bool(said)
    assert all(said in each for each in found)


def backup(revision: int, cluster: str = "c", age: timedelta = timedelta(hours=3)) -> Any:
    return SimpleNamespace(name=f"prod-{revision}", revision=revision, cluster_id=cluster, start=NOW - age)


@given(st.lists(st.integers(1, 100), max_size=6), st.integers(1, 100))
def test_a_backup_that_has_as_much_is_restored_instead(revisions: list[int], own: int) -> None:
    status = EndpointStatus("u", cluster_id="c", revision=own)
    found = whats(survivor.superseded(status, [backup(each) for each in revisions], "there"))
    assert bool(found) is any(each >= own for each in revisions)
    if found:
        assert f"prod-{max(revisions)} has revision {max(revisions)}" in found[0]


def test_a_backup_of_another_etcd_tells_nothing_of_this_one() -> None:
    assert not whats(survivor.superseded(ALONE, [backup(99, "other")], "there"))
    # Of a copy nobody knows the cluster: after a restore revisions are far above those of before.
    copied = EndpointStatus("u", revision=10**9 + 40)
    assert not whats(survivor.superseded(copied, [backup(99, "other")], "there"))
    assert whats(survivor.superseded(copied, [backup(10**9 + 41, "other")], "there"))


def test_the_loss_names_both_revisions() -> None:
    told = "; ".join(survivor.lost(NAMES[0], statuses(ALONE, GONE, GONE), backup(30), NOW))
    assert "the last writes before most members were lost may be missing" in told
    assert "it has revision 40, and the newest backup (prod-30, 3 h ago) 30" in told
    blind = "; ".join(survivor.lost(NAMES[0], statuses(ALONE, GONE, GONE), None, NOW))
    assert "there is no backup of this etcd" in blind


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 50), st.integers(2, 50)), min_size=2, max_size=2))
def test_of_two_the_newer_one_is_told_by_term_and_then_by_entry(logs: list[tuple[int, int, int]]) -> None:
    two = statuses(
        *(EndpointStatus("u", term=term, index=index, revision=revision) for term, index, revision in logs), GONE
    )
    ordered = survivor.by_age(two)
    assert set(ordered) == set(NAMES[:2])
    assert logs[NAMES.index(ordered[0])] == max(logs)
    for name, log in zip(NAMES, logs, strict=False):
        told = " ".join(survivor.lost(name, two, None, NOW))
        assert ("is newer" in told) is (log < max(logs))


def test_without_a_backup_the_revision_is_above_all_that_ten_years_can_have_made() -> None:
    assert new_data.bump(survivor.UNKNOWN_AGE) == 3650 * 86_400 * 50_000 < 2**62


# -- the copy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "settled"),
    [
        ({"running": {"startedAt": "2026-03-01T11:59:00Z"}}, True),
        ({"running": {"startedAt": "2026-03-01T11:59:55Z"}}, False),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, False),
        ({}, False),
    ],
)
def test_only_a_member_that_has_run_for_a_while_has_all_in_its_database(state: dict[str, Any], settled: bool) -> None:
    now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    assert survivor_copy.is_settled({"status": {"containerStatuses": [{"state": state}]}}, now) is settled
    assert not survivor_copy.is_settled(None, now)


def archive(path: Path, files: Mapping[str, bytes], link: str = "") -> Path:
    with tarfile.open(path, "w") as stream:
        for name, content in files.items():
            each = tarfile.TarInfo(name)
            each.size = len(content)
            if link:
                each.type, each.linkname, each.size = tarfile.SYMTYPE, link, 0
            stream.addfile(each, io.BytesIO(content))
    return path


GOOD = {
    "member/snap/db": b"database",
    "member/snap/0000000000000002-0000000000002711.snap": b"s",
    "member/wal/0000000000000000-0000000000000000.wal": b"log",
}


def test_an_archive_of_a_host_gives_the_files_of_a_member(tmp_path: Path) -> None:
    survivor_copy.extract(archive(tmp_path / "a.tar", GOOD), tmp_path / "data", "h")
    for name, content in GOOD.items():
        assert (tmp_path / "data" / name).read_bytes() == content
        assert (tmp_path / "data" / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "member/snap/../../../evil", "member/snap/db.sh", "member"])
def test_nothing_else_of_it_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProblemsError, match="cannot be used"):
        survivor_copy.extract(archive(tmp_path / "a.tar", {name: b"x"}), tmp_path / "data", "h")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.tar"]


def test_neither_are_links_nor_a_file_twice_nor_what_is_no_archive(tmp_path: Path) -> None:
    linked = archive(tmp_path / "l.tar", {"member/snap/db": b""}, link="/etc/passwd")
    (tmp_path / "r.tar").write_bytes(b"x" * 4096)
    with tarfile.open(tmp_path / "t.tar", "w") as stream:
        for _ in range(2):
            stream.addfile(tarfile.TarInfo("member/snap/db"))
    for path in (linked, tmp_path / "r.tar", tmp_path / "t.tar"):
        with pytest.raises(ProblemsError, match="cannot be used"):
            survivor_copy.extract(path, tmp_path / f"{path.stem}-data", "h")


def test_its_pod_reads_the_folder_that_is_in_use_and_writes_to_none_of_the_volume() -> None:
    etcd = EtcdState("t", generation=3, members=(EtcdMemberState(NAMES[0], id="a0", added=True),))
    pod = etcd_survivor.pod(samples.rendered().instance, etcd, NAMES[0], "node-a")
    (copier,), (server,) = pod["spec"]["initContainers"], pod["spec"]["containers"]
    assert "/gen-3-a0/member/snap/db" in " ".join(copier["command"])
    mounts = {each["name"]: each for each in copier["volumeMounts"]}
    assert mounts["data"]["readOnly"] is True
    assert "data" not in {each["name"] for each in server["volumeMounts"]}
    assert "--listen-client-urls=https://127.0.0.1:2379" in server["command"]
    assert pod["spec"]["activeDeadlineSeconds"] == etcd_survivor.LIFE_SECONDS
    assert "node-a" in str(pod["spec"]["affinity"])
    assert "affinity" not in etcd_survivor.pod(samples.rendered().instance, etcd, NAMES[0], "")["spec"]
