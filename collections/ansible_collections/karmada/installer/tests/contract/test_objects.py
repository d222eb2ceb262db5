# SPDX-License-Identifier: Apache-2.0
"""Everything that we render against a real API server: it is accepted as it is, and a second time nothing changes."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import crd_files
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import Source
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import bootstrap
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import apply_all
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer, running_api_server
from ansible_collections.karmada.installer.tests.unit.support.samples import OPTIONAL, OWNER, SPECS, Rendered, rendered

WRITES = ("apply", "create", "replace", "patch", "delete")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One of our own: the webhooks that are registered here would judge the objects of other tests."""
    with running_api_server(tmp_path_factory.mktemp("objects")) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> Iterator[Cluster]:
    with Cluster.from_kubeconfig(str(server.kubeconfig), name="control plane") as found:
        yield found


def stages() -> dict[str, list[dict[str, Any]]]:
    found = rendered({"components": OPTIONAL})
    crds = crd_files.crds(found.instance.release.karmada, Source("GoModules"))
    addresses = found.addresses
    return {
        "rights": bootstrap.rights(OWNER),
        "foundation": bootstrap.foundation(OWNER, crds, addresses),
        "discovery": bootstrap.discovery(OWNER, addresses),
        "member": [
            registration.namespace_on_member(OWNER),
            *(
                each
                for each in registration.objects_on_member("m1", OWNER, "karmada/prod")
                if each["kind"] == "ServiceAccount"
            ),
        ],
        "member's rights": [
            each
            for each in registration.objects_on_member("m1", OWNER, "karmada/prod")
            if each["kind"] != "ServiceAccount"
        ],
        "aggregation": bootstrap.aggregation(OWNER, addresses, ["karmada-aggregated-apiserver"]),
        "addons": bootstrap.aggregation(OWNER, addresses, ["karmada-search", "karmada-metrics-adapter"]),
        # the last, because nobody answers them here
        "admission": bootstrap.admission(OWNER, addresses),
    }


def test_every_stage_is_accepted_and_the_second_time_changes_nothing(cluster: Cluster) -> None:
    made = stages()
    assert len([each for each in made["foundation"] if each["kind"] == "CustomResourceDefinition"]) == 19
    # as a member has it: the namespace is there before we come, from the foundation
    made["member"].pop(0)
    for name, objects in made.items():
        # the first namespaces have to exist before what is in them
        changes = apply_all(cluster, [each for each in objects if each["kind"] == "Namespace"])
        changes += apply_all(cluster, [each for each in objects if each["kind"] != "Namespace"])
        assert {change.action for change in changes} == {"created"}, name
    before = sum(cluster.counts[verb] for verb in WRITES)
    for name, objects in made.items():
        assert {change.action for change in apply_all(cluster, objects)} == {"unchanged"}, name
    assert sum(cluster.counts[verb] for verb in WRITES) == before


@pytest.fixture(scope="module")
def host(server: ApiServer, cluster: Cluster) -> Cluster:
    """A namespace in which only pods of the strictest level may be, and that warns about any other."""
    for name in ("karmada", "mine"):
        namespace = workloads.namespace(rendered(namespace=name).instance)
        cluster.apply(namespace)
    return cluster


def dry_run(server: ApiServer, each: dict[str, Any]) -> tuple[int, dict[str, Any], list[str]]:
    """Status, answer and warnings of a server-side apply that is not carried out."""
    group = "api/v1" if each["apiVersion"] == "v1" else f"apis/{each['apiVersion']}"
    plural = {"NetworkPolicy": "networkpolicies"}.get(each["kind"], f"{each['kind'].lower()}s")
    namespace, name = each["metadata"]["namespace"], each["metadata"]["name"]
    request = urllib.request.Request(  # noqa: S310
        f"{server.url}/{group}/namespaces/{namespace}/{plural}/{name}"
        "?fieldManager=karmada-installer&force=true&fieldValidation=Strict&dryRun=All",
        json.dumps(each).encode(),
        {"Content-Type": "application/apply-patch+yaml"},
        method="PATCH",
    )
    try:
        with urllib.request.urlopen(request, timeout=30, context=server._tls) as answer:  # noqa: S310
            return answer.status, json.loads(answer.read()), answer.headers.get_all("Warning") or []
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read()), []


CASES: dict[str, Rendered] = {
    **{name: rendered(spec) for name, spec in SPECS.items()},
    "longest name": rendered(name="a" * 39),
}


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("case", CASES)
def test_objects_of_the_host_cluster_are_accepted_without_a_warning(server: ApiServer, case: str) -> None:
    refused = {}
    for each in CASES[case].objects:
        code, answer, warnings = dry_run(server, each)
        if code not in (200, 201) or warnings:
            refused[f"{each['kind']} {each['metadata']['name']}"] = (answer.get("message"), warnings)
    assert refused == {}


@pytest.mark.usefixtures("host")
def test_a_pod_that_is_not_restricted_would_be_warned_of(server: ApiServer) -> None:
    deployment = rendered().one("Deployment", "prod-webhook")
    del deployment["spec"]["template"]["spec"]["securityContext"]
    _, _, warnings = dry_run(server, deployment)
    assert any("restricted" in warning for warning in warnings)


@pytest.mark.usefixtures("host")
def test_objects_of_the_host_cluster_are_left_alone_the_second_time(cluster: Cluster) -> None:
    found = rendered(SPECS["full"], namespace="mine")
    assert {change.action for change in apply_all(cluster, found.objects)} == {"created"}
    assert {change.action for change in apply_all(cluster, found.objects)} == {"unchanged"}
    again = rendered(SPECS["full"], namespace="mine")
    again.material = found.material
    before = sum(cluster.counts[verb] for verb in WRITES)
    assert {change.action for change in apply_all(cluster, again.objects)} == {"unchanged"}
    assert sum(cluster.counts[verb] for verb in WRITES) == before
