# SPDX-License-Identifier: Apache-2.0
"""Our reading of the Pod Security Standards against the admission of a real kube-apiserver, setting by setting."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import pod_security
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer
from ansible_collections.karmada.installer.tests.unit.support.samples import EVERYTHING, pods, rendered

Pod = dict[str, Any]

GOOD: Pod = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": "example.com/image",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}
_PROBE = {"httpGet": {"host": "192.0.2.1", "port": 80}}
#: What is laid over the pod, and over its container.
VARIANTS: dict[str, tuple[Pod, Pod]] = {
    "nothing": ({}, {}),
    "host network": ({"hostNetwork": True}, {}),
    "host pid": ({"hostPID": True}, {}),
    "host ipc": ({"hostIPC": True}, {}),
    "host path": ({"volumes": [{"name": "v", "hostPath": {"path": "/srv"}}]}, {}),
    "nfs": ({"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]}, {}),
    "empty dir": ({"volumes": [{"name": "v", "emptyDir": {}}]}, {}),
    "user 0": ({"securityContext": {"runAsUser": 0}}, {}),
    "may be root": ({"securityContext": {"runAsNonRoot": False}}, {}),
    "safe sysctl": ({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}}, {}),
    "other sysctl": ({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}, {}),
    "unconfined": ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, {}),
    "no profile": ({"securityContext": {"seccompProfile": None}}, {}),
    "apparmor": ({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, {}),
    "selinux type": ({"securityContext": {"seLinuxOptions": {"type": "container_t"}}}, {}),
    "other selinux type": ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, {}),
    "selinux user": ({"securityContext": {"seLinuxOptions": {"user": "system_u"}}}, {}),
    "privileged": ({}, {"securityContext": {"privileged": True, "allowPrivilegeEscalation": True}}),
    "escalation": ({}, {"securityContext": {"allowPrivilegeEscalation": True}}),
    "escalation not said": ({}, {"securityContext": {"allowPrivilegeEscalation": None}}),
    "keeps capabilities": ({}, {"securityContext": {"capabilities": {"drop": ["CHOWN"]}}}),
    "binds low ports": ({}, {"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}}),
    "changes owners": ({}, {"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}}),
    "administers": ({}, {"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}}),
    "own user 0": ({}, {"securityContext": {"runAsUser": 0}}),
    "own may be root": ({}, {"securityContext": {"runAsNonRoot": False}}),
    "own unconfined": ({}, {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
    "host port": ({}, {"ports": [{"containerPort": 80, "hostPort": 8080}]}),
    "port": ({}, {"ports": [{"containerPort": 80}]}),
    "probe elsewhere": ({}, {"livenessProbe": _PROBE}),
    "hook elsewhere": ({}, {"lifecycle": {"preStop": _PROBE}}),
}


def laid_over(below: Pod, above: Pod) -> Pod:
    """``above`` over ``below``; None takes a field away."""
    merged = copy.deepcopy(below)
    for key, value in above.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = laid_over(merged[key], value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


@pytest.fixture(scope="module")
def levels(api_server: ApiServer) -> Iterator[ApiServer]:
    """A namespace for each level."""
    for level in pod_security.LEVELS:
        labels = {pod_security.ENFORCE_LABEL: level}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"level-{level}", "labels": labels}}
        status, answer = api_server.request("POST", "/api/v1/namespaces", body)
        assert status == 201, answer
    yield api_server
    for level in pod_security.LEVELS:
        api_server.request("DELETE", f"/api/v1/namespaces/level-{level}")


def is_admitted(server: ApiServer, spec: Pod, level: str) -> bool:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}
    status, answer = server.request("POST", f"/api/v1/namespaces/level-{level}/pods?dryRun=All", body)
    assert status in (201, 403), answer["message"]
    assert status == 201 or "violates PodSecurity" in answer["message"], answer
    return status == 201


@pytest.mark.parametrize("level", pod_security.LEVELS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_verdict_is_that_of_the_api_server(levels: ApiServer, variant: str, level: str) -> None:
    over_pod, over_container = VARIANTS[variant]
    spec = laid_over(GOOD, over_pod)
    spec["containers"] = [laid_over(spec["containers"][0], over_container)]
    found = pod_security.violations(spec, level)
    assert is_admitted(levels, spec, level) == (not found), found


def test_every_pod_that_we_render_is_admitted_at_the_strictest_level(levels: ApiServer) -> None:
    for component, template in pods(rendered(EVERYTHING).objects).items():
        # The StatefulSet's controller adds the claim for etcd's data; a claim is allowed at every level.
        spec = laid_over(template["spec"], {})
        spec["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "data"}})
        assert is_admitted(levels, spec, pod_security.RESTRICTED), component
