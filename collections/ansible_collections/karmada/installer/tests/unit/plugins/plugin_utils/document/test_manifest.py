# SPDX-License-Identifier: Apache-2.0
"""The engine's verdict on documents. The contract tests hold the same corpus against a real API server."""

from __future__ import annotations

import copy
import json
import re
import sys
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils import yaml_document
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import COMPONENTS
from ansible_collections.karmada.installer.plugins.plugin_utils.document import cel_rules, crd, manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.tests.unit.support import corpus_files
from ansible_collections.karmada.installer.tests.unit.support.documents import HEAD, document
from hypothesis import given, settings
from hypothesis import strategies as st


def problems_of(file: corpus_files.CorpusFile) -> list[Problem]:
    previous = corpus_files.named(file.update_of) if file.update_of else None
    try:
        return manifest.validate(
            manifest.parse(file.text, file.path.name),
            manifest.parse(previous.text) if previous else None,
            source=file.path.name,
        )
    except ProblemsError as error:
        return error.problems


def test_the_corpus_is_large_enough_to_mean_something() -> None:
    assert len(corpus_files.good()) >= 12
    assert len(corpus_files.bad()) >= 30
    assert [str(file) for file in corpus_files.bad() if not file.expected] == []


@pytest.mark.parametrize("file", corpus_files.good(), ids=str)
def test_good_document_is_accepted(file: corpus_files.CorpusFile) -> None:
    resolved = manifest.resolve(manifest.parse(file.text, file.path.name))
    with_control_plane = any("controlPlane" in host["roles"] for host in resolved["spec"].get("hosts", ()))
    assert resolved["spec"]["mode"] == ("Binary" if with_control_plane else "Container")
    assert resolved["spec"]["hostCluster"]["namespace"]
    assert resolved["spec"]["endpoint"]["type"]
    assert resolved["spec"]["artifacts"]["source"]


@pytest.mark.parametrize("file", corpus_files.bad(), ids=str)
def test_bad_document_is_refused_at_the_right_place(file: corpus_files.CorpusFile) -> None:
    found = problems_of(file)
    places = {_place(problem.where, file.path.name) for problem in found}
    expected_places = {path if not file.is_text_stage else path.strip() for path, _ in file.expected}
    assert places == expected_places, [str(problem) for problem in found]
    for path, part in file.expected:
        assert any(
            part in str(problem) for problem in found if _place(problem.where, file.path.name) == path.strip()
        ), [str(problem) for problem in found]


def _place(where: str, source: str) -> str:
    assert where.startswith(source)
    return where.removeprefix(source).removeprefix(",").removeprefix(":").strip()


def test_no_message_contains_a_password_of_a_url() -> None:
    (file,) = [file for file in corpus_files.bad() if file.path.stem == "artifacts_password"]
    (problem,) = problems_of(file)
    assert "user:secret" not in str(problem)
    assert "mirror.example.com" in str(problem)


#: What every component is said to have when the document does not say it.
OF_ALL = {"replicas": 1, "priorityClassName": "system-cluster-critical"}


def test_an_empty_spec_gets_every_default() -> None:
    resolved = manifest.resolve(manifest.parse(corpus_files.named("empty_spec").text))
    assert resolved["metadata"] == {"name": "prod", "namespace": "karmada-system"}
    components = resolved["spec"].pop("components")
    assert resolved["spec"] == {
        "mode": "Container",
        "hostCluster": {"domain": "cluster.local", "namespace": "karmada-system"},
        "endpoint": {"type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack"},
        "images": {"pullPolicy": "IfNotPresent"},
        "artifacts": {"source": "URL"},
        "ssh": {"port": 22},
        "certificates": {
            "validity": "8760h",
            "renewBefore": "2920h",
            "keyAlgorithm": "ECDSA-P256",
            "administratorGeneration": 1,
        },
        "encryption": {"provider": "secretbox"},
        "overlay": {},
        "audit": {"enabled": True},
        "networkPolicies": {"enabled": True},
        "registration": {"karmadactl": False},
        "installCRD": True,
        "members": [],
        "deletion": {"policy": "Delete"},
    }
    assert components.pop("etcd") == {"local": {**OF_ALL, "maintenance": {"minimumSize": "100Mi", "freePercent": 50}}}
    assert components.pop("karmadaAPIServer") == OF_ALL
    assert set(components) == {
        "karmadaAggregatedAPIServer",
        "kubeControllerManager",
        "karmadaControllerManager",
        "karmadaScheduler",
        "karmadaWebhook",
        "karmadaAgent",
    }
    assert all(component == OF_ALL for component in components.values())


