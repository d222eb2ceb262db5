# SPDX-License-Identifier: Apache-2.0
"""Programs that the plain hosts of an instance lack: checking that they can be had, and fetching them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..artifacts import programs
from ..artifacts.programs import ARCHITECTURES
from ..components.image_pins import Held
from ..components.table import ON_HOSTS
from ..components.types import Component
from ..problems import Problem
from ..render import units
from .host_observation import Brought
from .run import Run


def missing(run: Run, hosts: Iterable[str] | None = None) -> dict[str, dict[str, list[Component]]]:
    """Programs missing on hosts: host name → its architecture → components whose program is not there as installed.

    Covers ``hosts``, or all that could be looked at and have not been given up since.
    """
    found: dict[str, dict[str, list[Component]]] = {}
    for name in run.observed if hosts is None else hosts:
        observed = run.observed[name]
        if observed.facts is None or observed.trouble:
            continue
        architecture = ARCHITECTURES.get(observed.facts.architecture, observed.facts.architecture)
        lacking = {
            path: component
            for component in run.on_host(name).components(ON_HOSTS)
            if (path := units.program(run.instance, component)) not in observed.programs
        }
        if lacking:
            # Several components may run one program.
            found[name] = {architecture: list(lacking.values())}
    return found


def problems(run: Run, hosts: Iterable[str]) -> list[Problem]:
    """Problems with programs that these hosts lack and that cannot be had."""
    return [
        problem
        for architecture, lacking in _by_architecture(missing(run, hosts)).items()
        for problem in programs.check(
            run.instance.release, architecture, lacking, run.spec, run.artifact_source, held=_held(run, {})
        )
    ]


def fetch(run: Run) -> dict[str, dict[str, Brought]]:
    """Fetch the programs that hosts lack: host name → path there → file here; in check mode without a file.

    Digests that tags of images led to are recorded before any host gets a program out of them.
    """
    lacking_of = missing(run)
    brought, seen = {}, dict[str, str]()
    for architecture, lacking in _by_architecture(lacking_of).items() if not run.check else ():
        # One tag must lead to one digest on all architectures, even if it moves between two fetches.
        brought[architecture] = programs.programs(
            run.instance.release, architecture, lacking, run.spec, run.artifact_source, held=_held(run, seen)
        )
        seen |= {each.origin: each.digest for each in brought[architecture].values() if each.digest}
    run.hold_to(seen)

    def of(architecture: str, component: Component) -> Brought:
        if run.check:
            return Brought()
        program = brought[architecture][component.name]
        return Brought(program.sha256, str(program.path))

    return {
        name: {
            units.program(run.instance, component): of(architecture, component)
            for architecture, lacking in each.items()
            for component in lacking
        }
        for name, each in lacking_of.items()
    }


def _held(run: Run, more: Mapping[str, str]) -> Held:
    """Digests that tags of images must lead to: the recorded ones, and those that this step has found already."""
    return Held({**run.state.digests, **more}, set(run.confirmed_images) - set(more))


def _by_architecture(missing: Mapping[str, Mapping[str, Iterable[Component]]]) -> dict[str, list[Component]]:
    found: dict[str, dict[str, Component]] = {}
    for each in missing.values():
        for architecture, lacking in each.items():
            found.setdefault(architecture, {}).update({component.name: component for component in lacking})
    return {architecture: list(lacking.values()) for architecture, lacking in found.items()}
