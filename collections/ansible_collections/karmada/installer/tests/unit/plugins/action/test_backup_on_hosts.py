# SPDX-License-Identifier: Apache-2.0
"""Members on plain hosts: what is due is decided first, a host sends its database as a file, a backup is made of it."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.karmada.installer.plugins.action import backup as action
from ansible_collections.karmada.installer.plugins.module_utils.backup_folder import Folder
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import (
    record,
    take,
    trial,
    verification,
    workplace,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.take import Beginning
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.trial import Programs
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.verification import Content, Status
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.plugins.action.test_etcd_room_on_host import MEMBERS, status
from ansible_collections.karmada.installer.tests.unit.support.backup_series import NOW, document
from ansible_collections.karmada.installer.tests.unit.support.fetched_snapshots import CONTENT, Fetching
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import HOSTS, Runs, remembered, seen

REMOTE = "/var/lib/karmada-installer-snapshots/prod.db"
BUSY = "elsewhere/1/2/3 is working on prod (last seen 5 s ago, free after 595 s more of silence)"
HASH = {"revision": 70, "value": 5, "compacted": 0}
COUNTS = {**dict.fromkeys(verification.COUNTED, 0), "works": 1}


class Clock(datetime):
    """The moment of a test."""

    moment: datetime = NOW

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        del tz
        return cls.moment


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "backups").mkdir()
    for name in ("etcd", "etcdutl"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(take, "programs", lambda _run: Programs(tmp_path / "etcd", tmp_path / "etcdutl"))
    monkeypatch.setattr(take, "datetime", Clock)
    monkeypatch.setattr(Clock, "moment", NOW)
    monkeypatch.setattr(verification, "check", lambda *_: hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(trial, "run", lambda *_: '{"revision": 70, "totalKey": 3}')
    runs = Runs(tmp_path / "run")
    runs.see_all(seen(Stored().after(remembered(), on_hosts=False)))
    # cp1 leads
    runs.see(**{host: {"etcd": status(member)} for host, member in MEMBERS.items()})
    return runs


def perform(runs: Runs, folder: Path, *, check: bool = False, **arguments: Any) -> tuple[dict[str, Any], Run]:
    run = runs.step(check=check)
    run.connection, run.now = Connection(backups=str(folder / "backups")), NOW
    found = arguments.pop("document", None) or document()
    given = {"state": "taken", "restores": [], "at_once": False, "last": True}
    given |= dict.fromkeys(("now", "only", "name", "identity"), "") | arguments
    run.said = []  # type: ignore[attr-defined]
    run.say = run.said.append  # type: ignore[attr-defined]
    step = object.__new__(action.ActionModule)
    return step.perform(run, {**given, "backups": backups.resolved([found], run.deployment)}), run


# -- what is due -------------------------------------------------------------------------------------------------------


def test_what_is_due_is_decided(runs: Runs, tmp_path: Path) -> None:
    found, _ = perform(runs, tmp_path)
    assert (found["changed"], found["on_hosts"], found["troubles"]) == (False, ["nightly"], [])


def test_a_place_without_room_is_told_before_a_host_is_asked(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Folder, "free", lambda _self: 0)
    with pytest.raises(ProblemsError, match="MiB there, and 0 MiB are free"):
        perform(runs, tmp_path)


def test_where_none_is_due_no_host_is_asked(runs: Runs, tmp_path: Path) -> None:
    found, _ = perform(runs, tmp_path, document=document(suspend=True))
    assert "on_hosts" not in found
    assert not found["changed"]


def test_a_check_says_what_it_would_take(runs: Runs, tmp_path: Path) -> None:
    found, _ = perform(runs, tmp_path, check=True)
    assert (found["changed"], found["changes"]) == (True, ["created Backup nightly"])
    assert "on_hosts" not in found
    assert list((tmp_path / "backups").iterdir()) == []


def test_without_a_leader_none_is_taken(runs: Runs, tmp_path: Path) -> None:
    runs.see(**{host: {"etcd": status(member, leader="0")} for host, member in MEMBERS.items()})
    with pytest.raises(ProblemsError, match="no member of etcd can be asked that has a leader"):
        perform(runs, tmp_path)


def test_where_no_host_answers_that_is_the_reason(runs: Runs, tmp_path: Path) -> None:
    """And not that there is nothing to back up."""
    runs = Runs(tmp_path / "other")
    for host in HOSTS:
        runs.see(**{host["name"]: {"refusal": "ssh: connect to host port 22: Connection refused"}})
    with pytest.raises(ProblemsError) as caught:
        perform(runs, tmp_path)
    assert {each.reason for each in caught.value.problems} == {Reason.HOST_UNREACHABLE}
    assert len(caught.value.problems) == len(HOSTS)


# -- before the first byte, with the hosts locked ----------------------------------------------------------------------


def written(runs: Runs) -> None:
    """Every host has now what the run has handed on, if it has."""
    if kept := runs.handover.stored:
        runs.see_all({"stored": kept})


def test_a_follower_sends_it_and_the_leader_proves_it(runs: Runs, tmp_path: Path) -> None:
    found, _ = perform(runs, tmp_path, state="begun")
    assert found["sender"] in ("etcd1", "etcd2")
    assert found["witness"] == "cp1"


def test_one_host_that_does_not_answer_is_not_asked_and_is_no_reason_to_have_none(runs: Runs, tmp_path: Path) -> None:
    runs.see(etcd1={"refusal": "ssh: connect to host port 22: No route to host", "etcd": {}})
    found, _ = perform(runs, tmp_path, state="begun")
    assert (found["sender"], found["witness"]) == ("etcd2", "cp1")


@pytest.mark.parametrize("host", ["cp2", "etcd1"])
def test_a_host_that_another_run_has_is(runs: Runs, tmp_path: Path, host: str) -> None:
    runs.see(**{host: {"refusal": BUSY}})
    with pytest.raises(ProblemsError, match="another run works on this control plane: elsewhere/1/2/3") as caught:
        perform(runs, tmp_path, state="begun")
    assert [each.reason for each in caught.value.problems] == [Reason.LOCKED]
    assert runs.handover.stored is None


def test_the_key_that_signs_is_handed_on_to_the_hosts_before_the_first_one(runs: Runs, tmp_path: Path) -> None:
    _, run = perform(runs, tmp_path, state="begun")
    assert run.state.backup_key
    assert runs.step().state.backup_key == run.state.backup_key
    written(runs)
    _, again = perform(runs, tmp_path, state="begun")
    assert again.state.backup_key == run.state.backup_key


def test_what_counts_is_what_the_hosts_have_when_they_are_locked(runs: Runs, tmp_path: Path) -> None:
    """Another run may have worked there since this one has handed something on."""
    perform(runs, tmp_path, state="begun")
    written(runs)
    others = replace(runs.step().state, version="v1.17.9")
    runs.see_all({"stored": Stored.of(runs.handover.stored).after(others).plain})
    _, run = perform(runs, tmp_path, state="begun")
    assert run.state == others


def test_a_quarantine_that_was_reached_since_it_was_due_is_backed_up_only_if_somebody_asks(
    runs: Runs, tmp_path: Path
) -> None:
    found, _ = perform(runs, tmp_path)
    assert found["on_hosts"] == ["nightly"]
    before = runs.step().state
    restore = RestoreState("back", "nightly", "b", NOW.isoformat(), "0d6c", 2, 10**9, before.etcd, step="Compare")
    runs.see_all(seen(Stored().after(replace(before, restore=restore), on_hosts=False)))
    with pytest.raises(ProblemsError, match="a restore holds the control plane; the release takes one") as caught:
        perform(runs, tmp_path, state="begun")
    assert [each.reason for each in caught.value.problems] == [Reason.QUARANTINED]
    asked, _ = perform(runs, tmp_path, state="begun", at_once=True)
    assert asked["witness"] == "cp1"


# -- the database of a member ------------------------------------------------------------------------------------------


def test_it_comes_as_a_file_for_its_owner_only_and_goes_there(runs: Runs) -> None:
    step = Fetching(runs)
    found = step.action.perform({})
    path = Path(found["file"])
    assert path.read_bytes() == CONTENT
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (found["revision"], found["acknowledged"], found["changed"]) == (70, 70, False)
    assert step.states() == ["taken", "absent"]
    assert step.asked[0]["reader"] == "admin"
    # whatever the host says that it is
    assert step.fetched == [REMOTE]
    assert Beginning.of(found["beginning"]).start == NOW
    # nothing of it is in the result
    assert CONTENT.decode() not in str(found)


@pytest.mark.parametrize(
    ("told", "content", "said"),
    [
        (len(CONTENT), CONTENT[:-1], "came with 7999 of 8000 bytes"),
        (1 << 40, CONTENT, "its database had less before"),
    ],
)
def test_another_file_than_was_told_is_not_used(runs: Runs, told: int, content: bytes, said: str) -> None:
    step = Fetching(runs, told=told, content=content)
    with pytest.raises(ProblemsError, match=said):
        step.action.perform({})
    assert step.states() == ["taken", "absent"]
    assert list(workplace.folder().iterdir()) == []


def test_a_file_without_end_does_not_fill_the_disk_here(runs: Runs) -> None:
    step = Fetching(runs, content=CONTENT * 1000)
    with pytest.raises(ProblemsError, match="what a backup is made of cannot be kept: file too large"):
        step.action.perform({})
    assert step.states() == ["taken", "absent"]
    assert list(workplace.folder().iterdir()) == []


def test_a_host_that_refuses_leaves_nothing_here(runs: Runs) -> None:
    step = Fetching(runs)
    step.answer = {"failed": True, "msg": "no room"}
    assert step.action.perform({})["failed"]
    assert step.fetched == []
    assert list(workplace.folder().iterdir()) == []


def test_who_logs_in_by_the_configuration_of_ssh_is_asked_there(runs: Runs) -> None:
    step = Fetching(runs)
    step.action._play_context.remote_user = None
    step.action.perform({})
    assert step.asked[0]["reader"] == "somebody"


@pytest.mark.parametrize("said", [{"rc": 1, "stdout": ""}, {"rc": 0, "stdout": "a b"}, {"rc": 0, "stdout": "a" * 300}])
def test_a_host_that_does_not_say_who_logs_in_there_is_asked_for_nothing(runs: Runs, said: dict[str, Any]) -> None:
    step = Fetching(runs)
    step.action._play_context.remote_user, step.logs_in = None, said
    with pytest.raises(ProblemsError, match="it does not tell as whom SSH logs in there"):
        step.action.perform({})
    assert step.asked == []
    assert list(workplace.folder().iterdir()) == []


@pytest.mark.parametrize("answer", [{"size": 1}, {"acknowledged": 1}, {"size": -1, "acknowledged": 1}, {"size": "1"}])
def test_an_answer_of_another_form_is_not_used(runs: Runs, answer: dict[str, Any]) -> None:
    step = Fetching(runs)
    step.answer = {"changed": False, **answer}
    found = step.action.perform({})
    assert found["failed"]
    assert "does not have the form" in found["msg"]
    assert step.fetched == []
    assert step.states() == ["taken", "absent"]
    assert list(workplace.folder().iterdir()) == []


def test_what_could_not_be_deleted_there_is_told_with_its_place(runs: Runs) -> None:
    step = Fetching(runs)
    step.gone = {"failed": True, "msg": "Read-only file system"}
    assert step.action.perform({})["revision"] == 70
    (told,) = [each for each in step.told if "not encrypted" in each]
    assert REMOTE in told
    assert "Read-only file system" in told


def test_a_host_of_another_run_has_written_nothing_so_nothing_is_told_of_it(runs: Runs) -> None:
    lost = "this run has lost the lock of prod on this host, and changes nothing more there: the host was booted; run"
    step = Fetching(runs)
    step.answer = step.gone = {"failed": True, "msg": lost}
    assert step.action.perform({})["failed"]
    assert not any("not encrypted" in each for each in step.told)


def test_a_connection_that_breaks_leaves_nothing_here_and_is_told_of_there(runs: Runs) -> None:
    step = Fetching(runs)

    def breaks(_remote: str, local: str) -> None:
        Path(local).write_bytes(CONTENT[:10])
        raise AnsibleConnectionFailure("Connection reset by peer")

    step.action._connection.fetch_file = breaks
    with pytest.raises(AnsibleConnectionFailure):
        step.action.perform({})
    assert step.states() == ["taken", "absent"]
    assert list(workplace.folder().iterdir()) == []


def test_no_room_here_is_told_before_a_host_is_asked(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(take, "COPIES", 1e12)
    step = Fetching(runs)
    with pytest.raises(ProblemsError, match=r"are needed, and .* are free"):
        step.action.perform({})
    assert step.asked == []


def test_a_check_fetches_nothing(runs: Runs) -> None:
    step = Fetching(runs, check=True)
    assert step.action.perform({}) == {"changed": False}
    assert step.asked == []


# -- a backup of it ----------------------------------------------------------------------------------------------------


@pytest.fixture
def proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial restore whose content is that of the members."""

    def restored(_snapshot: Path, _told: Status, _tools: Programs, folder: Path, _where: str) -> Content:
        assert folder.is_dir()
        secret = {"secrets": b"k8s:enc:secretbo"}
        return Content("a", 70, 3, Hash(70, 5), COUNTS, ("one",), secret)

    monkeypatch.setattr(verification, "restored", restored)


