# SPDX-License-Identifier: Apache-2.0
"""The engine and a real API server give the same verdict on an EtcdBackup, and the same defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups
from ansible_collections.karmada.installer.plugins.plugin_utils.document.object_kind import API_VERSION, SCHEMAS
from ansible_collections.karmada.installer.tests.unit.support import corpus_files
from ansible_collections.karmada.installer.tests.unit.support.schema_judge import (
    STRICT,
    Judge,
    assert_refused_alike,
    assert_taken,
    judging,
    plural_of,
)

OBJECTS = f"/apis/{API_VERSION}/namespaces/{{}}/{plural_of(backups.BACKUP)}"
GOOD, BAD = corpus_files.good(corpus_files.BACKUPS), corpus_files.bad(corpus_files.BACKUPS)
#: A status with every field, as a run tells it.
STATUS = {
    "observedGeneration": 1,
    "conditions": [{"type": "BackupHealthy", "status": "True", "reason": "Recent", "message": "It is young."}],
    "count": 3,
    "newest": {
        "name": "prod-20261125t024100z-1f3a9c",
        "startTime": "2026-11-25T02:41:00Z",
        "sizeBytes": 1 << 40,
        "revision": 1 << 40,
        "durationSeconds": 12,
    },
    "nextTime": "2026-11-25T03:00:00Z",
}


@pytest.fixture(scope="module")
def judge(api_server: Any) -> Iterator[Judge]:
    with judging(api_server, SCHEMAS / backups.BACKUP.schema_file, OBJECTS) as found:
        yield found


@pytest.mark.parametrize("file", GOOD, ids=str)
def test_good_backup(judge: Judge, file: corpus_files.CorpusFile) -> None:
    assert_taken(judge, backups.BACKUP, file.text)


@pytest.mark.parametrize("file", BAD, ids=str)
def test_bad_backup(judge: Judge, file: corpus_files.CorpusFile) -> None:
    assert_refused_alike(judge, backups.BACKUP, file.text)


def test_every_field_of_a_status_is_taken(judge: Judge, api_server: Any) -> None:
    written = yaml.safe_load(GOOD[0].text)
    written["metadata"]["namespace"] = "karmada-prod"
    status, answer = judge.create(written, dry_run=False)
    assert status == 201, answer
    path = f"{OBJECTS.format('karmada-prod')}/{written['metadata']['name']}"
    status, answer = api_server.request(
        "PATCH", f"{path}/status?{STRICT}", {"status": STATUS}, "application/merge-patch+json"
    )
    assert (status, answer["status"]) == (200, STATUS)
