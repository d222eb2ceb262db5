# SPDX-License-Identifier: Apache-2.0
"""Which digest an image has to have, and which it has where it runs.

There are three ways to know it, and the first that there is counts:

========================= ==========================================================================================
the document              ``imageTag: v1.18.2@sha256:...``
the lock file             of a release's images at their publishers, and at public mirrors, which pass those on
what was seen first       the digest that a tag led to when it was first used, in the installer's state
========================= ==========================================================================================

An image with one of the first two is asked for by digest, whatever its tag leads to. A digest is that of the index,
where an image has one, so it is one and the same for all architectures. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..api_object import Object
from ..problems import Problem
from .instance import Instance
from .releases import MIRRORS, REGISTRIES, Release, is_digest
from .table import KARMADA_AGENT, PROGRAMS, wanted_rows
from .types import Component, agent_hosts, pulls, settings_of

#: Image → digest → the nodes whose pods run that.
Running = Mapping[str, Mapping[str, list[str]]]

#: How a node names what it runs, ``docker.io/karmada/karmada-webhook@sha256:...``. An image that no registry gave, but
#: somebody has loaded into the node, has no name before the digest, and the digest is of something else.
_FROM_REGISTRY = re.compile(r".+@(sha256:[0-9a-f]{64})")


@dataclass(frozen=True)
class Held:
    """What images without a pin are held to: reference → digest that was seen first.

    ``accepted`` are references whose tags may lead elsewhere now.
    """

    digests: Mapping[str, str] = field(default_factory=dict)
    accepted: Collection[str] = ()

    def refusal(self, reference: str, digest: str) -> Problem | None:
        """Why an image whose tag leads to this is not taken; None if it is."""
        before = self.digests.get(reference, digest)
        if digest == before or reference in self.accepted:
            return None
        return Problem(
            what=f"its tag leads to {digest} now, and led to {before} when it was first used here",
            where=reference,
            remedy="find out who changed it. If the new one is meant, say so by its name: -e karmada_confirm_images="
            f"{reference} (several with commas); to keep the former, give it with the tag: imageTag: "
            f"{reference.rpartition(':')[2]}@{before}",
        )


def confirmed(variables: Mapping[str, Any]) -> frozenset[str]:
    """The references in ``karmada_confirm_images``, a list or a text with commas. ``variables`` are those of a task."""
    named = variables.get("karmada_confirm_images") or ()
    if isinstance(named, str):
        named = named.split(",")
    return frozenset(str(name).strip() for name in named) - {""}


def of_release(release: Release, lock: Mapping[str, Any]) -> dict[str, str]:
    """Reference of each image that the lock file (``artifacts.source.read_lock``) has → digest.

    At its publisher and at public mirrors. In a registry of one's own the same image may have been packed anew.
    """
    found = {}
    for image in {component.image for component in PROGRAMS}:
        version: str = getattr(release, image.release)
        digest = lock.get(image.release, {}).get(version, {}).get("images", {}).get(image.repository)
        if digest is not None and not is_digest(digest):
            raise ValueError(f"the lock file has {digest!r} where the digest of {image.repository} {version} belongs")
        for registries in (REGISTRIES, *MIRRORS.values()):
            if digest:
                found[f"{registries[image.registry]}/{image.repository}:{version}"] = digest
    return found


def reference(instance: Instance, component: Component) -> str:
    """The image of a component as it is asked for: with its digest where that is known."""
    spec = instance.spec
    return pinned(
        component.image.reference(spec["images"], instance.release, settings_of(component, spec)), instance.pins
    )


def pinned(image: str, pins: Mapping[str, str]) -> str:
    """An image with its digest, if it has one in these pins (or brings one)."""
    return f"{image}@{pins[image]}" if image in pins else image


def notice(instance: Instance) -> str:
    """One line on the images that nothing pins, as far as this document has any use for images; else empty."""
    spec = instance.spec
    from_images = spec["artifacts"]["source"] == "Image"
    used: dict[bool, dict[str, str]] = {False: {}, True: {}}
    rows = [(component, component.is_on_hosts(spec)) for component in wanted_rows(spec)]
    # An agent is a unit of hosts or a Deployment on its member, whatever the control plane is.
    rows += [(KARMADA_AGENT, bool(agent_hosts(entry))) for entry in spec["members"] if pulls(entry)]
    for component, on_hosts in rows:
        image = reference(instance, component)
        if "@" not in image and (from_images or not on_hosts):
            used[on_hosts][image] = component.image.repository
    parts = [
        f"{', '.join(sorted(set(used[on_hosts].values())))} ({told})"
        for on_hosts, told in (
            (True, "programs of hosts are held to what the tag led to first"),
            (False, "nodes run what the tag leads to when they pull it"),
        )
        if used[on_hosts]
    ]
    return f"no digest is known beforehand for the images of {'; of '.join(parts)}" if parts else ""


def running(pods: Iterable[Object]) -> dict[str, dict[str, list[str]]]:
    """What pods run, of images that are named without a digest and came from a registry, as their nodes tell."""
    found: dict[str, dict[str, list[str]]] = {}
    for pod in pods:
        images = {each["name"]: each.get("image", "") for each in pod["spec"]["containers"]}
        for status in pod.get("status", {}).get("containerStatuses") or []:
            image, known = images.get(status["name"], ""), _FROM_REGISTRY.fullmatch(status.get("imageID") or "")
            if not image or "@" in image or not known:
                continue
            nodes = found.setdefault(image, {}).setdefault(known[1], [])
            node = str(pod["spec"].get("nodeName", ""))
            if node not in nodes:
                nodes.append(node)
    return found


def agreed(found: Running) -> dict[str, str]:
    """Image → digest, of those that all nodes run alike."""
    return {image: next(iter(digests)) for image, digests in found.items() if len(digests) == 1}


def differences(found: Running, recorded: Mapping[str, str]) -> list[str]:
    """What is to be told: nodes that run different things under one name, and another than when it was first used."""
    told = []
    for image, digests in sorted(found.items()):
        if len(digests) > 1:
            each = ", ".join(f"{digest} on {', '.join(sorted(nodes))}" for digest, nodes in sorted(digests.items()))
            told.append(
                f"nodes run different images under the name {image}: {each}. Unless their architecture is the reason, "
                "give the right one with the tag (imageTag: TAG@sha256:...)"
            )
        elif image in recorded and recorded[image] not in digests:
            told.append(
                f"{image} runs as {next(iter(digests))}, and ran as {recorded[image]} when it was first used here. If "
                f"that is meant, say so by its name in the next install: -e karmada_confirm_images={image}"
            )
    return told
