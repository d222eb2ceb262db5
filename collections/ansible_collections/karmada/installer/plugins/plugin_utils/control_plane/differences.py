# SPDX-License-Identifier: Apache-2.0
"""Comparison of etcd and the control plane with the document, to skip the steps that bring them up. Reads only.

Each of these steps compares by itself and changes nothing if nothing differs. Comparing everything at once takes a
third of the time of the single steps, and most runs find nothing. Doubt counts as a difference: then the steps compare,
act, and report problems.

For a control plane on plain hosts it covers only the objects inside; the hosts have their own comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from .. import private_file
from ..api_object import Object
from ..components.state import COLLECTION_VERSION
from ..components.table import BY_NAME, ETCD, pod_components
from ..document import manifest, overlay
from ..etcd import external as external_etcd
from ..etcd.rollout import next_round, reason_not_settled
from ..kube.apply import Comparison, compare
from ..kube.errors import ApiError
from ..kube.objects import Ref
from ..kube.readiness import reason_not_ready
from ..problems import ProblemsError
from ..run import manager
from ..run.run import Run
from . import admin_kubeconfig, probes, removal, stages


def differences(run: Run, asked_of_etcd: Sequence[str] = ()) -> list[str]:
    """Reasons found first why the steps are needed, in words; empty if all of them may be skipped.

    ``asked_of_etcd`` are the names of members of etcd that are to be replaced, and of nodes that are given up.

    It can be empty only for a control plane that a completed run has brought to the same document before.
    """
    reason = _reason_without_looking(run)
    if asked_of_etcd and not reason:
        reason = f"{', '.join(asked_of_etcd)}: to be replaced"
    if reason:
        return [reason]
    try:
        # While the pods differ, the objects inside say little.
        outside = list(_in_host_cluster(run)) if run.place.in_pods else []
        return outside or [*_in_control_plane(run), *_file(run), *_beside_object(run)]
    except (ApiError, ProblemsError) as error:
        return [str(error)]


def _reason_without_looking(run: Run) -> str:
    stored = run.stored_state
    reasons = {
        "a check tells what each step would do": run.check,
        "it is not installed": stored is None or stored.document is None,
        "the run before did not come to its end": stored and stored.journal.interrupted,
        "the document is another one than the last run had": stored
        and manifest.differs(run.deployment, stored.document),
        "the last run was by another version of this collection": stored and stored.collection != COLLECTION_VERSION,
        "etcd is looked at by steps of its own": run.place.etcd_apart or external_etcd.is_named(run),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _in_host_cluster(run: Run) -> Iterator[str]:
    names = [name for name, each in BY_NAME.items() if not (each.per_member and each.is_wanted(run.spec))]
    wanted = [each.name for each in pod_components(run.spec) if each.name in names]
    objects = [*run.workloads(wanted), admin_kubeconfig.secret(run)]
    compared = compare(run.host_cluster, overlay.laid_over(objects, run.overlays))
    changes = [each.change for each in compared]
    yield from differing(compared)
    yield from (f"{ref} is not on record" for ref in run.unrecorded(changes))
    yield from _unwanted(run.ours_in_host_cluster(removal.unwanted(run, names, changes)))
    if not run.state.etcd.bootstrapped:
        yield "etcd has not worked yet"
    yield from _outdated_members(run, [each.live for each in compared if each.live])


def _outdated_members(run: Run, live: Sequence[Object]) -> Iterator[str]:
    """Reasons that concern etcd members which run with older settings."""
    pods = run.host_cluster.list("v1", "Pod", run.namespace, labels=run.instance.pod_selector(ETCD.name))
    for stateful_set in (each for each in live if each["kind"] == "StatefulSet"):
        unsettled = reason_not_settled(stateful_set)
        if unsettled:
            yield unsettled
        elif next_round(stateful_set, pods, run.state.etcd.storage).outdated:
            yield "members of etcd run with older settings"


def _in_control_plane(run: Run) -> Iterator[str]:
    objects = [each for stage in stages.STAGES for each in stages.objects(run, stage)]
    yield from differing(compare(run.control_plane, objects))
    yield from _unwanted(run.ours_in_control_plane(stages.switched_off(run)))
    probes.aggregated_api_answers(run.control_plane, 0, run.say)
    if run.spec.installs_crd:
        probes.webhook_judges(run.control_plane, 0, run.say)


def _file(run: Run) -> Iterator[str]:
    """Reason if the administrator's kubeconfig on this machine is missing or outdated."""
    path = run.connection.kubeconfig_output
    if path and private_file.write(Path(path), admin_kubeconfig.for_person(run), check=True):
        yield f"{path} is not as it should be"


def _beside_object(run: Run) -> Iterator[str]:
    beside = admin_kubeconfig.beside_object(run)
    return differing(compare(manager.home(run), [beside])) if beside else iter(())


def differing(compared: Iterable[Comparison]) -> Iterator[str]:
    """Objects that are not as they should be, or not ready, each with its reason."""
    for each in compared:
        if each.change.action != "unchanged" or each.live is None:
            yield f"{each.change.ref} is {'missing' if each.live is None else 'not as it should be'}"
        elif reason := reason_not_ready(each.live):
            yield f"{each.change.ref}: {reason}"


def _unwanted(found: Iterable[tuple[Ref, str | None]]) -> Iterator[str]:
    return (f"{ref} is not wanted" for ref, _uid in found)