def test_on_hosts_programs_come_out_of_images_and_a_single_host_is_its_own_endpoint() -> None:
    spec = manifest.resolve(manifest.parse(corpus_files.named("binary_one_host").text))["spec"]
    assert spec["artifacts"] == {"source": "Image"}
    assert (spec["endpoint"]["type"], spec["endpoint"]["host"]) == ("External", "192.0.2.1")
    assert spec["hosts"] == [{"name": "host1", "address": "192.0.2.1", "roles": ["controlPlane", "etcd"]}]


@pytest.mark.parametrize("name", ["no_spec", "null_spec", "nulls_everywhere", "empty_spec"])
def test_saying_nothing_is_the_same_in_every_spelling(name: str) -> None:
    reference = manifest.resolve(manifest.parse(corpus_files.named("no_spec").text))
    assert manifest.resolve(manifest.parse(corpus_files.named(name).text)) == reference


def test_the_full_document_has_every_field_of_the_spec() -> None:
    """Then every field is known to be accepted, and the contract test shows it to an API server."""
    full = manifest.parse(corpus_files.named("full").text)
    # one document has one type of endpoint, and one mode
    others = [
        manifest.parse(corpus_files.named(name).text)
        for name in ("endpoint_ingress", "endpoint_route", "binary", "binary_agent_hosts")
    ]
    given = [field for document in (full, *others) for field in _given(document["spec"])]
    missing = set(_fields(manifest.schema()["properties"]["spec"])) - set(given)
    # a setting that all components have need be said of one of them; of the kinds of store one can be said
    settings_given = {setting for field in given if (setting := _setting(field))}
    missing = {field for field in missing if _setting(field) not in settings_given}
    assert {field for field in missing if not field.startswith(OTHER_STORES)} == set()
    assert {f".components.{name}" for name in OPTIONAL} <= set(given)


OTHER_STORES = (
    ".components.etcd.external",
    ".components.etcd.local.volumeData.emptyDir",
    ".components.etcd.local.volumeData.hostPath",
)
OPTIONAL = {component.field for component in COMPONENTS if component.optional}


def _setting(field: str) -> str:
    found = re.fullmatch(r"\.components\.(?:etcd\.local|\w+)\.(.+)", field)
    return found[1] if found else ""


def _fields(node: dict[str, Any], path: str = "") -> list[str]:
    found = []
    for name, child in node.get("properties", {}).items():
        found += [f"{path}.{name}", *_fields(child, f"{path}.{name}")]
    return found + (_fields(node["items"], path) if "items" in node else [])


