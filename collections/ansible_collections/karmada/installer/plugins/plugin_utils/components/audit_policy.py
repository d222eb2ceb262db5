# SPDX-License-Identifier: Apache-2.0
"""Audit policy of the karmada-apiserver: our default, or the one that the document names. No I/O.

The default logs writes, access to Secrets, and requests that are proxied to members. It never logs bodies, so the
contents of Secrets, ConfigMaps and manifests stay out of the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import yaml

from ..problems import Problem, ProblemsError, Reason
from ..yaml_document import UnreadableError, documents_of
from .spec import Spec

#: Name of the file for the karmada-apiserver, and of the key in the ConfigMap that the document names.
FILE = "policy.yaml"
API_VERSION = "audit.k8s.io/v1"
_LEVELS = ("None", "Metadata", "Request", "RequestResponse")
_STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
_WHERE = "spec.audit.configMapRef"
_invalid = partial(Problem, reason=Reason.INVALID_AUDIT_POLICY)
_READS = ["get", "list", "watch"]
_WRITES = ["create", "update", "patch", "delete", "deletecollection"]
#: Users that are programs of the control plane, by group and by name.
_COMPONENTS: dict[str, list[str]] = {"userGroups": ["system:karmada:components", "system:serviceaccounts:kube-system"]}
_COMPONENT_USERS: dict[str, list[str]] = {"users": ["system:apiserver", "system:kube-controller-manager"]}


def _resources(**groups: list[str]) -> dict[str, Any]:
    """Resources of a rule, by group; ``core`` is the group without a name, and an underscore stands for a dot."""
    return {
        "resources": [
            {"group": "" if group == "core" else group.replace("_", "."), "resources": names}
            for group, names in groups.items()
        ]
    }


#: The first rule that matches a request decides.
POLICY: Mapping[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": "Policy",
    # The later stage logs user, verb, object, time and result.
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        {
            "level": "None",
            "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version", "/api*", "/openapi*", "/metrics"],
        },
        {"level": "None", **_resources(core=["events"], events_k8s_io=["*"], coordination_k8s_io=["leases"])},
        # Objects that grant access, whoever changes them.
        {
            "level": "Metadata",
            "verbs": _WRITES,
            **_resources(
                core=["secrets", "serviceaccounts", "serviceaccounts/token"],
                rbac_authorization_k8s_io=["*"],
                certificates_k8s_io=["*"],
                cluster_karmada_io=["clusters"],
            ),
        },
        # Other writes of components follow from those of people and agents, and are most of the traffic.
        {"level": "None", **_COMPONENTS},
        {"level": "None", **_COMPONENT_USERS},
        # Agents update status every few seconds.
        {"level": "None", **_resources(cluster_karmada_io=["*/status"], work_karmada_io=["*/status"])},
        {"level": "Metadata", "verbs": _WRITES},
        {"level": "Metadata", "verbs": _READS, **_resources(core=["secrets"])},
        # Proxied to a member, with any verb.
        {"level": "Metadata", **_resources(cluster_karmada_io=["clusters/proxy"], search_karmada_io=["proxyings/*"])},
        {"level": "None"},
    ],
}


def files(spec: Spec, config_maps: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """File name → content; empty without audit. Raises ProblemsError for a policy that the API server would refuse."""
    if not spec.audited:
        return {}
    name = spec.audit_policy
    if not name:
        return {FILE: json.dumps(POLICY, indent=1)}
    if problems := list(find_problems(spec, config_maps)):
        raise ProblemsError(problems)
    return {FILE: config_maps[name][FILE]}


def find_problems(spec: Spec, config_maps: Mapping[str, Mapping[str, str]]) -> Iterator[Problem]:
    """Problems of the policy that the document names; the karmada-apiserver would not start with it."""
    name = spec.audit_policy
    if not name or not spec.audited:
        return
    if name not in config_maps:
        yield Problem(
            f"there is no ConfigMap {name}",
            _WHERE,
            "create it in the namespace of the document, or name a directory in the inventory source: "
            f"config_maps: ./config-maps, with the file {name}/{FILE}",
            reason=Reason.CONFIG_MAP_NOT_FOUND,
        )
    elif FILE not in config_maps[name]:
        there = ", ".join(sorted(config_maps[name])) or "none"
        yield Problem(
            f"ConfigMap {name} has no key {FILE} (it has: {there})",
            _WHERE,
            f"put the policy under {FILE}",
            reason=Reason.CONFIG_MAP_NOT_FOUND,
        )
    else:
        yield from _of_text(config_maps[name][FILE], f"{_WHERE}: ConfigMap {name}, {FILE}")


def _of_text(text: str, where: str) -> Iterator[Problem]:
    example = f"Write an audit policy:\n{yaml.safe_dump({**_EXAMPLE}, sort_keys=False).rstrip()}"
    try:
        documents = documents_of(text)
    except UnreadableError as error:
        yield _invalid(error.what, error.place(where), error.remedy)
        return
    policy = documents[0] if len(documents) == 1 else None
    if not isinstance(policy, dict) or (policy.get("apiVersion"), policy.get("kind")) != (API_VERSION, "Policy"):
        yield _invalid(f"is not one Policy of {API_VERSION}", where, example)
        return
    rules = policy.get("rules")
    if not isinstance(rules, list) or not rules:
        yield _invalid("has no rules", where, example)
        return
    yield from _unknown(policy.get("omitStages"), _STAGES, f"{where}: omitStages")
    for index, rule in enumerate(rules):
        place = f"{where}: rules[{index}]"
        if not isinstance(rule, dict):
            yield _invalid("is not a rule", place, "write a mapping with level")
            continue
        yield from _unknown([rule.get("level")], _LEVELS, f"{place}.level")
        yield from _unknown(rule.get("omitStages"), _STAGES, f"{place}.omitStages")
        if rule.get("nonResourceURLs") and (rule.get("resources") or rule.get("namespaces")):
            yield _invalid(
                "has nonResourceURLs beside resources or namespaces", place, "make two rules of it; no request has both"
            )


_EXAMPLE: Mapping[str, Any] = {"apiVersion": API_VERSION, "kind": "Policy", "rules": [{"level": "Metadata"}]}


def _unknown(values: Iterable[Any] | None, known: tuple[str, ...], where: str) -> Iterator[Problem]:
    for value in values or ():
        if value not in known:
            yield _invalid(f"is {value!r}", where, f"write one of {', '.join(known)}")
