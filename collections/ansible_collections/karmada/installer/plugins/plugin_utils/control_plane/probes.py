# SPDX-License-Identifier: Apache-2.0
"""Probes of a control plane's function, from the view of a user. They store nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..kube.causes import NO_SERVERS, Servers
from ..kube.cluster import Cluster
from ..kube.errors import ApiError, Forbidden, Invalid
from ..kube.wait import wait_for
from ..problems import Problem, ProblemsError, Reason

Say = Callable[[str], None]

#: Version of the API that controllers and schedulers cannot do without.
AGGREGATED = "cluster.karmada.io/v1alpha1"

_POLICY: dict[str, Any] = {
    "apiVersion": "policy.karmada.io/v1alpha1",
    "kind": "PropagationPolicy",
    "metadata": {"name": "installer-probe", "namespace": "default"},
    "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "installer-probe"}]},
}
_PLACEMENT_WITH_BOTH = {
    # Only the webhook rejects spreading by a label and by a field at once.
    "spreadConstraints": [{"spreadByField": "cluster", "spreadByLabel": "tier", "maxGroups": 1, "minGroups": 1}]
}


def aggregated_api_answers(
    control_plane: Cluster, timeout_seconds: float, say: Say, served_by: Servers = NO_SERVERS
) -> None:
    """Wait until Clusters can be listed.

    Raises ProblemsError at the end of the time, NotReady if the pods of its server cannot become ready.
    """
    who = "the aggregated API cluster.karmada.io"
    _until(lambda: not_listed(control_plane), who, "answers", timeout_seconds, say, served_by)


def aggregated_api_is_found(
    control_plane: Cluster, timeout_seconds: float, say: Say, served_by: Servers = NO_SERVERS
) -> None:
    """Wait until clients that look for the resource of Clusters find it.

    Raises ProblemsError at the end of the time, NotReady if the pods of its server cannot become ready.
    """
    who = "the API server"
    _until(
        lambda: not_found(control_plane),
        who,
        f"has read the resources of {AGGREGATED}",
        timeout_seconds,
        say,
        served_by,
    )


def webhook_judges(control_plane: Cluster, timeout_seconds: float, say: Say, served_by: Servers = NO_SERVERS) -> None:
    """Wait until a bad policy is refused and a good one accepted, by dry run.

    Raises ProblemsError at the end of the time, NotReady if the pods of the webhook cannot become ready.
    """
    who = "the admission webhook"
    _until(lambda: not_judged(control_plane), who, "judges policies", timeout_seconds, say, served_by)


def not_listed(control_plane: Cluster) -> str | None:
    """Reason why Clusters cannot be listed now, or None."""
    try:
        control_plane.get_raw(f"/apis/{AGGREGATED}/clusters?limit=1", retry_seconds=0)
    except ApiError as error:
        return str(error)
    return None


def not_found(control_plane: Cluster) -> str | None:
    """Reason why clients that look for the resource of Clusters do not find it now, or None."""
    try:
        unread = control_plane.unread_versions()
    except ApiError as error:
        return str(error)
    return f"it lists {AGGREGATED} without resources" if AGGREGATED in unread else None


def not_judged(control_plane: Cluster) -> str | None:
    """Reason why the webhook does not judge policies now, or None. Sends dry runs only."""
    return not_accepted(control_plane) or not_refused(control_plane)


def not_accepted(control_plane: Cluster) -> str | None:
    """Reason why a good policy is not accepted now, or None, by a dry run."""
    try:
        control_plane.apply(_POLICY, dry_run=True)
    except ApiError as error:
        return f"a good policy was refused: {error}"
    return None


def not_refused(control_plane: Cluster) -> str | None:
    """Reason why the webhook does not refuse a bad policy now, or None, by a dry run."""
    try:
        control_plane.apply({**_POLICY, "spec": {**_POLICY["spec"], "placement": _PLACEMENT_WITH_BOTH}}, dry_run=True)
    except (Invalid, Forbidden):
        return None
    except ApiError as error:
        return str(error)
    return "a policy that spreads by a field and by a label at once was accepted"


def _until(
    probe: Callable[[], str | None], who: str, does: str, timeout_seconds: float, say: Say, served_by: Servers
) -> None:
    trouble = wait_for(probe, who, timeout=timeout_seconds, progress=say, served_by=served_by)
    if trouble:
        raise ProblemsError(
            Problem(
                what=f"waited {timeout_seconds:.0f} s in vain until {who} {does}: {trouble}",
                where="control plane",
                remedy="look at the pods it names, then run the playbook again: it goes on where it stopped",
                reason=Reason.NOT_READY_IN_TIME,
            ),
            consequence="what was done so far stays",
        )
