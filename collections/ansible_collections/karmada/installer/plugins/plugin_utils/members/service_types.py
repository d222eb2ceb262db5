# SPDX-License-Identifier: Apache-2.0
"""API types that Karmada uses on members: ServiceExport and ServiceImport.

Karmada reads them on a member but does not install them. They are installed if missing. If another implementation of
the same API has installed them, they are used and left as they are.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..api_object import Object
from ..kube.cluster import Cluster
from ..kube.objects import Ref, claimed_by, owned_by
from ..kube.step import Step
from ..labels import FIELD_MANAGER
from ..problems import Problem, Reason
from ..run.run import Run
from . import registration

CRD_API, CRD = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
_API = "multicluster.x-k8s.io/v1alpha1"
#: Name of the CRD → the kind that it defines.
KINDS = {
    "serviceexports.multicluster.x-k8s.io": "ServiceExport",
    "serviceimports.multicluster.x-k8s.io": "ServiceImport",
}
#: Number of objects of a type that are named.
_SHOWN = 3


def on_member(crds: Iterable[Object], owner: str, control_plane: str) -> list[Object]:
    """Karmada's CRDs that a member needs, marked as ours. ``control_plane`` is ``<namespace>/<name>``."""
    wanted = [{key: value for key, value in crd.items() if key != "status"} for crd in crds]
    return registration.marked([crd for crd in wanted if crd["metadata"]["name"] in KINDS], owner, control_plane)


def step(run: Run) -> Step:
    """Step that installs missing types, and updates ours to the release of the control plane."""
    ours = (FIELD_MANAGER, run.instance.owner)
    return Step(
        on_member(run.crds(), run.instance.owner, run.instance.full_name),
        treat=lambda live: "ours" if claimed_by(live) == ours else "leave",
    )


def unused(run: Run, name: str, member: Cluster) -> list[Object]:
    """Types on this member that are ours and have no objects, so that deleting them loses nothing."""
    found = []
    for crd, kind in KINDS.items():
        live = member.get(CRD_API, CRD, crd)
        if live is None or not owned_by(live, run.state.owner, run.state.uids(f"member/{name}")):
            continue
        objects = [Ref.of(each) for each in member.list(_API, kind)]
        if not objects:
            found.append(live)
            continue
        shown = ", ".join(map(str, objects[:_SHOWN])) + (", …" if objects[_SHOWN:] else "")
        run.tell(Problem.hint(f"{CRD} {crd} stays on member {name}, because it is in use: {shown}", Reason.LEFT_BEHIND))
    return found