def _given(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [place for key, item in value.items() for place in [f"{path}.{key}", *_given(item, f"{path}.{key}")]]
    return [place for item in value for place in _given(item, path)] if isinstance(value, list) else []


def test_an_object_of_a_cluster_resolves_like_the_file() -> None:
    of_file = manifest.resolve(manifest.parse(corpus_files.named("full").text))
    live = copy.deepcopy(of_file)
    live["metadata"] |= {
        "resourceVersion": "7",
        "creationTimestamp": "2026-11-21T05:00:00Z",
        "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
        "annotations": {
            **of_file["metadata"]["annotations"],
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
    }
    live["status"] = {"phase": "Completed", "anything": ["else"]}
    assert manifest.resolve(live) == of_file


def test_the_namespace_of_the_document_is_that_of_the_pods_unless_said_otherwise() -> None:
    own = document()
    own["metadata"]["namespace"] = "team-a"
    assert manifest.resolve(own)["spec"]["hostCluster"]["namespace"] == "team-a"
    other = document(hostCluster={"namespace": "team-b"})
    assert manifest.resolve(other)["spec"]["hostCluster"]["namespace"] == "team-b"


def test_the_document_given_is_not_changed() -> None:
    given_document = document(members=[{"name": "a", "secretRef": {"name": "a"}}], hostCluster=None)
    before = copy.deepcopy(given_document)
    manifest.resolve(given_document)
    assert given_document == before


def test_a_change_that_is_allowed_is_allowed() -> None:
    before = document(components={"etcd": {"local": {"volumeData": {"volumeClaim": {"size": "1Gi"}}}}})
    after = document(components={"etcd": {"local": {"replicas": 3, "volumeData": {"volumeClaim": {"size": "2Gi"}}}}})
    assert manifest.validate(after, before) == []


@pytest.mark.parametrize("file", corpus_files.of_installed(), ids=str)
def test_what_an_install_failed_for_can_be_corrected(file: corpus_files.CorpusFile) -> None:
    before = manifest.parse(corpus_files.named(file.update_of).text)
    del before["status"]
    assert manifest.validate(manifest.parse(file.text), before) == []


def test_a_change_that_cannot_be_followed_says_how_to_mend_it() -> None:
    before = manifest.resolve(document())
    (problem,) = manifest.change_problems(manifest.resolve(document(encryption={"provider": "identity"})), before)
    assert problem == Problem(
        "it was secretbox at the install and is identity now; that cannot be changed in place",
        "spec.encryption.provider",
        "set it back, or install a second control plane",
        reason=Reason.IMMUTABLE_SETTING,
    )


def test_thousands_of_members_are_not_compared_for_rules_that_are_not_about_them() -> None:
    members = [{"name": f"m{number}", "secretRef": {"name": "a"}} for number in range(3000)]
    now = manifest.with_defaults(document(members=members))
    assert not cel_rules._tells_of_changes(manifest.schema()["properties"]["spec"]["properties"]["members"])
    before = manifest.with_defaults(document(members=members[1:]))
    assert manifest.change_problems(now, before) == []


@pytest.mark.parametrize("file", [file for file in corpus_files.good() if "\nstatus:" not in file.text], ids=str)
def test_a_document_that_was_not_changed_is_not_judged_and_would_not_be_refused(
    file: corpus_files.CorpusFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = manifest.resolve(manifest.parse(file.text))
    installed = {**resolved, "status": {"installed": True}}
    assert list(cel_rules.change_findings(resolved, manifest.schema(), installed)) == []
    monkeypatch.setattr(cel_rules, "change_findings", None)
    assert manifest.change_problems(resolved, manifest.carried_out(resolved)) == []


def test_rules_about_changes_need_a_previous_document() -> None:
    file = next(file for file in corpus_files.bad() if file.path.stem == "change_etcd_storage")
    assert manifest.validate(manifest.parse(file.text)) == []


def test_bytes_and_byte_order_marks_are_read() -> None:
    text = "\ufeff" + corpus_files.named("empty_spec").text
    assert manifest.parse(text.encode())["metadata"]["name"] == "prod"
    with pytest.raises(ProblemsError, match="not text in UTF-8"):
        manifest.parse(b"kind: \xff\xfe", "prod.yaml")


def test_a_large_text_is_refused_unread() -> None:
    with pytest.raises(ProblemsError, match=r"prod\.yaml: is larger than 1024 KiB"):
        manifest.parse("# " + "x" * manifest.MAX_BYTES, "prod.yaml")


def test_a_missing_cel_library_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for cache in (cel_rules._celpy, cel_rules._environment, cel_rules._program, cel_rules._verdict):
        cache.cache_clear()
    monkeypatch.setitem(sys.modules, "celpy", None)
    with pytest.raises(ProblemsError, match=rf"{sys.executable} -m pip install cel-python"):
        manifest.resolve(document())


def test_a_missing_schema_library_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for cache in (crd._jsonschema, crd._validator):
        cache.cache_clear()
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ProblemsError, match=rf"{sys.executable} -m pip install jsonschema"):
        manifest.resolve(document(mode="Neither"))
    assert manifest.resolve(document())["spec"]["mode"] == "Container", "the library only says what is wrong"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12:30:45", "12:30:45"),
        ("2026-11-21", "2026-11-21"),
        ("1_000", 1000),
        ("0x1f", 31),
        ("0o17", 15),
        ("017", 15),
        ("1e3", 1000.0),
        ("-1.5", -1.5),
        (".5", 0.5),
        ("yes", True),
        ("!!str yes", "yes"),
        ("'yes'", "yes"),
        ("v1.18.2", "v1.18.2"),
        ("1.18.2", "1.18.2"),
        ("~", None),
        ("5Gi", "5Gi"),
        ("0123456789", "0123456789"),
        ("=", "="),
    ],
)
def test_plain_values_are_read_as_json_has_them(text: str, value: Any) -> None:
    (found,) = yaml_document.documents_of(f"a: {text}")
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


def test_every_field_is_described() -> None:
    def walk(node: dict[str, Any], path: str) -> list[str]:
        missing = [] if len(node.get("description", "")) > 7 else [path]
        for name, child in node.get("properties", {}).items():
            missing += walk(child, f"{path}.{name}")
        for part in ("items", "additionalProperties"):
            if part in node:
                missing += walk(node[part], f"{path}[]")
        return missing

    for part in ("spec", "status"):
        assert walk(manifest.schema()["properties"][part], part) == []


