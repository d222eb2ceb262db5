# SPDX-License-Identifier: Apache-2.0
"""The engine and a real API server give the same verdict on an EtcdRestore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import restores
from ansible_collections.karmada.installer.plugins.plugin_utils.document.object_kind import API_VERSION, SCHEMAS
from ansible_collections.karmada.installer.tests.contract.test_schema_corpus import (
    Judge,
    assert_same_verdict,
    judging,
    paths_of_server,
)
from ansible_collections.karmada.installer.tests.unit.support import corpus_files

OBJECTS = f"/apis/{API_VERSION}/namespaces/{{}}/{restores.PLURAL}"
GOOD, BAD = corpus_files.good(corpus_files.RESTORES), corpus_files.bad(corpus_files.RESTORES)


@pytest.fixture(scope="module")
def judge(api_server: Any) -> Iterator[Judge]:
    with judging(api_server, SCHEMAS / restores.RESTORE.schema_file, OBJECTS) as found:
        yield found


@pytest.mark.parametrize("file", GOOD, ids=str)
def test_good_restore(judge: Judge, file: corpus_files.CorpusFile) -> None:
    written = yaml.safe_load(file.text)
    status, answer = judge.create(written)
    assert status == 201, answer
    assert answer["spec"] == restores.RESTORE.completed(written)["spec"]


@pytest.mark.parametrize("file", BAD, ids=str)
def test_bad_restore(judge: Judge, file: corpus_files.CorpusFile) -> None:
    written = yaml.safe_load(file.text)
    status, answer = judge.create(written)
    assert status in (400, 422), answer
    server, is_complete = paths_of_server(status, answer)
    assert_same_verdict(server, is_complete, {problem.where for problem in restores.RESTORE.validate(written)})
