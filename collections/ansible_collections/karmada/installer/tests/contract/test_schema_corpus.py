# SPDX-License-Identifier: Apache-2.0
"""The engine and a real API server give the same verdict on a document, at the same paths, with the same defaults."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import cel_rules, crd, manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.report import report
from ansible_collections.karmada.installer.tests.unit.support import corpus_files
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from hypothesis import given, settings
from hypothesis import strategies as st

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
COLLECTION = f"/apis/{manifest.API_VERSION}/namespaces/{{}}/karmadadeployments"
STRICT = "fieldValidation=Strict"


class Judge:
    """Asks the API server about objects of one kind; ``collection`` is their path, with braces for the namespace."""

    def __init__(self, server: Any, collection: str = COLLECTION) -> None:
        self._server = server
        self._collection = collection

    def create(self, document: dict[str, Any], *, dry_run: bool = True) -> tuple[int, Any]:
        query = f"{STRICT}&dryRun=All" if dry_run else STRICT
        return self._server.request("POST", f"{self._path(document)}?{query}", document)

    def update(self, previous: dict[str, Any], document: dict[str, Any]) -> tuple[int, Any]:
        status, made = self.create(previous, dry_run=False)
        assert status == 201, made
        path = f"{self._path(previous)}/{previous['metadata']['name']}"
        if "status" in previous:
            status, made = self._server.request(
                "PATCH", f"{path}/status?{STRICT}", {"status": previous["status"]}, "application/merge-patch+json"
            )
            assert status == 200, made
        changed = copy.deepcopy(document)
        changed["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
        try:
            return self._server.request("PUT", f"{path}?{STRICT}&dryRun=All", changed)
        finally:
            self._server.request("DELETE", path)

    def _path(self, document: dict[str, Any]) -> str:
        metadata = document.get("metadata")
        namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
        return self._collection.format(namespace if isinstance(namespace, str) and namespace else "karmada-system")


@pytest.fixture(scope="module")
def judge(api_server: Any) -> Iterator[Judge]:
    with judging(api_server, manifest._SCHEMA_FILE, COLLECTION) as found:
        yield found


@contextmanager
def judging(server: Any, schema_file: Path, collection: str) -> Iterator[Judge]:
    """A server that has this CRD."""
    definition = yaml.safe_load(schema_file.read_text(encoding="utf-8"))
    status, answer = server.request("POST", f"{CRDS}?{STRICT}", definition)
    assert status == 201, answer["message"]
    for namespace in ("karmada-system", "karmada-prod"):
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    # served a moment after it is established
    until(lambda: server.request("GET", collection.format("karmada-system"))[0] == 200, "serving the CRD")
    yield Judge(server, collection)
    server.request("DELETE", f"{CRDS}/{definition['metadata']['name']}")


def paths_of_server(status: int, answer: dict[str, Any]) -> tuple[set[str], bool]:
    """Field paths of a refusal, and whether the server looked at all fields before it answered.

    It decodes first, and tells only what cannot be decoded. What it could not check after errors is no path.
    """
    if status == 201 or (status == 200 and answer.get("kind") == manifest.KIND):
        return set(), True
    if status == 400:
        message = answer["message"]
        unknown = set(re.findall(r'unknown field "([^"]+)"', message))
        of_metadata = {
            f"metadata.{field}"
            for field in re.findall(r"Go struct field (?:ObjectMeta\.)?metadata\.([a-zA-Z]+)", message)
        }
        assert unknown | of_metadata, message
        return unknown | of_metadata, False
    assert status == 422, answer
    paths = set()
    for cause in answer["details"]["causes"]:
        if "some validation rules were not checked" in cause["message"]:
            continue
        # of what is made of several schemas, the path is in the message only
        in_message = re.search(r'"([^"]+)" must validate', cause["message"])
        paths.add(in_message[1] if cause["field"] == "<nil>" and in_message else cause["field"])
    return paths, True


def paths_of_engine(document: dict[str, Any], previous: dict[str, Any] | None = None) -> set[str]:
    return {problem.where for problem in manifest.validate(document, previous)}


def assert_same_verdict(server: set[str], is_complete: bool, engine: set[str]) -> None:
    if is_complete:
        assert engine == server
    else:
        # Of metadata the server names the field that contains the fault. Inside of a value of the wrong type it looks
        # for unknown fields, where the engine says that the value has the wrong type.
        for path in server:
            assert any(found == path or path.startswith((f"{found}.", f"{found}[")) for found in engine) or (
                path.startswith("metadata.") and any(found.startswith(f"{path}.") for found in engine)
            ), (path, engine)


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
