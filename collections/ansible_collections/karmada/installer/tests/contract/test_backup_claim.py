# SPDX-License-Identifier: Apache-2.0
"""The pod that serves a volume claim with backups, as a real API server takes it, and what one without nodes tells.

How it serves is in the unit tests, where the command of its container runs for real.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import claim, series
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import RECORD
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.render import backup_claim
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer
from ansible_collections.karmada.installer.tests.unit.support import backup_series, samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run

TARGET = {"persistentVolumeClaim": {"claimName": "backups", "image": "python:3.12"}}


@pytest.fixture
def restricted(cluster: Cluster, namespace: str) -> str:
    """A namespace that admits restricted pods only, and has the claim."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "backups", "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    return namespace


@pytest.fixture
def run(cluster: Cluster, restricted: str) -> Iterator[Run]:
    found = fake_run(samples.document({}, namespace=restricted), cluster)  # type: ignore[arg-type]
    found.go_on_with(samples.state())
    yield found
    found.close()


def opened(run: Run) -> Any:
    (found,) = backups.resolved([backup_series.document(target=TARGET)], run.deployment)
    return series.opened(run, Wanted.of(found))


@pytest.mark.parametrize("node", ["", "node-a"])
@pytest.mark.parametrize("spec", [{}, samples.EVERYTHING], ids=["least", "everything"])
def test_it_is_admitted_where_pods_may_do_least(
    api_server: ApiServer, restricted: str, node: str, spec: dict[str, Any]
) -> None:
    served = backup_claim.Served("backups", "site-a/prod", RECORD, "0" * 64)
    instance = samples.quickly_rendered(spec, namespace=restricted).instance
    pod = backup_claim.pod(instance, "prod-backup-claim-1f3a9c", "python:3.12", served, node)
    # A class of priority that the document names has to be there; this is about the form of the pod.
    pod["spec"].pop("priorityClassName", None)
    path = f"/api/v1/namespaces/{restricted}/pods?dryRun=All&fieldValidation=Strict"
    status, answer = api_server.request("POST", path, pod)
    assert (status, answer.get("message")) == (201, None)
    assert answer["spec"]["containers"][0]["command"] == pod["spec"]["containers"][0]["command"]


def test_one_that_never_begins_is_told_with_claim_and_pod_and_goes(
    run: Run, cluster: Cluster, restricted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "READY_SECONDS", 1.0)
    with pytest.raises(ProblemsError) as error:
        opened(run).names()
    (problem,) = error.value.problems
    assert problem.reason is Reason.BACKUP_TARGET_UNUSABLE
    assert problem.where == f"PersistentVolumeClaim {restricted}/backups"
    assert "pod prod-backup-claim-" in problem.what
    assert "it is Pending" in problem.what
    assert cluster.list("v1", "Pod", restricted) == []


def test_one_that_policies_do_not_admit_is_told(
    run: Run, cluster: Cluster, restricted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = backup_claim.pod

    def privileged(*given: Any) -> Any:
        found = rendered(*given)
        found["spec"]["hostNetwork"] = True
        return found

    monkeypatch.setattr(backup_claim, "pod", privileged)
    with pytest.raises(ProblemsError) as error:
        opened(run).names()
    (problem,) = error.value.problems
    assert problem.reason is Reason.MISSING_PERMISSION
    assert "violates PodSecurity" in problem.what
    assert "let policies and quotas admit the pod" in problem.remedy
    assert cluster.list("v1", "Pod", restricted) == []