def stored(runs: Runs, folder: Path, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Result of the step that stores, and what it was given, which the next one is, too."""
    perform(runs, folder, state="begun")
    written(runs)
    found = Fetching(runs).action.perform({})
    # What is acknowledged from now on is not in it.
    Clock.moment = NOW + timedelta(hours=1)
    given = {"now": "nightly", "snapshot": found, "sender": "etcd1", "witness": "cp1", **more}
    return perform(runs, folder, state="stored", **given)[0], given


def recorded(runs: Runs, folder: Path, given: dict[str, Any]) -> tuple[dict[str, Any], Run]:
    return perform(runs, folder, state="recorded", **given)


def in_target(folder: Path) -> list[str]:
    return sorted(each.name for each in (folder / "backups").rglob("*") if each.is_file())


@pytest.fixture
def hashed(runs: Runs) -> None:
    """The witness has told its hash."""
    runs.see(cp1={"etcd": {**status("1"), "hash": HASH}})


@pytest.mark.usefixtures("proved", "hashed")
def test_a_backup_is_made_of_it_and_handed_on_to_the_hosts(runs: Runs, tmp_path: Path) -> None:
    found, given = stored(runs, tmp_path)
    assert found == {"changed": False, "changes": [], "stored": True, "anew": False, "troubles": []}
    # not a backup yet, and nothing in plain any more
    assert in_target(tmp_path) == ["keys.age", "snapshot.age"]
    (place,) = workplace.folder().iterdir()
    assert not any(CONTENT in each.read_bytes() for each in place.iterdir())
    assert runs.step().state.backups == {}
    found, run = recorded(runs, tmp_path, given)
    (made,) = (tmp_path / "backups" / "prod").iterdir()
    assert (found["changed"], found["changes"]) == (True, [f"created Backup {made.name}"])
    assert found["name"] == made.name
    assert sorted(each.name for each in made.iterdir()) == ["keys.age", "manifest.json", "snapshot.age"]
    text = (made / "manifest.json").read_bytes()
    told = record.opened(text, "here", {record.signer_of(run.state.backup_key)})
    assert (told.levels[-1], told.mode, told.revision, told.start) == ("hash", "Binary", 70, NOW)
    assert runs.step().state.backups["nightly"].name == made.name
    assert list(workplace.folder().iterdir()) == []
    again, _ = perform(runs, tmp_path)
    assert "on_hosts" not in again


@pytest.mark.usefixtures("proved")
def test_where_another_member_has_discarded_it_it_is_begun_anew_once(runs: Runs, tmp_path: Path) -> None:
    """The witness gives no hash at this revision."""
    found, _ = stored(runs, tmp_path, last=False)
    assert (found["stored"], found["anew"], found["troubles"]) == (False, True, [])
    assert in_target(tmp_path) == []
    assert list(workplace.folder().iterdir()) == []
    found, given = stored(runs, tmp_path, last=True)
    assert found["stored"]
    found, _ = recorded(runs, tmp_path, given)
    assert found["changed"]
    # Nobody has counted at that revision either, so nothing says that anybody has.
    assert levels(tmp_path) == ("trailer", "status", "restored")


def levels(folder: Path) -> tuple[str, ...]:
    (manifest,) = (folder / "backups").rglob("manifest.json")
    return record.opened(manifest.read_bytes(), "here").levels


@pytest.mark.usefixtures("proved")
def test_numbers_of_keys_do_where_the_witness_has_counted_at_that_revision(runs: Runs, tmp_path: Path) -> None:
    other = {"hash": {**HASH, "compacted": 60}, "counted": {"revision": 69, "counts": COUNTS}}
    runs.see(cp1={"etcd": {**status("1"), **other}})
    _, given = stored(runs, tmp_path, last=True)
    recorded(runs, tmp_path, given)
    assert levels(tmp_path) == ("trailer", "status", "restored")
    shutil.rmtree(tmp_path / "backups" / "prod")
    runs.see(cp1={"etcd": {**status("1"), **other, "counted": {"revision": 70, "counts": COUNTS}}})
    _, given = stored(runs, tmp_path, last=True)
    recorded(runs, tmp_path, given)
    assert levels(tmp_path) == ("trailer", "status", "restored", "counts")


@pytest.mark.usefixtures("proved")
def test_other_numbers_of_keys_are_no_backup(runs: Runs, tmp_path: Path) -> None:
    runs.see(cp1={"etcd": {**status("1"), "counted": {"revision": 70, "counts": {**COUNTS, "works": 2}}}})
    found, _ = stored(runs, tmp_path, last=True)
    assert "other numbers of keys: 2 works and not 1" in found["troubles"][0]
    assert in_target(tmp_path) == []


@pytest.mark.usefixtures("proved")
def test_one_that_differs_from_another_member_is_told_and_is_none(runs: Runs, tmp_path: Path) -> None:
    runs.see(cp1={"etcd": {**status("1"), "hash": {**HASH, "value": 6}}})
    found, _ = stored(runs, tmp_path)
    assert (found["stored"], found["anew"]) == (False, False)
    assert "its content differs from that of a member" in found["troubles"][0]
    assert in_target(tmp_path) == []
    assert list(workplace.folder().iterdir()) == []
    assert runs.step().state.backups == {}


@pytest.mark.usefixtures("proved", "hashed")
@pytest.mark.parametrize("last", [False, True])
def test_another_etcd_by_then_is_begun_anew_and_not_for_ever(runs: Runs, tmp_path: Path, last: bool) -> None:
    """While it was proved and stored, another run could change members of etcd, or restore it."""
    _, given = stored(runs, tmp_path, last=last)
    before = runs.step().state
    others = replace(before, etcd=replace(before.etcd, token="another"))
    runs.see_all({"stored": Stored.of(runs.handover.stored).after(others).plain})
    found, _ = recorded(runs, tmp_path, given)
    assert (found["changed"], found["stored"], found["anew"]) == (False, False, not last)
    assert [("changed by other runs each time" in each) for each in found["troubles"]] == [True] * last
    assert in_target(tmp_path) == []
    assert list(workplace.folder().iterdir()) == []


@pytest.mark.usefixtures("proved", "hashed")
def test_a_host_that_another_run_has_by_then_is_told_and_there_is_none(runs: Runs, tmp_path: Path) -> None:
    _, given = stored(runs, tmp_path)
    runs.see(cp2={"refusal": BUSY})
    found, _ = recorded(runs, tmp_path, given)
    assert "another run works on this control plane" in found["troubles"][0]
    assert (found["changed"], found["anew"]) == (False, False)
    assert in_target(tmp_path) == []
    assert list(workplace.folder().iterdir()) == []


@pytest.mark.usefixtures("proved", "hashed")
def test_what_is_uninstalled_by_then_does_not_come_back(runs: Runs, tmp_path: Path) -> None:
    _, given = stored(runs, tmp_path)
    runs.see_all({"stored": Stored().plain})
    found, _ = recorded(runs, tmp_path, given)
    assert "there is no etcd yet" in found["troubles"][0]
    assert runs.handover.stored is None
    assert in_target(tmp_path) == []
    assert list(workplace.folder().iterdir()) == []


@pytest.mark.usefixtures("proved", "hashed")
def test_a_backup_counts_though_old_ones_cannot_be_looked_for(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, given = stored(runs, tmp_path)
    trouble = ProblemsError(Problem("the store went away", "the store", "", reason=Reason.BACKUP_TARGET_UNUSABLE))

    def gone(*_arguments: Any) -> None:
        raise trouble

    monkeypatch.setattr(action, "_own", gone)
    found, _ = recorded(runs, tmp_path, given)
    assert found["changed"]
    assert "the store went away" in found["troubles"][0]
    assert "manifest.json" in in_target(tmp_path)


def test_no_other_folder_goes_whatever_a_variable_says(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "snapshot.db").write_bytes(CONTENT)
    workplace.remove(mine)
    workplace.remove(workplace.folder() / "run-x" / "..")
    assert mine.exists()
