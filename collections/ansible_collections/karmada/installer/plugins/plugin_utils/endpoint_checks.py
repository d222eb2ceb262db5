# SPDX-License-Identifier: Apache-2.0
"""Whether the endpoint can be had: its port, its name, and who would serve it."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.karmada.installer.plugins.plugin_utils import (
    endpoint,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components import (
    KARMADA_APISERVER,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run


def node_port(run: Run) -> Iterable[Problem]:
    """Whether the node port that the document chooses is free."""
    settings = run.spec["endpoint"]
    if settings["type"] != "NodePort" or not settings.get("port"):
        return
    ours = run.instance.object_name(KARMADA_APISERVER.name)
    denied = run.host.can_i([("list", "", "services", None)])
    services = [] if denied else run.host.list("v1", "Service")
    for service in services:
        metadata = service["metadata"]
        if (metadata["namespace"], metadata["name"]) == (run.namespace, ours):
            continue
        if any(port.get("nodePort") == settings["port"] for port in service["spec"].get("ports") or []):
            yield Problem(
                what=f"node port {settings['port']} belongs to Service {metadata['namespace']}/{metadata['name']}",
                where="spec.endpoint.port",
                remedy="choose another port, or leave it out to have one chosen",
            )


def ingress(run: Run) -> Iterable[Problem]:
    """Whether an Ingress controller is there that passes TLS through, and the name is free with it."""
    settings = run.spec["endpoint"]
    if settings["type"] != "Ingress":
        return
    own = settings.get("ingress") or {}
    classes = run.host.list(*endpoint.INGRESS_CLASS)
    chosen = endpoint.ingress_class(settings, classes)
    if chosen is None:
        there = ", ".join(sorted(each["metadata"]["name"] for each in classes)) or "none"
        wanted = f"no IngressClass {own['className']}" if own.get("className") else "no default IngressClass"
        yield Problem(
            what=f"there is {wanted} (there are: {there})",
            where="spec.endpoint.ingress.className",
            remedy="name one of them" if classes else "install an Ingress controller, or choose another endpoint.type",
        )
        return
    name, controller = chosen["metadata"]["name"], str(chosen["spec"].get("controller", ""))
    instead = endpoint.instead_of_ingress(controller)
    if instead:
        yield Problem(
            what=f"IngressClass {name} is served by {controller}, which cannot pass TLS through for an Ingress",
            where="spec.endpoint.ingress.className",
            remedy=f"use {instead}, or name another IngressClass",
        )
    elif not endpoint.pass_through(controller) and not own.get("annotations"):
        run.say(
            f"IngressClass {name} is served by {controller}, which is not known here: if it passes TLS through only "
            "when told so, tell it by spec.endpoint.ingress.annotations"
        )
    yield from _taken_host(run, name)


def route(run: Run) -> Iterable[Problem]:
    """Whether there are Routes at all, and the name is free."""
    settings, passage = run.spec["endpoint"], endpoint.PASSAGES["Route"]
    if settings["type"] != passage.kind:
        return
    if run.host.resource(passage.api_version, passage.kind) is None:
        yield Problem(
            what="the host cluster has no Routes, so it is not one of OpenShift",
            where="spec.endpoint.type",
            remedy="choose another type, such as Ingress",
        )
    elif settings.get("host"):
        yield from _taken_host(run, "")


def _taken_host(run: Run, class_name: str) -> Iterable[Problem]:
    """An Ingress (of this class) or a Route of somebody else that has the name; as far as we may look."""
    settings = run.spec["endpoint"]
    passage = endpoint.PASSAGES[settings["type"]]
    ours = (run.namespace, run.instance.object_name(KARMADA_APISERVER.name))
    everywhere = not run.host.can_i([("list", passage.group, passage.resource, None)])
    for each in run.host.list(passage.api_version, passage.kind, None if everywhere else run.namespace):
        where = (each["metadata"]["namespace"], each["metadata"]["name"])
        if where != ours and endpoint.takes(each, settings["host"], class_name):
            yield Problem(
                what=f"the name {settings['host']} belongs to {passage.kind} {'/'.join(where)}",
                where="spec.endpoint.host",
                remedy="choose another name, or remove that object",
            )
