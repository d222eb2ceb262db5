# SPDX-License-Identifier: Apache-2.0
"""The engine and a real API server give the same verdict on an EtcdRestore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document import restores
from ansible_collections.karmada.installer.plugins.plugin_utils.document.object_kind import API_VERSION, SCHEMAS
from ansible_collections.karmada.installer.tests.unit.support import corpus_files
from ansible_collections.karmada.installer.tests.unit.support.schema_judge import (
    Judge,
    assert_refused_alike,
    assert_taken,
    judging,
    plural_of,
)

OBJECTS = f"/apis/{API_VERSION}/namespaces/{{}}/{plural_of(restores.RESTORE)}"
GOOD, BAD = corpus_files.good(corpus_files.RESTORES), corpus_files.bad(corpus_files.RESTORES)


@pytest.fixture(scope="module")
def judge(api_server: Any) -> Iterator[Judge]:
    with judging(api_server, SCHEMAS / restores.RESTORE.schema_file, OBJECTS) as found:
        yield found


@pytest.mark.parametrize("file", GOOD, ids=str)
def test_good_restore(judge: Judge, file: corpus_files.CorpusFile) -> None:
    assert_taken(judge, restores.RESTORE, file.text)


@pytest.mark.parametrize("file", BAD, ids=str)
def test_bad_restore(judge: Judge, file: corpus_files.CorpusFile) -> None:
    assert_refused_alike(judge, restores.RESTORE, file.text)
