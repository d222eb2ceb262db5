# SPDX-License-Identifier: Apache-2.0
"""The table of kinds, and lines of the log."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups, manifest, restores
from karmada_operator import kinds
from karmada_operator.start import JsonLines, arguments
from karmada_operator.telling import STEP
from karmada_operator.watch import seen_of

COLLECTION = Path(manifest.__file__).parents[3]
ROW, *_ = yaml.safe_load(kinds.DEFAULT.read_text(encoding="utf-8"))


def test_the_table_names_what_there_is() -> None:
    found = kinds.load()[manifest.KIND]
    assert found.api_version == manifest.API_VERSION
    for playbook in (found.playbook, found.finalizer_playbook, found.report_playbook):
        name = playbook.removeprefix("karmada.installer.")
        assert (COLLECTION / "playbooks" / f"{name}.yml").is_file()
    assert {"phase", "conditions", "problems"} <= found.status_fields


def test_what_belongs_to_a_control_plane_has_a_lane_and_playbooks_of_its_own() -> None:
    found = kinds.load()
    assert [found[each].lane for each in (backups.KIND, restores.KIND)] == [kinds.Lane.BACKUPS, kinds.Lane.RESTORES]
    assert [each.kind for each in found.values() if each.belongs] == [backups.KIND, restores.KIND]
    restore = found[restores.KIND]
    for playbook in (found[backups.KIND].playbook, restore.playbook, restore.release_playbook, restore.undo_playbook):
        assert (COLLECTION / "playbooks" / f"{playbook.removeprefix('karmada.installer.')}.yml").is_file()
    assert {"newest", "requested", "nextTime", "lastRun"} <= found[backups.KIND].status_fields
    assert {"phase", "drift", "quarantinedGeneration", "lastRun"} <= restore.status_fields
    assert {"earlierDecision", "earlierRelease", "released", "held"} <= restore.status_fields


def test_the_task_by_which_a_restore_is_known_to_be_under_way_is_there() -> None:
    steps = yaml.safe_load((COLLECTION / "roles/restore/tasks/step.yml").read_text(encoding="utf-8"))
    (taking,) = [each for each in steps if each.get("karmada.installer.restore", {}).get("state") == "next"]
    assert taking["name"] == STEP
    judging = yaml.safe_load((COLLECTION / "roles/restore/tasks/main.yml").read_text(encoding="utf-8"))
    (judged,) = [each for each in judging if each.get("karmada.installer.restore", {}).get("state") == "begun"]
    restored = judging[-1]
    assert judging.index(judged) < judging.index(restored)
    assert restored["ansible.builtin.include_tasks"] == "step.yml"


def test_a_kind_may_have_neither_finalizer_nor_report(tmp_path: Path) -> None:
    """Of its objects nothing has to be removed, and nobody looks at them between runs."""
    file = tmp_path / "watches.yaml"
    row = {key: text for key, text in ROW.items() if key not in ("finalizer", "reportPlaybook")}
    file.write_text(yaml.safe_dump([row]), encoding="utf-8")
    (kind,) = kinds.load(file).values()
    assert (kind.finalizer, kind.report_playbook) == ("", "")
    obj = {"metadata": {"uid": "u", "name": "x", "generation": 1}}
    assert seen_of(obj, kind.finalizer).claimed, "it needs none before its first run"
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not seen_of(obj, kind.finalizer).claimed, "it has nothing to be removed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"playbok": "x"}, "unknown words: playbok"),
        ({"finalizer": {"name": "x", "playbook": "y", "role": "z"}}, "unknown words: role"),
        ({"finalizer": {"name": "x"}}, "KeyError: 'playbook'"),
        ({"phases": {"etcd": "Installing"}}, "unknown words: phases"),
        ({"reconcilePeriod": "6h"}, "could not convert"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(tmp_path: Path, change: dict[str, object], words: str) -> None:
    file = tmp_path / "watches.yaml"
    file.write_text(yaml.safe_dump([{**ROW, **change}]), encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        kinds.load(file)


def test_a_line_of_the_log_is_json_without_secrets() -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "ended: %s", ("token=abcdefgh1234\nb",), None)
    record.run = "r-1"
    found = json.loads(JsonLines().format(record))
    assert (found["level"], found["run"], found["message"]) == ("info", "r-1", "ended: token=<redacted>\nb")
    try:
        raise ValueError("password=hunter2hunter2")
    except ValueError:
        record.exc_info = sys.exc_info()
    assert "hunter2" not in JsonLines().format(record)


def test_settings() -> None:
    found = arguments(["--namespace", "a", "--namespace", "b", "--most-runs", "2"])
    assert (found.namespace, found.most_runs) == (["a", "b"], 2)
