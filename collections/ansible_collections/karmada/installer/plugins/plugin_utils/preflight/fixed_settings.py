# SPDX-License-Identifier: Apache-2.0
"""Settings that an existing control plane cannot change, because data, addresses or certificates depend on them.

Rules of the schema with ``oldSelf`` say which these are. The checks here need the state, which no rule sees: what was
chosen where the document leaves it open, and what exists before the first installation has finished.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..components import ip_families
from ..components.types import etcd_on_hosts
from ..document import manifest
from ..etcd import external as external_etcd
from ..problems import Problem, Reason
from ..run.run import Run

#: Locations of etcd.
_EXTERNAL, _ON_HOSTS, _IN_PODS = "external", "on plain hosts", "in pods"


def changed(run: Run) -> Iterable[Problem]:
    """Changes that an API server refuses of an object whose status says that the control plane is installed."""
    if not run.state.document:
        return
    moved = store_moved(run)
    for problem in manifest.change_problems(run.deployment, run.state.document):
        # ``store`` reports an etcd that moves, from which these follow.
        if not (moved and problem.where.startswith(("spec.components.etcd", "spec.hosts"))):
            yield problem


def service_subnet(run: Run) -> Iterable[Problem]:
    """Service subnet that was changed, or does not fit the cluster's IP versions; left out, it is the chosen one.

    Not a rule of the schema, because the chosen one is in the state alone.
    """
    wanted = run.spec.service_subnet
    if not wanted:
        return
    chosen = run.state.service_subnet
    if run.state.document and wanted != chosen:
        yield Problem(
            what=f"it was {chosen} at the install and is {wanted} now; that cannot be changed in place",
            where="spec.components.karmadaAPIServer.serviceSubnet",
            remedy=f"set it back to {chosen}, or install a second control plane",
            reason=Reason.IMMUTABLE_SETTING,
        )
        return
    families = run.live.seen_families or run.place.possible_families()
    problem = ip_families.problem(wanted, families) if families else None
    if problem:
        yield problem


def store_moved(run: Run) -> bool:
    """Return whether the document moves etcd elsewhere: into pods, onto hosts or to an external one."""
    wanted = _EXTERNAL if external_etcd.is_named(run) else _ON_HOSTS if etcd_on_hosts(run.spec) else _IN_PODS
    return wanted != _place(run.state.etcd.storage)


def _place(storage: str) -> str:
    return {"external": _EXTERNAL, "directory": _ON_HOSTS}.get(storage, _IN_PODS)


def store(run: Run) -> Iterable[Problem]:
    """Changed location of etcd; the recorded one is binding even before the first installation has finished.

    Not a rule of the schema, because only the state knows it.
    """
    etcd = run.state.etcd
    prefix = run.spec.external_etcd.key_prefix if run.spec.external_etcd else None
    if store_moved(run):
        yield Problem(
            what=f"etcd of this control plane is {_place(etcd.storage)}, and its data does not move",
            where="spec.hosts"
            if etcd_on_hosts(run.spec) or _place(etcd.storage) == _ON_HOSTS
            else "spec.components.etcd",
            remedy="set it back, or install a second control plane",
            reason=Reason.IMMUTABLE_SETTING,
        )
    elif etcd.prefix not in ("", prefix) and not run.state.document:
        yield Problem(
            what=f"the keys of this control plane are below {etcd.prefix}; that cannot be changed in place",
            where="spec.components.etcd.external.keyPrefix",
            remedy=f"set it back to {etcd.prefix!r}, or install a second control plane",
            reason=Reason.IMMUTABLE_SETTING,
        )
