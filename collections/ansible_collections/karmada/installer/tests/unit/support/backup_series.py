# SPDX-License-Identifier: Apache-2.0
"""Series of backups in a folder: their documents, backups that are stored, and the step that looks at both."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyrage
import pytest
import yaml
from ansible_collections.karmada.installer.plugins.action import backup as action
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import encryption, record, take
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import KEYS, RECORD, SNAPSHOT, Purpose
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.take import Taken
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.targets import Target
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.plugins.plugin_utils.backup.test_record import SAMPLE
from ansible_collections.karmada.installer.tests.unit.support import corpus_files, samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run

IDENTITY = pyrage.x25519.Identity.generate()
NOW = datetime(2026, 11, 25, 12, 30, tzinfo=UTC)
KEY = record.new_signing_key()


def document(name: str = "nightly", **spec: Any) -> dict[str, Any]:
    (file,) = [each for each in corpus_files.good(corpus_files.BACKUPS) if each.path.stem == "least"]
    found = yaml.safe_load(file.text)
    found["metadata"]["name"] = name
    found["spec"] |= {"recipients": [str(IDENTITY.to_public())], **spec}
    return found


def run_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose backups lie in the folder `backups` and have no snapshot."""
    (tmp_path / "backups").mkdir()
    found = fake_run(samples.document({}), FakeCluster("host cluster"), stored=samples.state(backup_key=KEY))
    found.connection = Connection(backups=str(tmp_path / "backups"))
    found.now = NOW
    found.said = []  # type: ignore[attr-defined]
    found.say = found.said.append  # type: ignore[attr-defined]
    monkeypatch.setattr(take, "backup", stored)
    return found


def stored(
    run: Run, wanted: Wanted, target: Target, purpose: Purpose, start: datetime | None = None, *, known: Any = None
) -> Taken:
    """Store a backup without a snapshot, as the real one stores it at its end."""
    begun = start or run.now
    sealed = {name: io.BytesIO() for name in (SNAPSHOT, KEYS)}
    files = {
        name: encryption.encrypt(io.BytesIO(b"content"), sink, [IDENTITY.to_public()]) for name, sink in sealed.items()
    }
    made = replace(
        SAMPLE,
        name=record.new_name("prod", begun, f"{abs(hash(wanted.name)) % 16**6:06x}"),
        series=wanted.name,
        owner=run.state.owner,
        started=begun.isoformat(),
        purpose=purpose,
        files=files,
        claim=str(run.state.claim),
    )
    text = record.signed(made, KEY)
    for name, content in (*((name, sink.getvalue()) for name, sink in sealed.items()), (RECORD, text)):
        target.put(made.name, name, io.BytesIO(content), len(content))
    return Taken(made)


def perform(run: Run, *documents: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    given = {"state": "taken", "restores": [], "now": "", "only": "", "name": "", "identity": "", **arguments}
    beside = backups.resolved(documents or (document(),), run.deployment)
    step = object.__new__(action.ActionModule)
    result: dict[str, Any] = step.perform(run, {**given, "backups": beside})
    return result


def names(tmp_path: Path) -> list[str]:
    return sorted(each.name for each in (tmp_path / "backups" / "prod").iterdir())
