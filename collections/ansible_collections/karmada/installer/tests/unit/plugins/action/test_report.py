# SPDX-License-Identifier: Apache-2.0
"""The forms in which a run leaves its report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import report
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import LastBackup
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason, Severity
from ansible_collections.karmada.installer.plugins.plugin_utils.run.changes import StepChange
from ansible_collections.karmada.installer.plugins.plugin_utils.run.handover import Handover
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import NOW, document, state

OBJECT = {"apiVersion": "installer.karmada.io/v1alpha1", "kind": "EtcdBackup"}


def backup(name: str, deployment: str = "prod", **spec: Any) -> dict[str, Any]:
    """An EtcdBackup in the namespace of the document."""
    metadata = {"name": name, "namespace": "karmada"}
    return {**OBJECT, "metadata": metadata, "spec": {"deploymentRef": {"name": deployment}, **spec}}


def perform(
    folder: Path | None,
    form: str,
    *,
    check: bool = False,
    now: datetime = NOW,
    changes: Sequence[StepChange] = (),
    **more: Any,
) -> dict[str, Any]:
    run = fake_run(document(), FakeCluster("host"), check=check)
    if folder and changes:
        run.place.handover = Handover(folder / "run")
        run.handover.add_changes(changes)
    run.now = now
    run.connection = Connection(report_output=str(folder / "prod.report.json") if folder else None)
    action = object.__new__(report.ActionModule)
    told = {"broken_members": [], "backups": [], "form": form, "fail_on_drift": False, **more}
    result: dict[str, Any] = action.perform(run, told)
    return result


def test_the_page_is_beside_the_json_and_told_only_where_it_was_asked_for(tmp_path: Path) -> None:
    assert not any("page " in line for line in perform(tmp_path, "json")["summary"])
    assert [each.name for each in tmp_path.iterdir()] == ["prod.report.json"]
    result = perform(tmp_path, "html")
    page = tmp_path / "prod.report.html"
    assert f"page         {page}" in result["summary"]
    assert result["changed"] is False
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert [each.stat().st_mode & 0o777 for each in tmp_path.iterdir()] == [0o600, 0o600]


def test_a_second_run_leaves_an_equal_page_alone_and_no_time_makes_it_changed(tmp_path: Path) -> None:
    page = tmp_path / "prod.report.html"
    perform(tmp_path, "html")
    first = page.stat().st_ino, page.read_text()
    assert perform(tmp_path, "html")["changed"] is False
    assert (page.stat().st_ino, page.read_text()) == first
    assert perform(tmp_path, "html", now=NOW + timedelta(hours=1))["changed"] is False
    assert "2026-03-01 13:00 UTC" in page.read_text()


def test_a_check_run_writes_no_page_and_names_none(tmp_path: Path) -> None:
    result = perform(tmp_path, "html", check=True)
    assert list(tmp_path.iterdir()) == []
    assert not any(".html" in line for line in result["summary"])


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("fail_on_drift", [True, False])
@pytest.mark.parametrize("changes", [[StepChange("deleted", "Service", "karmada/prod-etcd")], []])
def test_only_a_check_that_is_to_fail_by_it_fails_for_what_it_would_change(
    changes: list[StepChange], tmp_path: Path, *, fail_on_drift: bool, check: bool
) -> None:
    result = perform(tmp_path, "json", check=check, changes=changes, fail_on_drift=fail_on_drift)
    fails = bool(check and fail_on_drift and changes)
    told = "without --check this run would make 1 change:\n  - delete Service karmada/prod-etcd\n"
    assert (told in result["failure"]) is fails
    assert (result["failure"] != "") is fails
    assert len(result["status"]["changes"]) == len(changes), "the report has them in any case"


def test_a_check_that_fails_for_a_member_as_well_says_both(tmp_path: Path) -> None:
    broken = [{"name": "m1", "problem": "it does not answer", "next": "mend it"}]
    made = [StepChange("created", "Secret", "karmada/prod-etcd")]
    failure = perform(tmp_path, "json", check=True, changes=made, fail_on_drift=True, broken_members=broken)["failure"]
    assert failure.index("m1: it does not answer") < failure.index("create Secret karmada/prod-etcd")


@pytest.mark.parametrize(("form", "told"), [("pdf", "'pdf' is no form of a report"), ("html", "there is no file")])
def test_a_form_that_cannot_be_is_refused(form: str, told: str) -> None:
    with pytest.raises(ProblemsError, match=told):
        perform(None, form)


@pytest.mark.parametrize(
    ("file", "page"), [("a.report.json", "a.report.html"), ("out", "out.html"), ("x.html", "x.html.html"), (None, None)]
)
def test_the_page_never_takes_the_place_of_the_json(file: str | None, page: str | None) -> None:
    assert Connection(report_output=file).page_output == page


@pytest.mark.parametrize(
    ("objects", "allowed", "told"),
    [
        # One that was taken away is nobody's wish any more, one without a backup is; an invalid one, too.
        ([backup("new"), backup("odd", recipients=7), backup("theirs", "stage")], True, ["new", "odd"]),
        ([], True, []),
        # Where nobody may look, what was taken is what there is to tell of.
        ([backup("new")], False, ["old"]),
    ],
)
def test_backups_are_told_of_the_objects_that_there_are(
    objects: list[dict[str, Any]], allowed: bool, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    last = LastBackup("prod-20260228t020000z-1f3a9c", "2026-02-28T02:00:00+00:00", 1, 1, 1)
    home = FakeCluster("home", *objects)
    if not allowed:

        def refused(*_: Any, **__: Any) -> None:
            raise Forbidden("home", "LIST", "/", 403, "Forbidden", "you may not")

        monkeypatch.setattr(home, "list", refused)
    run = fake_run(document(), FakeCluster("host"), stored=state(backups={"old": last}))
    run.deployment["metadata"]["namespace"] = "karmada"
    run.connection = Connection(object_uid="uid")
    run.__dict__["home"] = home
    action = object.__new__(report.ActionModule)
    result = action.perform(run, {"broken_members": [], "backups": [], "form": "json", "fail_on_drift": False})
    assert [each["series"] for each in result["status"].get("backups", [])] == told


@pytest.mark.parametrize("home", ["without the object", "with the object", "silent"])
def test_a_report_from_a_cluster_that_does_not_have_the_object_says_so(home: str) -> None:
    """It tells that nothing is installed there, and this is why. It is made all the same."""
    metadata = {"name": "prod", "namespace": "karmada", "uid": "uid"}
    found = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND, "metadata": metadata}
    run = fake_run(document({"hostCluster": {"secretRef": {"name": "far"}}}), FakeCluster("host"))
    run.connection = Connection(object_uid="uid")
    there = FakeCluster("home", *([found] if home == "with the object" else []))
    there.dead = home == "silent"
    run.__dict__["home"] = there
    action = object.__new__(report.ActionModule)
    made = action.perform(run, {"broken_members": [], "backups": [], "form": "json", "fail_on_drift": False})
    assert made["status"]["phase"] == "Preflight"
    told = [(each.severity, each.reason) for each in run.told]
    assert told == ([(Severity.WARNING, Reason.DOCUMENT_NOT_FOUND)] if home == "without the object" else [])
