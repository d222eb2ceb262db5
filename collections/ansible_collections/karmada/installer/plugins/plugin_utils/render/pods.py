# SPDX-License-Identifier: Apache-2.0
"""Pods of a component: containers, mounts, probes, spread, and settings of the document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..api_object import Object
from ..components import image_pins
from ..components.instance import Instance
from ..components.table import enabled_file_sets
from ..components.types import Component, Health, image_pull_secrets, settings_of
from .cluster_layout import BASE

#: Not root, and not used by any distribution.
USER_ID = 65532
CONFIG_HASH_ANNOTATION = "installer.karmada.io/config-hash"
#: Number of restarts that pods needed without a change of their own.
RESTARTS_ANNOTATION = "installer.karmada.io/restarts"
#: Settings with the same form in the document and in a pod.
_POD_SETTINGS = ("affinity", "nodeSelector", "priorityClassName", "tolerations")


def workload_metadata(instance: Instance, component: Component) -> Object:
    """Metadata of a workload, with the document's labels and annotations, which its pods have, too."""
    settings = settings_of(component, instance.spec)
    metadata = instance.metadata(component.row, instance.object_name(component.name), component.member)
    metadata["labels"] = {**settings.labels, **metadata["labels"]}
    if settings.annotations:
        metadata["annotations"] = dict(settings.annotations)
    return metadata


def config_files(instance: Instance, component: Component) -> dict[str, tuple[str, dict[str, str]]]:
    """Directory → name and content of the component's files without secrets."""
    found = {
        files.directory: (files.name, files.contents(instance.spec, instance.config_maps))
        for files in component.config_files
    }
    return {directory: (name, content) for directory, (name, content) in found.items() if content}


def once(metadata: Object, like: Mapping[str, Any], **own: Any) -> Object:
    """Pod that ends by itself and goes at once where it is deleted: with this spec of others, and fields of its own."""
    spec = {**like, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **own}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod_template(instance: Instance, component: Component, config_hash: str, flags: list[str]) -> Object:
    settings = settings_of(component, instance.spec)
    file_sets = enabled_file_sets(component, instance.spec)
    plain_files = config_files(instance, component)
    ports = component.listens(instance.spec)
    container: Object = {
        "name": component.row,
        "image": image_pins.reference(instance, component),
        "imagePullPolicy": settings.image_pull_policy or instance.spec.images.pull_policy,
        "command": [component.binary, *flags],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": _volume_name(directory), "mountPath": f"{BASE}/{directory}", "readOnly": True}
            for directory in (*(files.directory for files in file_sets), *plain_files)
        ],
        **_probes(component.health, ports),
    }
    if settings.resources:
        container["resources"] = dict(settings.resources)
    if settings.extra_env:
        container["env"] = list(settings.extra_env)
    container["volumeMounts"] += settings.extra_volume_mounts
    pod: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "securityContext": {
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "runAsGroup": USER_ID,
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [
            {
                "name": _volume_name(files.directory),
                "secret": {"secretName": instance.object_name(files.name), "defaultMode": 0o440},
            }
            for files in file_sets
        ]
        + [
            {"name": _volume_name(directory), "configMap": {"name": instance.object_name(name)}}
            for directory, (name, _) in plain_files.items()
        ]
        + list(settings.extra_volumes),
        "topologySpreadConstraints": list(settings.topology_spread_constraints) or [_spread(instance, component)],
        **{key: settings.plain[key] for key in _POD_SETTINGS if settings.plain.get(key)},
    }
    pod["securityContext"].update(settings.security_context)
    if secrets := image_pull_secrets(component, instance.spec):
        pod["imagePullSecrets"] = [{"name": name} for name in secrets]
    restarts = instance.restarts.get(component.row)
    return {
        "metadata": {
            "labels": {**settings.labels, **instance.labels(component.row, component.member)},
            "annotations": {
                **settings.annotations,
                CONFIG_HASH_ANNOTATION: config_hash,
                **({RESTARTS_ANNOTATION: str(restarts)} if restarts else {}),
            },
        },
        "spec": pod,
    }


def _spread(instance: Instance, component: Component) -> Object:
    """Constraint for an even spread over nodes. Anti-affinity would only break ties between nodes."""
    spread: Object = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": instance.selector(component.row, component.member)},
        # Otherwise a node whose taint keeps the pods away would count as empty, and all others as too full.
        "nodeTaintsPolicy": "Honor",
    }
    if component.peer_ports:
        # Two members on one node fail together, so they share a node only if there are fewer nodes than members.
        return {**spread, "whenUnsatisfiable": "DoNotSchedule"}
    # In a rollout the old pods do not count, or the new ones would be spread around them.
    return {**spread, "whenUnsatisfiable": "ScheduleAnyway", "matchLabelKeys": ["pod-template-hash"]}


def _volume_name(directory: str) -> str:
    return directory.replace("/", "-")


def _probes(health: Health, ports: Mapping[str, int]) -> dict[str, Object]:
    """Probes with short periods while a start is awaited, and long ones for a running process."""

    def get(path: str) -> Object:
        return {"path": path, "port": ports[health.port], "scheme": health.scheme.value}

    opens = ports.get(health.opens_when_ready)
    ready: Object = {"httpGet": get(health.ready)} if opens is None else {"tcpSocket": {"port": opens}}
    return {
        # A large etcd or a cold cache may take its time; liveness takes over once the process has answered.
        "startupProbe": {"httpGet": get(health.live), "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 600},
        "readinessProbe": {
            **ready,
            "periodSeconds": 2,
            "timeoutSeconds": 15,
            "failureThreshold": 3,
        },
        "livenessProbe": {
            "httpGet": get(health.live),
            "periodSeconds": 10,
            "timeoutSeconds": 15,
            "failureThreshold": 6,
        },
    }
