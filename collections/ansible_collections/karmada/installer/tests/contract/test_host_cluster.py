# SPDX-License-Identifier: Apache-2.0
"""Routes by the openshift package's dynamic client, against a real API server that serves them as a CRD."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.endpoint import PASSAGES
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import openshift
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import apply_all, delete_all
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Conflict, Invalid, NotFound
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.host_cluster import HostCluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref, owned_by
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document, passage

CHECKOUT = Path(__file__).resolve().parents[6]
ROUTE = PASSAGES["Route"]
CRD = "routes.route.openshift.io"


def _crd() -> dict[str, Any]:
    site = (CHECKOUT / "molecule/pods_endpoints/objects/site.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = next(each for each in yaml.safe_load_all(site) if each["metadata"]["name"] == CRD)
    return found


@pytest.fixture
def cluster(api_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostCluster]:
    # Of what others on this machine leave in the folder for temporary files, nothing counts.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with HostCluster.from_kubeconfig(str(api_server.kubeconfig), name="host cluster") as found:
        assert isinstance(found, HostCluster)
        yield found


@pytest.fixture
def routes(cluster: HostCluster) -> Iterator[HostCluster]:
    """The same cluster with Routes."""
    cluster.apply(_crd())
    until(lambda: cluster.resource(ROUTE.api_version, ROUTE.kind), "serving the CRD")
    yield cluster
    cluster.delete("apiextensions.k8s.io/v1", "CustomResourceDefinition", CRD)
    # One that is still going takes what the next test applies with it.
    until(lambda: not cluster.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", CRD), "its end")


def test_a_cluster_without_routes_has_none(cluster: HostCluster, namespace: str) -> None:
    assert cluster.get(*ROUTE[:2], "prod-apiserver", namespace) is None
    assert cluster.list(*ROUTE[:2], namespace) == []
    assert cluster.delete(*ROUTE[:2], "prod-apiserver", namespace) is False
    with pytest.raises(NotFound, match="does not have the resource type Route"):
        cluster.apply(passage({"endpoint": {"type": "Route"}}, namespace=namespace))


def test_a_route_from_its_making_to_its_end(
    routes: HostCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    original = openshift.OpenShiftClient.request

    def request(self: Any, method: str, path: str, *arguments: Any, **more: Any) -> Any:
        sent.append(f"{method} /{path.lstrip('/')}")
        return original(self, method, path, *arguments, **more)

    monkeypatch.setattr(openshift.OpenShiftClient, "request", request)
    wanted = passage({"endpoint": {"type": "Route"}}, namespace=namespace)
    assert [change.action for change in apply_all(routes, [wanted], check=True)] == ["created"]
    assert routes.get(*ROUTE[:2], "prod-apiserver", namespace) is None
    (change,) = apply_all(routes, [wanted])
    assert change.action == "created"
    live = routes.get(*ROUTE[:2], "prod-apiserver", namespace)
    assert live
    assert live["spec"]["tls"] == {"termination": "passthrough"}
    assert owned_by(live, OWNER, frozenset()), "made by our field manager"
    assert [change.action for change in apply_all(routes, [wanted])] == ["unchanged"]
    named = passage({"endpoint": {"type": "Route", "host": "karmada.example.com"}}, namespace=namespace)
    (change,) = apply_all(routes, [named])
    assert change.action == "changed"
    assert "karmada.example.com" in change.diff["after"]
    labels = f"installer.karmada.io/owner={OWNER}"
    assert [each["metadata"]["name"] for each in routes.list(*ROUTE[:2], namespace, labels=labels)] == [
        "prod-apiserver"
    ]
    assert [each["kind"] for each in routes.list(*ROUTE[:2])] == ["Route"]
    assert routes.list(*ROUTE[:2], namespace, labels="installer.karmada.io/owner=another") == []
    with pytest.raises(Conflict):
        routes.delete(*ROUTE[:2], "prod-apiserver", namespace, uid="another")
    (change,) = delete_all(routes, [(Ref.of(live), live["metadata"]["uid"])])
    assert change.action == "deleted"
    assert routes.get(*ROUTE[:2], "prod-apiserver", namespace) is None
    path = f"/apis/route.openshift.io/v1/namespaces/{namespace}/routes/prod-apiserver"
    assert {f"{method} {path}" for method in ("get", "patch", "delete")} <= set(sent), "by the package's client"


def test_fields_that_the_server_does_not_know_are_refused(routes: HostCluster, namespace: str) -> None:
    wanted = passage({"endpoint": {"type": "Route"}}, namespace=namespace)
    with pytest.raises(Invalid, match="terminaton"):
        routes.apply({**wanted, "spec": {**wanted["spec"], "tls": {"terminaton": "passthrough"}}})


def test_what_was_discovered_is_in_no_file_that_others_can_guess(routes: HostCluster, namespace: str) -> None:
    routes.list(*ROUTE[:2], namespace)
    temporary = Path(tempfile.gettempdir())
    assert [each.name for each in temporary.glob("karmada-installer-*/discovered.json")] == []
    assert list(temporary.glob("osrcp-*.json")) == []


# -- how it is named ---------------------------------------------------------------------------------------------------


def token_of(cluster: HostCluster, namespace: str) -> str:
    """The token of an account that may do nothing but what everybody may."""
    cluster.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "us", "namespace": namespace}})
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [cluster.server], "expirationSeconds": 3600},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/us/token"
    answer = json.loads(cluster._request("create", "POST", path, body=request).data)
    return str(answer["status"]["token"])


@pytest.mark.parametrize("form", ["kubeconfig", "token"])
def test_each_form_of_the_secret_of_a_host_cluster_leads_there_as_who_it_says(
    api_server: Any, cluster: HostCluster, namespace: str, form: str, tmp_path: Path
) -> None:
    folder = tmp_path / "host"
    folder.mkdir()
    if form == "kubeconfig":
        (folder / "kubeconfig").write_text(api_server.kubeconfig_for_secret())
    else:
        (folder / "server").write_text(f"{api_server.url}\n")
        (folder / "token").write_text(f"{token_of(cluster, namespace)}\n")
        (folder / "ca.crt").write_bytes(api_server.ca.read_bytes())
    run = Run(
        document({"hostCluster": {"secretRef": {"name": "host"}}}, namespace=namespace),
        Connection(secrets=str(tmp_path)),
        operation="preflight",
        holder="test",
        check=True,
        say=lambda _: None,
    )
    try:
        assert isinstance(run.host_cluster, HostCluster)
        assert run.host_cluster.version()["major"] == "1"
        assert bool(run.host_cluster.can_i([("get", "", "secrets", namespace)])) == (form == "token")
    finally:
        run.close()
