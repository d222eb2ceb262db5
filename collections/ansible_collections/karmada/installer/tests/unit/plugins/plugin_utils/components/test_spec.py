# SPDX-License-Identifier: Apache-2.0
"""The view of a document: it reads what stands there, under names of the schema, and writes nothing."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components import spec as views
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import (
    Always,
    Artifacts,
    Certificates,
    Endpoint,
    ExternalEtcd,
    HostCluster,
    HostEntry,
    Images,
    Keyed,
    Listed,
    Maybe,
    MemberEntry,
    Section,
    Settings,
    Spec,
    Text,
    View,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import FORMER_MODE
from ansible_collections.karmada.installer.plugins.plugin_utils.document.manifest import schema
from ansible_collections.karmada.installer.tests.unit.support.samples import MEMBER, spec_of

SPEC: dict[str, Any] = schema()["properties"]["spec"]
#: view → where its mapping is in the schema
PLACES: dict[type[View], tuple[str, ...]] = {
    Spec: (),
    Artifacts: ("artifacts",),
    Certificates: ("certificates",),
    Endpoint: ("endpoint",),
    ExternalEtcd: ("components", "etcd", "external"),
    HostCluster: ("hostCluster",),
    HostEntry: ("hosts", "[]"),
    Images: ("images",),
    MemberEntry: ("members", "[]"),
    # Of all components etcd has the most settings; feature gates are of the others.
    Settings: ("components", "etcd", "local"),
}
#: Filled in by ``manifest.resolve`` where they are not given, which the schema cannot express.
FILLED_IN = {(Artifacts, "source"), (Endpoint, "type"), (HostCluster, "namespace")}
#: Sections of the schema with defaults that older records do not have.
OLDER = {(MemberEntry, "on_leave"), (Settings, "maintenance_size"), (Settings, "maintenance_free_percent")}
#: ``Always`` for those who ask only where they are given.
GIVEN = {(Endpoint, "virtual_router_id"), (MemberEntry, "secret")}
ACCESSORS = [
    (kind, name, accessor)
    for kind in PLACES
    for name, accessor in vars(kind).items()
    if isinstance(accessor, views._Accessor)
]


def fields(kind: type[View], accessor: views._Accessor[Any]) -> Iterator[tuple[dict[str, Any], bool]]:
    """The schemas along the path of an accessor, and whether each is always there."""
    found = SPEC
    for key in (*PLACES[kind], *accessor._path):
        if key == "[]":
            found = found["items"]
            continue
        if kind is Settings and key == "featureGates":
            found = SPEC["properties"]["components"]["properties"]["karmadaScheduler"]
        always = key in found.get("required", ()) or "default" in found["properties"][key]
        found = found["properties"][key]
        yield found, always


def test_every_view_has_its_place_in_the_schema() -> None:
    known = {each for each in vars(views).values() if isinstance(each, type) and issubclass(each, View)} - {View}
    assert known == set(PLACES)


@pytest.mark.parametrize(("kind", "name", "accessor"), ACCESSORS)
def test_an_accessor_is_a_field_of_the_schema_and_knows_whether_it_is_always_there(
    kind: type[View], name: str, accessor: views._Accessor[Any]
) -> None:
    if (kind, name) == (MemberEntry, "former_mode"):
        assert accessor._path == (FORMER_MODE,)
        return
    steps = list(fields(kind, accessor))
    of_view = steps[len([each for each in PLACES[kind] if each != "[]"]) :]
    always = all(each for _, each in of_view)
    if isinstance(accessor, Always | Section):
        assert always or (kind, name) in FILLED_IN | GIVEN
    elif isinstance(accessor, Maybe | Text):
        # A record of a member, or of a document, may be older than the default.
        assert not always or (kind, name) in OLDER
    leaf = steps[-1][0]
    shapes = {Text: "string", Listed: "array", Keyed: "object", Section: "object"}
    assert leaf.get("type") == shapes.get(type(accessor), leaf.get("type"))
    # Left out, pull secrets mean something else than an empty list.
    if (kind, name) != (Settings, "image_pull_secrets"):
        assert (leaf.get("type") == "array") == isinstance(accessor, Listed)


def test_every_accessor_is_used() -> None:
    engine = Path(views.__file__).parents[2]
    sources = (path.read_text() for path in engine.rglob("*.py") if path != Path(views.__file__))
    used = {node.attr for text in sources for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
    assert {name for _, name, _ in ACCESSORS} - used == set()


def test_what_is_not_given_is_none_or_empty() -> None:
    spec = spec_of()
    assert (spec.version, spec.external_etcd, spec.endpoint.host) == (None, None, "")
    assert (spec.hosts, spec.endpoint.extra_sans, list(spec.members)) == ((), (), [])
    assert spec.endpoint.service_annotations == {}
    assert spec.component("karmadaSearch") is None
    with pytest.raises(KeyError):
        Spec({}).mode  # noqa: B018 - not every mapping is a resolved document


def test_a_section_of_a_component_is_there_as_soon_as_it_is_named() -> None:
    settings = spec_of({"components": {"karmadaSearch": {}}}).component("karmadaSearch")
    assert settings is not None
    assert settings.replicas == 1
    local = spec_of({"components": {"etcd": {"local": {"replicas": 3}}}}).component("etcd")
    assert local is not None
    assert local.replicas == 3


def test_nothing_can_be_written() -> None:
    labels = {"tier": "prod"}
    spec = spec_of({"members": [{**MEMBER, "labels": labels, "zones": ["a"]}]})
    before = copy.deepcopy(dict(spec.plain))
    (entry,) = spec.members
    for view in (spec, spec.endpoint, entry, Settings({})):
        for name in (*(name for kind, name, _ in ACCESSORS if kind is type(view)), "plain", "made_up"):
            with pytest.raises(AttributeError):
                setattr(view, name, "x")
    with pytest.raises(TypeError):
        entry.labels["tier"] = "test"  # type: ignore[index]
    with pytest.raises(TypeError):
        spec.member_by_name["m2"] = entry  # type: ignore[index]
    assert spec.plain == before


def test_members_are_looked_at_once_and_nothing_is_copied() -> None:
    spec = spec_of({"members": [{"name": f"m{number}", "secretRef": {"name": "s"}} for number in range(3)]})
    assert list(spec.member_by_name) == ["m0", "m1", "m2"]
    assert all(entry.plain is plain for entry, plain in zip(spec.members, spec.plain["members"], strict=True))
    assert all(one is other for one, other in zip(spec.members, spec.member_by_name.values(), strict=True))
