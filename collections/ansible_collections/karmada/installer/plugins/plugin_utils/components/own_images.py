# SPDX-License-Identifier: Apache-2.0
"""Images that the document names for single components: their use and their version skew. No I/O.

A tag that looks like a version of Kubernetes, etcd or Karmada is taken for one; nothing is known of other tags.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from ..problems import Problem, Reason
from .releases import ETCD_SECURITY_FLOOR, Release
from .spec import Spec
from .table import ETCD, KARMADA_AGENT, KARMADA_APISERVER, KUBE_CONTROLLER_MANAGER, agents, wanted_rows
from .types import Component, members_with_agent_hosts, settings_of, settings_path

#: Versions as the projects tag them; etcd has also been published without the letter. A suffix names a build.
_VERSION = re.compile(r"(v?)([0-9]+)\.([0-9]+)\.([0-9]+)(?:[-_.].*)?")
_MAJORS: Mapping[str, int] = {"karmada": 1, "kubernetes": 1, "etcd": 3}


class Minor(NamedTuple):
    """A minor version."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"v{self.major}.{self.minor}"


def problems(spec: Spec, release: Release, before: Spec | None) -> Iterator[Problem]:
    """Problems of images that the document names. ``before`` is the spec of the last finished install, if any."""
    rows = (*wanted_rows(spec), *agents(spec))
    yield from _unused(rows, spec)
    for component in rows:
        yield from _beside_release(component, spec, release)
    yield from _controllers(rows, spec, release)
    if ETCD in rows:
        yield from _vulnerable(spec)
    if before is not None and KARMADA_APISERVER in rows:
        yield from _after(KARMADA_APISERVER, runs(KARMADA_APISERVER, before, release), spec, release)


def etcd_problems(spec: Spec, release: Release, before: Spec | None, versions: Collection[str]) -> Iterator[Problem]:
    """Problem of another minor version of etcd than its data may have next.

    ``versions`` are those that members have answered with, ``before`` is the spec of the last finished install, if any.
    What runs counts: an install that failed may have come as far as etcd. With members of two minors the older one
    does, to which etcd as a whole holds until it is gone. Where no member answers, the last install does.
    """
    if ETCD not in wanted_rows(spec):
        return
    running = [minor for each in versions if (minor := minor_of(each, "etcd"))]
    former = min(running) if running else runs(ETCD, before, release) if before is not None else None
    yield from _after(ETCD, former, spec, release)


def minor_of(tag: str, project: str) -> Minor | None:
    """Minor version in a tag, or None; ``project`` is a field of ``Release``."""
    match = _VERSION.fullmatch(tag)
    if not match or not (match[1] or project == "etcd") or int(match[2]) != _MAJORS[project]:
        return None
    return Minor(int(match[2]), int(match[3]))


def runs(component: Component, spec: Spec, release: Release) -> Minor | None:
    """Minor version of a component, by its tag or else by the release; None if it is unknown."""
    project = component.image.release
    return minor_of(settings_of(component, spec).image_tag or getattr(release, project), project)


def _unused(rows: tuple[Component, ...], spec: Spec) -> Iterator[Problem]:
    """Image settings without effect: on plain hosts only one source of programs uses images.

    Not a rule of the schema, for the reason that ``document.mode_fields`` gives of settings of components.
    """
    source = spec.artifacts.source
    if source == "Image":
        return
    for component in rows:
        on_hosts = members_with_agent_hosts(spec) if component is KARMADA_AGENT else component.is_on_hosts(spec)
        settings = settings_of(component, spec)
        given = {"imageRepository": settings.image_repository, "imageTag": settings.image_tag}
        for field, value in given.items() if on_hosts else ():
            if value:
                yield Problem(
                    what=f"has no effect on hosts with artifacts.source {source}, where programs come out of no images",
                    where=f"{settings_path(component)}.{field}",
                    remedy="set artifacts.source: Image, or take it out: then it is the program of spec.version",
                    reason=Reason.FIELD_WITHOUT_EFFECT,
                )


