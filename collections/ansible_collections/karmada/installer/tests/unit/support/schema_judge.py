# SPDX-License-Identifier: Apache-2.0
"""A real API server as judge of documents, beside the engine: what it takes, what it refuses, and at which paths."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.object_kind import SCHEMAS, ObjectKind
from ansible_collections.karmada.installer.tests.unit.support.moments import until

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STRICT = "fieldValidation=Strict"


class Judge:
    """Asks the API server about objects of one kind; ``collection`` is their path, with braces for the namespace."""

    def __init__(self, server: Any, collection: str) -> None:
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


def plural_of(kind: ObjectKind) -> str:
    """Word for objects of this kind in paths of requests, by its definition."""
    word: str = yaml.safe_load((SCHEMAS / kind.schema_file).read_text(encoding="utf-8"))["spec"]["names"]["plural"]
    return word


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


def assert_taken(judge: Judge, kind: ObjectKind, text: str) -> None:
    """The API server takes this object of another kind, and fills in what the engine does."""
    written = yaml.safe_load(text)
    status, answer = judge.create(written)
    assert status == 201, answer
    assert answer["spec"] == kind.completed(written)["spec"]


def assert_refused_alike(judge: Judge, kind: ObjectKind, text: str) -> None:
    """The API server refuses this object of another kind, for the fields for which the engine does."""
    written = yaml.safe_load(text)
    status, answer = judge.create(written)
    assert status in (400, 422), answer
    server, is_complete = paths_of_server(status, answer)
    assert_same_verdict(server, is_complete, {problem.where for problem in kind.validate(written)})
