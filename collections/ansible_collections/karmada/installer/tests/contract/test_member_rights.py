# SPDX-License-Identifier: Apache-2.0
"""Scoped rights of the control plane on a member, as an API server takes them: what Karmada asks for, and nothing else.

The requests are those of karmada-controller-manager, karmada-metrics-adapter and FederatedHPA in Karmada v1.18.2
(pkg/controllers/status, execution, federatedhpa; pkg/util/objectwatcher; pkg/metricsadapter).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import apply_all
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.kubeconfig import from_parts
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import rights as member_rights
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import member_rights_checks
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer, running_api_server
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER

LISTED = [{"apiGroup": "", "resources": ["configmaps"]}, {"apiGroup": "apps", "resources": ["deployments"]}]
ENTRY = {"name": "m1", "mode": "Push", "scopedRights": LISTED}
RBAC = "rbac.authorization.k8s.io"
VERBS = (
    *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
    *("impersonate", "escalate", "bind", "approve", "sign", "use"),
)
_KEEP = ("get", "list", "watch", "create", "update", "delete")
#: (API group, resource) → what Karmada does with it.
REQUESTS: dict[tuple[str, str], tuple[str, ...]] = {
    # informers of the cluster status controller, of FederatedHPA and of karmada-metrics-adapter
    ("", "nodes"): ("list", "watch"),
    ("", "pods"): ("list", "watch"),
    # the namespace sync controller, by Works
    ("", "namespaces"): _KEEP,
    # the unified auth controller, by Works; it may not succeed with making them
    (RBAC, "clusterroles"): ("get", "list", "watch"),
    (RBAC, "clusterrolebindings"): ("get", "list", "watch"),
    # what is listed: the execution controller, informers of the work status controller; replicas for FederatedHPA
    ("", "configmaps"): _KEEP,
    ("", "configmaps/scale"): ("get",),
    ("apps", "deployments"): _KEEP,
    ("apps", "deployments/scale"): ("get",),
    # karmada-metrics-adapter
    ("metrics.k8s.io", "nodes"): ("get", "list"),
    ("metrics.k8s.io", "pods"): ("get", "list"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One of our own, so that no other test gives this account more."""
    with running_api_server(tmp_path_factory.mktemp("rights")) as found:
        yield found


@pytest.fixture(scope="module")
def admin(server: ApiServer) -> Iterator[Cluster]:
    with Cluster.from_kubeconfig(str(server.kubeconfig), name="member m1") as found:
        yield found


def on_member(entry: dict[str, object]) -> list[dict[str, object]]:
    made = registration.objects_on_member("m1", OWNER, "karmada/prod", rules=member_rights.rules(MemberEntry(entry)))
    # nothing here fills the Secrets with tokens
    return [each for each in made if each["kind"] != "Secret"]


def as_account(server: ApiServer, name: str) -> Cluster:
    """The member as the bearer of this account's token sees it."""
    path = f"/api/v1/namespaces/karmada-cluster/serviceaccounts/{name}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    status, answer = server.request("POST", path, request)
    assert status == 201, answer
    token = answer["status"]["token"]
    return Cluster(from_parts(server.url, ca_pem=server.ca.read_text(), token=token), "member m1")


@pytest.fixture(scope="module")
def karmada(server: ApiServer, admin: Cluster) -> Iterator[Cluster]:
    apply_all(admin, [registration.namespace_on_member(OWNER)])
    apply_all(admin, on_member(ENTRY))
    with as_account(server, registration.account("m1")) as found:
        yield found


def served(admin: Cluster) -> set[tuple[str, str]]:
    """Every resource of this server with its subresources, and those that REQUESTS are about."""
    found = set(REQUESTS) | {("", "users"), ("", "groups"), ("", "serviceaccounts"), ("authentication.k8s.io", "uids")}
    for group in ("", *(each["name"] for each in admin._json("discovery", "GET", "/apis")["groups"])):
        version = "/api/v1" if not group else f"/apis/{group}"
        root = admin._json("discovery", "GET", version)
        if group:
            root = admin._json("discovery", "GET", f"/apis/{root['preferredVersion']['groupVersion']}")
        found |= {(group, each["name"]) for each in root["resources"]}
    return found


