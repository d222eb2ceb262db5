# SPDX-License-Identifier: Apache-2.0
"""A kind of document that this collection defines by a CRD in ``schemas/``: its head, its schema, its validation.

The verdict is that of an API server with the CRD under strict field validation: the same problems at the same field
paths, the same defaults. The contract test compares the two.

In addition, problems are reported all at once, with the value, the field's purpose and the nearest name if misspelt.

No I/O, except for reading the schema, which is part of this collection.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from .. import yaml_document
from ..problems import Problem, ProblemsError, Reason
from ..yaml_document import UnreadableError, documents_of
from . import cel_rules, crd

GROUP = "installer.karmada.io"
API_VERSION = f"{GROUP}/v1alpha1"
#: More than this is a mistake: an API server refuses larger objects, too.
MAX_BYTES = 1024 * 1024
#: Reason of a rule, as Kubernetes has it, that refuses a field whatever its value is.
FORBIDDEN = "FieldValueForbidden"
SCHEMAS = Path(__file__).parents[3] / "schemas"

invalid = partial(Problem, reason=Reason.INVALID_DOCUMENT)

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED_NAME = re.compile(rf"({_SUBDOMAIN}/)?(?=.{{1,63}}\Z)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")

_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}
# Fields that every object of an API server may have. The schema of a CRD says nothing about them.
_METADATA: dict[str, dict[str, Any]] = {
    "name": _TEXT,
    "generateName": _TEXT,
    "namespace": _TEXT,
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "finalizers": {"type": "array", "items": _TEXT},
    "ownerReferences": _ANYTHING,
    "managedFields": _ANYTHING,
    "uid": _TEXT,
    "resourceVersion": _TEXT,
    "selfLink": _TEXT,
    "generation": {"type": "integer"},
    "creationTimestamp": _TEXT,
    "deletionTimestamp": _TEXT,
    "deletionGracePeriodSeconds": {"type": "integer"},
}
# What of them belongs to what the user wants, and not to the bookkeeping of an API server.
_METADATA_KEPT = ("name", "namespace", "labels", "annotations", "uid", "generation")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True)
class ObjectKind:
    """One kind. ``schema_file`` is the name of its CRD in ``schemas/``."""

    kind: str
    schema_file: str

    @property
    def schema(self) -> dict[str, Any]:
        """The openAPIV3Schema of the CRD, with the fields that all objects have."""
        return _schema(self.schema_file)

    def with_defaults(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Document with the defaults of the schema filled in, exactly as by an API server.

        As there, a field with ``null`` counts as not given. The document need not be valid; values that do not fit the
        schema are left as they are.
        """
        return crd.defaulted(document, self.schema)

    def validate(
        self, document: Mapping[str, Any], previous: Mapping[str, Any] | None = None, source: str = ""
    ) -> list[Problem]:
        """Problems of the document, each at its field; empty if it is valid.

        ``previous`` is the document of the last completed run, for the rules about changes.
        """
        return self._problems(self._without_status(document), previous, source)

    def completed(self, document: Mapping[str, Any], source: str = "") -> dict[str, Any]:
        """Valid document with the defaults of the schema, without status and bookkeeping of an API server.

        Raises ProblemsError with all problems.
        """
        resolved = self._without_status(document)
        if problems := self._problems(resolved, None, source):
            raise ProblemsError(problems)
        resolved["metadata"].get("annotations", {}).pop(_LAST_APPLIED, None)
        kept = {key: value for key, value in resolved["metadata"].items() if key in _METADATA_KEPT and value}
        return {**resolved, "metadata": kept}

    def _without_status(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Copy with all defaults and without status, which is no part of what the user wants."""
        return self.with_defaults({key: value for key, value in document.items() if key != "status"})

    def _problems(self, completed: dict[str, Any], previous: Mapping[str, Any] | None, source: str) -> list[Problem]:
        """Problems of a document that has its defaults; see ``validate``."""
        findings = [
            *self._head_findings(completed),
            *(() if crd.fits(completed, self.schema) else crd.structure_findings(completed, self.schema)),
            *self._metadata_findings(completed),
        ]
        if not any(finding.keyword in crd.BLOCKING for finding in findings):
            before = None if previous is None else self.with_defaults(previous)
            broken = list(cel_rules.rule_findings(completed, self.schema, before))
            # what a rule says about a name is more exact than what holds for names in general
            ruled = {finding.path for finding in broken}
            findings = [
                *(found for found in findings if found.keyword != "metadata" or found.path not in ruled),
                *broken,
            ]
        problems: dict[tuple[crd.Path, str], Problem] = {}
        for finding in findings:
            problems.setdefault(
                (finding.path, finding.what),
                Problem(
                    finding.what,
                    where(source, finding.path),
                    finding.remedy,
                    # Rules that refuse a field, and no value of it, are those about fields that would do nothing.
                    reason=Reason.FIELD_WITHOUT_EFFECT if finding.keyword == FORBIDDEN else Reason.INVALID_DOCUMENT,
                ),
            )
        return list(problems.values())

    def _head_findings(self, document: Mapping[str, Any]) -> Iterator[crd.Finding]:
        for field, wanted in (("apiVersion", API_VERSION), ("kind", self.kind)):
            found = document.get(field)
            if isinstance(found, str) and found != wanted:
                yield crd.Finding("head", (field,), f"is {crd.shown(found)}", f"Write {field}: {wanted}.")
            elif found is None:
                yield crd.Finding("head", (field,), "is required", f"Write {field}: {wanted}.")

    def _metadata_findings(self, document: Mapping[str, Any]) -> Iterator[crd.Finding]:
        """Findings of the checks that an API server applies to every object. The schema has checked the types."""
        metadata = document.get("metadata")
        if metadata is None:
            metadata = {}
        if not isinstance(metadata, dict):
            return
        about_name = crd.about(self.schema, ("metadata", "name"))
        name = metadata.get("name")
        if name is None or name == "":
            yield crd.Finding("required", ("metadata", "name"), "is required", about_name)
        elif isinstance(name, str) and not (len(name) <= 253 and re.fullmatch(_SUBDOMAIN, name)):
            yield crd.Finding(
                "metadata", ("metadata", "name"), f"{crd.shown(name)} is not a name that objects can have", about_name
            )
        namespace = metadata.get("namespace")
        if isinstance(namespace, str) and namespace and not (len(namespace) <= 63 and re.fullmatch(_LABEL, namespace)):
            yield crd.Finding(
                "metadata",
                ("metadata", "namespace"),
                f"{crd.shown(namespace)} is not a DNS label",
                "Write one like team-a.",
            )
        yield from _label_findings(metadata)


def readable(text: str | bytes, source: str = "") -> list[Any]:
    """Documents of a YAML text that are not empty. ``source`` names the text in messages, usually a file name.

    Raises ProblemsError for a text that is too large or no YAML.
    """
    if len(text.encode(errors="surrogatepass") if isinstance(text, str) else text) > MAX_BYTES:
        raise ProblemsError(
            invalid(f"is larger than {MAX_BYTES // 1024} KiB", source, "This is not a document of this kind.")
        )
    try:
        return [document for document in documents_of(text) if document is not None]
    except UnreadableError as error:
        raise ProblemsError(invalid(error.what, error.place(source), error.remedy)) from None


def version_problems(document: Mapping[str, Any], source: str = "") -> list[Problem]:
    """Problem of a document whose version of the schema is not the one that this collection knows."""
    if document.get("apiVersion") == API_VERSION:
        return []
    return [
        invalid(
            f"is {crd.shown(document.get('apiVersion'))}, which this version of the collection does not know",
            where(source, ("apiVersion",)),
            f"Write apiVersion: {API_VERSION}.",
        )
    ]


def where(source: str, path: crd.Path) -> str:
    """Place of a problem, such as ``prod.yaml: spec.members[0].name``."""
    return ": ".join(part for part in (source, crd.spelt(path)) if part)


def name_of(document: Mapping[str, Any]) -> Any:
    """Name that a document gives itself, whatever it is; None if it has none."""
    metadata = document.get("metadata")
    return metadata.get("name") if isinstance(metadata, Mapping) else None


@functools.cache
def _schema(file: str) -> dict[str, Any]:
    definition = yaml_document.load((SCHEMAS / file).read_text(encoding="utf-8"))
    version = next(version for version in definition["spec"]["versions"] if API_VERSION.endswith(version["name"]))
    root: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    declared = root["properties"]["metadata"].get("properties", {})
    root["properties"]["metadata"]["properties"] = {**_METADATA, **declared}
    return root


def _label_findings(metadata: Mapping[str, Any]) -> Iterator[crd.Finding]:
    for field, is_name in (("labels", _QUALIFIED_NAME.fullmatch), ("annotations", _is_annotation_name)):
        entries = metadata.get(field)
        for key in entries if isinstance(entries, dict) else ():
            if not is_name(key):
                what = f"{crd.shown(key)} is no valid name"
                yield crd.Finding("metadata", ("metadata", field), what, "Write one like example.com/tier.")
    labels = metadata.get("labels")
    for value in labels.values() if isinstance(labels, dict) else ():
        if isinstance(value, str) and not (len(value) <= 63 and _LABEL_VALUE.fullmatch(value)):
            yield crd.Finding(
                "metadata",
                ("metadata", "labels"),
                f"{crd.shown(value)} is no valid value of a label",
                "Write at most 63 letters, digits, dashes, dots and underscores; long texts are for annotations.",
            )


def _is_annotation_name(name: str) -> bool:
    return _QUALIFIED_NAME.fullmatch(name.lower()) is not None