def test_every_list_and_string_is_bounded() -> None:
    def walk(node: dict[str, Any], path: str) -> list[str]:
        bound = {"array": "maxItems", "string": "maxLength"}.get(node.get("type", ""))
        loose = [path] if bound and bound not in node and "enum" not in node and "format" not in node else []
        if node.get("type") == "array" and "x-kubernetes-list-type" not in node:
            loose.append(path)
        if "additionalProperties" in node and "maxProperties" not in node:
            loose.append(path)
        for name, child in node.get("properties", {}).items():
            loose += walk(child, f"{path}.{name}")
        for part in ("items", "additionalProperties"):
            if part in node:
                loose += walk(node[part], f"{path}[]")
        return loose

    for part in ("spec", "status"):
        assert walk(manifest.schema()["properties"][part], part) == []


def test_below_an_open_object_nothing_is_dropped_filled_in_or_refused() -> None:
    inside = {"unknown": None, "replicas": None, "list": [None, {"a": None}], "name": "", "extraArgs": {"v": 4}}
    given = document(components={"karmadaWebhook": {"affinity": inside, "extraVolumes": [inside]}})
    assert manifest.validate(given) == []
    webhook = manifest.resolve(given)["spec"]["components"]["karmadaWebhook"]
    assert webhook == {**OF_ALL, "affinity": inside, "extraVolumes": [inside]}


def test_whole_numbers_are_integers_in_an_open_object_too() -> None:
    """An API server gives them back so, and a field of a pod that is an integer takes nothing else."""
    given = document(components={"karmadaWebhook": {"affinity": {"a": 1.0, "b": [2.0, {"c": 1e3}], "d": 1.5}}})
    found = manifest.resolve(given)["spec"]["components"]["karmadaWebhook"]["affinity"]
    assert json.dumps(found) == '{"a": 1, "b": [2, {"c": 1000}], "d": 1.5}'


def test_an_optional_component_is_there_only_when_it_is_named() -> None:
    assert not OPTIONAL & set(manifest.resolve(document())["spec"]["components"])
    for name in OPTIONAL:
        assert manifest.resolve(document(components={name: {}}))["spec"]["components"][name] == OF_ALL
        assert name not in manifest.resolve(document(components={name: None}))["spec"]["components"]


# -- properties -------------------------------------------------------------------------------------------------------

names = st.sampled_from(
    ["spec", "metadata", "name", "mode", "members", "components", "etcd", "local", "replicas", "volumeData", "labels"]
) | st.text(max_size=5)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=15
)


@st.composite
def near_misses(draw: st.DrawFn) -> dict[str, Any]:
    """The full document with one value replaced by something else, which reaches deeper than random data."""
    changed = manifest.parse(corpus_files.named("full").text)
    node: Any = changed
    while True:
        key = draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if isinstance(node[key], dict | list) and node[key] and draw(st.booleans()):
            node = node[key]
        else:
            node[key] = draw(values)
            return changed


@settings(max_examples=150, deadline=None)
@given(near_misses())
def test_any_change_of_a_good_document_gives_a_verdict(changed: dict[str, Any]) -> None:
    problems = manifest.validate(changed, source="f.yaml")
    assert all(problem.what and problem.where.startswith("f.yaml") for problem in problems)
    if not problems:
        resolved = manifest.resolve(changed)
        assert manifest.resolve(resolved) == resolved


@settings(max_examples=150, deadline=None)
@given(near_misses() | values.map(lambda spec: {**HEAD, "spec": spec}))
def test_defaults_are_filled_in_once(changed: dict[str, Any]) -> None:
    once = manifest.with_defaults(changed)
    assert manifest.with_defaults(once) == once


@settings(max_examples=150, deadline=None)
@given(values | values.map(lambda spec: {**HEAD, "spec": spec}))
def test_random_yaml_gives_a_document_or_problems(data: Any) -> None:
    # JSON is YAML; what the parser makes of it must be the same data
    text = json.dumps(data) if not isinstance(data, str) else yaml.safe_dump(data, allow_unicode=False)
    reason = ""
    try:
        resolved = manifest.resolve(manifest.parse(text, "f.yaml"), source="f.yaml")
    except ProblemsError as error:
        reason = str(error)
    assert "f.yaml" in reason or resolved["kind"] == manifest.KIND


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200) | st.binary(max_size=200) | st.text(alphabet="{}[]&*!|>'\"%@`-:, \n\tab<", max_size=80))
def test_random_text_gives_data_or_a_reason(text: str | bytes) -> None:
    reason, documents = "", []
    try:
        documents = yaml_document.documents_of(text)
    except yaml_document.UnreadableError as error:
        reason = error.what
    # what was read is plain data, which JSON can express
    assert reason or json.dumps(documents, allow_nan=False)