def test_the_account_may_do_what_karmada_does_and_nothing_else(admin: Cluster, karmada: Cluster) -> None:
    """Asked of the API server for every resource that it has, one by one. What everybody may do is no matter here."""
    asked = [
        (verb, group, name, None, sub)
        for group, resource in sorted(served(admin))
        for verb in VERBS
        for name, _, sub in [resource.partition("/")]
    ]
    assert len(asked) > 500
    everybody = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
    denied = {(each.verb, each.group, each.resource, each.subresource) for each in karmada.can_i(asked)}
    allowed = {
        (verb, group, f"{name}/{sub}" if sub else name)
        for verb, group, name, _, sub in asked
        if (verb, group, name, sub) not in denied and name not in everybody
    }
    assert allowed == {(verb, *resource) for resource, verbs in REQUESTS.items() for verb in verbs}


@pytest.mark.parametrize("path", ["/readyz", "/version", "/api", "/apis", "/apis/apps/v1", "/api/v1"])
def test_it_sees_whether_the_member_is_well_and_what_it_serves(path: str, karmada: Cluster) -> None:
    assert karmada.get_raw(path)


def test_it_lists_watches_makes_changes_and_removes_what_is_listed(server: ApiServer, karmada: Cluster) -> None:
    path = "/apis/apps/v1/namespaces/spread/deployments"
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "example.com/c"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": pod}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "spread"}}
    assert karmada._json("create", "POST", "/api/v1/namespaces", body=namespace)
    made = karmada._json("create", "POST", path, body=deployment)
    made["spec"]["replicas"] = 2
    karmada._json("update", "PUT", f"{path}/web", body=made)
    assert karmada._json("get", "GET", f"{path}/web/scale")["spec"]["replicas"] == 2
    assert [each["metadata"]["name"] for each in karmada._json("list", "GET", "/apis/apps/v1/deployments")["items"]]
    assert b"ADDED" in karmada.get_raw("/apis/apps/v1/deployments?watch=1&timeoutSeconds=1").encode()
    with pytest.raises(Forbidden):
        karmada.patch_merge("apps/v1", "Deployment", "web", "spread", {"metadata": {"labels": {"x": "y"}}})
    karmada._json("delete", "DELETE", f"{path}/web")
    status, _ = server.request("GET", f"{path}/web")
    assert status == 404


def test_it_cannot_get_more_rights(server: ApiServer, karmada: Cluster) -> None:
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "karmada-impersonator"},
        "rules": [{"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]}],
    }
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
    for each in (role, secret):
        with pytest.raises(Forbidden):
            karmada.create(each)
    for path in ("/api/v1/secrets", "/api/v1/namespaces/karmada-cluster/secrets/karmada-m1", "/metrics", "/logs/"):
        with pytest.raises(Forbidden):
            karmada.get_raw(path)
    with as_account(server, registration.IMPERSONATOR) as impersonator, pytest.raises(Forbidden):
        impersonator.get_raw("/api/v1/nodes")


def test_all_rights_are_given_back_in_place(admin: Cluster, karmada: Cluster) -> None:
    """The last of these tests: the account has them from now on."""
    changed = [change for change in apply_all(admin, on_member({"name": "m1"})) if change.action != "unchanged"]
    assert [(change.action, change.ref.name) for change in changed] == [("changed", registration.role("m1"))]
    assert karmada.can_i([("*", "*", "*"), ("impersonate", "", "users")]) == []


@pytest.mark.parametrize(
    ("group", "resource", "told"),
    [
        ("", "services", None),
        ("apps", "deployments", None),
        ("apps", "deploy", "Write deployments"),
        ("autoscaling", "hpa", "Write horizontalpodautoscalers"),
        ("", "deployments", "no CRD can bring it"),
    ],
)
def test_names_of_resources_as_an_api_server_knows_them(
    group: str, resource: str, told: str | None, admin: Cluster
) -> None:
    listed = [{"apiGroup": group, "resources": [resource]}]
    entry = {"name": "m1", "scopedRights": listed}
    problems = [str(each) for each in member_rights_checks.of_member(MemberEntry(entry), admin, print)]
    assert len(problems) == (told is not None)
    assert told is None or told in problems[0]
