# SPDX-License-Identifier: Apache-2.0
"""Digests that images must have, and digests that run.

There are three sources, and the first that knows the digest wins:

========================= ==========================================================================================
the document              ``imageTag: v1.18.2@sha256:...``
the lock file             of a release's images at their publishers, and at public mirrors, which serve the same
first use                 the digest to which a tag pointed when it was first used, from the installer's state
========================= ==========================================================================================

An image with one of the first two is pulled by digest, wherever its tag points. A digest is that of the image index,
if there is one, and so the same for all architectures. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..api_object import Object
from ..problems import Problem, Reason
from .instance import Instance
from .releases import MIRRORS, REGISTRIES, Release, is_digest
from .table import KARMADA_AGENT, PROGRAMS, wanted_rows
from .types import Component, settings_of

#: Image → digest → nodes whose pods run it.
Running = Mapping[str, Mapping[str, list[str]]]

#: A node's name for what it runs, ``docker.io/karmada/karmada-webhook@sha256:...``. An image that was loaded into the
#: node, and not pulled from a registry, has no name before the digest, and another kind of digest.
_FROM_REGISTRY = re.compile(r".+@(sha256:[0-9a-f]{64})")


@dataclass(frozen=True)
class Held:
    """Digests to which unpinned images are held: reference → digest of first use.

    ``accepted`` are references whose tags may point elsewhere by now.
    """

    digests: Mapping[str, str] = field(default_factory=dict)
    accepted: Collection[str] = ()

    def refusal(self, reference: str, digest: str) -> Problem | None:
        """Problem if the tag of this image points to a digest other than the first; None if it may be used."""
        before = self.digests.get(reference, digest)
        if digest == before or reference in self.accepted:
            return None
        return Problem(
            what=f"its tag leads to {digest} now, and led to {before} when it was first used here",
            where=reference,
            remedy="find out who changed it. If the new one is meant, say so by its name: -e karmada_confirm_images="
            f"{reference} (several with commas); to keep the former, give it with the tag: imageTag: "
            f"{reference.rpartition(':')[2]}@{before}",
            reason=Reason.IMAGE_CHANGED,
        )


def confirmed(variables: Mapping[str, Any]) -> frozenset[str]:
    """References in ``karmada_confirm_images``, a list or a comma-separated string. ``variables`` are the task's."""
    named = variables.get("karmada_confirm_images") or ()
    if isinstance(named, str):
        named = named.split(",")
    return frozenset(str(name).strip() for name in named) - {""}


def of_release(release: Release, lock: Mapping[str, Any]) -> dict[str, str]:
    """Image reference → digest for a release, from the lock file (``artifacts.source.read_lock``).

    Covers publishers and public mirrors only: in a private registry an image may have been repacked.
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
    """Image reference of a component as it is pulled: with its digest where that is known."""
    spec = instance.spec
    return pinned(component.image.reference(spec.images, instance.release, settings_of(component, spec)), instance.pins)


def pinned(image: str, pins: Mapping[str, str]) -> str:
    """Image reference with its digest, if it is in these pins or brings one."""
    return f"{image}@{pins[image]}" if image in pins else image


def notice(instance: Instance) -> str:
    """One line that names the unpinned images which this document uses; else empty."""
    spec = instance.spec
    from_images = spec.artifacts.source == "Image"
    used: dict[bool, dict[str, str]] = {False: {}, True: {}}
    rows = [(component, component.is_on_hosts(spec)) for component in wanted_rows(spec)]
    # An agent is a unit of hosts or a Deployment on its member, whichever mode the control plane has.
    rows += [(KARMADA_AGENT, bool(entry.agent_hosts)) for entry in spec.members if entry.pulls]
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
    """Digests that run, as nodes report them, of images named without a digest and pulled from a registry."""
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
    """Image → digest, for those of which all nodes run the same."""
    return {image: next(iter(digests)) for image, digests in found.items() if len(digests) == 1}


def differences(found: Running, recorded: Mapping[str, str]) -> list[str]:
    """Findings for the user: nodes that run different digests of one image, or another digest than at first use."""
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
