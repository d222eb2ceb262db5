# SPDX-License-Identifier: Apache-2.0
"""What stands inside a control plane. The expected tables are written down from Karmada v1.18's artifacts/deploy;
``contract/test_upstream.py`` compares with these files themselves.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    AGGREGATED_SERVERS,
    COMPONENT_GROUP,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import Addresses
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import bootstrap as wanted

ADDRESSES = Addresses(
    webhook_url="https://prod-webhook.karmada.svc.cluster.local:443",
    aggregated={
        name: (f"prod-{name.removeprefix('karmada-')}.karmada.svc.cluster.local", 443) for name in AGGREGATED_SERVERS
    },
    public_url="https://karmada.example.com:32443",
    ca_bundle=b"authority",
)
BUNDLE = base64.b64encode(b"authority").decode()
CRDS: list[dict[str, Any]] = [
    {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}.karmada.io", "annotations": {"a": "b"}},
        "spec": {"group": "karmada.io"},
        "status": {"storedVersions": []},
    }
    for name in ("works.work", "resourcebindings.work", "clusterresourcebindings.work", "propagationpolicies.policy")
]

# type, name, path, operations, group/resource, scope
WEBHOOKS = """
M propagationpolicy.karmada.io /mutate-propagationpolicy C,U policy.karmada.io/propagationpolicies N
M clusterpropagationpolicy.karmada.io /mutate-clusterpropagationpolicy C,U policy.karmada.io/clusterpropagationpolicies C
M overridepolicy.karmada.io /mutate-overridepolicy C,U policy.karmada.io/overridepolicies N
M resourcebinding.karmada.io /mutate-resourcebinding C work.karmada.io/resourcebindings N
M clusterresourcebinding.karmada.io /mutate-clusterresourcebinding C work.karmada.io/clusterresourcebindings C
M work.karmada.io /mutate-work C,U work.karmada.io/works N
M autoscaling.karmada.io /mutate-federatedhpa C,U autoscaling.karmada.io/federatedhpas N
M multiclusterservice.karmada.io /mutate-multiclusterservice C,U networking.karmada.io/multiclusterservices N
V propagationpolicy.karmada.io /validate-propagationpolicy C,U policy.karmada.io/propagationpolicies N
V clusterpropagationpolicy.karmada.io /validate-clusterpropagationpolicy C,U policy.karmada.io/clusterpropagationpolicies C
V overridepolicy.karmada.io /validate-overridepolicy C,U policy.karmada.io/overridepolicies N
V clusteroverridepolicy.karmada.io /validate-clusteroverridepolicy C,U policy.karmada.io/clusteroverridepolicies C
V config.karmada.io /validate-resourceinterpreterwebhookconfiguration C,U config.karmada.io/resourceinterpreterwebhookconfigurations C
V resourceinterpretercustomization.karmada.io /validate-resourceinterpretercustomization C,U config.karmada.io/resourceinterpretercustomizations C
V federatedresourcequota.karmada.io /validate-federatedresourcequota C,U policy.karmada.io/federatedresourcequotas N
V multiclusteringress.karmada.io /validate-multiclusteringress C,U networking.karmada.io/multiclusteringresses N
V federatedhpa.karmada.io /validate-federatedhpa C,U autoscaling.karmada.io/federatedhpas N
V cronfederatedhpa.karmada.io /validate-cronfederatedhpa C,U autoscaling.karmada.io/cronfederatedhpas N
V multiclusterservice.karmada.io /validate-multiclusterservice C,U networking.karmada.io/multiclusterservices N
V resourcedeletionprotection.karmada.io /validate-resourcedeletionprotection D */* all
V resourcebinding.karmada.io /validate-resourcebinding C,U work.karmada.io/resourcebindings N
V clustertaintpolicy.karmada.io /validate-clustertaintpolicy C,U policy.karmada.io/clustertaintpolicies C
"""  # noqa: E501
OPERATIONS = {"CREATE": "C", "UPDATE": "U", "DELETE": "D"}
SCOPES = {"Namespaced": "N", "Cluster": "C", "*": "all"}


def everything() -> list[dict[str, Any]]:
    return [
        *wanted.rights("me"),
        *wanted.foundation("me", CRDS, ADDRESSES),
        *wanted.aggregation("me", ADDRESSES, AGGREGATED_SERVERS),
        *wanted.admission("me", ADDRESSES),
        *wanted.discovery("me", ADDRESSES),
    ]


def one(kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in everything() if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def rows() -> list[str]:
    found = []
    for letter, kind, name in (("M", "Mutating", "mutating-config"), ("V", "Validating", "validating-config")):
        for hook in one(f"{kind}WebhookConfiguration", name)["webhooks"]:
            (rule,) = hook["rules"]
            assert len(rule["apiGroups"]) == len(rule["resources"]) == 1
            path = hook["clientConfig"]["url"].removeprefix(ADDRESSES.webhook_url)
            operations = ",".join(OPERATIONS[each] for each in rule["operations"])
            resource = f"{rule['apiGroups'][0]}/{rule['resources'][0]}"
            found.append(f"{letter} {hook['name']} {path} {operations} {resource} {SCOPES[rule['scope']]}")
    return found


def test_all_22_webhooks_are_registered() -> None:
    assert sorted(rows()) == sorted(WEBHOOKS.strip().splitlines())
    assert len(rows()) == 22


def test_every_webhook_fails_closed_and_verifies_whom_it_asks() -> None:
    for kind, name in (("Mutating", "mutating-config"), ("Validating", "validating-config")):
        for hook in one(f"{kind}WebhookConfiguration", name)["webhooks"]:
            assert hook["failurePolicy"] == "Fail"
            assert hook["clientConfig"]["caBundle"] == BUNDLE
            assert hook["admissionReviewVersions"] == ["v1"]
            assert hook["rules"][0]["apiVersions"] == ["*"]
            custom = hook["name"] == "resourceinterpretercustomization.karmada.io"
            assert hook["timeoutSeconds"] == (10 if custom else 3)
            dry = kind == "Validating" and hook["name"] == "resourcebinding.karmada.io"
            assert hook["sideEffects"] == ("NoneOnDryRun" if dry else "None")


def test_only_what_is_labelled_is_protected_from_deletion() -> None:
    """Without its selector this webhook would be asked for every deletion of anything."""
    hooks = one("ValidatingWebhookConfiguration", "validating-config")["webhooks"]
    selected = {hook["name"]: hook["objectSelector"] for hook in hooks if "objectSelector" in hook}
    key = "resourcetemplate.karmada.io/deletion-protected"
    assert selected == {
        "resourcedeletionprotection.karmada.io": {"matchExpressions": [{"key": key, "operator": "Exists"}]}
    }


def test_only_the_two_bindings_are_converted() -> None:
    found = {crd["metadata"]["name"]: crd["spec"].get("conversion") for crd in wanted.with_conversion(CRDS, ADDRESSES)}
    converted = {name for name, conversion in found.items() if conversion}
    assert converted == {"resourcebindings.work.karmada.io", "clusterresourcebindings.work.karmada.io"}
    webhook = found["resourcebindings.work.karmada.io"]["webhook"]
    assert webhook["clientConfig"] == {"url": f"{ADDRESSES.webhook_url}/convert", "caBundle": BUNDLE}
    assert webhook["conversionReviewVersions"] == ["v1"]


def test_crds_of_the_publisher_are_not_changed_in_place() -> None:
    before = yaml.safe_dump(CRDS)
    made = wanted.foundation("me", CRDS, ADDRESSES)
    assert yaml.safe_dump(CRDS) == before
    assert not [each for each in made if "status" in each]
    crd = next(each for each in made if each["kind"] == "CustomResourceDefinition")
    assert crd["metadata"]["annotations"] == {"a": "b"}


def test_everything_is_labelled_as_ours_and_nothing_is_there_twice() -> None:
    seen = set()
    for each in everything():
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "karmada-installer"
        assert labels["installer.karmada.io/owner"] == "me"
        key = (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        assert key not in seen
        seen.add(key)


def test_namespaces_that_components_need_first() -> None:
    namespaces = {each["metadata"]["name"]: each for each in everything() if each["kind"] == "Namespace"}
    assert set(namespaces) == {"karmada-system", "karmada-cluster"}
    assert all(each["metadata"]["labels"]["karmada.io/system"] == "true" for each in namespaces.values())


def test_the_aggregated_api_is_found_by_name_and_verified() -> None:
    spec = one("APIService", "v1alpha1.cluster.karmada.io")["spec"]
    assert spec["caBundle"] == BUNDLE
    assert "insecureSkipTLSVerify" not in spec
    assert (spec["groupPriorityMinimum"], spec["versionPriority"]) == (2000, 10)
    reference = spec["service"]
    assert reference == {"name": "karmada-aggregated-apiserver", "namespace": "karmada-system", "port": 443}
    service = one("Service", reference["name"])
    assert service["metadata"]["namespace"] == reference["namespace"]
    assert service["spec"] == {
        "type": "ExternalName",
        "externalName": "prod-aggregated-apiserver.karmada.svc.cluster.local",
    }


#: As in Karmada v1.18's artifacts/deploy and charts: name, component, priorities of group and version.
REGISTRATIONS = {
    "v1alpha1.cluster.karmada.io": ("karmada-aggregated-apiserver", 2000, 10),
    "v1alpha1.search.karmada.io": ("karmada-search", 2000, 10),
    "v1beta1.metrics.k8s.io": ("karmada-metrics-adapter", 2000, 10),
    "v1beta1.custom.metrics.k8s.io": ("karmada-metrics-adapter", 100, 200),
    "v1beta2.custom.metrics.k8s.io": ("karmada-metrics-adapter", 100, 200),
}


def test_every_aggregated_api_is_registered_with_the_component_that_serves_it() -> None:
    found = {
        each["metadata"]["name"]: (
            each["spec"]["service"]["name"],
            each["spec"]["groupPriorityMinimum"],
            each["spec"]["versionPriority"],
        )
        for each in everything()
        if each["kind"] == "APIService"
    }
    assert found == REGISTRATIONS
    for each in everything():
        if each["kind"] == "APIService":
            spec = each["spec"]
            assert each["metadata"]["name"] == f"{spec['version']}.{spec['group']}"
            assert spec["caBundle"] == BUNDLE
            assert one("Service", spec["service"]["name"])["spec"]["type"] == "ExternalName"


def test_what_is_not_wanted_is_not_registered_and_has_no_service() -> None:
    few = replace(ADDRESSES, aggregated={"karmada-aggregated-apiserver": ("a.example.com", 443)})
    services = {each["metadata"]["name"] for each in wanted.foundation("me", CRDS, few) if each["kind"] == "Service"}
    assert services == {"karmada-aggregated-apiserver"}
    (found,) = wanted.aggregation("me", few, ["karmada-aggregated-apiserver"])
    assert found["metadata"]["name"] == "v1alpha1.cluster.karmada.io"


@pytest.mark.parametrize("component", [*AGGREGATED_SERVERS, "karmada-descheduler", "karmada-scheduler"])
def test_what_a_component_has_here_is_what_was_made_for_it(component: str) -> None:
    """Else switching it off would leave something behind, or take away what others need."""
    without = replace(
        ADDRESSES, aggregated={name: at for name, at in ADDRESSES.aggregated.items() if name != component}
    )
    made = {
        (each["apiVersion"], each["kind"], each["metadata"]["name"], each["metadata"].get("namespace"))
        for each in everything()
    }
    left = {
        (each["apiVersion"], each["kind"], each["metadata"]["name"], each["metadata"].get("namespace"))
        for each in (
            *wanted.rights("me"),
            *wanted.foundation("me", CRDS, without),
            *wanted.aggregation("me", without, list(without.aggregated)),
            *wanted.admission("me", without),
            *wanted.discovery("me", without),
        )
    }
    assert set(wanted.of_component(component)) == made - left


# -- rights ------------------------------------------------------------------------------------------------------------

TOKENS = "system:bootstrappers:karmada:default-cluster-token"
BINDINGS: dict[str, tuple[str, ...]] = {
    "system:karmada:administrators": (
        "cluster-admin",
        "Group system:karmada:administrators",
        # Karmada lets through to members who is bound by name, too
        "User system:admin",
    ),
    "system:karmada:agent-autoapprove-certificate-rotation": (
        "system:karmada:certificatesigningrequest:selfautoapprover",
        "Group system:karmada:agents",
    ),
    # ours: upstream puts its components into system:masters instead
    "system:karmada:components": ("cluster-admin", f"Group {COMPONENT_GROUP}"),
}
#: The same where clusters may register themselves.
REGISTRATION: dict[str, tuple[str, ...]] = {
    "system:karmada:agent-bootstrap": ("system:node-bootstrapper", f"Group {TOKENS}"),
    "system:karmada:agent-autoapprove-bootstrap": (
        "system:karmada:certificatesigningrequest:autoapprover",
        f"Group {TOKENS}",
    ),
    "system:karmada:agent-rbac-generator": (
        "system:karmada:agent-rbac-generator",
        "User system:karmada:agent:rbac-generator",
    ),
}


def bindings(objects: list[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
    return {
        each["metadata"]["name"]: (
            each["roleRef"]["name"],
            *(f"{subject['kind']} {subject['name']}" for subject in each["subjects"]),
        )
        for each in objects
        if each["kind"] == "ClusterRoleBinding"
    }


def test_who_may_do_what_in_the_whole_control_plane() -> None:
    assert bindings(everything()) == BINDINGS


def test_what_registration_gives_besides_is_apart_from_all_else() -> None:
    objects = wanted.registration("me")
    assert bindings(objects) == REGISTRATION
    assert {each["kind"] for each in objects} == {"ClusterRole", "ClusterRoleBinding"}
    keys = {(each["kind"], each["metadata"]["name"]) for each in objects}
    assert keys.isdisjoint((each["kind"], each["metadata"]["name"]) for each in everything())
    assert {each["metadata"]["labels"]["installer.karmada.io/owner"] for each in objects} == {"me"}


def test_what_earlier_versions_gave_and_nobody_is_to_have_is_not_given_again() -> None:
    made = {
        (each["apiVersion"], each["kind"], each["metadata"]["name"], each["metadata"].get("namespace"))
        for each in (*everything(), *wanted.registration("me"))
    }
    assert made.isdisjoint(wanted.FORMER_RIGHTS)


def test_every_bound_role_exists() -> None:
    built_in = {"cluster-admin", "system:node-bootstrapper"}
    objects = [*everything(), *wanted.registration("me")]
    roles = {each["metadata"]["name"] for each in objects if each["kind"] == "ClusterRole"}
    assert {role for role, *_ in (*BINDINGS.values(), *REGISTRATION.values())} - built_in <= roles


def test_nobody_without_a_name_reads_more_than_where_to_register() -> None:
    open_to_all = [
        each
        for each in everything()
        for subject in each.get("subjects", ())
        if subject["name"] in ("system:anonymous", "system:unauthenticated", "system:authenticated")
    ]
    (binding,) = open_to_all
    assert (binding["kind"], binding["metadata"]["namespace"]) == ("RoleBinding", "kube-public")
    role = one("Role", binding["roleRef"]["name"])
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"]}
    ]


@pytest.mark.parametrize(
    ("name", "verbs"),
    [
        ("view", {"get", "list", "watch"}),
        ("edit", {"create", "delete", "deletecollection", "patch", "update"}),
    ],
)
def test_users_of_a_namespace_get_rights_by_aggregation(name: str, verbs: set[str]) -> None:
    role = one("ClusterRole", f"karmada-{name}")
    aggregation = {key for key in role["metadata"]["labels"] if "aggregate-to" in key}
    assert aggregation == {f"rbac.authorization.k8s.io/aggregate-to-{name}"}
    granted = {
        f"{group}/{resource}": set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert all(each == verbs for each in granted.values())
    assert granted.keys() >= {
        "policy.karmada.io/propagationpolicies",
        "work.karmada.io/works/status",
        "multicluster.x-k8s.io/serviceexports",
    }
    assert not [each for each in granted if "clusterpropagationpolicies" in each or "*" in each or "secrets" in each]


def test_where_to_register_is_a_kubeconfig_without_a_user() -> None:
    config = yaml.safe_load(one("ConfigMap", "cluster-info")["data"]["kubeconfig"])
    assert set(config) == {"apiVersion", "kind", "clusters"}
    assert config["clusters"] == [
        {"name": "", "cluster": {"certificate-authority-data": BUNDLE, "server": ADDRESSES.public_url}}
    ]
