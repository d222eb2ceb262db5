# SPDX-License-Identifier: Apache-2.0
"""An overlay does what an API server's own strategic merge does with the same patch."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document import overlay
from ansible_collections.karmada.installer.plugins.plugin_utils.document.overlay import Overlay
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer
from ansible_collections.karmada.installer.tests.unit.support.samples import rendered

Object = dict[str, Any]
MERGE = "application/strategic-merge-patch+json"


def _of_pod(**spec: Any) -> Object:
    return {"spec": {"template": {"spec": spec}}}


def _of_container(**fields: Any) -> Object:
    return _of_pod(containers=[{"name": "karmada-apiserver", **fields}])


PATCHES: dict[str, Object] = {
    "labels": {"metadata": {"labels": {"team": "a"}, "annotations": {"example.com/x": "y"}}},
    "a field of the pod": _of_pod(hostname="odd", terminationGracePeriodSeconds=7),
    "a field taken away": _of_pod(securityContext={"fsGroupChangePolicy": None}),
    "a mapping replaced": _of_pod(securityContext={"$patch": "replace", "runAsUser": 7}),
    "a sidecar": _of_pod(containers=[{"name": "proxy", "image": "example.com/proxy:1"}]),
    "an init container": _of_pod(initContainers=[{"name": "first", "image": "example.com/first:1"}]),
    "a variable": _of_container(env=[{"name": "GODEBUG", "value": "x"}]),
    "a command": _of_container(command=["/bin/other", "--flag"]),
    "a mount and its volume": _of_pod(
        volumes=[{"name": "scratch", "emptyDir": {}}],
        containers=[{"name": "karmada-apiserver", "volumeMounts": [{"mountPath": "/scratch", "name": "scratch"}]}],
    ),
    "a mount moved to another volume": _of_container(
        volumeMounts=[{"mountPath": "/etc/karmada/pki/server", "name": "pki-etcd-client"}]
    ),
    "a mount that goes": _of_container(volumeMounts=[{"mountPath": "/etc/karmada/encryption", "$patch": "delete"}]),
    "a probe": _of_container(livenessProbe={"periodSeconds": 30, "httpGet": {"path": "/healthz", "port": 5443}}),
    "a resize policy": _of_container(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}]),
    "a resource claim": _of_pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}]),
    "a port": _of_container(ports=[{"containerPort": 6060, "name": "pprof"}]),
    "tolerations": _of_pod(tolerations=[{"key": "a", "operator": "Exists"}]),
    "host aliases": _of_pod(hostAliases=[{"ip": "192.0.2.1", "hostnames": ["a.example.com"]}]),
    "spreading": _of_pod(
        topologySpreadConstraints=[
            {"topologyKey": "kubernetes.io/hostname", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}
        ]
    ),
    "a strategy": {"spec": {"minReadySeconds": 5, "strategy": {"rollingUpdate": {"maxSurge": 2}}}},
}


def _content(found: Object) -> Object:
    """What two ways to the same object have in common. Order means nothing in lists that are merged by a key."""
    spec = found["spec"]["template"]["spec"]
    for holder, name, key in (
        (spec, "containers", "name"),
        (spec, "volumes", "name"),
        *((each, "volumeMounts", "mountPath") for each in spec["containers"]),
        *((each, "ports", "containerPort") for each in spec["containers"]),
        *((each, "env", "name") for each in spec["containers"]),
    ):
        if name in holder:
            holder[name].sort(key=lambda entry, key=key: entry[key])
    labels, annotations = (found["metadata"].get(each) for each in ("labels", "annotations"))
    return {"spec": found["spec"], "labels": labels, "annotations": annotations}


@pytest.mark.parametrize("name", PATCHES)
def test_merged_here_as_merged_there(api_server: ApiServer, name: str) -> None:
    target = rendered(namespace="default").one("Deployment", "prod-apiserver")
    patch = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "prod-apiserver"}} | PATCHES[name]
    patch["metadata"] = {"name": "prod-apiserver", **PATCHES[name].get("metadata", {})}
    assert list(overlay.find_problems([target], [Overlay(patch, "")])) == []
    path = "/apis/apps/v1/namespaces/default/deployments"
    (ours,) = overlay.laid_over([target], [Overlay(patch, "")])
    try:
        assert api_server.request("POST", path, target)[0] == 201
        code, theirs = api_server.request("PATCH", f"{path}/prod-apiserver", patch, MERGE)
        assert code == 200, theirs
        api_server.request("DELETE", f"{path}/prod-apiserver")
        code, stored = api_server.request("POST", path, ours)
        assert code == 201, stored
        assert _content(stored) == _content(theirs)
    finally:
        api_server.request("DELETE", f"{path}/prod-apiserver")
