# SPDX-License-Identifier: Apache-2.0
"""The component table as objects of a host cluster."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from ..api_object import Object
from ..components import endpoint, table
from ..components.etcd_state import EtcdState
from ..components.instance import Instance
from ..components.table import KARMADA_APISERVER
from ..components.types import Component, Layout, settings_of
from ..encoding import base64_files
from ..pki.files import Material, contents
from . import etcd_pods, network_policies
from .cluster_layout import SERVICE_PORTS
from .pods import config_files, pod_template, workload_metadata


def namespace(instance: Instance) -> Object:
    """Namespace, created if it does not exist. All pods meet the strictest Pod Security level."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": instance.namespace,
            "labels": {
                **instance.labels("namespace"),
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/warn": "restricted",
            },
        },
    }


def secret(instance: Instance, component: str, name: str, files: Mapping[str, bytes], member: str = "") -> Object:
    """Secret of the instance with these files as its keys."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": instance.metadata(component, instance.object_name(name), member),
        "data": base64_files(dict(sorted(files.items()))),
    }


def file_set_secrets(
    instance: Instance, where: Layout, material: Material, components: Iterable[Component] | None = None
) -> list[Object]:
    """Secret for each file set of these components, or of all; shared ones once.

    A file set without content yet, because its member is not joined, is left out.
    """
    secrets: dict[str, Object] = {}
    for component in table.pod_components(instance.spec) if components is None else components:
        for files in table.enabled_file_sets(component, instance.spec):
            content = contents(files, material, where)
            if files.name not in secrets and content:
                secrets[files.name] = secret(instance, component.row, files.name, content, component.member)
    return list(secrets.values())


def component_objects(
    instance: Instance, component: Component, where: Layout, material: Material, etcd: EtcdState
) -> list[Object]:
    """Objects of one component except for its Secrets: workload, Service, configuration."""
    return _component_objects(instance, component, where, _config_hash(instance, component, where, material), etcd)


def outline(instance: Instance, where: Layout, etcd: EtcdState) -> list[Object]:
    """Objects of all components without content that depends on keys, for checks before there are any keys."""
    file_sets = {
        files.name: component
        for component in table.pod_components(instance.spec)
        for files in table.enabled_file_sets(component, instance.spec)
    }
    return [
        *(secret(instance, each.row, name, {}, each.member) for name, each in file_sets.items()),
        *(
            each
            for component in table.pod_components(instance.spec)
            for each in _component_objects(instance, component, where, "", etcd)
        ),
        *passage(instance, ""),
    ]


def _component_objects(
    instance: Instance, component: Component, where: Layout, config_hash: str, etcd: EtcdState
) -> list[Object]:
    if component.keeps_data:
        return [
            *etcd_pods.host_volumes(instance, etcd),
            etcd_pods.config_map(instance, where, etcd),
            etcd_pods.service(instance),
            etcd_pods.stateful_set(instance, config_hash, etcd),
            *_disruption_budget(instance, component),
            *network_policies.of_component(instance, component),
        ]
    objects = [
        *_config_maps(instance, component),
        _deployment(instance, component, where, config_hash),
        *_disruption_budget(instance, component),
        *network_policies.of_component(instance, component),
    ]
    if component.served_port:
        objects.append(component_service(instance, component))
    return objects


def _config_maps(instance: Instance, component: Component) -> list[Object]:
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": instance.metadata(component.row, instance.object_name(name), component.member),
            "data": content,
        }
        for name, content in config_files(instance, component).values()
    ]


def _config_hash(instance: Instance, component: Component, where: Layout, material: Material) -> str:
    """Hash of the mounted files, in an annotation: a change replaces the pods that read them in a rolling update."""
    digest = hashlib.sha256()
    for files in table.enabled_file_sets(component, instance.spec):
        for name, content in sorted(contents(files, material, where).items()):
            # A renewed certificate must not replace an etcd member, whose data may be in the pod.
            if name in component.read_again:
                continue
            digest.update(f"{files.directory}/{name}\0".encode())
            digest.update(hashlib.sha256(content).digest())
    for directory, (_, plain) in sorted(config_files(instance, component).items()):
        for name, text in sorted(plain.items()):
            digest.update(f"{directory}/{name}\0".encode())
            digest.update(hashlib.sha256(text.encode()).digest())
    if component.settings_file:
        # Not all of that file, because the end of the bootstrap changes nothing for a running member.
        digest.update(json.dumps(dict(settings_of(component, instance.spec).extra_args), sort_keys=True).encode())
    return digest.hexdigest()[:32]


def component_service(instance: Instance, component: Component) -> Object:
    """Service of a component; the API server's depends on the document's endpoint."""
    settings = instance.spec.endpoint
    target = component.listens(instance.spec)[component.served_port]
    metadata = instance.metadata(component.row, instance.service_name(component.name), component.member)
    spec: Object = {
        "type": "ClusterIP",
        "selector": instance.selector(component.row, component.member),
        "ports": [
            {
                "name": component.served_port,
                "port": SERVICE_PORTS[component.row],
                "protocol": "TCP",
                "targetPort": target,
            }
        ],
    }
    if component.ready_when_registered:
        spec["publishNotReadyAddresses"] = True
    if component is KARMADA_APISERVER:
        spec.update(
            type=endpoint.service_type(settings),
            ports=endpoint.service_ports(settings, target),
            ipFamilyPolicy=settings.ip_family_policy,
        )
        if settings.load_balancer_class:
            spec["loadBalancerClass"] = settings.load_balancer_class
        if settings.service_annotations:
            metadata["annotations"] = dict(settings.service_annotations)
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def passage(instance: Instance, ingress_controller: str) -> list[Object]:
    """Ingress or Route with TLS passthrough to the API server's Service, if the document asks for one.

    ``ingress_controller`` is the controller of its IngressClass.
    """
    settings = instance.spec.endpoint
    kind = endpoint.PASSAGES.get(settings.type)
    if not kind:
        return []
    name = instance.object_name(KARMADA_APISERVER.name)
    metadata = instance.metadata(KARMADA_APISERVER.name, name)
    if kind.kind == "Ingress":
        annotations = {**endpoint.pass_through(ingress_controller), **settings.ingress_annotations}
        spec = _ingress_spec(settings.host, name, settings.ingress_class)
    else:
        annotations = dict(settings.route_annotations)
        metadata["labels"] = {**settings.route_labels, **metadata["labels"]}
        spec = {
            "to": {"kind": "Service", "name": name, "weight": 100},
            "port": {"targetPort": endpoint.PORT_NAME},
            "tls": {"termination": "passthrough"},
            "wildcardPolicy": "None",
        }
        if settings.host:
            spec["host"] = settings.host
    if annotations:
        metadata["annotations"] = annotations
    return [{"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}]


def _ingress_spec(host: str, service: str, class_name: str | None) -> Object:
    """Spec of an Ingress that sends all requests for a host to the Service; the path is a required field."""
    backend = {"service": {"name": service, "port": {"number": endpoint.API_PORT}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    spec: Object = {"tls": [{"hosts": [host]}], "rules": [{"host": host, "http": {"paths": [path]}}]}
    return {**spec, "ingressClassName": class_name} if class_name else spec


def _deployment(instance: Instance, component: Component, where: Layout, config_hash: str) -> Object:
    pod = pod_template(instance, component, config_hash, component.flags(instance.spec, where))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": workload_metadata(instance, component),
        "spec": {
            "replicas": 0 if component.row in instance.held else settings_of(component, instance.spec).replicas,
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": instance.selector(component.row, component.member)},
            # The old pod serves until the new one is ready.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": pod,
        },
    }


def _disruption_budget(instance: Instance, component: Component) -> list[Object]:
    """Budget if replicas allow for it: with one replica it would only block draining, unless the document sets one."""
    settings = settings_of(component, instance.spec)
    budget = settings.disruption_budget or ({"maxUnavailable": 1} if settings.replicas > 1 else None)
    if budget is None:
        return []
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": instance.metadata(component.row, instance.object_name(component.name), component.member),
            "spec": {**budget, "selector": {"matchLabels": instance.selector(component.row, component.member)}},
        }
    ]
