# SPDX-License-Identifier: Apache-2.0
"""Which Kubernetes, etcd and images belong to a Karmada release.

The table holds releases that the contract tests run against. Kubernetes follows the minor that Karmada's own tests use
for that release, at the newest patch; etcd is the newest patch of the minor that Karmada ships, because the patches
that Karmada pins (3.6.0, 3.6.6, 3.6.8) are below the security floor 3.6.14 of etcd 3.6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ..problems import Problem, ProblemsError

_VERSION = re.compile(r"v([0-9]+)\.([0-9]+)\.([0-9]+)")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Release:
    """One Karmada release and what runs with it. Versions have a leading ``v``."""

    karmada: str
    kubernetes: str
    etcd: str


RELEASES: tuple[Release, ...] = (
    Release(karmada="v1.16.0", kubernetes="v1.34.4", etcd="v3.6.16"),
    Release(karmada="v1.17.1", kubernetes="v1.35.4", etcd="v3.6.16"),
    Release(karmada="v1.18.1", kubernetes="v1.35.4", etcd="v3.6.16"),
    Release(karmada="v1.18.2", kubernetes="v1.35.4", etcd="v3.6.16"),
)

#: Oldest external etcd: what Kubernetes' own installer asks of one.
OLDEST_EXTERNAL_ETCD = (3, 5, 24)
#: The first patch of each minor of etcd without a known vulnerability that matters to an API server.
ETCD_SECURITY_FLOOR: Mapping[tuple[int, ...], tuple[int, ...]] = {
    (3, 5): (3, 5, 33),
    (3, 6): (3, 6, 14),
    (3, 7): (3, 7, 1),
}

#: Oldest Kubernetes minor of a host cluster: StatefulSet claim retention is generally available from it on.
OLDEST_HOST_MINOR = (1, 32)
#: Newest one that the scenarios ran on. A newer one is said, not refused.
NEWEST_TESTED_HOST_MINOR = (1, 35)


#: Karmada is validated with members of this many minors: that of its own API server, and the ones before it.
_MEMBER_MINORS = 10


def parse_version(version: str) -> tuple[int, int, int]:
    """``v1.18.2`` as numbers; raises ValueError for anything that is not a plain release version."""
    match = _VERSION.fullmatch(version)
    if not match:
        raise ValueError(f"{version!r} is not a version like v1.18.2")
    major, minor, patch = (int(part) for part in match.groups())
    return major, minor, patch


def newest() -> Release:
    """The newest release this collection knows: what a first install without ``spec.version`` gets."""
    return max(RELEASES, key=lambda release: parse_version(release.karmada))


def get(version: str, where: str = "spec.version") -> Release:
    """The release of this Karmada version; raises ProblemsError naming those that are known."""
    for release in RELEASES:
        if release.karmada == version:
            return release
    known = [release.karmada for release in RELEASES]
    near = get_close_matches(version, known, n=1)
    raise ProblemsError(
        [
            Problem(
                what=f"Karmada {version} is not a release that this collection knows",
                where=where,
                remedy=f"use one of {', '.join(known)}" + (f" (did you mean {near[0]}?)" if near else ""),
            )
        ]
    )


def choose(requested: str | None, recorded: str | None) -> Release:
    """The release to run: what the document asks for, else what the first install chose, else the newest.

    A change of a running instance's version is the business of the upgrade; until it exists it is refused here, because
    new images under old CRDs are worse than an error.
    """
    if requested and recorded and requested != recorded:
        raise ProblemsError(
            [
                Problem(
                    what=f"the document asks for Karmada {requested}, but this instance runs {recorded}",
                    where="spec.version",
                    remedy=f"set it to {recorded}, or leave it out; a running instance keeps its version",
                )
            ]
        )
    version = requested or recorded
    return get(version) if version else newest()


def validated_members(release: Release) -> tuple[tuple[int, int], tuple[int, int]]:
    """The oldest and the newest minor of Kubernetes that this release was validated with on members."""
    major, newest_minor, _ = parse_version(release.kubernetes)
    return (major, newest_minor - _MEMBER_MINORS + 1), (major, newest_minor)


#: Field of ``spec.images`` → registry, where the document says nothing.
REGISTRIES: Mapping[str, str] = {
    "karmadaRegistry": "docker.io/karmada",
    "kubeRegistry": "registry.k8s.io",
    "etcdRegistry": "quay.io/coreos",
}
#: The same by ``spec.images.mirrorCountry``. One mirror for all three, which passes on what the publishers have under
#: its own names (so every tag is there, with the publisher's digest), instead of copies that may lack a patch release.
MIRRORS: Mapping[str, Mapping[str, str]] = {
    "cn": {field: f"m.daocloud.io/{registry}" for field, registry in REGISTRIES.items()},
}


def is_digest(value: object) -> bool:
    """Whether this is a digest as images have them: ``sha256:`` and 64 hexadecimal digits."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def registry(images: Mapping[str, Any], field: str) -> str:
    """The registry of a field of ``spec.images``: what the document says, else that of its country's mirror."""
    country = images.get("mirrorCountry")
    return str(images.get(field) or (MIRRORS[country] if country else REGISTRIES)[field])


@dataclass(frozen=True)
class Image:
    """Where an image comes from by default.

    ``registry`` names the field of ``spec.images`` that holds the registry, ``release`` the field of Release that is
    the tag.
    """

    registry: str
    repository: str
    release: str

    def reference(self, images: Mapping[str, Any], release: Release, overrides: Mapping[str, Any]) -> str:
        """The full reference; ``imageRepository`` and ``imageTag`` of the component win over the global registries.

        It has a digest where the document names one with the tag; those of the lock file are added by ``image_pins``.
        """
        repository = overrides.get("imageRepository") or f"{registry(images, self.registry)}/{self.repository}"
        tag = overrides.get("imageTag") or getattr(release, self.release)
        return f"{repository}:{tag}"
