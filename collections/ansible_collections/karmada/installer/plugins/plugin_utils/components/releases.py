# SPDX-License-Identifier: Apache-2.0
"""Versions of Kubernetes, etcd and images for each Karmada release.

The table holds releases that the contract tests run against. Kubernetes follows the minor that Karmada's own tests use
for that release, at the newest patch; etcd is the newest patch of the minor that Karmada ships, because the patches
that Karmada pins (3.6.0, 3.6.6, 3.6.8) are below the security floor 3.6.14 of etcd 3.6.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from ..problems import Problem, ProblemsError, Reason
from .spec import Images, Settings

_VERSION = re.compile(r"v([0-9]+)\.([0-9]+)\.([0-9]+)")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Release:
    """A Karmada release and the versions that run with it, each with a leading ``v``."""

    karmada: str
    kubernetes: str
    etcd: str


RELEASES: tuple[Release, ...] = (
    Release(karmada="v1.16.0", kubernetes="v1.34.4", etcd="v3.6.16"),
    Release(karmada="v1.17.1", kubernetes="v1.35.4", etcd="v3.6.16"),
    Release(karmada="v1.18.1", kubernetes="v1.35.4", etcd="v3.6.16"),
    Release(karmada="v1.18.2", kubernetes="v1.35.4", etcd="v3.6.16"),
)

#: Oldest external etcd, as kubeadm requires it.
OLDEST_EXTERNAL_ETCD = (3, 5, 24)
#: First patch of each etcd minor without a known vulnerability that matters to an API server.
ETCD_SECURITY_FLOOR: Mapping[tuple[int, ...], tuple[int, ...]] = {
    (3, 5): (3, 5, 33),
    (3, 6): (3, 6, 14),
    (3, 7): (3, 7, 1),
}

#: Oldest Kubernetes minor of a host cluster: StatefulSet claim retention is GA there.
OLDEST_HOST_MINOR = (1, 32)
#: Newest Kubernetes minor of a host cluster in the scenarios. A newer one is reported, not refused.
NEWEST_TESTED_HOST_MINOR = (1, 35)


#: Kubernetes minors with which Karmada is validated on members: its own API server's and those before it.
_MEMBER_MINORS = 10


def parse_version(version: str) -> tuple[int, int, int]:
    """Numbers of a version such as ``v1.18.2``. Raises ValueError for anything but a plain release version."""
    match = _VERSION.fullmatch(version)
    if not match:
        raise ValueError(f"{version!r} is not a version like v1.18.2")
    major, minor, patch = (int(part) for part in match.groups())
    return major, minor, patch


def newest() -> Release:
    """Newest release in the table, which a first install without ``spec.version`` gets."""
    return max(RELEASES, key=lambda release: parse_version(release.karmada))


def get(version: str, where: str = "spec.version") -> Release:
    """Release of this Karmada version. Raises ProblemsError naming those that are known."""
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
                reason=Reason.UNKNOWN_RELEASE,
            )
        ]
    )


def choose(requested: str | None, recorded: str | None) -> Release:
    """Release to run: the document's, else the recorded one, else the newest.

    Changing the version of a running instance is the task of an upgrade; until that exists it is refused here, because
    new images under old CRDs are worse than an error. Not a rule of the schema: left out means the recorded one.
    """
    if requested and recorded and requested != recorded:
        raise ProblemsError(
            [
                Problem(
                    what=f"the document asks for Karmada {requested}, but this instance runs {recorded}",
                    where="spec.version",
                    remedy=f"set it to {recorded}, or leave it out; a running instance keeps its version",
                    reason=Reason.IMMUTABLE_SETTING,
                )
            ]
        )
    version = requested or recorded
    return get(version) if version else newest()


def validated_members(release: Release) -> tuple[tuple[int, int], tuple[int, int]]:
    """Oldest and newest Kubernetes minor on members with which this release was validated."""
    major, newest_minor, _ = parse_version(release.kubernetes)
    return (major, newest_minor - _MEMBER_MINORS + 1), (major, newest_minor)


#: Field of ``spec.images`` → default registry.
REGISTRIES: Mapping[str, str] = {
    "karmadaRegistry": "docker.io/karmada",
    "kubeRegistry": "registry.k8s.io",
    "etcdRegistry": "quay.io/coreos",
}
#: Defaults by ``spec.images.mirrorCountry``. One mirror serves all three: it is a pull-through cache (so it has every
#: tag, with the publisher's digest), and not a set of copies that may lack a patch release.
MIRRORS: Mapping[str, Mapping[str, str]] = {
    "cn": {field: f"m.daocloud.io/{registry}" for field, registry in REGISTRIES.items()},
}


def is_digest(value: object) -> bool:
    """Return whether this is an image digest: ``sha256:`` and 64 hexadecimal digits."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def registry(images: Images, field: str) -> str:
    """Registry of a field of ``spec.images``: the document's, else that of its country's mirror, else the default."""
    country = images.mirror_country
    return images.registry(field) or (MIRRORS[country] if country else REGISTRIES)[field]


@dataclass(frozen=True)
class Image:
    """Default source of an image.

    ``registry`` names the field of ``spec.images`` with the registry, ``release`` the field of Release with the tag.
    """

    registry: str
    repository: str
    release: str

    def reference(self, images: Images, release: Release, overrides: Settings) -> str:
        """Full image reference; ``imageRepository`` and ``imageTag`` of the component win over the global registries.

        It has a digest where the document gives one with the tag; ``image_pins`` adds those of the lock file.
        """
        repository = overrides.image_repository or f"{registry(images, self.registry)}/{self.repository}"
        tag = overrides.image_tag or getattr(release, self.release)
        return f"{repository}:{tag}"
