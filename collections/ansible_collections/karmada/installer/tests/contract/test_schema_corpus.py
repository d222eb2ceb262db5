# SPDX-License-Identifier: Apache-2.0
"""The engine and a real API server give the same verdict on a document, at the same paths, with the same defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document import cel_rules, crd, manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.report import report
from ansible_collections.karmada.installer.tests.unit.support import corpus_files
from ansible_collections.karmada.installer.tests.unit.support.schema_judge import (
    STRICT,
    Judge,
    assert_same_verdict,
    judging,
    paths_of_server,
)
from hypothesis import given, settings
from hypothesis import strategies as st

COLLECTION = f"/apis/{manifest.API_VERSION}/namespaces/{{}}/karmadadeployments"


@pytest.fixture(scope="module")
def judge(api_server: Any) -> Iterator[Judge]:
    with judging(api_server, manifest._SCHEMA_FILE, COLLECTION) as found:
        yield found


def paths_of_engine(document: dict[str, Any], previous: dict[str, Any] | None = None) -> set[str]:
    return {problem.where for problem in manifest.validate(document, previous)}


@pytest.mark.parametrize("file", corpus_files.good(), ids=str)
def test_good_document(judge: Judge, file: corpus_files.CorpusFile) -> None:
    document = manifest.parse(file.text)
    status, answer = judge.create(document)
    assert status == 201, answer
    assert answer["spec"] == manifest.with_defaults(document)["spec"]


@pytest.mark.parametrize("file", [file for file in corpus_files.bad() if not file.is_text_stage], ids=str)
def test_bad_document(judge: Judge, file: corpus_files.CorpusFile) -> None:
    document = manifest.parse(file.text)
    previous = manifest.parse(corpus_files.named(file.update_of).text) if file.update_of else None
    status, answer = judge.update(previous, document) if previous else judge.create(document)
    paths, is_complete = paths_of_server(status, answer)
    assert paths, "the API server accepts it"
    assert_same_verdict(paths, is_complete, paths_of_engine(document, previous))
    if is_complete:
        told = [cause["message"] for cause in answer["details"]["causes"]]
        for text in texts_of_rules(document, previous):
            assert any(message.endswith(text) for message in told), (text, told)


@pytest.mark.parametrize("file", corpus_files.of_installed(), ids=str)
def test_what_an_install_failed_for_can_be_corrected(judge: Judge, file: corpus_files.CorpusFile) -> None:
    before = manifest.parse(corpus_files.named(file.update_of).text)
    del before["status"]
    status, answer = judge.update(before, manifest.parse(file.text))
    assert status == 200, answer


def texts_of_rules(document: dict[str, Any], previous: dict[str, Any] | None) -> list[str]:
    """What broken rules say, without the value that the engine puts before it."""
    completed = manifest.with_defaults(document)
    if any(finding.keyword in crd.BLOCKING for finding in crd.structure_findings(completed, manifest.schema())):
        return []
    before = None if previous is None else manifest.with_defaults(previous)
    found = cel_rules.rule_findings(completed, manifest.schema(), before)
    return [re.sub(r'^("([^"\\]|\\.)*"|-?[0-9]+) ', "", finding.what) for finding in found]


names = st.sampled_from(["spec", "name", "mode", "etcd", "local", "replicas", "volumeData", "labels", "-x", "a b"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.sampled_from([1.0, 2.0, -1.0, 1e3])
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.sampled_from(
        ["", "1", "1Gi", "1h", "a.b", "A", "10.0.0.1", "https://a.b", "é", "x\n", "::1", "a" * 64, "a" * 300]
    )
    | st.text(max_size=8)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=6
)


@st.composite
def near_misses(draw: st.DrawFn) -> dict[str, Any]:
    """The full document with one or two values replaced."""
    changed = manifest.parse(corpus_files.named("full").text)
    for _ in range(draw(st.integers(1, 2))):
        node: Any = changed["spec"]
        while True:
            key = draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
            if isinstance(node[key], dict | list) and node[key] and draw(st.integers(0, 4)):
                node = node[key]
            else:
                node[key] = draw(values)
                break
        if not isinstance(changed["spec"], dict):
            break
    return changed


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(document=near_misses())
def test_documents_nobody_thought_of(judge: Judge, document: dict[str, Any]) -> None:
    status, answer = judge.create(document)
    paths, is_complete = paths_of_server(status, answer)
    assert_same_verdict(paths, is_complete, paths_of_engine(document))
    if not paths:
        assert answer["spec"] == manifest.with_defaults(document)["spec"]


def test_a_missing_spec_is_stored_with_every_default(judge: Judge) -> None:
    status, answer = judge.create(manifest.parse(corpus_files.named("no_spec").text))
    assert status == 201
    assert answer["spec"]["components"]["karmadaAPIServer"] == {
        "replicas": 1,
        "priorityClassName": "system-cluster-critical",
    }
    assert answer["spec"]["installCRD"] is True


@pytest.mark.parametrize("members", [1, 3000])
@pytest.mark.parametrize("storage", ["volumeClaim", "emptyDir", "hostPath", "external", "directory"])
def test_what_is_reported_fits_the_status_of_the_schema(
    judge: Judge, api_server: Any, storage: str, members: int
) -> None:
    document = manifest.parse(corpus_files.named("empty_spec").text)
    document["metadata"]["name"] = "with-status"
    assert judge.create(document, dry_run=False)[0] == 201
    path = f"{COLLECTION.format('karmada-system')}/with-status"
    observed = report.Observation(
        now=datetime(2026, 11, 21, 5, tzinfo=UTC),
        generation=1,
        karmada_version="v1.18.2",
        kubernetes_version="v1.35.4",
        components=[report.ComponentStatus("karmada-apiserver", 2, 1)],
        members=[
            report.MemberStatus(f"member{each}", "Push", "v1.35.4", True, "ClusterReady", "2026-11-21T04:00:00Z")
            for each in range(members)
        ],
        api_ready=True,
        aggregated_ready=True,
        crds_installed=True,
        etcd_storage=storage,
        etcd_desired=3,
        etcd_ready=3,
        certificates={"apiserver": "2027-11-21T05:00:00Z"},
        kubeconfig_secret="prod-kubeconfig",
        installed=True,
    )
    status = report.status(observed)
    try:
        code, answer = api_server.request(
            "PATCH", f"{path}/status?{STRICT}", {"status": status}, "application/merge-patch+json"
        )
        assert code == 200, answer
        assert answer["status"] == status
    finally:
        api_server.request("DELETE", path)
