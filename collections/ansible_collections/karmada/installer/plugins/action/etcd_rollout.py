# SPDX-License-Identifier: Apache-2.0
"""Members of etcd replaced, one at a time. Documentation: the module of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD, pod_components
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.rollout import (
    Round,
    next_round,
    reason_not_settled,
    with_next_revision,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref, with_applied_hash
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.readiness import reason_not_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import wait_until
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Bring every member to what the StatefulSet says, never risking the majority."""

    OPTIONS: ClassVar[dict[str, Any]] = {"timeout": {"type": "int", "default": 300}}

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Each round looks again: what was true before a member was replaced need not be true after it."""
        changes: list[Change] = []
        if ETCD not in pod_components(run.spec):
            return changed_result(changes)  # it is somebody else's, or on hosts
        while True:
            stateful_set, pods = observe(run, arguments["timeout"])
            this = next_round(stateful_set, pods, run.state.etcd.storage) if stateful_set else Round()
            if not this.outdated:
                return changed_result(changes)
            if this.refused:
                raise _refusal(run, this)
            if run.check:
                return changed_result(_replacement(pod) for pod in this.outdated)
            changes += _replace(run, this.replace, arguments["timeout"])


def observe(run: Run, timeout: float) -> tuple[Object | None, list[Object]]:
    """The StatefulSet, once its controller has looked at it, and the pods of the members.

    In check mode the settings of this run are not there yet: it is the StatefulSet as it would be with them.
    """
    ref = Ref("apps/v1", "StatefulSet", run.instance.object_name(ETCD.name), run.namespace)
    if not run.check:
        wait_until(
            run.host,
            [ref],
            timeout=timeout,
            progress=run.say,
            not_ready=lambda live, _related: reason_not_settled(live),
        )
    selector = ",".join(f"{key}={value}" for key, value in run.instance.selector(ETCD.name).items())
    stateful_set = run.host.get(ref.api_version, ref.kind, ref.name, ref.namespace)
    if run.check and stateful_set:
        stateful_set = with_next_revision(stateful_set, _template_to_be(run))
    return stateful_set, list(run.host.list("v1", "Pod", run.namespace, labels=selector))


def _template_to_be(run: Run) -> Object:
    """The pod template that the document calls for, with the defaults of the API server."""
    objects = workloads.component_objects(run.instance, ETCD, run.layout, run.material, run.state.etcd)
    wanted = next(each for each in objects if each["kind"] == "StatefulSet")
    template: Object = run.host.apply(with_applied_hash(wanted), dry_run=True).object["spec"]["template"]
    return template


def _replacement(pod: Object) -> Change:
    return Change(Ref.of(pod), "changed", pod["metadata"]["uid"])


def _refusal(run: Run, refused: Round) -> ProblemsError:
    return ProblemsError(
        Problem(
            what=f"it runs with older settings and cannot be replaced: {refused.refused}",
            where=f"Pod {run.namespace}/{refused.outdated[0]['metadata']['name']}",
            remedy="mend what is not ready and run the playbook again; where the data is in the pods, settings cannot "
            "be changed, so set them back",
        ),
        consequence="etcd goes on as it is",
    )


def _replace(run: Run, pods: Sequence[Object], timeout: float) -> list[Change]:
    names = ", ".join(pod["metadata"]["name"] for pod in pods)
    old = {pod["metadata"]["uid"] for pod in pods}
    run.say(f"replacing etcd {'member' if len(pods) == 1 else 'members'} {names}")
    with run.writing(f"replace etcd {names}"):
        for pod in pods:
            metadata = pod["metadata"]
            run.host.delete("v1", "Pod", metadata["name"], run.namespace, uid=metadata["uid"])
        wait_until(
            run.host,
            [Ref.of(pod) for pod in pods],
            timeout=timeout,
            progress=run.say,
            not_ready=lambda live, related: (
                "the old pod is still there" if live["metadata"]["uid"] in old else reason_not_ready(live, related)
            ),
        )
    return [_replacement(pod) for pod in pods]
