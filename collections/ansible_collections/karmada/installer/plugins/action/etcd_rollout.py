# SPDX-License-Identifier: Apache-2.0
"""Members of etcd replaced, one at a time. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils import etcd_rollout
from ansible_collections.karmada.installer.plugins.plugin_utils.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.components import ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.readiness import reason_not_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Object, Run
from ansible_collections.karmada.installer.plugins.plugin_utils.wait import wait_until


class ActionModule(KarmadaAction):
    """Bring every member to what the StatefulSet says, never risking the majority."""

    OPTIONS: ClassVar[dict[str, Any]] = {"timeout": {"type": "int", "default": 300}}

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Each round looks again: what was true before a member was replaced need not be true after it."""
        changes: list[Change] = []
        while True:
            stateful_set, pods = _observe(run)
            due = etcd_rollout.outdated(stateful_set, pods) if stateful_set else []
            if not due:
                return changed_result(changes)
            if run.check:
                return changed_result(_replacement(pod) for pod in due)
            changes.append(_replace(run, due[0], pods, arguments["timeout"]))


def _observe(run: Run) -> tuple[Object | None, list[Object]]:
    selector = ",".join(f"{key}={value}" for key, value in run.instance.selector(ETCD.name).items())
    stateful_set = run.host.get("apps/v1", "StatefulSet", run.instance.object_name(ETCD.name), run.namespace)
    return stateful_set, list(run.host.list("v1", "Pod", run.namespace, labels=selector))


def _replacement(pod: Object) -> Change:
    return Change(Ref.of(pod), "changed", pod["metadata"]["uid"])


def _replace(run: Run, pod: Object, pods: list[Object], timeout: float) -> Change:
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    reason = etcd_rollout.reason_not_to_replace(pod, pods, run.state.etcd.storage)
    if reason:
        raise ProblemsError(
            Problem(
                what=f"it runs with older settings and cannot be replaced: {reason}",
                where=f"Pod {run.namespace}/{name}",
                remedy="mend what is not ready and run the playbook again; where the data is in the pods, settings "
                "cannot be changed, so set them back",
            ),
            consequence="etcd goes on as it is",
        )
    run.say(f"replacing etcd member {name}; the others stay")
    with run.writing(f"replace etcd member {name}"):
        run.host.delete("v1", "Pod", name, run.namespace, uid=uid)
        wait_until(
            run.host,
            [Ref.of(pod)],
            timeout=timeout,
            progress=run.say,
            not_ready=lambda live, related: (
                "the old pod is still there" if live["metadata"]["uid"] == uid else reason_not_ready(live, related)
            ),
        )
    return _replacement(pod)