def _beside_release(component: Component, spec: Spec, release: Release) -> Iterator[Problem]:
    """Karmada components of another minor than the release; agents may lag by one, as members are upgraded singly."""
    found, project = runs(component, spec, release), component.image.release
    wanted = minor_of(getattr(release, project), project)
    if project != "karmada" or found is None or wanted is None or found == wanted:
        return
    older = component is KARMADA_AGENT and found == (wanted.major, wanted.minor - 1)
    if not older:
        beside = "; an agent may be one minor older" if component is KARMADA_AGENT else ""
        yield Problem(
            what=f"{component.name} {found} does not go with Karmada {release.karmada}: components of different minor "
            f"versions are not tested together{beside}",
            where=_where(component),
            remedy=f"choose a tag of {wanted}, or leave it out",
            reason=Reason.VERSION_SKEW,
        )


def _controllers(rows: tuple[Component, ...], spec: Spec, release: Release) -> Iterator[Problem]:
    """Kubernetes' version skew policy: not newer than the API server, and at most one minor older."""
    server, controllers = (runs(each, spec, release) for each in (KARMADA_APISERVER, KUBE_CONTROLLER_MANAGER))
    if server is None or controllers is None or KUBE_CONTROLLER_MANAGER not in rows:
        return
    older = server.minor - controllers.minor
    if not 0 <= older <= 1:
        given = settings_of(KUBE_CONTROLLER_MANAGER, spec).image_tag
        yield Problem(
            what=f"{KUBE_CONTROLLER_MANAGER.name} {controllers} and {KARMADA_APISERVER.name} {server} do not go "
            "together: the first may not be newer, and one minor version older at most",
            where=_where(KUBE_CONTROLLER_MANAGER if given else KARMADA_APISERVER),
            remedy=f"give {KUBE_CONTROLLER_MANAGER.name} a tag of {server}"
            + (", too" if settings_of(KARMADA_APISERVER, spec).image_tag else ", or leave it out"),
            reason=Reason.VERSION_SKEW,
        )


def _vulnerable(spec: Spec) -> Iterator[Problem]:
    """Versions of etcd with known vulnerabilities, and minors that get no mends any more."""
    match = _VERSION.fullmatch(settings_of(ETCD, spec).image_tag)
    if not match or int(match[2]) != _MAJORS["etcd"]:
        return
    version = (int(match[2]), int(match[3]), int(match[4]))
    oldest, newest = min(ETCD_SECURITY_FLOOR.values()), max(ETCD_SECURITY_FLOOR)
    floor = ETCD_SECURITY_FLOOR.get(version[:2], oldest)
    if version[:2] <= newest and version < floor:
        yield Problem(
            what=f"etcd {'.'.join(map(str, version))} has known vulnerabilities",
            where=_where(ETCD),
            remedy=f"choose v{'.'.join(map(str, floor))} or newer, or leave it out: then it is the one of spec.version",
            reason=Reason.UNSUPPORTED_VERSION,
        )


def _after(component: Component, former: Minor | None, spec: Spec, release: Release) -> Iterator[Problem]:
    """Version changes that stored data may not survive: a newer minor version may write it in a form of its own.

    Both projects support one minor upwards.
    """
    found = runs(component, spec, release)
    if former and found and not 0 <= found.minor - former.minor <= 1:
        nearest = Minor(former.major, former.minor + (found.minor > former.minor))
        yield Problem(
            what=f"{component.name} is {former} now, and {found} would be "
            + ("more than one minor version newer" if found > former else "older: it may not read what is stored"),
            where=_where(component),
            remedy=f"choose a tag of {nearest}" + (", and go on from there in a later run" if found > former else ""),
            reason=Reason.VERSION_SKEW,
        )


def hints(spec: Spec, release: Release) -> Iterator[str]:
    """Remarks that are no reason to stop."""
    found, tested = runs(KARMADA_APISERVER, spec, release), minor_of(release.kubernetes, "kubernetes")
    if found and tested and abs(found.minor - tested.minor) > 1:
        yield (
            f"{KARMADA_APISERVER.name} is Kubernetes {found} ({_where(KARMADA_APISERVER)}), and Karmada "
            f"{release.karmada} is tested with {tested}"
        )


def _where(component: Component) -> str:
    return f"{settings_path(component)}.imageTag"
