# SPDX-License-Identifier: Apache-2.0
"""Ready or not, and the reason a user reads."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.readiness import (
    crashing,
    hopeless,
    reason_not_ready,
)


def deployment(generation: int = 1, **status: Any) -> dict[str, Any]:
    meta = {"name": "a", "generation": generation}
    return {
        "kind": "Deployment",
        "metadata": meta,
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 1, **status},
    }


GOOD = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        (deployment(**GOOD), None),
        (deployment(2, **GOOD), "has not looked at this version"),
        (deployment(**{**GOOD, "updatedReplicas": 1}), "1 of 2 replicas are updated"),
        (deployment(**{**GOOD, "replicas": 3}), "1 replicas of the old version"),
        (deployment(**{**GOOD, "availableReplicas": 1}), "1 of 2 replicas are available"),
        ({**deployment(), "spec": {"replicas": 0}}, None),
        ({**deployment(**GOOD), "metadata": {"name": "a", "deletionTimestamp": "T"}}, "being deleted"),
    ],
)
def test_a_deployment(obj: dict[str, Any], reason: str | None) -> None:
    found = reason_not_ready(obj)
    assert found is None if reason is None else reason in str(found)


@pytest.mark.parametrize(
    "message",
    [
        'pods "a-1" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2',
        # of clusters that keep the system classes to kube-system, in the words of Kubernetes' quota admission
        'pods "a-1" is forbidden: insufficient quota to match these scopes: [{PriorityClass In [x]}]',
        'pods "a-1" is forbidden: no PriorityClass with name high was found',
        'pods "a-1" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true',
    ],
)
def test_a_deployment_whose_pods_are_refused_says_by_what_once_and_is_beyond_hope(message: str) -> None:
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    refused = deployment(updatedReplicas=0, conditions=[condition])
    event = {
        "kind": "Event",
        "type": "Warning",
        "reason": "FailedCreate",
        "message": f"Error creating: {message}",
        "metadata": {"name": "a.1"},
    }
    told = str(reason_not_ready(refused, [event]))
    assert told == f"0 of 2 replicas are updated; its pods are refused: {message}"
    assert hopeless(refused) == message
    # a service account that is made a moment later is told so as well
    waiting = {**condition, "message": 'pods "a-1" is forbidden: error looking up service account a/default'}
    assert hopeless(deployment(updatedReplicas=0, conditions=[waiting])) is None


def stateful_set(spec: dict[str, Any], **status: Any) -> dict[str, Any]:
    given = {"observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "updateRevision": "v2", **status}
    return {
        "kind": "StatefulSet",
        "metadata": {"name": "e", "generation": 1},
        "spec": {"replicas": 3, **spec},
        "status": given,
    }


ROLLING = {"updateStrategy": {"type": "RollingUpdate"}}


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        (stateful_set(ROLLING, updatedReplicas=3, currentRevision="v2"), None),
        (stateful_set(ROLLING, updatedReplicas=1, currentRevision="v1"), "1 of 3 replicas are updated"),
        (stateful_set(ROLLING, readyReplicas=2, updatedReplicas=3), "2 of 3 replicas are ready"),
        (stateful_set(ROLLING, replicas=5, updatedReplicas=3), "5 replicas are there and 3 are wanted"),
        # With OnDelete the update is the business of whoever deletes the pods.
        (stateful_set({"updateStrategy": {"type": "OnDelete"}}, updatedReplicas=0, currentRevision="v1"), None),
        (
            stateful_set(
                {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}, updatedReplicas=1
            ),
            None,
        ),
    ],
)
def test_a_stateful_set(obj: dict[str, Any], reason: str | None) -> None:
    found = reason_not_ready(obj)
    assert found is None if reason is None else reason in str(found)


def conditioned(kind: str, type_: str, status: str, message: str = "m") -> dict[str, Any]:
    conditions = [{"type": type_, "status": status, "reason": "R", "message": message}]
    return {"kind": kind, "metadata": {"name": "x"}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("kind", "type_"),
    [("APIService", "Available"), ("CustomResourceDefinition", "Established"), ("Cluster", "Ready"), ("Node", "Ready")],
)
def test_kinds_that_report_a_condition(kind: str, type_: str) -> None:
    assert reason_not_ready(conditioned(kind, type_, "True")) is None
    assert reason_not_ready(conditioned(kind, type_, "False")) == f"{type_} is False (R: m)"
    assert reason_not_ready({"kind": kind, "metadata": {"name": "x"}}) == f"{type_} is not reported yet"


def test_what_a_condition_quotes_is_shown_without_what_a_terminal_obeys() -> None:
    ready = {"type": "Ready", "status": "False", "reason": "Gone", "message": "\x1b]0;owned\x07not\rreachable\u202e"}
    found = reason_not_ready({"kind": "Cluster", "metadata": {"name": "m1"}, "status": {"conditions": [ready]}})
    assert found
    assert "reachable" in found
    assert not {"\x1b", "\r", "\u202e", "\x07"} & set(found)


def test_other_kinds() -> None:
    assert reason_not_ready({"kind": "ConfigMap", "metadata": {"name": "x"}}) is None
    assert reason_not_ready({"kind": "Namespace", "metadata": {"name": "x"}, "status": {"phase": "Active"}}) is None
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "x"}, "spec": {}, "status": {"phase": "Pending"}}
    assert reason_not_ready(claim) == "it is Pending (storage class not set)"
    assert reason_not_ready(conditioned("Job", "Complete", "True")) is None
    assert "it failed: too often" in str(reason_not_ready(conditioned("Job", "Failed", "True", "too often")))
    assert hopeless(conditioned("Job", "Failed", "True", "too often"))


def pod(name: str = "p", **state: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "registry/x:1", "ready": False, **state}
    status = {"phase": "Pending", "containerStatuses": [container]}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {}, "status": status}


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (
            pod(state={"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}),
            "registry/x:1 (no such tag)",
        ),
        (pod(state={"running": {}}), "container c: runs, its readiness probe does not pass yet"),
        (pod(state={"terminated": {"exitCode": 1, "reason": "Error"}}), "exit code 1"),
        (
            {
                **pod(),
                "status": {
                    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes: no room"}]
                },
            },
            "no node for it: 0/3 nodes: no room",
        ),
    ],
)
def test_the_cause_is_told_with_the_symptom(one: dict[str, Any], text: str) -> None:
    found = str(reason_not_ready(deployment(**{**GOOD, "availableReplicas": 1}), [one]))
    assert found.startswith("1 of 2 replicas are available; pod p: ")
    assert text in found


def test_the_newest_warnings_are_told_once() -> None:
    def event(message: str, when: str, type_: str = "Warning") -> dict[str, Any]:
        meta = {"name": message}
        return {
            "kind": "Event",
            "metadata": meta,
            "type": type_,
            "reason": "R",
            "message": message,
            "lastTimestamp": when,
        }

    events = [event("old", "T1"), event("new", "T9"), event("new", "T8"), event("b", "T5"), event("c", "T4")]
    found = str(reason_not_ready(deployment(), [*events, event("fine", "T9", "Normal")]))
    assert found.endswith("event R: new; event R: b; event R: c")
    repeated = event("Error: ErrImagePull", "T9")
    found = str(reason_not_ready(deployment(), [pod(state={"waiting": {"reason": "ErrImagePull"}}), repeated]))
    assert "event" not in found


def test_an_image_that_is_asked_for_in_vain_again_and_again_is_told_once() -> None:
    def refused(port: int) -> str:
        return f"failed to resolve: lookup r.example on 10.0.0.1:53: read udp 10.0.0.2:{port}->10.0.0.1:53: refused"

    def event(text: str) -> dict[str, Any]:
        message = f'Failed to pull image "r.example/a:v1": {text}'
        return {"kind": "Event", "metadata": {"name": "e"}, "type": "Warning", "reason": "Failed", "message": message}

    waiting = pod(state={"waiting": {"reason": "ErrImagePull", "message": refused(40001)}})
    events = [event(refused(port)) for port in (40001, 40002, 40003)]
    found = str(reason_not_ready(deployment(), [waiting, *events, event("denied"), event("denied")]))
    assert found.count("refused") == 1
    assert found.endswith('event Failed: Failed to pull image "r.example/a:v1": denied')


@pytest.mark.parametrize("reason", ["ErrImageNeverPull", "InvalidImageName"])
def test_images_that_never_come_are_hopeless(reason: str) -> None:
    assert reason in str(hopeless(deployment(), [pod(state={"waiting": {"reason": reason}})]))
    assert hopeless(deployment(), [pod(state={"waiting": {"reason": "ImagePullBackOff"}})]) is None


@pytest.mark.parametrize(
    ("reason", "other"), [("ErrImagePull", "ImagePullBackOff"), ("ImagePullBackOff", "ErrImagePull")]
)
def test_an_event_with_the_other_word_for_an_image_that_is_not_pulled_adds_nothing(reason: str, other: str) -> None:
    about = {"kind": "Event", "metadata": {"name": "e"}, "type": "Warning", "reason": "Failed"}
    waits = pod(state={"waiting": {"reason": reason, "message": "no such tag"}})
    told = str(reason_not_ready(deployment(), [waits, {**about, "message": f"Error: {other}"}]))
    assert told.endswith("(no such tag)")
    told = str(reason_not_ready(deployment(), [waits, {**about, "message": "Error: no disk"}]))
    assert told.endswith("event Failed: Error: no disk")


def test_refused_pods_are_hopeless_unless_the_account_is_only_late() -> None:
    quota = 'pods "a" is forbidden: exceeded quota: q'
    assert hopeless(conditioned("Deployment", "ReplicaFailure", "True", quota)) == quota
    late = 'pods "a" is forbidden: error looking up service account ns/a: serviceaccount "a" not found'
    assert hopeless(conditioned("Deployment", "ReplicaFailure", "True", late)) is None
    event = {"kind": "Event", "metadata": {"name": "e"}, "reason": "FailedCreate", "message": quota}
    assert hopeless({"kind": "StatefulSet", "metadata": {"name": "e"}}, [event]) == quota


def test_only_failed_runs_have_logs_worth_reading() -> None:
    crashed = pod("crashed", state={"waiting": {}}, lastState={"terminated": {"exitCode": 2}})
    assert crashing([crashed, pod("waits", state={"waiting": {}})]) == [("crashed", "c")]
