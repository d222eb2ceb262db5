# SPDX-License-Identifier: Apache-2.0
"""Validation of a document, and its content with all defaults filled in.

The result is that of an API server with the CRD of ``schemas/`` under strict field validation: the same verdict,
problems at the same field paths, the same defaults. The contract test compares the two.

In addition, problems are reported all at once, with the value, the field's purpose and the nearest name if misspelt.

No I/O, except for reading the schema, which is part of this collection.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import yaml_document
from ..components.spec import Spec
from ..problems import Problem, ProblemsError, Reason
from ..yaml_document import UnreadableError, documents_of
from . import cel_rules, crd

GROUP = "installer.karmada.io"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "KarmadaDeployment"
_invalid = functools.partial(Problem, reason=Reason.INVALID_DOCUMENT)
#: Where a document from a file belongs that names no namespace.
DEFAULT_NAMESPACE = "karmada-system"
#: More than this is a mistake: an API server refuses larger objects, too.
MAX_BYTES = 1024 * 1024

EXAMPLE = f"""\
apiVersion: {API_VERSION}
kind: {KIND}
metadata: {{name: prod}}
spec: {{}}"""

#: Reason of a rule, as Kubernetes has it, that refuses a field whatever its value is.
FORBIDDEN = "FieldValueForbidden"

_SCHEMA_FILE = Path(__file__).parents[3] / "schemas" / "karmadadeployments.yaml"

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


def parse(text: str | bytes, source: str = "") -> dict[str, Any]:
    """The one KarmadaDeployment in a YAML text, not yet validated. Documents of other kinds are ignored.

    ``source`` names the text in messages, usually a file name.
    """
    if len(text.encode(errors="surrogatepass") if isinstance(text, str) else text) > MAX_BYTES:
        raise ProblemsError(
            _invalid(f"is larger than {MAX_BYTES // 1024} KiB", source, "This is not a document of this kind.")
        )
    try:
        documents = [document for document in documents_of(text) if document is not None]
    except UnreadableError as error:
        raise ProblemsError(_invalid(error.what, error.place(source), error.remedy)) from None
    ours = [document for document in documents if isinstance(document, dict) and document.get("kind") == KIND]
    if len(ours) > 1:
        names = ", ".join(crd.shown(_name_of(document)) for document in ours[:5])
        raise ProblemsError(
            _invalid(
                f"contains {len(ours)} documents of kind {KIND} ({names})",
                source,
                "Write each into a file of its own, with an inventory source of its own.",
            )
        )
    if not ours:
        raise ProblemsError(_no_document(documents, source))
    document = ours[0]
    if document.get("apiVersion") != API_VERSION:
        raise ProblemsError(
            _invalid(
                f"is {crd.shown(document.get('apiVersion'))}, which this version of the collection does not know",
                _where(source, ("apiVersion",)),
                f"Write apiVersion: {API_VERSION}.",
            )
        )
    return document


def with_defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    """Document with the defaults of the schema filled in, exactly as by an API server.

    As there, a field with ``null`` counts as not given. The document need not be valid; values that do not fit the
    schema are left as they are.
    """
    return crd.defaulted(document, schema())


def validate(document: Mapping[str, Any], previous: Mapping[str, Any] | None = None, source: str = "") -> list[Problem]:
    """Problems of the document, each at its field; empty if it is valid.

    ``previous`` is the document of the last completed run, for the rules about changes.
    """
    completed = with_defaults({key: value for key, value in document.items() if key != "status"})
    findings = [
        *_head_findings(completed),
        *crd.structure_findings(completed, schema()),
        *_metadata_findings(completed),
    ]
    if not any(finding.keyword in crd.BLOCKING for finding in findings):
        before = None if previous is None else with_defaults(previous)
        broken = list(cel_rules.rule_findings(completed, schema(), before))
        # what a rule says about a name is more exact than what holds for names in general
        ruled = {finding.path for finding in broken}
        findings = [*(found for found in findings if found.keyword != "metadata" or found.path not in ruled), *broken]
    problems: dict[tuple[crd.Path, str], Problem] = {}
    for finding in findings:
        problems.setdefault(
            (finding.path, finding.what),
            Problem(
                finding.what,
                _where(source, finding.path),
                finding.remedy,
                # Rules that refuse a field, and no value of it, are those about fields that would do nothing.
                reason=Reason.FIELD_WITHOUT_EFFECT if finding.keyword == FORBIDDEN else Reason.INVALID_DOCUMENT,
            ),
        )
    return list(problems.values())


def change_problems(document: Mapping[str, Any], carried_out: Mapping[str, Any]) -> list[Problem]:
    """Changes that an installed control plane cannot follow, by the rules of the schema with ``oldSelf``.

    ``carried_out`` is the document of the last run that finished, resolved by this version or an earlier one.
    """
    before = {**with_defaults(carried_out), "status": {"installed": True}}
    problems = []
    for finding in cel_rules.change_findings(document, schema(), before):
        what, _, remedy = finding.what.rpartition("; ")
        problems.append(
            Problem(what or remedy, _where("", finding.path), remedy if what else "", reason=Reason.IMMUTABLE_SETTING)
        )
    return problems


def resolve(document: Mapping[str, Any], source: str = "") -> dict[str, Any]:
    """Complete document: valid, with the defaults of the schema and those that it cannot express.

    These are the namespaces: a document without one belongs to ``karmada-system``, and the control plane is installed
    into the namespace of its document unless it says otherwise. Then etcd, which is local if none is named, and the
    fields that depend on the mode: the type of the endpoint and the source of artifacts. Fields of an API server's own
    are left out, so a file and an object that agree give one result. Raises ProblemsError with all problems.
    """
    if problems := validate(document, source=source):
        raise ProblemsError(problems)
    resolved = with_defaults({key: value for key, value in document.items() if key != "status"})
    resolved["metadata"].get("annotations", {}).pop(_LAST_APPLIED, None)
    metadata = {key: value for key, value in resolved["metadata"].items() if key in _METADATA_KEPT and value}
    metadata.setdefault("namespace", DEFAULT_NAMESPACE)
    resolved["metadata"] = metadata
    resolved["spec"]["hostCluster"].setdefault("namespace", metadata["namespace"])
    etcd = resolved["spec"]["components"]["etcd"]
    if not etcd:
        # A default of the schema would stand beside the external etcd that a document names.
        etcd["local"] = {}
        resolved = with_defaults(resolved)
    _fill_in_by_mode(resolved["spec"])
    return resolved


def carried_out(document: Mapping[str, Any]) -> dict[str, Any]:
    """Part of a resolved document that a run carries out and the state records: no bookkeeping about an object.

    Annotations, labels, generation and UID decide nothing in a control plane. So what only they tell apart is no
    difference, and an object and a file that say the same are recorded as the same.
    """
    metadata = {key: document["metadata"][key] for key in ("name", "namespace") if key in document["metadata"]}
    return {**document, "metadata": metadata}


def differs(document: Mapping[str, Any], recorded: Mapping[str, Any] | None) -> bool:
    """Return whether a run has to carry out something else than what is recorded; earlier versions recorded more."""
    return recorded is None or carried_out(document) != carried_out(recorded)


def _fill_in_by_mode(spec: dict[str, Any]) -> None:
    """Fill in defaults that the schema cannot express, because they depend on where the control plane runs."""
    in_pods = spec["mode"] == "Container"
    spec["artifacts"].setdefault("source", "Image" if spec.get("hosts") else "URL")
    endpoint = spec["endpoint"]
    if "type" in endpoint:
        return
    endpoint["type"] = "ClusterIP" if in_pods else "External"
    if not in_pods:
        endpoint["host"] = next(host["address"] for host in spec["hosts"] if "controlPlane" in host["roles"])


def config_map_references(document: Mapping[str, Any]) -> dict[str, str]:
    """ConfigMaps to which a resolved document refers: path of the field → name."""
    spec = Spec(document["spec"])
    named = {"spec.audit.configMapRef": spec.audit_policy, "spec.overlay.configMapRef": spec.overlay}
    return {path: name for path, name in named.items() if name}


@functools.cache
def schema() -> dict[str, Any]:
    """The openAPIV3Schema of the CRD, with the fields that all objects have."""
    definition = yaml_document.load(_SCHEMA_FILE.read_text(encoding="utf-8"))
    version = next(version for version in definition["spec"]["versions"] if API_VERSION.endswith(version["name"]))
    root: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    declared = root["properties"]["metadata"].get("properties", {})
    root["properties"]["metadata"]["properties"] = {**_METADATA, **declared}
    return root


def _where(source: str, path: crd.Path) -> str:
    """Place of a problem, such as ``prod.yaml: spec.members[0].name``."""
    return ": ".join(part for part in (source, crd.spelt(path)) if part)


def _name_of(document: Mapping[str, Any]) -> Any:
    metadata = document.get("metadata")
    return metadata.get("name") if isinstance(metadata, Mapping) else None


def _no_document(documents: list[Any], source: str) -> Problem:
    example = f"For example:\n{EXAMPLE}"
    if not documents:
        return _invalid(f"is empty; it should contain a {KIND}", source, example)
    if len(documents) > 1:
        return _invalid(f"contains no document of kind {KIND}", source, example)
    document = documents[0]
    if not isinstance(document, dict):
        return _invalid(f"is {crd.kind_of(document)} and not a {KIND}", source, example)
    if "kind" in document:
        return _invalid(f"is {crd.shown(document['kind'])}", _where(source, ("kind",)), f"Write kind: {KIND}.")
    if near := crd.nearest("kind", document):
        return _invalid("is no field here", _where(source, (near,)), f"Write kind: {KIND}.")
    return _invalid(f"has no field kind, so it is not a {KIND}", source, example)


def _head_findings(document: Mapping[str, Any]) -> Iterator[crd.Finding]:
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        found = document.get(field)
        if isinstance(found, str) and found != wanted:
            yield crd.Finding("head", (field,), f"is {crd.shown(found)}", f"Write {field}: {wanted}.")
        elif found is None:
            yield crd.Finding("head", (field,), "is required", f"Write {field}: {wanted}.")


def _metadata_findings(document: Mapping[str, Any]) -> Iterator[crd.Finding]:
    """Findings of the checks that an API server applies to every object. The schema has checked the types."""
    metadata = document.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        return
    about_name = crd.about(schema(), ("metadata", "name"))
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
