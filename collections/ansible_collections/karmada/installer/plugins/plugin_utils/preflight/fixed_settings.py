# SPDX-License-Identifier: Apache-2.0
"""Settings that an existing control plane cannot change, because data, addresses or certificates depend on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..components import ip_families
from ..components.types import etcd_on_hosts
from ..document import manifest
from ..etcd import external as external_etcd
from ..problems import Problem, Reason
from ..run.run import Run

#: Fields on which data, addresses or all certificates depend.
FIXED_SETTINGS = (
    "components.etcd.local.replicas",
    "components.etcd.local.volumeData",
    "components.etcd.external.keyPrefix",
    "encryption.provider",
    "hostCluster.domain",
)
#: Field that counts how often administrators' access was revoked.
GENERATION = "certificates.administratorGeneration"
#: Locations of etcd.
_EXTERNAL, _ON_HOSTS, _IN_PODS = "external", "on plain hosts", "in pods"


def changed(run: Run) -> Iterable[Problem]:
    """Settings that differ from those at the install although data or addresses depend on them."""
    if not run.state.document:
        return
    # It may be older than some of the fields that are compared.
    before = manifest.with_defaults(run.state.document)["spec"]
    moved = store_moved(run)
    for path in FIXED_SETTINGS:
        old, new = _at(before, path), _at(run.spec, path)
        if old != new and not (moved and path.startswith("components.etcd.")):
            yield _cannot_follow(path, old, new)
    yield from _generation_lowered(_at(before, GENERATION), _at(run.spec, GENERATION))


def _generation_lowered(old: int, new: int) -> Iterable[Problem]:
    """Lowered generation: an API server refuses it by a transition rule, but a file has no such rule."""
    if new < old:
        yield Problem(
            what=f"it was {old} and is {new} now; kubeconfigs that were taken back would have their rights again",
            where=f"spec.{GENERATION}",
            remedy=f"set it to {old} or higher",
            reason=Reason.IMMUTABLE_SETTING,
        )


def service_subnet(run: Run) -> Iterable[Problem]:
    """Service subnet that was changed, or does not fit the cluster's IP versions; left out, it is the chosen one."""
    wanted = run.spec["components"]["karmadaAPIServer"].get("serviceSubnet")
    if not wanted:
        return
    chosen = run.state.service_subnet
    if run.state.document and wanted != chosen:
        yield _cannot_follow("components.karmadaAPIServer.serviceSubnet", chosen, wanted)
        return
    families = run.live.seen_families or run.place.possible_families()
    problem = ip_families.problem(wanted, families) if families else None
    if problem:
        yield problem


def _cannot_follow(path: str, old: Any, new: Any) -> Problem:
    return Problem(
        what=f"it was {old!r} at the install and is {new!r} now; that cannot be changed in place",
        where=f"spec.{path}",
        remedy=f"set it back to {old!r}, or install a second control plane",
        reason=Reason.IMMUTABLE_SETTING,
    )


def store_moved(run: Run) -> bool:
    """Return whether the document moves etcd elsewhere: into pods, onto hosts or to an external one."""
    wanted = _EXTERNAL if external_etcd.is_named(run) else _ON_HOSTS if etcd_on_hosts(run.spec) else _IN_PODS
    return wanted != _place(run.state.etcd.storage)


def _place(storage: str) -> str:
    return {"external": _EXTERNAL, "directory": _ON_HOSTS}.get(storage, _IN_PODS)


def store(run: Run) -> Iterable[Problem]:
    """Changed location of etcd; the recorded one is binding even before the first installation has finished."""
    etcd = run.state.etcd
    if store_moved(run):
        yield Problem(
            what=f"etcd of this control plane is {_place(etcd.storage)}, and its data does not move",
            where="spec.hosts"
            if etcd_on_hosts(run.spec) or _place(etcd.storage) == _ON_HOSTS
            else "spec.components.etcd",
            remedy="set it back, or install a second control plane",
            reason=Reason.IMMUTABLE_SETTING,
        )
    elif etcd.prefix not in ("", _at(run.spec, "components.etcd.external.keyPrefix")) and not run.state.document:
        yield Problem(
            what=f"the keys of this control plane are below {etcd.prefix}; that cannot be changed in place",
            where="spec.components.etcd.external.keyPrefix",
            remedy=f"set it back to {etcd.prefix!r}, or install a second control plane",
            reason=Reason.IMMUTABLE_SETTING,
        )


def _at(spec: Mapping[str, Any], path: str) -> Any:
    found: Any = spec
    for key in path.split("."):
        found = (found or {}).get(key)
    return found
