# SPDX-License-Identifier: Apache-2.0
"""The KarmadaDeployment: its validation, and its content with all defaults filled in.

See ``object_kind`` for how documents are validated. No I/O, except for reading the schema, which is part of this
collection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..components.spec import Spec
from ..problems import Problem, ProblemsError, Reason
from . import cel_rules, crd
from .object_kind import (
    API_VERSION,
    FORBIDDEN,
    GROUP,
    MAX_BYTES,
    SCHEMAS,
    ObjectKind,
    invalid,
    name_of,
    readable,
    version_problems,
    where,
)

__all__ = ["API_VERSION", "FORBIDDEN", "GROUP", "MAX_BYTES"]

KIND = "KarmadaDeployment"
#: Where a document from a file belongs that names no namespace.
DEFAULT_NAMESPACE = "karmada-system"

EXAMPLE = f"""\
apiVersion: {API_VERSION}
kind: {KIND}
metadata: {{name: prod}}
spec: {{}}"""

_KIND = ObjectKind(KIND, "karmadadeployments.yaml")
_SCHEMA_FILE = SCHEMAS / _KIND.schema_file


def parse(text: str | bytes, source: str = "") -> dict[str, Any]:
    """The one KarmadaDeployment in a YAML text, not yet validated. Documents of other kinds are ignored.

    ``source`` names the text in messages, usually a file name.
    """
    return one_of(readable(text, source), source)


def one_of(documents: list[Any], source: str = "") -> dict[str, Any]:
    """The one KarmadaDeployment among documents of a text, as ``parse``."""
    ours = [document for document in documents if isinstance(document, dict) and document.get("kind") == KIND]
    if len(ours) > 1:
        names = ", ".join(crd.shown(name_of(document)) for document in ours[:5])
        raise ProblemsError(
            invalid(
                f"contains {len(ours)} documents of kind {KIND} ({names})",
                source,
                "Write each into a file of its own, with an inventory source of its own.",
            )
        )
    if not ours:
        raise ProblemsError(_no_document(documents, source))
    document = ours[0]
    if problems := version_problems(document, source):
        raise ProblemsError(problems)
    return document


def with_defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    """Document with the defaults of the schema filled in; see ``ObjectKind.with_defaults``."""
    return _KIND.with_defaults(document)


def validate(document: Mapping[str, Any], previous: Mapping[str, Any] | None = None, source: str = "") -> list[Problem]:
    """Problems of the document, each at its field; see ``ObjectKind.validate``."""
    return _KIND.validate(document, previous, source)


def change_problems(document: Mapping[str, Any], carried_out: Mapping[str, Any]) -> list[Problem]:
    """Changes that an installed control plane cannot follow, by the rules of the schema with ``oldSelf``.

    ``carried_out`` is the document of the last run that finished, resolved by this version or an earlier one.
    """
    before, problems = with_defaults(carried_out), []
    if not differs(document, before):
        # Most runs change nothing, which no rule refuses, and do without the library that evaluates rules.
        return []
    for finding in cel_rules.change_findings(document, _KIND.schema, {**before, "status": {"installed": True}}):
        what, _, remedy = finding.what.rpartition("; ")
        problems.append(
            Problem(what or remedy, where("", finding.path), remedy if what else "", reason=Reason.IMMUTABLE_SETTING)
        )
    return problems


def resolve(document: Mapping[str, Any], source: str = "") -> dict[str, Any]:
    """Complete document: valid, with the defaults of the schema and those that it cannot express.

    These are the namespaces: a document without one belongs to ``karmada-system``, and the control plane is installed
    into the namespace of its document unless it says otherwise. Then etcd, which is local if none is named, and the
    fields that depend on the mode: the type of the endpoint and the source of artifacts. Fields of an API server's own
    are left out, so a file and an object that agree give one result. Raises ProblemsError with all problems.
    """
    resolved = _KIND.completed(document, source)
    metadata = resolved["metadata"]
    metadata.setdefault("namespace", DEFAULT_NAMESPACE)
    resolved["spec"]["hostCluster"].setdefault("namespace", metadata["namespace"])
    components = resolved["spec"]["components"]
    if not components["etcd"]:
        # A default of the schema would stand beside the external etcd that a document names.
        fields = schema()
        for step in ("spec", "components", "etcd"):
            fields = fields["properties"][step]
        components["etcd"] = crd.defaulted({"local": {}}, fields)
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


def schema() -> dict[str, Any]:
    """The openAPIV3Schema of the CRD, with the fields that all objects have."""
    return _KIND.schema


def _no_document(documents: list[Any], source: str) -> Problem:
    example = f"For example:\n{EXAMPLE}"
    if not documents:
        return invalid(f"is empty; it should contain a {KIND}", source, example)
    if len(documents) > 1:
        return invalid(f"contains no document of kind {KIND}", source, example)
    document = documents[0]
    if not isinstance(document, dict):
        return invalid(f"is {crd.kind_of(document)} and not a {KIND}", source, example)
    if "kind" in document:
        return invalid(f"is {crd.shown(document['kind'])}", where(source, ("kind",)), f"Write kind: {KIND}.")
    if near := crd.nearest("kind", document):
        return invalid("is no field here", where(source, (near,)), f"Write kind: {KIND}.")
    return invalid(f"has no field kind, so it is not a {KIND}", source, example)
