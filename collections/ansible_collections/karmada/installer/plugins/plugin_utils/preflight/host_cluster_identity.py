# SPDX-License-Identifier: Apache-2.0
"""Identity of the host cluster, so that a kubeconfig that leads elsewhere makes no second control plane."""

from __future__ import annotations

from collections.abc import Iterable

from ..problems import Problem, Reason
from ..run.run import Run

#: Variable by which a run confirms another host cluster.
CONFIRMATION = "karmada_confirm_host_cluster"


def problems(run: Run, confirmed: str) -> Iterable[Problem]:
    """Problem if the last report or the state names another host cluster than the one that answers.

    ``confirmed`` is the UID of a host cluster that is meant all the same. A cluster whose UID the account may not read,
    and one that nothing names, count as right.
    """
    here = run.place.host_cluster_uid
    known = {
        f"the report {run.connection.report_output}": str(run.former_report.get("hostClusterUID") or ""),
        "the installer's state there": run.stored_state.host_cluster if run.stored_state else "",
    }
    others = [f"{who} ({uid})" for who, uid in known.items() if uid not in ("", here)]
    if here and others and confirmed != here:
        named = " and ".join(others)
        yield Problem(
            what=f"it is another cluster ({here}) than the one that control plane {run.name} is in by {named}",
            where=f"host cluster at {run.host_cluster.access.server}",
            remedy="Check where the kubeconfig leads. If the document is meant for this cluster from now on, name it: "
            f"-e {CONFIRMATION}={here}. What is in the other one stays there.",
            reason=Reason.OTHER_HOST_CLUSTER,
        )
