# SPDX-License-Identifier: Apache-2.0
"""Commands of the guide for AWX that make the account of a credential, carried out as they are written.

What they leave is what an administrator types into AWX: it has to be enough for a job, and no more than the page of
rights says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import account_rights
from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT, ApiServer
from ansible_collections.karmada.installer.tests.contract.pasted_commands import User, block

GUIDE, RIGHTS = CHECKOUT / "docs/guides/awx.md", CHECKOUT / "docs/reference/host-rights.yaml"
NAMESPACE, OTHER = "karmada-prod", "somebody-elses"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
#: (verb, API group, resource, name; None for any).
Right = tuple[str, str, str, str | None]


@pytest.fixture
def user(empty_api_server: ApiServer, tmp_path: Path) -> User:
    """An administrator who has the kubeconfig of the member, and has pasted what the guide has of the account."""
    found = User(empty_api_server, tmp_path / "checkout", "docs")
    (found.folder / "member1.kubeconfig").write_text(empty_api_server.kubeconfig_for_secret(), encoding="utf-8")
    found.runs(block(GUIDE, "shell", "docs/reference/host-rights.yaml"))
    shown = found.runs(block(GUIDE, "shell", "create token"))
    assert shown.splitlines()[-1].split()[:2] == ["member1", "Opaque"], "the last command shows that the account works"
    return found


def rights_of(rules: Iterable[Mapping[str, Any]]) -> set[Right]:
    """Rights that rules of RBAC, or of a review, give."""
    return {
        (verb, group, resource, name)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames") or [None]
    }


def rights_in(user: User, namespace: str, more: str = "") -> set[Right]:
    """Rights in a namespace of the account in the kubeconfig; of another one with its token as an option."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    (user.folder / "review.json").write_text(json.dumps(review), encoding="utf-8")
    command = f"kubectl --kubeconfig awx.kubeconfig {more} create --raw {REVIEWS} --filename review.json"
    status = json.loads(user.runs(command))["status"]
    assert not status["incomplete"], status
    return rights_of(status["resourceRules"])


def granted(kind: str) -> set[Right]:
    """Rights that the page of rights has in a Role or a ClusterRole, for the namespace of the guide."""
    text = RIGHTS.read_text(encoding="utf-8").replace("karmada-system", NAMESPACE)
    (found,) = (each for each in yaml.safe_load_all(text) if each["kind"] == kind)
    return rights_of(found["rules"])


def test_the_kubeconfig_of_the_guide_is_enough_for_a_job(user: User) -> None:
    with Cluster.from_kubeconfig(str(user.folder / "awx.kubeconfig"), name="host cluster") as cluster:
        assert cluster.can_i(account_rights.in_namespace(NAMESPACE)) == []
        assert [each["metadata"]["name"] for each in cluster.list("v1", "Secret", NAMESPACE)] == ["member1"]
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "prod-state", "namespace": NAMESPACE}}
        cluster.apply(made)
        assert cluster.get("v1", "Secret", "prod-state", NAMESPACE) is not None


def test_it_may_do_what_the_page_of_rights_says_and_nothing_else(user: User, empty_api_server: ApiServer) -> None:
    user.runs(f"kubectl create namespace {OTHER} && kubectl create serviceaccount nobody --namespace {OTHER}")
    nobody = f'--token="$(kubectl create token nobody --namespace {OTHER})"'
    of_all = rights_in(user, NAMESPACE, nobody)
    assert of_all == rights_in(user, OTHER, nobody), "what everybody may, who is known"
    everywhere, here = granted("ClusterRole"), granted("Role")
    assert rights_in(user, NAMESPACE) - of_all == everywhere | here
    assert rights_in(user, OTHER) - of_all == everywhere
    secret = {"metadata": {"name": "theirs"}, "data": {}}
    assert empty_api_server.request("POST", f"/api/v1/namespaces/{OTHER}/secrets", secret)[0] == 201
    with Cluster.from_kubeconfig(str(user.folder / "awx.kubeconfig"), name="host cluster") as cluster:
        with pytest.raises(Forbidden):
            cluster.get("v1", "Secret", "theirs", OTHER)
        with pytest.raises(Forbidden):
            cluster.list("v1", "Secret")


def test_it_has_all_that_it_names_inside_and_nothing_of_the_administrator(
    user: User, empty_api_server: ApiServer
) -> None:
    """A job has neither files of the administrator's machine nor programs for a login."""
    file = user.folder / "awx.kubeconfig"
    assert file.stat().st_mode & 0o777 == 0o600
    assert not (user.folder / "admin.kubeconfig").exists()
    text = file.read_text(encoding="utf-8")
    config = yaml.safe_load(text)
    (cluster,), (account,), (context,) = config["clusters"], config["users"], config["contexts"]
    assert set(cluster["cluster"]) == {"server", "certificate-authority-data"}
    assert (account["name"], set(account["user"])) == ("karmada-installer", {"token"})
    assert context["context"]["user"] == "karmada-installer"
    assert config["current-context"] == context["name"]
    assert str(empty_api_server.directory) not in text
