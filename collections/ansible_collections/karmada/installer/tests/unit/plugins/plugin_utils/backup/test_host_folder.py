# SPDX-License-Identifier: Apache-2.0
"""Backups in a directory of a plain host. What all folders promise is shown by ``test_targets``, of this one, too."""

from __future__ import annotations

import base64
import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.karmada.installer.plugins.module_utils import host_backup
from ansible_collections.karmada.installer.plugins.module_utils.backup_folder import Folder
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import host_folder, record, series, workplace
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import KEYS, RECORD, SNAPSHOT
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import HostDirectory, Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason, Severity
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_access, host_bounds
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.plugins.plugin_utils.backup.test_targets import NAME, put
from ansible_collections.karmada.installer.tests.unit.support.backup_series import document
from ansible_collections.karmada.installer.tests.unit.support.backups_on_host import HostOfBackups
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs

LARGE = b"0123456789" * 2
PLACE = "/srv/backups"
BELOW = f"{PLACE}/site-a/prod"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostOfBackups:
    """One of which pieces have eight bytes, and four are as many as an answer takes along."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(host_backup, "PIECE", 8)
    monkeypatch.setattr(host_backup, "INLINE", 4)
    found = HostOfBackups(tmp_path / "etcd1")
    found.path(PLACE).mkdir(parents=True)
    return found


def states(host: HostOfBackups) -> list[str]:
    return [each["state"] for each in host.asked]


def content_of(host: HostOfBackups, file: str = SNAPSHOT) -> bytes:
    sink = io.BytesIO()
    host.target().get(NAME, file, sink)
    return sink.getvalue()


def refusal(work: Callable[[], object], reason: Reason = Reason.BACKUP_TARGET_UNUSABLE) -> Problem:
    with pytest.raises(ProblemsError) as caught:
        work()
    (problem,) = caught.value.problems
    assert problem.reason is reason
    return problem


# -- what comes and goes -----------------------------------------------------------------------------------------------


def test_a_large_file_comes_and_goes_in_pieces_that_nobody_else_can_read(host: HostOfBackups) -> None:
    put(host.target(), NAME, SNAPSHOT, content=LARGE)
    assert states(host) == ["expected", "stored", "stored", "stored"]
    assert [each["offset"] for each in host.asked[1:]] == [0, 8, 16]
    assert [each["last"] for each in host.asked[1:]] == [False, False, True]
    assert host.path(f"{BELOW}/{NAME}/{SNAPSHOT}").read_bytes() == LARGE
    assert host.left == []
    host.asked.clear()
    assert content_of(host) == LARGE
    # The last four bytes are in the answer.
    assert states(host) == ["read", "read", "read", "forgotten"]
    assert host.left == []
    # One file on its way there, and one back, each by a name of its own.
    assert [host.moved.count(each) for each in dict.fromkeys(host.moved)] == [3, 2]
    assert list(workplace.folder().iterdir()) == []


def test_a_small_file_is_one_question_and_needs_no_file_on_its_way(host: HostOfBackups) -> None:
    put(host.target(), NAME, KEYS, content=b"keys")
    assert content_of(host, KEYS) == b"keys"
    put(host.target(), NAME, SNAPSHOT, content=b"")
    assert content_of(host) == b""
    assert states(host) == ["stored", "read", "stored", "read"]
    assert host.moved == []


def test_records_come_with_the_list_and_are_what_lies_there(host: HostOfBackups) -> None:
    target = host.target()
    put(target, NAME, RECORD, content=b"{}")
    host.asked.clear()
    (found,) = series.found(target, "")
    assert found.name == NAME
    assert states(host) == ["listed"]
    # Whoever asks once more asks the host: it may be gone, or another one.
    sink = io.BytesIO()
    target.get(NAME, RECORD, sink)
    assert sink.getvalue() == b"{}"
    target.names()
    target.delete(NAME)
    with pytest.raises(ProblemsError):
        target.get(NAME, RECORD, sink)


def test_a_record_that_is_too_large_does_not_come_whole(host: HostOfBackups) -> None:
    target = host.target()
    put(target, NAME, RECORD, content=b"{}")
    host.path(f"{BELOW}/{NAME}/{RECORD}").write_bytes(b"x" * (record.MAX_BYTES + 900))
    (found,) = series.found(target, "")
    assert "it is larger than 1 MiB" in found.trouble
    assert states(host).count("read") == 0


def test_more_records_than_an_answer_takes_along_are_asked_for(
    host: HostOfBackups, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, other = host.target(), NAME.replace("1f3a9c", "2f3a9c")
    for name in (NAME, other):
        put(target, name, RECORD, content=b"{}")
    monkeypatch.setattr(host_backup, "MOST_RECORDS_BYTES", 1)
    host.asked.clear()
    assert [each.name for each in series.found(target, "")] == [NAME, other]
    assert states(host) == ["listed", "read"]


# -- what is in the way ------------------------------------------------------------------------------------------------


def make_missing(host: HostOfBackups) -> None:
    host.path(PLACE).rmdir()


def make_link(host: HostOfBackups) -> None:
    make_missing(host)
    host.path("/elsewhere").mkdir()
    host.path(PLACE).symlink_to(host.path("/elsewhere"))


def make_file(host: HostOfBackups) -> None:
    make_missing(host)
    host.path(PLACE).touch()


def make_writable(host: HostOfBackups) -> None:
    host.path(PLACE).chmod(0o775)


def make_parent_writable(host: HostOfBackups) -> None:
    host.path("/srv").chmod(0o777)


def make_parent_link(host: HostOfBackups) -> None:
    make_missing(host)
    host.path("/srv").rmdir()
    host.path("/elsewhere/backups").mkdir(parents=True)
    host.path("/srv").symlink_to(host.path("/elsewhere"))


@pytest.mark.parametrize(
    ("make", "what", "path"),
    [
        (make_missing, "there is no such directory", PLACE),
        (make_link, "is a link", PLACE),
        (make_file, "is no directory", PLACE),
        (make_writable, "others than root may write in it", PLACE),
        (make_parent_writable, "others than root may write in it", "/srv"),
        (make_parent_link, "is a link", "/srv"),
    ],
)
def test_a_directory_that_others_could_change_is_refused_with_the_mend(
    host: HostOfBackups, make: Callable[[HostOfBackups], None], what: str, path: str
) -> None:
    make(host)
    target = host.target()
    for work in (target.check, target.names, lambda: target.require_room(1), lambda: put(target, NAME, RECORD)):
        problem = refusal(work)
        assert (problem.what, problem.where) == (what, f"host etcd1: {path}")
        assert problem.remedy
    assert host.left == []


def test_a_directory_of_another_user_is_refused(host: HostOfBackups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    owner = os.lstat(host.path(PLACE)).st_uid
    real = os.lstat

    def lstat(path: Any) -> Any:
        found = real(path)
        own = owner if owner not in (0, 4711) else 1000
        return SimpleNamespace(st_mode=found.st_mode, st_uid=own if str(path).endswith("backups") else 0)

    monkeypatch.setattr(host_backup.os, "lstat", lstat)
    assert refusal(host.target().names).what == "does not belong to root, so that others can change what is in it"


def test_a_directory_with_the_sticky_bit_may_be_above_it_and_not_it(host: HostOfBackups) -> None:
    host.path("/srv").chmod(0o1777)
    assert host.target().names() == []
    host.path(PLACE).chmod(0o1777)
    assert refusal(host.target().names).what == "others than root may write in it"


def test_a_full_disk_is_told_and_nothing_of_the_file_stays(
    host: HostOfBackups, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = host.target()
    monkeypatch.setattr(Folder, "free", lambda _self: 3)
    assert "1 MiB there, and 0 MiB are free" in refusal(lambda: target.require_room(1 << 20)).what
    problem = refusal(lambda: put(target, NAME, SNAPSHOT, content=LARGE))
    assert (problem.what, problem.remedy) == ("no space left on device", "free space there")
    assert host.left == []
    assert list(host.path(f"{BELOW}/{NAME}").iterdir()) == []


def test_a_disk_that_is_full_for_a_piece_is_told_with_its_place(
    host: HostOfBackups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_backup.os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=1))
    problem = refusal(lambda: put(host.target(), NAME, SNAPSHOT, content=LARGE), Reason.HOST_STEP_FAILED)
    assert f"need room in {host_backup.FOLDER}" in problem.what
    assert host.left == []
    assert list(host.path(f"{BELOW}/{NAME}").iterdir()) == []


def test_what_a_killed_run_has_left_is_swept_by_a_later_question(host: HostOfBackups) -> None:
    folder = host.path(host_backup.FOLDER)
    folder.mkdir()
    left, under_way = folder / "0123456789abcdef", folder / "fedcba9876543210"
    for each in (left, under_way):
        each.write_bytes(b"a piece")
    old = time.time() - host_backup.LEFT_SECONDS - 60
    os.utime(left, (old, old))
    host.target().names()
    # Another run may be sending the other one.
    assert host.left == [under_way]
    os.utime(under_way, (old, old))
    put(host.target(), NAME, SNAPSHOT, content=LARGE)
    assert not folder.exists()


def test_a_file_of_which_a_killed_run_has_stored_a_part_is_none_and_goes_with_its_backup(host: HostOfBackups) -> None:
    target = host.target()

    def cut(asked: dict[str, Any]) -> Any:
        if asked["state"] == "stored" and asked["offset"] == 8:
            raise KeyboardInterrupt
        if asked["state"] == "forgotten":
            raise AnsibleConnectionFailure("killed")
        return None

    host.answer = cut
    with pytest.raises(KeyboardInterrupt):
        put(target, NAME, SNAPSHOT, content=LARGE)
    host.answer = None
    (part,) = host.path(f"{BELOW}/{NAME}").iterdir()
    assert part.name.endswith(".part")
    assert len(host.left) == 1
    assert target.names() == []
    # The same name may be stored by the next attempt, and nothing of the first is in it.
    put(target, NAME, SNAPSHOT, content=LARGE[::-1])
    assert content_of(host) == LARGE[::-1]
    target.delete(NAME)
    assert not part.parent.exists()


def test_a_piece_that_comes_twice_is_there_once(host: HostOfBackups) -> None:
    """As where SSH tries a command again whose answer was lost."""

    def twice(asked: dict[str, Any]) -> Any:
        first = host.honest(asked)
        if asked["state"] != "stored":
            return first
        way = host.path(f"{host_backup.FOLDER}/{asked['staged']}")
        if not asked["last"]:
            # The first time has made room for the next piece.
            way.write_bytes(LARGE[asked["offset"] : asked["offset"] + asked["length"]])
            return host.honest(asked)
        way.parent.mkdir(exist_ok=True)
        way.write_bytes(LARGE[asked["offset"] :])
        return first

    host.answer = twice
    put(host.target(), NAME, SNAPSHOT, content=LARGE)
    host.answer = None
    assert content_of(host) == LARGE


def test_the_name_is_given_once_though_it_is_asked_twice(host: HostOfBackups) -> None:
    folder = Folder(str(host.path(PLACE)), "site-a/prod", RECORD)
    folder.begin(NAME, SNAPSHOT, "a1", 3)
    folder.go_on(NAME, SNAPSHOT, "a1", 0, io.BytesIO(b"abc"))
    folder.end(NAME, SNAPSHOT, "a1")
    folder.end(NAME, SNAPSHOT, "a1")
    assert content_of(host) == b"abc"
    with pytest.raises(FileNotFoundError):
        folder.end(NAME, KEYS, "a1")
    folder.begin(NAME, KEYS, "a1", 3)
    with pytest.raises(OSError, match="what comes before is not there"):
        folder.go_on(NAME, KEYS, "a1", 1, io.BytesIO(b"abc"))


# -- hosts that are away, or lie ---------------------------------------------------------------------------------------


def test_a_host_that_is_away_is_named_with_the_mend_and_not_asked_again(host: HostOfBackups) -> None:
    def away(_asked: Any) -> Any:
        raise AnsibleConnectionFailure("ssh: connect to host 192.0.2.3 port 22: Connection refused")

    host.answer = away
    target = host.target()
    for work in (target.names, lambda: put(target, NAME, SNAPSHOT, content=LARGE), lambda: content_of(host)):
        host.asked.clear()
        with pytest.raises(host_access.LostError) as caught:
            work()
        (problem,) = caught.value.problems
        assert problem.reason is Reason.HOST_UNREACHABLE
        assert problem.where == "host etcd1 (192.0.2.3)"
        assert problem.remedy
        assert len(host.asked) == 1


def test_a_file_that_breaks_off_on_its_way_is_told(host: HostOfBackups, monkeypatch: pytest.MonkeyPatch) -> None:
    put(host.target(), NAME, SNAPSHOT, content=LARGE)

    def broken(*_: str) -> None:
        raise AnsibleConnectionFailure("failed to transfer file: Connection reset by peer")

    monkeypatch.setattr(host, "fetch_file", broken)
    with pytest.raises(host_access.LostError):
        content_of(host)
    monkeypatch.setattr(host, "fetch_file", lambda _there, here: Path(here).write_bytes(b"short"))
    assert refusal(lambda: content_of(host), Reason.HOST_STEP_FAILED).what == "a file came with 5 of 8 bytes"
    # The piece of the first attempt goes later, as nobody was there to delete it.
    assert len(host.left) == 1


def test_sudo_that_refuses_is_told_as_elsewhere(host: HostOfBackups) -> None:
    host.answer = lambda _: {"failed": True, "msg": "Missing sudo password"}
    assert refusal(host.target().names, Reason.PRIVILEGES_REFUSED).where == "host etcd1 (192.0.2.3)"
    host.answer = lambda _: {"failed": True, "msg": "", "module_stderr": "Segmentation fault", "rc": 139}
    assert refusal(host.target().names, Reason.HOST_STEP_FAILED).what == "Segmentation fault"


def test_an_answer_without_an_end_is_cut_off(host: HostOfBackups) -> None:
    def endless(_asked: Any) -> Any:
        raise host_bounds.AnswerUnboundedError("it answered more than 32 MiB")

    host.answer = endless
    problem = refusal(host.target().names, Reason.HOST_STEP_FAILED)
    assert problem.what == "it answered more than 32 MiB; nothing of that is used"


def lie(**more: Any) -> dict[str, Any]:
    return {"changed": False, **more}


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        ("nonsense", "does not have the form that it should have"),
        (lie(), "it did not answer with a list"),
        (lie(entries=[["a"]]), "does not have the form that it should have"),
        (lie(entries=[["a", "b\x1b[2J"]]), "does not have the form that it should have"),
        (lie(entries=[], records={"a": "&"}), "does not have the form that it should have"),
        (lie(entries=[], records={"a": "eee"}), "is no base64"),
        (lie(unfit={"path": "/etc", "why": "link"}), "a directory that it was not asked for"),
        (lie(unfit={"path": PLACE, "why": "tired"}), "does not have the form that it should have"),
    ],
)
def test_a_list_that_no_host_gives_is_not_used(host: HostOfBackups, answer: Any, what: str) -> None:
    host.answer = lambda _: answer
    assert what in refusal(host.target().names, Reason.HOST_STEP_FAILED).what


@pytest.mark.parametrize(
    ("answers", "what"),
    [
        ([lie()], "did not answer with the size"),
        ([lie(size=4)], "did not answer with the length"),
        ([lie(size=4, length=0, content={"base64": ""})], "changes there while it is read"),
        ([lie(size=1 << 40, length=8)], "has 1024 GiB there, which no backup has"),
        ([lie(size=4, length=4, content={"base64": "QQ=="})], "answered 1 of 4 bytes"),
        ([lie(size=1, length=1, content={"base64": "QQ"})], "is no base64"),
        ([lie(size=4, length=8, content={"base64": "QUFBQUFBQUE="})], "changes there while it is read"),
        ([lie(size=2, length=1, content={"base64": "QQ=="}), lie(size=3, length=1)], "changes there while it is read"),
    ],
)
def test_a_file_that_no_host_has_is_not_used(host: HostOfBackups, answers: list[Any], what: str) -> None:
    left = iter(answers)
    host.answer = lambda asked: next(left) if asked["state"] == "read" else lie()
    assert what in refusal(lambda: content_of(host), Reason.HOST_STEP_FAILED).what


def test_an_error_that_is_none_here_is_one_of_the_folder(host: HostOfBackups) -> None:
    host.answer = lambda _: lie(fault={"errno": "errorcode", "text": "it is late"})
    assert refusal(host.target().names).what == "it is late"
    host.answer = lambda _: lie(fault={"errno": "EROFS", "text": "Read-only file system"})
    assert "no_root_squash" in refusal(host.target().check).remedy


def test_what_a_host_changes_on_the_way_back_is_noticed(host: HostOfBackups) -> None:
    target = host.target()
    put(target, NAME, RECORD, content=b"{}")
    other = base64.b64encode(b"{1}").decode()
    host.answer = lambda _: lie(entries=[[NAME, RECORD]], records={NAME: other})
    (found,) = series.found(target, "")
    assert found.record is None


def test_a_full_disk_here_is_no_fault_of_the_host(host: HostOfBackups, monkeypatch: pytest.MonkeyPatch) -> None:
    put(host.target(), NAME, SNAPSHOT, content=LARGE)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(host_folder, "_copy", full)
    problem = refusal(lambda: put(host.target(), NAME, KEYS, content=LARGE), Reason.LOCAL_FILE_UNUSABLE)
    assert "XDG_CACHE_HOME" in problem.remedy
    assert host.left == []


# -- the host of a step ------------------------------------------------------------------------------------------------


def on_host(name: str = "nightly", host: str = "etcd1") -> dict[str, Any]:
    return document(name, target={"hostDirectory": {"host": host, "path": PLACE, "prefix": "site-a"}})


def wanted(run: Run, *documents: dict[str, Any]) -> list[Wanted]:
    return [Wanted.of(each) for each in backups.resolved(documents or [on_host()], run.deployment)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Runs(tmp_path / "run").step()


def test_a_step_that_is_delegated_to_the_host_works_there(run: Run, host: HostOfBackups) -> None:
    run.delegated = host.delegated()
    (one,) = wanted(run)
    target = series.opened(run, one)
    assert target.where == f"host etcd1: {BELOW}"
    put(target)
    assert target.names() == [NAME]
    assert {each["root"] for each in host.asked} == {PLACE}
    run.close()


def test_a_step_that_is_not_is_told_how(run: Run, host: HostOfBackups) -> None:
    (one,) = wanted(run)
    problem = refusal(lambda: series.opened(run, one))
    assert problem.where == "EtcdBackup nightly: spec.target.hostDirectory"
    assert "lie on host etcd1, and this step is delegated to no host" in problem.what
    run.delegated = host.delegated()
    (other,) = wanted(run, on_host(host="cp2"))
    assert "is delegated to etcd1" in refusal(lambda: series.opened(run, other)).what
    assert host.asked == []


def test_the_host_is_told_before(run: Run) -> None:
    def placed(*documents: dict[str, Any], alone: str = "") -> str:
        return series.placed(run, backups.resolved(documents, run.deployment), alone)

    assert placed() == ""
    assert placed(document()) == ""
    assert placed(document("here"), on_host()) == "etcd1"
    # What lies elsewhere is listed at the end together with the others.
    assert placed(document("here"), on_host(), alone="here") == "etcd1"


def test_backups_that_go_with_a_member_of_etcd_are_warned_of(run: Run) -> None:
    def risk(*documents: dict[str, Any]) -> Problem | None:
        found = backups.resolved(documents, run.deployment)
        return series.at_risk(run, [Wanted.of(each) for each in found], found)

    told = risk(on_host(), on_host("weekly"))
    assert told is not None
    assert (told.severity, told.reason, told.where) == (Severity.WARNING, Reason.BACKUP_AT_RISK, "host etcd1")
    assert "who loses it loses that member and all of them" in told.what
    assert told.remedy
    assert risk(on_host(host="cp2")) is None
    assert risk(on_host(), document("here")) is None
    assert risk(document()) is None


def test_one_of_several_that_is_looked_at_alone_tells_of_no_risk(run: Run) -> None:
    found = backups.resolved([on_host(), document("here")], run.deployment)
    alone = [Wanted.of(each) for each in found if each["metadata"]["name"] == "nightly"]
    assert series.at_risk(run, alone, found) is None


def test_a_target_in_a_directory_names_the_host() -> None:
    asked: Any = SimpleNamespace(name="cp1")
    assert host_folder.HostTarget("prod", HostDirectory("cp1", PLACE, ""), asked).where == f"host cp1: {PLACE}/prod"
