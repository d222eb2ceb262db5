# SPDX-License-Identifier: Apache-2.0
"""Roles and their bindings. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..api_object import Object

GROUP = "rbac.authorization.k8s.io"
API_VERSION = f"{GROUP}/v1"


def role(name: str, rules: Iterable[Object], namespace: str | None = None) -> Object:
    """Role in a namespace, or ClusterRole without one."""
    return {**_of_kind("Role", name, namespace), "rules": [dict(rule) for rule in rules]}


def binding(name: str, role_name: str, subjects: Iterable[Object], namespace: str | None = None) -> Object:
    """RoleBinding in a namespace to a Role there, or ClusterRoleBinding to a ClusterRole without one."""
    referred = {"apiGroup": GROUP, "kind": _kind("Role", namespace), "name": role_name}
    return {**_of_kind("RoleBinding", name, namespace), "roleRef": referred, "subjects": list(subjects)}


def granted(name: str, rules: Iterable[Object], *subjects: Object, namespace: str | None = None) -> list[Object]:
    """Role with these rules, and its binding of the same name to these subjects; ClusterRole without a namespace."""
    return [role(name, rules, namespace), binding(name, name, subjects, namespace)]


def user(name: str) -> Object:
    """User, as a subject of a binding."""
    return {"apiGroup": GROUP, "kind": "User", "name": name}


def groups(names: Sequence[str]) -> list[Object]:
    """Groups, as subjects of a binding."""
    return [{"apiGroup": GROUP, "kind": "Group", "name": name} for name in names]


def _of_kind(kind: str, name: str, namespace: str | None) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": API_VERSION, "kind": _kind(kind, namespace), "metadata": metadata}


def _kind(kind: str, namespace: str | None) -> str:
    return kind if namespace else f"Cluster{kind}"
