# SPDX-License-Identifier: Apache-2.0
"""Steps of backups that lie on a plain host: which one, of documents and of objects, and what is told of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import backup as action
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.plugins.action.test_etcd_room_on_host import MEMBERS, status
from ansible_collections.karmada.installer.tests.unit.support.backup_series import NOW, document
from ansible_collections.karmada.installer.tests.unit.support.backups_on_host import HostOfBackups
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered, seen

PLACE = "/srv/backups"
GIVEN: dict[str, Any] = {
    **dict.fromkeys(("now", "only", "name", "identity"), ""),
    "state": "taken",
    "restores": [],
    "backups": [],
}


def on_host(name: str = "nightly", host: str = "etcd1") -> dict[str, Any]:
    return document(name, target={"hostDirectory": {"host": host, "path": PLACE}})


@pytest.fixture
def host(tmp_path: Path) -> HostOfBackups:
    found = HostOfBackups(tmp_path / "etcd1")
    found.path(PLACE).mkdir(parents=True)
    return found


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = Runs(tmp_path / "run")
    found.see_all(seen(Stored().after(remembered(), on_hosts=False)))
    found.see(**{name: {"etcd": status(member)} for name, member in MEMBERS.items()})
    return found


def perform(run: Run, *documents: dict[str, Any], **given: Any) -> dict[str, Any]:
    run.now = NOW
    written = backups.resolved(documents, run.deployment)
    found: dict[str, Any] = object.__new__(action.ActionModule).perform(run, {**GIVEN, "backups": written, **given})
    return found


def with_objects(run: Run, *documents: dict[str, Any]) -> Run:
    """The run of a document that is an object, with these objects beside it."""
    home, namespace = FakeCluster("home"), run.deployment["metadata"]["namespace"]
    for each in documents:
        home.put({**each, "metadata": {**each["metadata"], "namespace": namespace}})
    run.connection = replace(run.connection, object_uid="uid")
    run.__dict__["home"] = home
    return run


def test_the_host_of_documents_beside_it_is_told(runs: Runs) -> None:
    assert perform(runs.step(), document("here"), on_host(), state="placed") == {"changed": False, "host": "etcd1"}
    assert perform(runs.step(), document("here"), state="placed")["host"] == ""
    assert perform(runs.step(), state="placed")["host"] == ""


def test_the_host_of_objects_is_found_although_no_variable_has_them(runs: Runs) -> None:
    of_another = document("theirs", deploymentRef={"name": "stage"})
    assert perform(with_objects(runs.step(), of_another, on_host()), state="placed")["host"] == "etcd1"


def test_one_that_is_asked_for_is_placed_though_another_one_is_not_valid(runs: Runs) -> None:
    never = document("never", schedule="0 0 30 2 *")
    run = with_objects(runs.step(), on_host(), never, on_host("weekly", "cp2"))
    assert perform(run, state="placed")["host"] == "", "whatever needs them tells why"
    assert perform(run, state="placed", only="nightly")["host"] == "etcd1"
    assert perform(run, state="placed", now="weekly")["host"] == "cp2"


def test_a_run_that_may_not_list_them_goes_on_until_it_needs_them(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = with_objects(runs.step(), on_host())

    def refuse(*_: Any, **_more: Any) -> Any:
        raise Forbidden("home", "GET", "/", 403, "Forbidden", "no")

    monkeypatch.setattr(run.home, "list", refuse)
    assert perform(run, state="placed")["host"] == ""


def test_what_is_due_is_decided_by_what_lies_there(runs: Runs, host: HostOfBackups) -> None:
    run = runs.step()
    run.delegated = host.delegated()
    found = perform(run, on_host())
    assert (found["changed"], found["on_hosts"]) == (False, ["nightly"])
    assert found["backups"][0]["target"] == f"host etcd1: {PLACE}/prod"
    assert [each["state"] for each in host.asked] == ["listed", "checked", "free", "listed"]
    (told,) = [each for each in run.told if each.reason is Reason.BACKUP_AT_RISK]
    assert told.where == "host etcd1"


def test_a_check_asks_for_nothing_that_writes(runs: Runs, host: HostOfBackups) -> None:
    run = runs.step(check=True)
    run.delegated = host.delegated()
    assert perform(run, on_host())["changes"] == ["created Backup nightly"]
    assert {each["state"] for each in host.asked} == {"listed"}
    assert list(host.path(PLACE).iterdir()) == []


def test_the_host_that_is_away_keeps_no_other_series_from_its_work(
    runs: Runs, host: HostOfBackups, tmp_path: Path
) -> None:
    run = runs.step()
    run.delegated = host.delegated()
    (tmp_path / "backups").mkdir()
    run.connection = replace(run.connection, backups=str(tmp_path / "backups"))
    host.answer = lambda _: {"failed": True, "msg": "Missing sudo password"}
    found = perform(run, document("here"), on_host())
    assert found["on_hosts"] == ["here"]
    (trouble,) = found["troubles"]
    assert trouble.startswith("host etcd1 (192.0.2.3): ")


def test_without_the_delegation_nothing_is_done(runs: Runs) -> None:
    with pytest.raises(ProblemsError, match="this step is delegated to no host"):
        perform(runs.step(), on_host())
