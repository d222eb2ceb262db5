# SPDX-License-Identifier: Apache-2.0
"""The table of merged lists is that of a real API server, for every list in the kinds that we make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import merge_keys
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer
from ansible_collections.karmada.installer.tests.contract.test_objects import CASES, stages

Object = dict[str, Any]
PATCH_KEY, MAP_KEYS = "x-kubernetes-patch-merge-key", "x-kubernetes-list-map-keys"
#: Lists that the table has otherwise, because nothing that we make has them.
OTHERWISE = {
    # merged by server-side apply, replaced by a strategic merge patch
    "resources.claims",
    # one value here, merged in a pod
    "ServiceAccount.imagePullSecrets",
}
#: Groups that a kube-apiserver does not serve.
OF_KARMADA = "karmada.io"


@pytest.fixture(scope="module")
def definitions(api_server: ApiServer) -> Object:
    code, document = api_server.request("GET", "/openapi/v2")
    assert code == 200
    found: Object = document["definitions"]
    return found


def kinds() -> set[tuple[str, str, str]]:
    """Group, version and kind of every object that we make and an API server of Kubernetes serves."""
    made = [each for case in CASES.values() for each in case.objects]
    made += [each for stage in stages().values() for each in stage]
    found = set()
    for each in made:
        group, _, version = each["apiVersion"].rpartition("/")
        if not group.endswith(OF_KARMADA):
            found.add((group, version, each["kind"]))
    return found


def lists(definitions: Object, kind: tuple[str, str, str]) -> Iterator[tuple[str, Object]]:
    """Path and schema of each list of objects in a kind, but not of those inside a list that is one value."""
    group, version, name = kind
    wanted = {"group": group, "version": version, "kind": name}
    (root,) = (each for each in definitions.values() if wanted in each.get("x-kubernetes-group-version-kind", []))
    fields = {field: schema for field, schema in root["properties"].items() if field != "status"}
    return _lists(definitions, {"properties": fields}, name, ())


def _lists(definitions: Object, schema: Object, path: str, above: tuple[str, ...]) -> Iterator[tuple[str, Object]]:
    if reference := schema.get("$ref"):
        if reference not in above:  # a schema of schemas, as in a CustomResourceDefinition, has itself inside
            target = definitions[reference.removeprefix("#/definitions/")]
            yield from _lists(definitions, target, path, (*above, reference))
        return
    for field, inner in schema.get("properties", {}).items():
        place = f"{path}.{field}"
        if inner.get("type") != "array":
            yield from _lists(definitions, inner, place, above)
        elif "$ref" in inner["items"]:
            yield place, inner
            if merge_keys.merge_keys(field, entries(place)):
                yield from _lists(definitions, inner["items"], place, above)


def entries(path: str) -> list[Object]:
    """What stands in a list of this path, as far as the table has to see it."""
    return [{"containerPort": 1}] if "ontainers.ports" in path else [{"port": 1}]


def test_the_table_is_what_the_api_server_serves(definitions: Object) -> None:
    compared, merged, wrong = 0, set(), {}
    found = [each for kind in sorted(kinds()) for each in lists(definitions, kind)]
    for path, schema in found:
        if any(path.endswith(each) for each in OTHERWISE):
            continue
        field = path.rpartition(".")[2]
        ours = merge_keys.merge_keys(field, entries(path))
        # The protocol is a key that one who patches need not name.
        theirs = (tuple(schema.get(MAP_KEYS, ())), schema.get(PATCH_KEY))
        compared += 1
        if ours:
            merged.add(field)
        if theirs != ((ours, ours[0]) if ours else ((), None)):
            wrong[path] = (ours, theirs)
    assert wrong == {}
    # Not an empty comparison: pods alone have dozens, and every row of the table was met.
    assert compared > 50
    assert merged == {*merge_keys._KEYS, "ports"}


def test_what_the_table_leaves_out_is_still_otherwise(definitions: Object) -> None:
    found = dict(each for kind in kinds() for each in lists(definitions, kind))
    for name in OTHERWISE:
        (schema, *_) = (each for path, each in found.items() if path.endswith(name))
        keys = merge_keys.merge_keys(name.rpartition(".")[2], [])
        assert (tuple(schema.get(MAP_KEYS, ())), schema.get(PATCH_KEY)) != ((keys, keys[0]) if keys else ((), None))


def test_a_port_that_names_no_protocol_has_that_of_the_table(api_server: ApiServer) -> None:
    code, core = api_server.request("GET", "/openapi/v3/api/v1")
    assert code == 200
    for name in ("ContainerPort", "ServicePort"):
        fields = core["components"]["schemas"][f"io.k8s.api.core.v1.{name}"]["properties"]
        defaults = {key: fields[key]["default"] for key in merge_keys.DEFAULTS if fields[key].get("default")}
        assert defaults == merge_keys.DEFAULTS
